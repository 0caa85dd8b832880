"""Time from the recordings of a large run to its traces and energy, against a plain reading of the files.

    python benchmarks/traces.py [journals] [hdf5] [--hosts 64 …] [--hours 24] [--repeats 3] [--folder FOLDER]

journals: one CSV a node, with the powers of 8 GPUs at 1 Hz, against `pyarrow.csv.read_csv` of each.
hdf5: a file in perun's layout, of 3 GPUs, a CPU and a memory a host, against h5py reading each
dataset. Each step runs in a process of its own, in pairs, with the files in the page cache. Prints
seconds, the ratio of each pair and the peak memory; several numbers of hosts show whether the cost
is linear. Needs a quiet machine.
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

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "factories"))

STEP_S = 1.0
T0 = 1_795_000_000.0
GPUS = {"journals": 8, "hdf5": 3}
SENSORS = {"journals": 8, "hdf5": 5}
GOALS = {"journals": 2.5, "hdf5": 3.0}


def build_journals(folder: Path, hosts: int, samples: int) -> None:
    """Write the journals of all hosts, in mW as NVML gives them."""
    from scalewatt.recordings.journal import write_journal

    random = np.random.default_rng(0)
    facts = {"kind": "gpu", "unit": "W", "mag": 1e-3, "valid_max": 700_000}
    for number in range(hosts):
        host = f"n{number:04d}"
        columns = gpus_mw(GPUS["journals"], samples, random)
        sensors = {
            name: {**facts, "index": i, "uuid": f"GPU-{host}-{i}"} for i, name in enumerate(columns)
        }
        mono = 1000 + STEP_S * np.arange(samples) + 1e-3 * random.random(samples)
        about = {"host": host, "sampling_period_s": STEP_S, "sensors": sensors, "telemetry": {}}
        write_journal(folder / f"segment-000.{host}.csv", about, T0 + mono, mono, columns)


def build_hdf5(folder: Path, hosts: int, samples: int) -> None:
    """Write the file of all hosts: powers of GPUs, and counters that wrap."""
    from energy_files import SENSORS, write_perun

    random = np.random.default_rng(0)
    content = {}
    for number in range(hosts):
        sensors = gpus_mw(GPUS["hdf5"], samples, random)
        for name, watts in (("cpu_0_package-0", 150), ("ram_0_dram", 15)):
            steps_uj = 1e6 * watts * (1 + 0.1 * random.random(samples))
            sensors[name] = np.cumsum(steps_uj).astype("uint64") % np.uint64(SENSORS[name][3])
        content[f"n{number:04d}"] = sensors
    times = np.arange(samples) + 1e-3 * random.random(samples)
    path = folder / "segment-000.hdf5"
    write_perun(path, content, time_s=times, run_id="segment-000", rapl_as_watts=True)


def gpus_mw(count: int, samples: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Powers of GPUs in mW, sine and noise, by perun's names of their sensors."""
    seconds = np.arange(samples)
    waves = (300e3 + 60e3 * np.sin(seconds / 50 + i) for i in range(count))
    noisy = (wave + random.normal(0, 20e3, samples) for wave in waves)
    return {f"CUDA:{i}_POWER": power_mw.astype("uint32") for i, power_mw in enumerate(noisy)}


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
        build = {"journals": build_journals, "hdf5": build_hdf5}[source]
        build(folder / "perun", hosts, samples)
        make_run(folder, hosts, samples)
        pairs = [(timed(source, folder), timed("account", folder)) for _ in range(options.repeats)]
        traces_mb = (folder / "traces.parquet").stat().st_size / 1e6
    million = hosts * SENSORS[source] * samples / 1e6
    ratios = [whole["seconds"] / plain["seconds"] for plain, whole in pairs]
    plain_s, whole_s = (statistics.median(pair[i]["seconds"] for pair in pairs) for i in (0, 1))
    print(
        f"{source}, {hosts} hosts, {million:.1f} million samples: plain {plain_s:.2f} s, "
        f"traces and energy {whole_s:.2f} s ({1e3 * whole_s / million:.0f} ns a sample), "
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}, "
        f"goal {GOALS[source]}), peak {max(whole['peak_gib'] for _, whole in pairs):.2f} GiB, "
        f"traces {traces_mb:.0f} MB"
    )


def main() -> None:
    """Parse the command line, build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="*", metavar="|".join(GOALS), help="default: both")
    parser.add_argument("--hosts", type=int, nargs="+", default=[64])
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
