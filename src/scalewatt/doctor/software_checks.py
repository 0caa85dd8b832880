"""Python, the locked packages, the cores, MPI and perun of this machine."""

from __future__ import annotations

import json
import os
import platform
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.python_variables import shell_setup
from scalewatt.common.schema_validation import INSTALLED, PROJECT_ROOT
from scalewatt.doctor.doctor_types import (
    LIMITED,
    MISSING,
    OK,
    SET_UP,
    UNKNOWN,
    Check,
    Commands,
    Machine,
    Profile,
    unknown,
)
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses
from scalewatt.execution.command_rank import LAUNCHERS_VARIABLES, RANKS_VARIABLES
from scalewatt.execution.launcher_process import forking
from scalewatt.provenance.package_lock import (
    LOCK,
    Difference,
    differences,
    environment_name,
    installed_versions,
    locked_versions,
)
from scalewatt.recordings.concurrent_samplers import GROUP_VARIABLE, samplers_of
from scalewatt.results.text.number_format import listed

_PYTHON = (3, 11)
_COMPARABLE = (
    ("a checkout and its make setup, for numbers that others repeat",) if INSTALLED else ()
)
_NO_ROOM = (
    "More processors requested",
    "Requested node configuration",
    "step creation",
    "Unable to",
)


def check_python() -> Check:
    """Check Python's version, and name the architecture that wheels are for."""
    python, machine = platform.python_version(), platform.machine()
    found = f"Python {python} on {machine}, {sys.prefix}"
    facts = {"version": python, "machine": machine, "prefix": sys.prefix}
    if sys.version_info[:2] != _PYTHON:
        means = "the lock is made for Python 3.11: results with other versions are not comparable"
        fix, ask = () if INSTALLED else ("make setup PYTHON=python3.11",), _COMPARABLE
        return Check("python", LIMITED, found, means, fix, facts=facts, ask=ask)
    return Check("python", OK, found, needed=True, facts=facts)


def check_cores(machine: Machine, cpus_wanted: int) -> Check:
    """Check how many cores this process may use; a full node's ranks ask for `cpus_wanted`."""
    usable = len(os.sched_getaffinity(0))
    limit = cgroup_cores(machine.read("sys/fs/cgroup/cpu.max"))
    cores = min(usable, limit) if limit else float(usable)
    facts = {"usable": usable, "cgroup_limit": limit, "wanted": cpus_wanted}
    found = f"{cores:g} cores" + (" (limited by a control group)" if cores < usable else "")
    if cores < cpus_wanted:
        means = f"ranks of a full node ask for {cpus_wanted} and share them: times are not representative"
        ask = ("fewer gpus in the campaign's series, or cpus_per_rank in the cluster file",)
        return Check("cores", LIMITED, found, means, facts=facts, ask=ask)
    return Check("cores", OK, found, facts=facts)


def cgroup_cores(text: str) -> float | None:
    """Return the cores that cgroup's cpu.max allows; None for no limit."""
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    return int(words[0]) / int(words[1])


def check_packages(path: Path = LOCK) -> Check:
    """Check that the installed packages are those of the lock at `path`."""
    try:
        locked = locked_versions(path)
    except InputError as error:
        return Check(
            "packages", UNKNOWN, str(error), "whether the packages are right is undetermined"
        )
    environment = environment_name()
    return assess_packages(environment, differences(locked, installed_versions(), environment))


def assess_packages(environment: str | None, different: Sequence[Difference]) -> Check:
    """Assess differences from the lock; `environment` is training, analysis, or None if unknown."""
    facts = {"environment": environment, "differences": [asdict(one) for one in different]}
    if not different:
        return Check("packages", OK, "all as envs/lock.txt has them", facts=facts)
    shown = _first(
        f"{one.package} {one.installed or 'is missing'} (locked: {one.locked or 'none'})"
        for one in different
    )
    found = f"{len(different)} not as envs/lock.txt has them: {shown}"
    means = "results may differ from those of others; each run's provenance says so"
    fix = _install(environment, different)
    return Check("packages", LIMITED, found, means, fix, facts=facts, ask=_COMPARABLE)


def _install(environment: str | None, different: Sequence[Difference]) -> Commands:
    """Return commands that install the lock's packages here, or set .venv up if this Python is not ours."""
    if environment is None:
        return () if INSTALLED else SET_UP
    prefix = Path(sys.prefix)
    if prefix.is_relative_to(PROJECT_ROOT):
        prefix = prefix.relative_to(PROJECT_ROOT)
    beside = [one.package for one in different if one.locked is None]
    python = shlex.quote(f"{prefix}/bin/python")
    removed = (f"{python} -m pip uninstall --yes {shlex.join(beside)}",) if beside else ()
    if len(beside) == len(different):
        return removed
    return (f"envs/install.sh {shlex.quote(str(prefix))} {environment}", *removed)


# --- MPI ----------------------------------------------------------------------------------------


def check_mpi(machine: Machine, programs: Subprocesses, profile: Profile) -> list[Check]:
    """Start two ranks by the cluster file's launcher; by mpiexec where that is srun outside a job."""
    try:
        installed = version("mpi4py")
    except PackageNotFoundError:
        means = "no run can be started"
        return [Check("mpi", MISSING, "mpi4py is not installed", means, SET_UP, True)]
    cluster = profile.cluster
    where = f"launcher: in {profile.cluster_file}"
    try:
        launcher, own = launcher_here(cluster.launcher, machine.job)
    except (ValueError, LookupError) as error:
        found = f"launcher {cluster.launcher!r} is no command ({error})"
        return [Check("mpi", MISSING, found, "no run can be started", needed=True, ask=(where,))]
    command = [*launcher, *machine.probe("mpi")]
    if own and cluster.setup:
        shell = f'{shell_setup(cluster.setup)} exec "$@"'
        command = ["bash", "-c", shell, "bash", *command]
    answer = programs.run(command, machine.limits.command_s, forking(1), RANKS_VARIABLES)
    return [assess_mpi(f"mpi4py {installed}", launcher, own, answer, where)]


