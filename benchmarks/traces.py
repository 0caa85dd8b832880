"""From perun's file of a large run to traces and energy, against reading it with plain h5py.

    python benchmarks/traces.py [--folder FOLDER] [--hosts 64] [--hours 24] [--repeats 3] [--perun]

Lets perun 1.0.0 write a file of hosts × 8 sensors (4 GPUs, 2 CPUs, 2 memories) at 1 Hz, with made
values. Then, in turn and each in a process of its own: plain h5py reads the same datasets;
`scalewatt account` makes traces and energy. Prints seconds, the ratio of each pair, and the peak
memory of the accounting. Each pair runs once with the file in the page cache (warm) and once
without (cold). --perun also reads the file and writes it again by perun itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

STEP_S = 1.0
T0 = 1_795_000_000.0


def build(path: Path, hosts: int, samples: int) -> None:
    """Let perun write the file: sine and noise on the GPUs' powers, counters that wrap."""
    from perun.data_model.data import DataNode, NodeType
    from perun.io.hdf5 import exportHDF5

    random = np.random.default_rng(0)
    nodes = {}
    for number in range(hosts):
        times = (np.arange(samples) + 1e-3 * random.random(samples)).astype("float32")
        found = {kind: sensors(kind, times, random) for kind in ("gpu", "cpu", "ram")}
        groups = {kind: node(kind, NodeType.DEVICE_GROUP, own) for kind, own in found.items()}
        nodes[f"n{number:04d}"] = node(f"n{number:04d}", NodeType.NODE, groups)
    one_round = node("0", NodeType.RUN, nodes)
    facts = {"execution_dt": "2026-11-18T12:00:00", "monitor.sampling_period": str(STEP_S)}
    run = DataNode("segment-000", NodeType.MULTI_RUN, facts, {"0": one_round}, processed=True)
    exportHDF5(path, node("segment-000", NodeType.APP, {run.id: run}))


def node(name: str, kind: Any, nodes: dict[str, Any]) -> Any:
    """One of perun's nodes that holds others."""
    from perun.data_model.data import DataNode

    return DataNode(name, kind, {}, nodes, processed=True)


def sensors(kind: str, times: np.ndarray, random: np.random.Generator) -> dict[str, Any]:
    """A node's four GPUs, two CPUs, or two memories as perun 1.0.0 stores them."""
    from perun.data_model.data import DataNode, NodeType, RawData
    from perun.data_model.measurement_type import Magnitude, MetricMetaData, Unit
    from perun.data_model.sensor import DeviceType

    def meta(unit: Any, mag: Any, dtype: str, top: float) -> Any:
        types = np.dtype(dtype).type
        return MetricMetaData(unit, mag, np.dtype(dtype), types(0), types(top), types(0))

    seconds = np.arange(times.size)
    clock = meta(Unit.SECOND, Magnitude.ONE, "float32", 3.4e38)
    found = {}
    for i in range(4 if kind == "gpu" else 2):
        if kind == "gpu":
            name = f"CUDA:{i}_POWER"
            power = 300e3 + 60e3 * np.sin(seconds / 50 + i) + random.normal(0, 20e3, times.size)
            own = meta(Unit.WATT, Magnitude.MILLI, "uint32", 700e3)
            raw = RawData(times, power.astype("uint32"), clock, own)
        else:
            name, watts, top = {
                "cpu": (f"cpu_{i}_package-{i}", 150.0, 262_143_328_850),
                "ram": (f"ram_{i}_dram", 15.0, 65_712_999_613),
            }[kind]
            steps = watts * (1 + 0.1 * random.random(times.size))
            counter = np.cumsum(1e6 * steps).astype("uint64") % np.uint64(top)
            power_of = meta(Unit.WATT, Magnitude.ONE, "float32", 3.4e38)
            own = meta(Unit.JOULE, Magnitude.MICRO, "uint64", top)
            raw = RawData(times, steps.astype("float32"), clock, power_of, counter, own)
        found[name] = DataNode(
            name,
            NodeType.SENSOR,
            {"uuid": f"GPU-{i}"} if kind == "gpu" else {},
            deviceType=DeviceType(kind),
            raw_data=raw,
            processed=True,
        )
    return found


