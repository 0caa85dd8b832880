"""Python, the locked packages, and the cores of this machine."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.doctor.host import Machine
from scalewatt.doctor.host_check import LIMITED, OK, SET_UP, UNKNOWN, Check, Mend
from scalewatt.provenance.package_lock import (
    LOCK,
    Difference,
    differences,
    environment_name,
    installed_versions,
    locked_versions,
)

_PYTHON = (3, 11)
_SHOWN = 5


def check_python() -> Check:
    """Version of Python, and the architecture that wheels are for."""
    version, machine = platform.python_version(), platform.machine()
    found = f"Python {version} on {machine}, {sys.prefix}"
    facts = {"version": version, "machine": machine, "prefix": sys.prefix}
    if sys.version_info[:2] != _PYTHON:
        means = "the lock is made for Python 3.11: results with other versions are not comparable"
        return Check(
            "python", LIMITED, found, means, ("make setup PYTHON=python3.11",), facts=facts
        )
    return Check("python", OK, found, needed=True, facts=facts)


def check_cores(machine: Machine, cpus_wanted: int) -> Check:
    """How many cores this process may use; `cpus_wanted` is what a full node's ranks ask for."""
    usable = len(os.sched_getaffinity(0))
    limit = cgroup_cores(machine.read("sys/fs/cgroup/cpu.max"))
    cores = min(usable, limit) if limit else float(usable)
    facts = {"usable": usable, "cgroup_limit": limit, "wanted": cpus_wanted}
    found = f"{cores:g} cores" + (" (limited by a control group)" if cores < usable else "")
    if cores < cpus_wanted:
        means = f"ranks of a full node ask for {cpus_wanted} and share them: times say less"
        ask = ("fewer gpus in the campaign's series, or cpus_per_rank in the cluster file",)
        return Check("cores", LIMITED, found, means, facts=facts, ask=ask)
    return Check("cores", OK, found, facts=facts)


def cgroup_cores(text: str) -> float | None:
    """The cores that cgroup's cpu.max allows; None for no limit."""
    words = text.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    return int(words[0]) / int(words[1])


def check_packages(path: Path = LOCK) -> Check:
    """Whether what is installed is what the lock at `path` names."""
    try:
        locked = locked_versions(path)
    except InputError as error:
        return Check("packages", UNKNOWN, str(error), "nobody knows whether the packages are right")
    environment = environment_name()
    return judge_packages(environment, differences(locked, installed_versions(), environment))


def judge_packages(environment: str | None, different: Sequence[Difference]) -> Check:
    """What differences from the lock mean; `environment` is training, analysis or not known."""
    facts = {"environment": environment, "differences": [asdict(one) for one in different]}
    if not different:
        return Check("packages", OK, "all as envs/lock.txt has them", facts=facts)
    shown = ", ".join(map(_said, different[:_SHOWN])) + (" …" if len(different) > _SHOWN else "")
    found = f"{len(different)} not as envs/lock.txt has them: {shown}"
    means = "results may differ from those of others; each run's provenance says so"
    return Check("packages", LIMITED, found, means, _install(environment, different), facts=facts)


def _install(environment: str | None, different: Sequence[Difference]) -> Mend:
    """What gives this Python the packages of the lock; another environment where it is none of ours."""
    if environment is None:
        return SET_UP
    prefix = Path(sys.prefix)
    if prefix.is_relative_to(PROJECT_ROOT):
        prefix = prefix.relative_to(PROJECT_ROOT)
    beside = [one.package for one in different if one.locked is None]
    python = shlex.quote(f"{prefix}/bin/python")
    removed = (f"{python} -m pip uninstall --yes {shlex.join(beside)}",) if beside else ()
    if len(beside) == len(different):
        return removed
    return (f"envs/install.sh {shlex.quote(str(prefix))} {environment}", *removed)


def _said(one: Difference) -> str:
    return f"{one.package} {one.installed or 'is missing'} (locked: {one.locked or 'none'})"