def launcher_here(launcher: str, job: str | None) -> tuple[list[str], bool]:
    """Return the words that start two ranks on this node, and whether they are the cluster file's.

    ValueError or LookupError where the launcher is no command.
    """
    words = shlex.split(launcher.format(gpus=2, nodes=1, ranks_per_node=2, cpus_per_rank=1))
    if not words:
        raise ValueError("it is empty")
    if Path(words[0]).name == "srun" and job is None:
        return ["mpiexec", "-n", "2"], False
    return words, True


def assess_mpi(
    installed: str, launcher: Sequence[str], own: bool, answer: Answer, where: str
) -> Check:
    """Assess what two ranks found; `own` if the launcher is the cluster file's, which `where` names."""
    started = f"`{shlex.join(launcher)}`"
    worlds = [found for found in answer.objects if "size" in found]
    facts = {"launcher": list(launcher), "is_cluster_launcher": own, "worlds": worlds}
    if answer.not_found:
        fix, ask = SET_UP, (f"{where}, a command of this machine",)
        found = f"{installed}; launcher: {answer.problem}"
        return Check("mpi", MISSING, found, "no run can be started", fix, True, facts, ask)
    if answer.timed_out:
        return unknown("mpi", f"{installed}; {started}: {answer.problem}", needed=True)
    if answer.problem and own and any(word in answer.errors for word in _NO_ROOM):
        found = f"{installed}; {started} gets no two ranks in this job: {answer.problem}"
        ask = ("again in a job with --ntasks=2 and an allocation that is free",)
        return Check("mpi", UNKNOWN, found, "the launcher was not tested", (), True, facts, ask)
    sizes = [world["size"] for world in worlds]
    if answer.problem or not sizes:
        found = f"{installed}; {started}: {answer.problem or 'no rank reported'}"
        return Check("mpi", MISSING, found, "no run can be started", (), True, facts, (where,))
    found = f"{installed}, {worlds[0]['library']}; {started} makes a world of {max(sizes)}"
    if max(sizes) != 2:
        ask = (
            f"{where}: srun --mpi=pmi2, or mpiexec of this environment (.venv/bin/mpiexec): the "
            "MPI of the wheel speaks PMI-2",
        )
        means = "ranks do not find each other: runs on more than one rank are refused"
        return Check("mpi", MISSING, found, means, (), True, facts, ask)
    if not own:
        means = "the cluster file's own launcher, srun, can only be tried inside a job"
        return Check("mpi", OK, found, means, needed=True, facts=facts)
    return Check("mpi", OK, found, needed=True, facts=facts)


# --- perun --------------------------------------------------------------------------------------


def check_perun(machine: Machine, programs: Subprocesses, powers: Mapping[str, Any]) -> list[Check]:
    """Have perun sample for a moment, unless a run is being measured here, which that would disturb."""
    try:
        installed = version("perun")
    except PackageNotFoundError:
        nothing = "no energy is recorded"
        return [Check("perun", MISSING, "not installed", nothing, SET_UP, needed=True)]
    measured = samplers_of(socket.gethostname())
    if measured:
        who = measured[0]["run"]
        return [
            unknown(
                "perun", f"perun {installed}; not tested because {who} is being measured here", True
            )
        ]
    with tempfile.TemporaryDirectory(prefix="scalewatt-doctor-") as name:
        command = machine.probe(
            "perun", name, str(machine.limits.sample_s), json.dumps(dict(powers))
        )
        # A run that begins now must not take it for a concurrent run.
        environment = {GROUP_VARIABLE: str(Path(name) / "samplers")}
        answer = programs.run(
            command, machine.limits.child_s, environment, without=LAUNCHERS_VARIABLES
        )
    return [assess_sampling(installed, answer)]


def assess_sampling(installed: str, answer: Answer) -> Check:
    """Assess what the probe of perun, of version `installed`, has sampled."""
    sampled = next((found for found in answer.objects if "sensors" in found), None)
    facts: dict[str, Any] = {"version": installed, **(sampled or {"sensors": [], "kinds": {}})}
    if sampled is None and answer.timed_out:
        return Check(
            "perun", UNKNOWN, f"perun {installed}; {answer.problem}", needed=True, facts=facts
        )
    if sampled is None:
        found = f"perun {installed} does not sample: {answer.problem or 'it left no journal'}"
        return Check("perun", MISSING, found, "no energy is recorded", SET_UP, True, facts)
    delivered = [one for one in sampled["sensors"] if one["mean"] is not None]
    if not delivered:
        found = f"perun {installed} samples, but no sensor delivered anything"
        means = "no energy is recorded, and nothing to estimate it from"
        return Check("perun", MISSING, found, means, (), True, facts, ("see gpus and rapl",))
    sensors = [f"{one['sensor']} ({one['mean']:.0f} {one['unit']})" for one in delivered]
    found = f"perun {installed} sampled {listed(sensors, 6)}"
    silent = [one["sensor"] for one in sampled["sensors"] if one["mean"] is None]
    means = f"these delivered nothing: {_first(silent, 6)}" if silent else ""
    return Check("perun", OK, found, means, needed=True, facts=facts)


def _first(words: Iterable[str], most: int = 5) -> str:
    """Return the first words with commas, and … for more."""
    found = list(words)
    return ", ".join(found[:most]) + (" …" if found[most:] else "")
