"""From perun's file of a large run to traces and energy, against reading it with plain h5py.

    python benchmarks/traces.py [--folder FOLDER] [--hosts 64] [--hours 24] [--repeats 3] [--perun]

Builds a file in the layout of perun 1.0.0: hosts × 8 sensors (4 GPUs, 2 CPUs, 2 memories) at 1 Hz,
with made values. Then, in turn and each in a process of its own: plain h5py reads the same datasets;
`scalewatt account` makes traces and energy. Prints seconds, the ratio of each pair, and the peak
memory of the accounting. Each pair runs once with the file in the page cache (warm) and once
without (cold). --perun also reads and exports the file by perun itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

STEP_S = 1.0
T0 = 1_795_000_000.0


def build(path: Path, hosts: int, samples: int) -> None:
    """Write the file: sine and noise on the GPUs' powers, counters that wrap."""
    random = np.random.default_rng(0)
    seconds = np.arange(samples)
    with h5py.File(path, "w") as handle:
        run = handle.create_group("segment-000/nodes/segment-000")
        run.attrs.update(
            {"execution_dt": "2026-11-18T12:00:00", "monitor.sampling_period": str(STEP_S)}
        )
        for number in range(hosts):
            times = (seconds + 1e-3 * random.random(samples)).astype("float32")
            node = run.create_group(f"nodes/0/nodes/n{number:04d}/nodes")
            for i in range(4):
                wave = 300e3 + 60e3 * np.sin(seconds / 50 + i)
                power = (wave + random.normal(0, 20e3, samples)).astype("uint32")
                sensor(node, "gpu", f"CUDA:{i}_POWER", times, power, ("W", 1e-3, 700e3))
            for i in range(2):
                for kind, name, watts, top in (
                    ("cpu", f"cpu_{i}_package-{i}", 150.0, 262_143_328_850),
                    ("ram", f"ram_{i}_dram", 15.0, 65_712_999_613),
                ):
                    steps = 1e6 * watts * (1 + 0.1 * random.random(samples))
                    counter = np.cumsum(steps).astype("uint64") % np.uint64(top)
                    sensor(node, kind, name, times, counter, ("J", 1e-6, top))


def sensor(
    node: h5py.Group,
    kind: str,
    name: str,
    times: np.ndarray,
    values: np.ndarray,
    facts: tuple[str, float, float],
) -> None:
    """Write one sensor; of a counter also the watts that perun 1.0.0 makes of it."""
    raw = node.create_group(f"{kind}/nodes/{name}/raw_data")
    raw.create_dataset("timesteps", data=times)
    unit, mag, top = facts
    data = raw.create_dataset("alt_values" if unit == "J" else "values", data=values)
    data.attrs.update({"unit": unit, "mag": mag, "valid_max": top, "fill": 0})
    if unit == "J":
        watts = raw.create_dataset("values", data=np.full(values.shape, 150, "float32"))
        watts.attrs.update({"unit": "W", "mag": 1.0, "valid_max": 3.4e38, "fill": -1.0})


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

    from scalewatt.energy.publish import EVENTS_SCHEMA
    from scalewatt.files import write_json, write_table

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

    from scalewatt.energy.account import write_energy

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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "peak_gib": peak}))


def perun_import_export(path: Path, folder: Path) -> None:
    """Read the file by perun and write it as perun's CSV."""
    from perun.io.io import IOFormat, exportTo, importFrom

    node = importFrom(path, IOFormat.HDF5)
    exportTo(folder / "perun-csv", node, IOFormat.CSV)


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
            f"perun's import and CSV export: {theirs['seconds']:.1f} s, "
            f"{theirs['seconds'] / ours['seconds']:.1f} times as long, peak {theirs['peak_gib']:.2f} GiB"
        )


if __name__ == "__main__":
    main()
