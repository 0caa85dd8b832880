"""The doctor's checks: sensors of GPUs and CPUs, perun, MPI, Slurm, and the folders that runs write to.

Linux lets root alone read RAPL's counters since 5.10 (CVE-2020-8694): their resolution can reveal secrets
of other users' processes.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import Cluster, Device, powers
from scalewatt.common.files import try_writing
from scalewatt.common.project_files import INSTALLED
from scalewatt.common.python_variables import shell_setup
from scalewatt.execution.launch import command_path, forking
from scalewatt.recordings.telemetry import GROUP_VARIABLE, count_samplers
from scalewatt.results.text.number_format import listed
from scalewatt.scheduling.job_request import account_of, probe_request
from scalewatt.scheduling.preflight import account_problems, misfits
from scalewatt.slurm.slurm_commands import NoAnswerError

OK, WARN, FAIL = "ok", "warn", "fail"
"""All is well; runs can be made, with a limitation or a question without an answer; they cannot."""
LIMIT_S = 30
"""Time limit of each question; torch from a cold parallel file system, or a busy Slurm, takes seconds."""
SET_UP = (
    ("pip install 'scalewatt[workflow,train]'",)
    if INSTALLED
    else ("rm -f .venv/.ready && make setup", ". .venv/bin/activate")
)
"""Installs what trains and measures, whatever is there already."""


@dataclass(frozen=True)
class Check:
    """The result of a check."""

    outcome: str
    text: str
    fix: tuple[str, ...] = ()
    """Commands, or what to choose and whom to ask where no command helps."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the conclusion and other programs."""


def _check(outcome: str, text: str, *fix: str, **facts: Any) -> Check:
    return Check(outcome, text, fix, facts)


ok, warn, fail = partial(_check, OK), partial(_check, WARN), partial(_check, FAIL)
"""A check with this outcome: its text, its fixes, and its facts by name."""


@dataclass(frozen=True)
class Site:
    """A site's cluster, as seen from this machine."""

    name: str
    """As `--site` names it."""
    cluster: Cluster
    root: Path = Path("/")
    """Root of the file system with the machine's sensors."""

    @property
    def in_job(self) -> bool:
        """Whether this process is in a Slurm job."""
        return bool(os.environ.get("SLURM_JOB_ID"))

    @property
    def submits(self) -> bool:
        """Whether runs are Slurm jobs."""
        return any(device.partition for device in self.cluster.devices.values())

    @property
    def runs_here(self) -> bool:
        """Whether runs are made on this node; else they are sent to others."""
        return not self.submits or self.in_job

    @property
    def device(self) -> Device:
        """The device of this job's partition, else the first."""
        devices = list(self.cluster.devices.values())
        partition = os.environ.get("SLURM_JOB_PARTITION")
        return next((d for d in devices if partition and d.partition == partition), devices[0])

    @property
    def needs_gpu(self) -> bool:
        """Whether runs use GPUs of this node."""
        return self.runs_here and self.device.torch_device == "cuda"


class CommandFailed(Exception):
    """A command ended with an exit code; the message is the last line that it printed."""


