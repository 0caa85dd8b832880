"""Record small files with real versions of perun on stand-in sensors, and the true energies.

    python record.py NAME…          (as root, for mount and host names of its own; needs uv)

makes the named recordings (all, without names) anew, each `NAME.hdf5`, and updates truth.json. perun
itself is not patched: it finds stand_ins/ as its NVML and AMD SMI modules, and files that this
script feeds where the kernel's RAPL counters and hwmon powers are. Each version gets an environment
of its own in a temporary folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

HERE = Path(__file__).parent
STAND_INS = HERE / "stand_ins"
sys.path.insert(0, str(STAND_INS))
import waves  # noqa: E402

CLASS = Path("/sys/class")
PERIOD_S = 0.25
PROGRAM_S = 5.0
PACKAGE_RANGE_UJ, DRAM_RANGE_UJ = 262_143_328_850, 65_712_999_613
FEED_S = 0.001
# In s since perun's first sample, about.
WRAP_S = 3.0
UNREADABLE_S = (1.5, 2.1)

UNUSED = "CPU_FREQ.* NET_.* DISK_.* .*_CLOCK_.* .*_MEM RAM_USAGE CPU_USAGE_[1-9].*"


Feed = tuple[int, Callable[[float], str]]
"""An open file and what to write to it at a time since the start."""


@dataclass(frozen=True)
class Job:
    """What is recorded: by which perun, on which machine, doing what."""

    version: str
    nvml: bool = True
    amd: bool = False
    rapl: bool = True
    dram: bool = True
    grace: bool = False
    hosts: int = 1
    runs: int = 1
    rounds: int = 1
    fails: bool = False
    unreadable: bool = False


JOBS: dict[str, Job] = {}
for version in ("0.8.10", "0.9.1"):
    JOBS[f"perun-{version}-node"] = Job(version)
    JOBS[f"perun-{version}-hosts"] = Job(version, hosts=2, dram=False)
    JOBS[f"perun-{version}-runs"] = Job(version, runs=2, rounds=2, rapl=False)
    JOBS[f"perun-{version}-failed"] = Job(version, fails=True, rapl=False)
    JOBS[f"perun-{version}-unreadable"] = Job(version, unreadable=True, nvml=False, amd=True)
JOBS["perun-1.0.0-amd"] = Job("1.0.0", nvml=False, amd=True, dram=False)
JOBS["perun-1.0.0-grace"] = Job("1.0.0", rapl=False, grace=True)


def main(names: list[str]) -> None:
    """Make recordings in mount namespaces of their own."""
    truth = HERE / "truth.json"
    with tempfile.TemporaryDirectory() as folder:
        for name in names or list(JOBS):
            python = _environment(Path(folder), JOBS[name].version)
            inside = [sys.executable, __file__, "--inside", name, str(python)]
            made = subprocess.run(["unshare", "-m", *inside], check=True, stdout=subprocess.PIPE)
            known = json.loads(truth.read_text()) if truth.exists() else {}
            known[name] = json.loads(made.stdout.splitlines()[-1])
            truth.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
            print(name, (HERE / f"{name}.hdf5").stat().st_size, "bytes")


def _environment(folder: Path, version: str) -> Path:
    """Return the python of an environment with a version of perun, made where it is not there."""
    python = folder / version / "bin" / "python"
    if not python.exists():
        subprocess.run(["uv", "venv", "-q", "-p", "3.11", folder / version], check=True)
        wanted = [f"perun=={version}", "mpi4py>=4.1", "mpich"]
        only_wheels = ["--only-binary", "mpi4py,mpich"]
        install = ["uv", "pip", "install", "-q", "-p", python, *only_wheels, *wanted]
        subprocess.run(install, check=True)
    return python


def record(name: str, python: Path) -> dict[str, Any]:
    """Record one job in this mount namespace; the true energies of all it recorded."""
    job = JOBS[name]
    _cover_class()
    true: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as trial:
        work = Path(folder)
        first_s = _first_sample_s(job, python, Path(trial))
        feeds = _feeds(job, first_s)
        for number in range(job.runs):
            run_id = f"run{number + 1}"
            log = work / f"{run_id}.jsonl"
            start = time.time()
            with _fed(feeds, start):
                _monitor(job, python, work, run_id, start, log, PROGRAM_S)
            true[run_id] = log.read_text()
        (made,) = (work / "results").glob("*.hdf5")
        _require_wraps(made)
        shutil.copy(made, HERE / f"{name}.hdf5")
        return {run_id: _truth(job, made, run_id, reads) for run_id, reads in true.items()}


def _first_sample_s(job: Job, python: Path, work: Path) -> float:
    """Return how long perun takes to its first sample, by trial, in s."""
    seconds, log, feeds = 0.5, work / "log", _feeds(job, 0)
    for _ in range(2):
        start = time.time()
        with _fed(feeds, start):
            _monitor(job, python, work, "trial", start, log, seconds)
    return float(json.loads(log.read_text().splitlines()[-1])["t"]) - seconds


def _monitor(
    job: Job, python: Path, work: Path, run_id: str, start: float, log: Path, seconds: float
) -> None:
    (work / ".perun.ini").write_text(
        f"[monitor]\nsampling_period = {PERIOD_S}\nexclude_sensors = {UNUSED}\n"
        f"[output]\napp_name = app\nrun_id = {run_id}\ndata_out = {work / 'results'}\n"
        f"[benchmarking]\nrounds = {job.rounds}\n"
    )
    modules = work / "modules"
    modules.mkdir(exist_ok=True)
    wanted = ["waves"] + ["pynvml"] * job.nvml + ["amdsmi"] * job.amd
    for module in wanted:
        shutil.copy(STAND_INS / f"{module}.py", modules)
    shutil.copy(STAND_INS / "program.py", work)
    environment = os.environ | {
        "PYTHONPATH": str(modules),
        "STAND_IN_START": str(start),
        "STAND_IN_LOG": str(log),
        "PROGRAM_S": str(seconds),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    if job.fails:
        environment["PROGRAM_FAILS"] = "yes"
    perun = f"exec {python} -m perun monitor program.py"
    command = ["sh", "-c", perun]
    if job.hosts > 1:
        named = f"hostname node$PMI_RANK.cluster; {perun}"
        command = ["mpiexec", "-n", str(job.hosts), "unshare", "-u", "sh", "-c", named]
    done = subprocess.run(command, cwd=work, env=environment, stdout=sys.stderr)
    if done.returncode and not job.fails:
        raise SystemExit(f"perun left with {done.returncode}")


def _cover_class() -> None:
    """Make /sys/class ours, with the network's folder, which MPI looks at."""
    kept = Path(tempfile.mkdtemp())
    subprocess.run(["mount", "--bind", CLASS / "net", kept], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", CLASS], check=True)
    (CLASS / "net").mkdir()
    subprocess.run(["mount", "--bind", kept, CLASS / "net"], check=True)


def _feeds(job: Job, first_s: float) -> list[Feed]:
    return (_rapl(job, first_s) if job.rapl else []) + (_grace() if job.grace else [])


def _rapl(job: Job, first_s: float) -> list[Feed]:
    """Make RAPL's counters, of which perun takes the first sample after `first_s`."""
    feeds = []
    lost = (UNREADABLE_S[0] + first_s, UNREADABLE_S[1] + first_s)
    for socket, (package, dram) in enumerate(zip(waves.PACKAGES, waves.DRAMS, strict=True)):
        folder = CLASS / "powercap" / f"intel-rapl:{socket}"
        unreadable = lost if job.unreadable and socket == 0 else None
        wrap_s, name = WRAP_S + first_s, f"package-{socket}"
        feeds.append(_counter(folder, name, package, PACKAGE_RANGE_UJ, wrap_s, unreadable))
        if job.dram:
            inner = folder / f"intel-rapl:{socket}:0"
            feeds.append(_counter(inner, "dram", dram, DRAM_RANGE_UJ, wrap_s, None))
    return feeds


def _counter(
    folder: Path,
    name: str,
    wave: waves.Wave,
    top: int,
    wrap_s: float,
    unreadable: tuple[float, float] | None,
) -> Feed:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{top}\n")
    first = top - int(1e6 * wave.energy_j(0, wrap_s))

    def shown(t: float) -> str:
        if unreadable and unreadable[0] <= t < unreadable[1]:
            return " " * 15 + "\n"
        # Fixed width: a reader never sees half of an older, longer number.
        return f"{(first + int(1e6 * wave.energy_j(0, t))) % top:>15}\n"

    return os.open(folder / "energy_uj", os.O_CREAT | os.O_WRONLY), shown


def _grace() -> list[Feed]:
    """Make Grace's hwmon files, one device for each power as its kernel driver does."""
    feeds = []
    for number, (label, wave) in enumerate(waves.GRACE.items()):
        folder = CLASS / "hwmon" / f"hwmon{number}" / "device"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "power1_oem_info").write_text(f"{label}\n")
        file = os.open(folder / "power1_average", os.O_CREAT | os.O_WRONLY)
        feeds.append((file, lambda t, wave=wave: f"{int(1e6 * wave.power_w(t)):>15}\n"))
    return feeds