def scan(path: Path) -> int:
    """Read every dataset that the accounting reads, with plain h5py."""
    names: list[str] = []
    with h5py.File(path, "r") as handle:
        handle.visititems(
            lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        return sum(handle[name][()].nbytes for name in names)


def make_run(folder: Path, hosts: int, samples: int) -> None:
    """Make the rest of a run folder: epochs of ten minutes, in four stages."""
    import pyarrow as pa

    from scalewatt.common.files import write_json, write_table
    from scalewatt.recordings.stages import EVENTS_SCHEMA

    stages = (("train", 0.8), ("evaluate_train", 0.1), ("validate", 0.09), ("checkpoint", 0.01))
    rows, now, end = [], T0, T0 + samples
    while now < end:
        for stage, share in stages:
            rows.append((0, stage, len(rows) // 4, now, now := now + 600 * share))
    columns = dict(zip(EVENTS_SCHEMA.names, zip(*rows, strict=True), strict=True))
    write_table(pa.table(columns, schema=EVENTS_SCHEMA), folder / "events.parquet")
    spec = {"configuration": "made", "repeat": 1, "nodes": hosts, "ranks_per_node": 4}
    write_json(folder / "spec.json", {**spec, "sampling_period_s": STEP_S})
    write_json(folder / "provenance.json", {"hostnames": [], "segments": []})


def timed(what: str, folder: Path, cold: bool) -> dict[str, float]:
    """Run one of the measured steps in a process of its own."""
    path = folder / "perun" / "segment-000.hdf5"
    if cold:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
    else:
        path.read_bytes()
    command = [sys.executable, __file__, "--step", what, "--folder", str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def step(what: str, folder: Path) -> None:
    """Do one step and print its seconds and the peak memory; imports are not counted."""
    import pandas  # noqa: F401 pyarrow imports it with the first list

    from scalewatt.energies.accounting.account import write_energy

    path = folder / "perun" / "segment-000.hdf5"
    started, used = time.perf_counter(), time.process_time()
    if what == "scan":
        scan(path)
    elif what == "account":
        tables = folder / "traces.parquet", folder / "energy.parquet"
        write_energy(folder, folder / "spec.json", {}, *tables)
    elif what == "perun":
        perun_import_export(path, folder)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "peak_gib": peak_gib()}))


def peak_gib() -> float:
    """This program's peak memory; getrusage would count that of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024**2


def perun_import_export(path: Path, folder: Path) -> None:
    """Read the file by perun and write it by perun again."""
    from perun.io.hdf5 import exportHDF5, importHDF5

    exportHDF5(folder / "by-perun.hdf5", importHDF5(path))


def main() -> None:
    """Parse the command line, build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--perun", action="store_true")
    parser.add_argument("--step", choices=("scan", "account", "perun"))
    options = parser.parse_args()
    if options.step:
        step(options.step, options.folder)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        measure(Path(temporary), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    """Build the file and print all comparisons."""
    samples = int(options.hours * 3600 / STEP_S)
    (folder / "perun").mkdir()
    path = folder / "perun" / "segment-000.hdf5"
    build(path, options.hosts, samples)
    make_run(folder, options.hosts, samples)
    print(
        f"{options.hosts} hosts x 8 sensors x {samples} samples = "
        f"{options.hosts * 8 * samples / 1e6:.1f} million, {path.stat().st_size / 1e6:.0f} MB"
    )
    for cold in (False, True):
        pairs = [
            (timed("scan", folder, cold), timed("account", folder, cold))
            for _ in range(options.repeats)
        ]
        ratios = [b["seconds"] / a["seconds"] for a, b in pairs]
        print(
            f"{'cold' if cold else 'warm'}: h5py {statistics.median(a['seconds'] for a, _ in pairs):.2f} s, "
            f"traces and energy {statistics.median(b['seconds'] for _, b in pairs):.2f} s "
            f"({statistics.median(b['cpu_s'] for _, b in pairs):.2f} s of processors), "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}), "
            f"peak {max(b['peak_gib'] for _, b in pairs):.2f} GiB"
        )
    size = (folder / "traces.parquet").stat().st_size
    print(
        f"traces.parquet: {size / 1e6:.0f} MB, {size / (options.hosts * 8 * samples):.2f} bytes a sample"
    )
    if options.perun:
        ours, theirs = timed("account", folder, False), timed("perun", folder, False)
        print(
            f"perun's import and HDF5 export: {theirs['seconds']:.1f} s, "
            f"{theirs['seconds'] / ours['seconds']:.1f} times as long, peak {theirs['peak_gib']:.2f} GiB"
        )


if __name__ == "__main__":
    main()