def run(*command: str, **variables: str) -> str:
    """Output of a command with further environment variables; CommandFailed, NoAnswerError after LIMIT_S.

    `timeout` ends what the command started, too, and can be killed itself where that hangs in a driver.
    """
    from scalewatt.execution.command_rank import RANKS_VARIABLES  # not where another process asks

    inherited = {k: v for k, v in os.environ.items() if not k.startswith(RANKS_VARIABLES)}
    try:
        done = subprocess.run(
            ["timeout", "--kill-after=1", str(LIMIT_S), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S + 2,
            env={**inherited, "PATH": command_path(), **variables},
        )
        code = done.returncode
    except subprocess.TimeoutExpired:
        code = 124
    if code in (124, 137):  # ended, or killed by `timeout`
        raise NoAnswerError(f"{Path(command[0]).name} gave no answer in {LIMIT_S} s")
    if code == 127:
        raise CommandFailed(f"{command[0]} is not installed")
    if code:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {code}").splitlines()
        raise CommandFailed(lines[-1])
    return done.stdout


def call(
    function: Callable[..., Any], *arguments: str, begin: Sequence[str] = (), **variables: str
) -> dict[str, Any]:
    """Answer of a function that is called in another process, since drivers and file systems may hang.

    `begin`: words before the command, such as a launcher's, which starts the function several times.
    """
    module, name = function.__module__, function.__name__
    code = (
        f"import json, sys; from {module} import {name}; answer = {name}(*sys.argv[1:]); "
        "answer and print(json.dumps(answer), flush=True)"
    )
    output = run(*begin, sys.executable, "-c", code, *arguments, **variables)
    for line in output.splitlines():  # launchers and libraries print lines, too
        if line.startswith("{"):
            answer: dict[str, Any] = json.JSONDecoder().raw_decode(line)[0]
            return answer
    raise CommandFailed(f"{name} gave no answer")


# --- GPUs -----------------------------------------------------------------------------------------

GPU_COLUMNS = ("name", "driver_version", "power.draw", "mig.mode.current")


def nvidia_gpus() -> list[dict[str, str]]:
    """GPU_COLUMNS of each GPU; CommandFailed without a driver."""
    query = f"--query-gpu={','.join(GPU_COLUMNS)}"
    lines = run("nvidia-smi", query, "--format=csv,noheader,nounits").splitlines()
    rows = list(csv.DictReader(lines, GPU_COLUMNS, skipinitialspace=True))
    if not rows or not rows[0]["power.draw"]:
        raise CommandFailed("no GPU is let through to this job or container")
    return rows


def gpus(site: Site) -> Check:
    """Check that the power of each NVIDIA GPU can be read."""
    bad = fail if site.needs_gpu else warn
    try:
        seen = nvidia_gpus()
    except CommandFailed as error:
        text = f"no NVIDIA GPU answers ({error})"
        fix = "a driver, by the administrators; in a container: docker run --gpus all, apptainer exec --nv"
        return fail(text, fix, count=0) if site.needs_gpu else ok(text, count=0)
    count = len(seen)
    names = ", ".join(f"{n} × {name}" for name, n in Counter(gpu["name"] for gpu in seen).items())
    watts = listed((gpu["power.draw"] for gpu in seen), 8)
    text = f"{names}, driver {seen[0]['driver_version']}, now at {watts} W"
    if not all(re.match(r"[\d.]*[1-9]", gpu["power.draw"]) for gpu in seen):  # 0, or [N/A]
        text += "; without its power, the energy of a run on a GPU is unknown (null)"
        fix = "another GPU, or a host that passes its power through (nvidia-smi -q -d POWER)"
        return bad(text, fix, count=count)
    if any(gpu["mig.mode.current"] == "Enabled" for gpu in seen):
        text += "; MIG: a part of a GPU has no power of its own, so a run's energy on it is unknown"
        return warn(text, "sudo nvidia-smi -mig 0", count=count)
    return ok(text, count=count)


def torch(site: Site) -> Check:
    """Check that torch can use the GPUs."""
    text = f"torch {version('torch')}"
    try:
        count = len(nvidia_gpus())
    except CommandFailed:
        return ok(f"{text}; no GPU to use here")
    question = "import torch; print(torch.version.cuda, torch.cuda.device_count())"
    cuda, usable = run(sys.executable, "-c", question).split()[-2:]
    text += f", built for CUDA {cuda}; it can use {usable} of {count} GPUs"
    if usable != "0":
        return ok(text)
    bad = fail if site.needs_gpu else warn
    return bad(text, *SET_UP, "echo $CUDA_VISIBLE_DEVICES; nvidia-smi (a driver for this CUDA?)")


# --- CPU and memory -------------------------------------------------------------------------

POWERCAP, HWMON = "sys/class/powercap", "sys/class/hwmon"


def cpu_counters(site: Site) -> Check:
    """Check that RAPL's counters of CPUs and memory, or Grace's sensors, can be read."""
    rapl = (site.root / POWERCAP).glob("intel-rapl:*/energy_uj")
    files = [file for file in rapl if re.search("package|dram", _text(file.with_name("name")))]
    for label in (site.root / HWMON).glob("hwmon*/device/power*_oem_info"):
        if re.search(r"(CPU|Grace) Power Socket", _text(label)):
            files.append(label.with_name(label.name.replace("oem_info", "average")))
    if not files:
        fix = "sudo modprobe intel_rapl_msr; virtual machines, containers: docs/install.md"
        return warn(f"no /{POWERCAP}/intel-rapl:*: the CPU's energy is estimated", fix)
    for file in files:
        try:
            int(file.read_text())
        except (OSError, ValueError) as error:  # perun then reads none of them
            return warn(
                f"{file}: {error}: the CPU's energy is estimated",
                f"sudo chmod a+r /{POWERCAP}/intel-rapl:*/energy_uj /{HWMON}/*/device/power*_average",
                "for good, and what that discloses (CVE-2020-8694): docs/install.md",
            )
    return ok(f"counters that can be read: {len(files)}")


def _text(file: Path) -> str:
    """A file's text, empty if it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


# --- perun ----------------------------------------------------------------------------------------

PERIOD_S, SAMPLED_S = 0.2, 1.0


def perun(site: Site) -> Check:
    """Have perun sample for a moment, unless a run is being measured here, which that would disturb."""
    name = f"perun {version('perun')}"
    if count_samplers(socket.gethostname()):
        return warn(f"{name} is not tested while a run is being measured here")
    with tempfile.TemporaryDirectory(prefix="scalewatt-doctor-") as folder:
        # A run that begins now must not take it for a concurrent run.
        apart = {GROUP_VARIABLE: f"{folder}/samplers"}
        try:
            kinds = call(sample, folder, json.dumps(powers(site.device)), **apart)
        except CommandFailed as error:
            return fail(f"{name} does not sample ({error}): no energy is recorded", *SET_UP)
    texts = [
        f"{listed(kind['sensors'], 4)} ({kind['power_w']:.0f} W, {kind['origin']})"
        for kind in kinds.values()
        if kind["sensors"]
    ]
    if not texts:
        text = f"{name} samples, but no sensor delivers anything: no energy is recorded"
        return fail(text, "see gpus and cpu_counters", kinds=kinds)
    return ok(f"{name} sampled {', '.join(texts)}", kinds=kinds)


def sample(folder: str, rated: str) -> dict[str, Any]:
    """Sample this node with perun, and account for that as for a run with these `rated` powers (JSON).

    {device kind: {"origin", "sensors" that delivered something, "power_w" of all}}
    """
    from scalewatt.energies.node import Node, node_kinds, node_window
    from scalewatt.monitoring.perun_session import monitored
    from scalewatt.recordings.journal import journal_files, read_journal

    monitored(time.sleep, (SAMPLED_S,), Path(folder), "segment-000", PERIOD_S)
    recording = read_journal(journal_files(Path(folder))[0].values())
    ((host, blocks),) = recording.nodes.items()
    begin, end = node_window(blocks) or (0.0, 0.0)
    kinds = {}
    node = Node(host, blocks, PERIOD_S, window=(begin, end), powers=json.loads(rated))
    for kind in node_kinds(node):
        energies_j = {d.row.name: float(d.curve.between(begin, end)) for d in kind.devices}
        delivered = [name for name, energy_j in energies_j.items() if energy_j > 0]
        kinds[kind.device_kind] = {
            "origin": kind.origin if delivered else None,
            "sensors": delivered,
            "power_w": sum(energies_j.values()) / max(end - begin, PERIOD_S),
        }
    return kinds


# --- MPI ------------------------------------------------------------------------------------------

_NO_ROOM = "More processors requested|Requested node configuration|step creation|Unable to"
"""srun's words where a job has no room for two ranks."""


def mpi(site: Site) -> Check:
    """Start two ranks by the cluster file's launcher; by mpiexec where that is srun outside a job."""
    launcher = site.cluster.launcher.format(gpus=2, nodes=1, ranks_per_node=2, cpus_per_rank=1)
    substituted = not site.in_job and Path(shlex.split(launcher)[0]).name == "srun"
    if substituted:
        launcher = "mpiexec -n 2"
    begin = shlex.split(launcher)
    if site.cluster.setup and not substituted:
        begin = ["bash", "-c", f'{shell_setup(site.cluster.setup)} exec "$@"', "bash", *begin]
    text = f"mpi4py {version('mpi4py')}, `{launcher}`"
    try:
        world = call(meet_ranks, begin=begin, **forking(1))
    except CommandFailed as error:
        if re.search(_NO_ROOM, str(error)):
            return warn(f"{text}: {error}", "again in a job with --ntasks=2 that does nothing else")
        fix = "launcher of the cluster file: a command of this machine"
        return fail(f"{text} starts no run: {error}", *SET_UP, fix)
    text += f" makes a world of {world['size']} ({world['library']})"
    if world["size"] != 2:
        return fail(
            f"{text}: ranks that do not find each other are refused",
            "launcher of the cluster file: srun --mpi=pmi2 …, or .venv/bin/mpiexec: the wheel's MPI "
            "speaks PMI-2",
        )
    return ok(f"{text}; srun can only be tried inside a job" if substituted else text)


def meet_ranks() -> dict[str, Any] | None:
    """The size of the world and the MPI library, on rank 0."""
    from mpi4py import MPI

    hosts = MPI.COMM_WORLD.gather(socket.gethostname(), root=0)
    library = " ".join(MPI.Get_library_version().splitlines()[0].split())
    return None if hosts is None else {"size": len(hosts), "library": library}


# --- folders and Slurm ----------------------------------------------------------------------------


def folder(site: Site, name: str) -> Check | None:
    """Check that runs can write to a folder."""
    cluster = site.cluster
    named = {"work": cluster.work_root, "scratch": os.path.expandvars(cluster.scratch or "")}
    if not (path := named.get(name, name)):
        return None
    if "$" in path:  # scratch
        bad = fail if site.in_job else warn
        return bad(f"{path}: is not set here", "scratch of the cluster file; the doctor in a job")
    tried = call(probe_folder, path)
    if tried["error"]:
        text = f"{path}: cannot be written to ({tried['error']}): no run can leave its results"
        return fail(text, f"ls -ld {tried['tried']}; quota", "another folder, in the cluster file")
    text = f"{path}: {tried['free_gib']:.0f} GiB free"
    text += "" if tried["exists"] else ", created when needed"
    if tried["free_gib"] < cluster.min_free_gib and name != "data":
        least = f"nothing is started with less than {cluster.min_free_gib:g} (min_free_gib)"
        return fail(f"{text}; {least}", f"du -sh {tried['tried']}/* | sort -h")
    return ok(text)


def probe_folder(folder: str) -> dict[str, Any]:
    """Write a file and delete it: {"exists", "tried", "error", "free_gib"}.

    Where the folder does not exist, the nearest one above it is tried, and nothing is created.
    """
    path = Path(folder).absolute()
    answer: dict[str, Any] = {"exists": None, "tried": str(path), "error": None}
    try:
        tried = next(above for above in (path, *path.parents) if above.exists())
        free_gib = shutil.disk_usage(tried).free / (1 << 30)
        answer |= {"exists": tried == path, "tried": str(tried), "free_gib": free_gib}
        try_writing(tried)
    except OSError as error:  # no permission, no space, a folder above that may not be searched
        answer["error"] = error.strerror or str(error)
    return answer


def slurm(site: Site) -> Check | None:
    """Check that Slurm takes jobs of each device, charged to an account that is set."""
    if not site.submits:
        return None
    if problems := account_problems(site.cluster.account):
        return fail("; ".join(problems))
    jobs = {
        device.name: probe_request(device, site.cluster, device.time_limit_min or 0)
        for device in site.cluster.devices.values()
    }
    refused, unclear = misfits(jobs.items())
    unanswered = next((text for text in unclear if "not checked: " in text), None)
    if unanswered:
        fix = "the login node of the cluster, or `module load slurm` (ask its support)"
        return fail(f"no job can be submitted from here: {unanswered}", fix)
    if refused:
        return fail(
            "; ".join(refused),
            "account, and devices.<name>: partition, gres, cpus_per_rank as `sinfo` shows them",
        )
    names = ", ".join(dict.fromkeys(job["slurm_partition"] for job in jobs.values()))
    text = f"takes jobs of each device: {names}, account {account_of(site.cluster) or 'by default'}"
    if site.in_job:
        return ok(text)
    return ok(f"{text}; sensors are this node's, runs go to others: run the doctor in a job, too")
