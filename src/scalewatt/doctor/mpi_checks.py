"""MPI: whether the launcher makes one world of two ranks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scalewatt.doctor.host import Machine, Profile
from scalewatt.doctor.host_check import MISSING, OK, SET_UP, UNKNOWN, Check, unknown
from scalewatt.doctor.subprocess_runner import Answer, Children
from scalewatt.execution.child_process import RANKS_VARIABLES

NAME = "mpi"
_NO_ROOM = (
    "More processors requested",
    "Requested node configuration",
    "step creation",
    "Unable to",
)


def ask_mpi(machine: Machine, children: Children, profile: Profile) -> list[Check]:
    """Start two ranks by the cluster file's launcher; by mpiexec where that is srun outside a job."""
    try:
        installed = version("mpi4py")
    except PackageNotFoundError:
        means = "no run can be started"
        return [Check(NAME, MISSING, "mpi4py is not installed", means, SET_UP, True)]
    cluster = profile.cluster
    where = f"launcher: in {profile.folder}/cluster.yaml"
    try:
        launcher, own = launcher_here(cluster.launcher, machine.job)
    except (ValueError, LookupError) as error:
        found = f"launcher {cluster.launcher!r} is no command ({error})"
        return [Check(NAME, MISSING, found, "no run can be started", needed=True, ask=(where,))]
    command = [*launcher, machine.python, "-m", "scalewatt.doctor.rank_child"]
    if own and cluster.setup:
        shell = " && ".join((*cluster.setup, 'exec "$@"'))
        command = ["bash", "-c", shell, "bash", *command]
    answer = children.ask(command, machine.limits.command_s, without=RANKS_VARIABLES)
    return [judge_mpi(f"mpi4py {installed}", launcher, own, answer, where)]


def launcher_here(launcher: str, job: str | None) -> tuple[list[str], bool]:
    """The words that start two ranks on this node, and whether they are the cluster file's.

    ValueError or LookupError where the launcher is no command.
    """
    words = shlex.split(launcher.format(gpus=2, nodes=1, ranks_per_node=2, cpus_per_rank=1))
    if not words:
        raise ValueError("it is empty")
    if Path(words[0]).name == "srun" and job is None:
        return ["mpiexec", "-n", "2"], False
    return words, True


def judge_mpi(
    installed: str, launcher: Sequence[str], own: bool, answer: Answer, where: str
) -> Check:
    """What two ranks said; `own` where the launcher is the cluster file's, `where` names that."""
    started = f"`{shlex.join(launcher)}`"
    worlds = [said for said in map(_object, answer.lines) if said is not None]
    facts = {"launcher": list(launcher), "is_cluster_launcher": own, "worlds": worlds}
    if answer.is_missing:
        mend, ask = SET_UP, (f"{where}, a command of this machine",)
        found = f"{installed}; launcher: {answer.trouble}"
        return Check(NAME, MISSING, found, "no run can be started", mend, True, facts, ask)
    if answer.is_silent:
        return unknown(NAME, f"{installed}; {started}: {answer.trouble}", needed=True)
    if answer.trouble and own and any(word in answer.errors for word in _NO_ROOM):
        found = f"{installed}; {started} gets no two ranks in this job: {answer.trouble}"
        ask = ("again in a job with --ntasks=2 and an allocation that is free",)
        return Check(NAME, UNKNOWN, found, "the launcher is not tried", (), True, facts, ask)
    sizes = [world["size"] for world in worlds]
    if answer.trouble or not sizes:
        found = f"{installed}; {started}: {answer.trouble or 'no rank said anything'}"
        return Check(NAME, MISSING, found, "no run can be started", (), True, facts, (where,))
    found = f"{installed}, {worlds[0]['library']}; {started} makes a world of {max(sizes)}"
    if max(sizes) != 2:
        ask = (
            f"{where}: srun --mpi=pmi2, or mpiexec of this environment (.venv/bin/mpiexec): the "
            "MPI of the wheel speaks PMI-2",
        )
        means = "ranks do not find each other: runs on more than one rank are refused"
        return Check(NAME, MISSING, found, means, (), True, facts, ask)
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
