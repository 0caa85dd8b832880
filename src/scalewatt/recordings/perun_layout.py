"""What perun's HDF5 files hold, without the samples: applications, runs, rounds and hosts.

Layout: /<app>/nodes/<run>/nodes/<round>/nodes/<host>/nodes/<kind>/nodes/<sensor>. Rounds are
called "0", "1", … or, where the program failed, "failed".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import TypeVar

import h5py

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.series import Flag, flag

EXPECTED = "expected an HDF5 file written by perun 0.3 to 1.0, with nodes/<run>/nodes/<round>"
FAILED = "failed"

_LISTED = 8
_RANK_DIGITS = 10
_PERIOD_KEYS = ("monitor.sampling_period", "sampling_period", "sampling_rate")


@dataclass(frozen=True)
class RunInfo:
    """One run in a file: `execution_dt` is perun's naive local start time."""

    app: str
    run_id: str
    round_ids: tuple[str, ...]
    """In the order of their numbers; "failed" last."""
    execution_dt: str | None
    perun_version: str | None
    hosts: tuple[str, ...]
    """The hosts of all rounds, sorted."""

    @property
    def name(self) -> str:
        """Return the run's name, unique in its file."""
        return f"{self.app}/{self.run_id}"


@dataclass(frozen=True, eq=False)
class Run:
    """One run of one application, still in its file."""

    app: str
    run_id: str
    group: h5py.Group
    execution_dt: str | None

    @property
    def name(self) -> str:
        """Return the run's name, unique in its file."""
        return f"{self.app}/{self.run_id}"


_AnyRun = TypeVar("_AnyRun", Run, RunInfo)


def children(group: h5py.Group) -> dict[str, h5py.Group]:
    """Return the groups under a group's `nodes`, by name."""
    if "nodes" not in group:
        return {}
    # h5py's own way into a group takes several times as long; large files hold thousands of them.
    nodes = h5py.h5o.open(group.id, b"nodes")
    if not isinstance(nodes, h5py.h5g.GroupID):
        return {}
    found = {name: h5py.h5o.open(nodes, name) for name in nodes}
    return {
        printable(name.decode("utf-8", "backslashreplace")): h5py.Group(node)
        for name, node in found.items()
        if isinstance(node, h5py.h5g.GroupID)
    }


def runs_of(handle: h5py.File) -> list[Run]:
    """Return the runs of all applications in the order of their start."""
    runs = [
        Run(printable(app), run_id, group, text(group.attrs.get("execution_dt")))
        for app, node in handle.items()
        if isinstance(node, h5py.Group)
        for run_id, group in children(node).items()
    ]
    return sorted(runs, key=lambda run: run.execution_dt or "")


def run_info(run: Run) -> RunInfo:
    """Return what one run is."""
    rounds = children(run.group)
    hosts = {host for node in rounds.values() for host in children(node)}
    return RunInfo(
        app=run.app,
        run_id=run.run_id,
        round_ids=_in_order(rounds),
        execution_dt=run.execution_dt,
        perun_version=text(run.group.attrs.get("perun_version")),
        hosts=tuple(sorted(hosts)),
    )


def run_names(runs: Sequence[Run] | Sequence[RunInfo]) -> dict[str, str]:
    """Return by each run's name the shortest one that no other run of the file has."""
    short = len({run.run_id for run in runs}) == len(runs)
    return {run.name: run.run_id if short else run.name for run in runs}


def choose_run(runs: Sequence[_AnyRun], run_id: str | None) -> tuple[_AnyRun, list[Flag]]:
    """Return the run called `run_id` or `<app>/<run_id>`; without a name the last one.

    Raises InputError (without the path) where there is no such run.
    """
    if not runs:
        raise InputError(f"holds no run; {EXPECTED}")
    found = [run for run in runs if run_id in (None, run.name)]
    found = found or [run for run in runs if run.run_id == run_id]
    names = run_names(runs)
    if not found:
        raise InputError(f"holds no run {run_id!r}; it holds {', '.join(names.values())}")
    if len(found) == 1:
        return found[0], []
    listed = ", ".join(names[run.name] for run in found)
    detail = f"the file holds {len(found)} runs ({listed}); {names[found[-1].name]} is read"
    return found[-1], [flag("several", None, detail)]


def choose_round(run: Run, round_id: str | None) -> tuple[str, dict[str, h5py.Group], list[Flag]]:
    """Return a round's name, its hosts and its flags; without a name the last numbered round.

    Raises InputError (without the path) where there is no such round, or no host in it.
    """
    rounds = children(run.group)
    ordered = _in_order(rounds)
    if round_id is not None and round_id not in rounds:
        held = ", ".join(ordered) or "none"
        raise InputError(f"run {run.run_id} holds no round {round_id!r}; it holds {held}")
    numbered = [name for name in ordered if name.isdecimal()]
    chosen = round_id or next(reversed(numbered or ordered), None)
    hosts = children(rounds[chosen]) if chosen is not None else {}
    if chosen is None or not hosts:
        raise InputError(f"run {run.run_id} holds no host; {EXPECTED}")
    return chosen, hosts, _round_flags(ordered, numbered, chosen, round_id) + _lost_hosts(hosts)


def sampling_period_s(run: h5py.Group) -> float | None:
    """Return the period that a run was recorded with, in s; None if it does not say."""
    for key in _PERIOD_KEYS:
        try:
            period_s = float(text(run.attrs.get(key)) or "")
        except ValueError:
            continue
        if math.isfinite(period_s) and period_s > 0:
            return period_s
    return None


def text(value: object) -> str | None:
    """Return an attribute as text; None if there is none."""
    if value is None:
        return None
    return printable(value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))


def _in_order(rounds: dict[str, h5py.Group]) -> tuple[str, ...]:
    numbered = sorted((name for name in rounds if name.isdecimal()), key=int)
    return (*numbered, *sorted(set(rounds) - set(numbered)))


def _round_flags(
    rounds: Sequence[str], numbered: Sequence[str], chosen: str, asked: str | None
) -> list[Flag]:
    flags = []
    if asked is None and len(numbered) > 1:
        detail = f"the run holds {len(numbered)} rounds; the last one ({chosen}) is read"
        flags.append(flag("several", None, detail))
    if chosen == FAILED:
        flags.append(flag("several", None, "perun recorded that the program failed"))
    elif asked is None and FAILED in rounds:
        detail = "perun recorded that the program failed; that part is not read"
        flags.append(flag("several", None, detail))
    return flags


def _lost_hosts(hosts: dict[str, h5py.Group]) -> list[Flag]:
    """Tell from holes in the ranks' numbers that a host's recording is not in the file."""
    ranks = sorted({rank for node in hosts.values() for rank in _ranks(node)})
    holes = (range(before + 1, rank) for before, rank in pairwise([-1, *ranks]))
    lost = list(islice(chain.from_iterable(holes), _LISTED + 1))
    if not lost:
        return []
    listed = ", ".join(map(str, lost[:_LISTED])) + (", …" if len(lost) > _LISTED else "")
    detail = f"the file holds no recording of the hosts of ranks {listed}"
    return [flag("not_recorded", None, detail)]


def _ranks(host: h5py.Group) -> list[int]:
    """Return a host's ranks: numbers in older files, their text "[0, 1]" in newer ones."""
    ranks = host.attrs.get("mpi_ranks", "")
    listed = ranks.tolist() if hasattr(ranks, "tolist") else ranks
    numbers = re.findall(r"\d+", str(listed))
    return [int(number) for number in numbers if len(number) <= _RANK_DIGITS]
