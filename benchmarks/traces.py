"""Time from the recordings of a large run to its traces and energy, against a plain reading of the files.

    python benchmarks/traces.py [journals] [hdf5] [--hosts 64 …] [--hours 24] [--repeats 3] [--folder FOLDER]

journals: one CSV a node, with its GPUs' powers at 1 Hz, against `pyarrow.csv.read_csv` of each. hdf5: a file
that perun 1.0.0 writes, of 4 GPUs, 2 CPUs and 2 memories a host, against h5py reading each dataset. Each step
runs in a process of its own, in pairs, with the files in the page cache. Prints seconds, the ratio of each
pair and the peak memory; several numbers of hosts show whether the cost is linear. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
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
GOALS = {"journals": 2.5, "hdf5": 3.0}


def build_journals(folder: Path, hosts: int, gpus: int, samples: int) -> None:
    """Write the journals of all hosts: sine and noise on the powers, in mW as NVML gives them."""
    from scalewatt.recordings.journal import write_journal

    random = np.random.default_rng(0)
    facts = {"kind": "gpu", "unit": "W", "mag": 1e-3, "valid_max": 700_000}
    seconds = np.arange(samples)
    for number in range(hosts):
        host = f"n{number:04d}"
        sensors = {
            f"CUDA:{i}_POWER": {**facts, "index": i, "uuid": f"GPU-{host}-{i}"} for i in range(gpus)
        }
        mono = 1000 + STEP_S * seconds + 1e-3 * random.random(samples)
        columns = {name: gpu_mw(seconds, i, random) for i, name in enumerate(sensors)}
        about = {"host": host, "sampling_period_s": STEP_S, "sensors": sensors, "telemetry": {}}
        write_journal(folder / f"segment-000.{host}.csv", about, T0 + mono, mono, columns)


def gpu_mw(seconds: np.ndarray, index: int, random: np.random.Generator) -> np.ndarray:
    """Power of a GPU in mW."""
    wave = 300e3 + 60e3 * np.sin(seconds / 50 + index)
    return (wave + random.normal(0, 20e3, seconds.size)).astype("uint32")


def build_hdf5(path: Path, hosts: int, samples: int) -> None:
    """Let perun write the file: sine and noise on the GPUs' powers, counters that wrap."""
    from perun.data_model.data import DataNode, NodeType
    from perun.io.hdf5 import exportHDF5

    random = np.random.default_rng(0)
    nodes = {}
    for number in range(hosts):
        times = (np.arange(samples) + 1e-3 * random.random(samples)).astype("float32")
        host = f"n{number:04d}"
        found = {kind: sensors(kind, host, times, random) for kind in ("gpu", "cpu", "ram")}
        groups = {kind: node(kind, NodeType.DEVICE_GROUP, own) for kind, own in found.items()}
        nodes[host] = node(host, NodeType.NODE, groups)
    one_round = node("0", NodeType.RUN, nodes)
    facts = {"execution_dt": "2026-11-18T12:00:00", "monitor.sampling_period": str(STEP_S)}
    run = DataNode("segment-000", NodeType.MULTI_RUN, facts, {"0": one_round}, processed=True)
    exportHDF5(path, node("segment-000", NodeType.APP, {run.id: run}))


def node(name: str, kind: Any, nodes: dict[str, Any]) -> Any:
    """One of perun's nodes that holds others."""
    from perun.data_model.data import DataNode

    return DataNode(name, kind, {}, nodes, processed=True)


def sensors(kind: str, host: str, times: np.ndarray, random: np.random.Generator) -> dict[str, Any]:
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
            own = meta(Unit.WATT, Magnitude.MILLI, "uint32", 700e3)
            raw = RawData(times, gpu_mw(seconds, i, random), clock, own)
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
            {"uuid": f"GPU-{host}-{i}"} if kind == "gpu" else {},
            deviceType=DeviceType(kind),
            raw_data=raw,
            processed=True,
        )
    return found


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


def peak_gib() -> float:
    """This program's peak memory; getrusage would count that of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024**2


def plain_csv(folder: Path) -> None:
    """Parse every journal by pyarrow."""
    import pyarrow.csv

    for path in sorted(folder.glob("*.csv")):
        pyarrow.csv.read_csv(path)


def plain_hdf5(folder: Path) -> None:
    """Read every dataset by h5py."""
    names: list[str] = []
    with h5py.File(folder / "segment-000.hdf5", "r") as handle:
        handle.visititems(
            lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        for name in names:
            handle[name][()]


def step(what: str, folder: Path) -> None:
    """Do one step and print its seconds and the peak memory; imports are not counted."""
    import pandas  # noqa: F401 pyarrow imports it with the first list

    from scalewatt.energies.account import write_energy

    started, used = time.perf_counter(), time.process_time()
    if what == "account":
        tables = folder / "traces.parquet", folder / "energy.parquet"
        write_energy(folder, folder / "spec.json", {}, *tables)
    else:
        {"journals": plain_csv, "hdf5": plain_hdf5}[what](folder / "perun")
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "peak_gib": peak_gib()}))


def timed(what: str, folder: Path) -> dict[str, float]:
    """Run a step in a process of its own, with the recordings in the page cache."""
    for path in (folder / "perun").iterdir():
        path.read_bytes()
    command = [sys.executable, __file__, "--step", what, "--folder", str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measure(source: str, hosts: int, options: argparse.Namespace) -> None:
    """Build recordings of one size, measure pairs and print them."""
    samples = int(options.hours * 3600 / STEP_S)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        (folder / "perun").mkdir()
        if source == "journals":
            build_journals(folder / "perun", hosts, options.gpus, samples)
        else:
            build_hdf5(folder / "perun" / "segment-000.hdf5", hosts, samples)
        make_run(folder, hosts, samples)
        pairs = [(timed(source, folder), timed("account", folder)) for _ in range(options.repeats)]
        million = hosts * (options.gpus if source == "journals" else 8) * samples / 1e6
        traces_mb = (folder / "traces.parquet").stat().st_size / 1e6
    ratios = [ours["seconds"] / plain["seconds"] for plain, ours in pairs]
    seconds = statistics.median(ours["seconds"] for _, ours in pairs)
    print(
        f"{source}, {hosts} hosts, {million:.1f} million samples: "
        f"plain {statistics.median(plain['seconds'] for plain, _ in pairs):.2f} s, "
        f"traces and energy {seconds:.2f} s ({1e9 * seconds / million / 1e6:.0f} ns a sample), "
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}, "
        f"goal {GOALS[source]}), peak {max(ours['peak_gib'] for _, ours in pairs):.2f} GiB, "
        f"traces {traces_mb:.0f} MB"
    )


def main() -> None:
    """Parse the command line, build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="*", metavar="|".join(GOALS), help="default: both")
    parser.add_argument("--hosts", type=int, nargs="+", default=[64])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step", choices=(*GOALS, "account"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        step(options.step, options.folder)
        return
    for source in options.sources or GOALS:
        for hosts in options.hosts:
            measure(source, hosts, options)


if __name__ == "__main__":
    main()