@contextmanager
def _fed(feeds: list[Feed], start: float) -> Iterator[None]:
    over = threading.Event()

    def feed() -> None:
        while not over.wait(FEED_S):
            for file, shown in feeds:
                os.pwrite(file, shown(time.time() - start).encode(), 0)

    for file, shown in feeds:
        os.pwrite(file, shown(time.time() - start).encode(), 0)
    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join()


def _truth(job: Job, path: Path, run_id: str, reads: str) -> dict[str, Any]:
    """Return for each round and host the true energies in J between first and last sample."""
    content: dict[str, Any] = {}
    with h5py.File(path) as handle:
        (app,) = handle.values()
        for round_id, group in app[f"nodes/{run_id}/nodes"].items():
            content[round_id] = {}
            for host, node in group["nodes"].items():
                sensors = node["nodes/gpu/nodes"]
                device = next(name for name in sensors if name.endswith("_POWER"))
                times = sensors[device]["raw_data/timesteps"][()].astype(float)
                begin = _first_read(reads, host, device, times)
                content[round_id][host] = _energies(job, host, begin, begin + float(times[-1]))
    return content


def _require_wraps(path: Path) -> None:
    """Leave with an error unless every counter fell while it was recorded."""

    def visit(name: str, item: Any) -> None:
        if name.endswith("alt_values") and not np.any(item[1:] < item[:-1]):
            raise SystemExit(f"{name}: did not wrap; change WRAP_S")

    with h5py.File(path) as handle:
        handle.visititems(visit)


