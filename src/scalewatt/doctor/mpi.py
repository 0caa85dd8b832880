"""MPI: whether the launcher makes one world of two ranks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scalewatt.campaign.model import Cluster
from scalewatt.doctor.ask import Answer, Children
from scalewatt.doctor.check import MISSING, OK, UNKNOWN, Check, Mend, unknown
from scalewatt.doctor.machine import Machine

NAME = "mpi"
_PMI = ("PMI_", "PMI2_", "PMIX_", "HYDI_", "SLURM_PMI")
_NO_ROOM = (
    "More processors requested",
    "Requested node configuration",
    "step creation",
    "Unable to",
)


def ask_mpi(machine: Machine, children: Children, cluster: Cluster) -> list[Check]:
    """Start two ranks by the cluster file's launcher; by mpiexec where that is srun outside a job."""
    try:
        installed = version("mpi4py")
    except PackageNotFoundError:
        means = "no run can be started"
        return [Check(NAME, MISSING, "mpi4py is not installed", means, ("make setup",), True)]
    launcher, own = launcher_here(cluster.launcher, machine.job)
    command = [*launcher, machine.python, "-m", "scalewatt.doctor.rank_child"]
    if own and cluster.setup:
        shell = " && ".join((*cluster.setup, 'exec "$@"'))
        command = ["bash", "-c", shell, "bash", *command]
    answer = children.ask(command, machine.limits.command_s, without=_PMI)
    return [judge_mpi(f"mpi4py {installed}", launcher, own, answer)]


def launcher_here(launcher: str, job: str | None) -> tuple[list[str], bool]:
    """The words that start two ranks on this node, and whether they are the cluster file's."""
    words = shlex.split(launcher.format(gpus=2, nodes=1, ranks_per_node=2, cpus_per_rank=1))
    if Path(words[0]).name == "srun" and job is None:
        return ["mpiexec", "-n", "2"], False
    return words, True


def judge_mpi(installed: str, launcher: Sequence[str], own: bool, answer: Answer) -> Check:
    """What two ranks said; `own` where the launcher is the cluster file's."""
    started = f"`{shlex.join(launcher)}`"
    worlds = [said for said in map(_object, answer.lines) if said is not None]
    facts = {"launcher": list(launcher), "is_cluster_launcher": own, "worlds": worlds}
    if answer.is_missing:
        mend: Mend = ("make setup", "launcher: in the cluster file, a command of this machine")
        found = f"{installed}; launcher: {answer.trouble}"
        return Check(NAME, MISSING, found, "no run can be started", mend, True, facts)
    if answer.is_silent:
        return unknown(NAME, f"{installed}; {started}: {answer.trouble}", needed=True)
    if answer.trouble and own and any(word in answer.errors for word in _NO_ROOM):
        found = f"{installed}; {started} gets no two ranks in this job: {answer.trouble}"
        mend = ("ask in a job with --ntasks=2 and an allocation that is free",)
        return Check(NAME, UNKNOWN, found, "the launcher is not tried", mend, True, facts)
    sizes = [world["size"] for world in worlds]
    if answer.trouble or not sizes:
        found = f"{installed}; {started}: {answer.trouble or 'no rank said anything'}"
        mend = (shlex.join([*launcher, "python", "-m", "scalewatt.doctor.rank_child"]),)
        return Check(NAME, MISSING, found, "no run can be started", mend, True, facts)
    found = f"{installed}, {worlds[0]['library']}; {started} makes a world of {max(sizes)}"
    if max(sizes) != 2:
        mend = (
            "srun --mpi=pmi2, or mpiexec of this environment (.venv/bin/mpiexec): the MPI of the "
            "wheel speaks PMI-2",
        )
        means = "ranks do not find each other: runs on more than one rank are refused"
        return Check(NAME, MISSING, found, means, mend, True, facts)
    if not own:
        means = "the cluster file's own launcher, srun, can only be tried inside a job"
        return Check(NAME, OK, found, means, needed=True, facts=facts)
    return Check(NAME, OK, found, needed=True, facts=facts)


def _object(line: str) -> dict[str, Any] | None:
    """The JSON object of a line; launchers may print other lines between."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "size" in found else None