def _first_read(reads: str, host: str, device: str, times: np.ndarray) -> float:
    """Return when the first sample was read: where the noted reads fit the recorded times."""
    noted = [json.loads(line) for line in reads.splitlines()]
    t = np.array(
        [sample["t"] for sample in noted if (sample["host"], sample["device"]) == (host, device)]
    )
    offsets = range(t.size - times.size + 1)
    misfits = [np.ptp(t[i : i + times.size] - times) for i in offsets]
    best = int(np.argmin(misfits))
    if misfits[best] > 0.02:
        raise SystemExit(f"{host}: the reads do not fit the recorded times: {misfits[best]} s")
    return float(np.median(t[best : best + times.size] - times))


def _energies(job: Job, host: str, begin: float, end: float) -> dict[str, float]:
    """Return the true energy in J of each sensor, by the name that perun gives it."""
    digits = host.split(".")[0][-1:]
    more = waves.HOST_STEP_W * int(digits) if digits.isdecimal() else 0.0
    true: dict[str, waves.Wave] = {}
    for index, wave in enumerate(waves.GPUS if job.nvml else ()):
        true[f"CUDA:{index}_POWER"] = wave._replace(mean_w=wave.mean_w + more)
    for index, wave in enumerate(waves.AMD_GPUS if job.amd else ()):
        true[f"ROCM:{waves.AMD_UUIDS[index]}_POWER"] = wave._replace(mean_w=wave.mean_w + more)
    for socket, wave in enumerate(waves.PACKAGES if job.rapl else ()):
        true[f"cpu_{socket}_package-{socket}"] = wave
    for socket, wave in enumerate(waves.DRAMS if job.rapl and job.dram else ()):
        true[f"ram_{socket}_dram"] = wave
    for number, (label, wave) in enumerate(waves.GRACE.items() if job.grace else ()):
        true[f"{label.replace(' ', '_').lower()}_hwmon{number}_power1"] = wave
    energies = {name: round(wave.energy_j(begin, end), 3) for name, wave in true.items()}
    return {"seconds": round(end - begin, 4)} | energies


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps(record(sys.argv[2], Path(sys.argv[3]))))
    else:
        main(sys.argv[1:])
