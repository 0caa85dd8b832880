"""Profiles of Slurm's acct_gather_profile/hdf5: the power of a job's nodes in W, by whole seconds.

A node's file of one step, `<job>_<step>_<node>.h5`, has a table `<node>/Energy`; the job's file that
`sh5util` merges has `Steps/<step>/Nodes/<node>/Energy` (before Slurm 15.08: `Time Series/Energy`). Its
columns: ElapsedTime (s since the step's begin), EpochTime (unix s), and by the energy plugin `Power`
(rapl, pm_counters, ...), `<label>Power` (ipmi: NodePower and what the site names), `CurrPower` (xcc) or
`GPU<i>Power` (gpu). Which plugin it was, the file does not say: `Power` may be the node's or that of its
CPU packages. Source: slurm.schedmd.com/hdf5_profile_user_guide.html, slurm's acct_gather_profile_hdf5.c
and acct_gather_energy plugins, and files of Slurm 22.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats.format import (
    MOST_NAMES,
    Format,
    Head,
    Options,
    call_on_hdf5,
    missing_times,
)
from scalewatt.recordings.series import (
    LATEST_S,
    NODE,
    Flag,
    Floats,
    Recording,
    SensorSeries,
    by_node,
    flag,
)

STEPS, NODES = "Steps", "Nodes"
TABLES = ("Energy", "Time Series/Energy")
KINDS = (NODE, "cpu")
"""What `Power` may be of."""
EPOCH, ELAPSED = "EpochTime", ("ElapsedTime", "Time")
NOTHING = (2**32 - 2, 2**64 - 2, 2**32 - 1, 2**64 - 1)
"""What Slurm writes for no value (NO_VAL and INFINITE)."""

KIND_ASSUMED = "kind_assumed"
"""Flag of powers that are taken as the node's, which the file does not say."""

_GPU = re.compile(r"GPU(\d{1,3})Power")
_UNSAID, _OF_NODE = ("Power", "power"), ("NodePower", "CurrPower")


@dataclass(frozen=True, eq=False)
class NodeTable:
    """The table of one node in one step: columns (n,) by name, of numbers."""

    node: str
    columns: Mapping[str, Floats]


def read_slurm_profile(path: Path, options: Options) -> Recording:
    """Read one step: of several the one named by `options.run`, else the last numbered one.

    `options.kind` says what `Power` is of; the other columns say it themselves.

    Raises InputError if there is no such step, or none with powers.
    """
    if options.kind is not None and options.kind not in KINDS:
        raise InputError(f"{path}: kind {options.kind}; allowed: {', '.join(KINDS)}")
    steps, chosen, tables = call_on_hdf5(path, read_step, options.run)
    series: list[SensorSeries] = []
    problems = _several(path, steps, chosen)
    epoch = all(EPOCH in one.columns for one in tables)
    for table in tables:
        node = table.node if len(tables) > 1 or not options.node else options.node
        found, flags = _node_series(node, table, options.kind, epoch)
        series += found
        problems += flags
    if not series:
        raise InputError(
            f"{path}: step {chosen} holds no power; expected a table Energy with Power"
        )
    if options.kind is None and any(one.sensor in _UNSAID for one in series):
        detail = (
            f"{path.name}: its Power is taken as that of whole nodes; by the plugin rapl it is of the CPU "
            "packages (kind: cpu)"
        )
        problems.append(flag(KIND_ASSUMED, None, detail))
    return Recording(
        nodes=by_node(series, (one.node for one in tables if len(tables) > 1)),
        t0_known=epoch,
        sampling_period_s=None,
        source=str(path),
        problems=tuple(problems),
        run_id=chosen if len(steps) > 1 else None,
    )


def _several(path: Path, steps: tuple[str, ...], chosen: str) -> list[Flag]:
    others = [step for step in steps if step != chosen]
    if not others:
        return []
    detail = f"{path.name}: step {chosen} is read; others: {', '.join(others[:10])}"
    return [flag("several_runs", None, detail)]


def _node_series(
    node: str, table: NodeTable, kind: str | None, epoch: bool
) -> tuple[list[SensorSeries], list[Flag]]:
    names = (EPOCH,) if epoch else ELAPSED
    times = next((table.columns[name] for name in names if name in table.columns), None)
    if times is None:
        return [], [flag("no_time", None, f"{node}: its samples have no time; left out")]
    timed = (times < LATEST_S) & (times > 0 if epoch else times >= 0)
    problems = missing_times(node, timed)
    series, others = [], []
    for name, values in table.columns.items():
        gpu = _GPU.fullmatch(name)
        if gpu is None and name not in (*_UNSAID, *_OF_NODE):
            others += [name] if name.endswith("Power") else []
            continue
        values = np.where(np.isin(values, np.array(NOTHING, dtype=np.float64)), np.nan, values)
        one = SensorSeries(
            node=node,
            sensor=name,
            device_kind="gpu" if gpu else (kind if name in _UNSAID else None) or NODE,
            device_index=int(gpu[1]) if gpu else 0,
            quantity="power",
            time_s=times[timed],
            values=values[timed],
        )
        series.append(one)
    if others:
        listed = ", ".join(others[:10])
        detail = f"{node}: {listed}: sensors of a site's own choice; not counted"
        problems.append(flag("not_counted", None, detail))
    return series, problems


def read_step(path: str, step: str | None) -> tuple[tuple[str, ...], str, list[NodeTable]]:
    """Return the names of all steps with powers, that of one step, and its nodes' tables.

    Called in a process with limits. Raises InputError if there is no such step.
    """
    with h5py.File(path, "r") as file:
        found = {name: nodes for name, nodes in _steps(file, Path(path)) if nodes}
        if not found:
            raise InputError(
                "holds no table Energy of a node; was the job run with --profile=energy?"
            )
        names = tuple(sorted(found, key=_by_number))
        numbered = [name for name in names if name.isdigit()]
        chosen = (numbered or names)[-1] if step is None else step
        if chosen not in found:
            raise InputError(f"holds no step {printable(chosen)}; allowed: {', '.join(names[:20])}")
        tables = [NodeTable(node, _columns(table)) for node, table in sorted(found[chosen].items())]
        return names, chosen, tables


def _by_number(step: str) -> tuple[bool, int, str]:
    return (False, int(step), "") if step.isdigit() else (True, 0, step)


def _steps(file: h5py.File, path: Path) -> Iterator[tuple[str, dict[str, h5py.Dataset]]]:
    steps = _inside(file, STEPS)
    if not isinstance(steps, h5py.Group):
        of_name = re.fullmatch(r"\d+_([^_]+)_.+\.h5", path.name)
        yield (of_name[1] if of_name else "0"), _nodes(file)
        return
    for name in list(steps)[:MOST_NAMES]:
        nodes = _inside(steps, f"{name}/{NODES}")
        yield printable(name), _nodes(nodes) if isinstance(nodes, h5py.Group) else {}


def _nodes(group: h5py.Group) -> dict[str, h5py.Dataset]:
    found = {}
    for node in group:
        tables = (_inside(group, f"{node}/{name}") for name in TABLES)
        table = next((one for one in tables if _is_table(one)), None)
        if table is not None:
            found[printable(node)] = table
    return found


def _inside(group: h5py.Group, path: str) -> Any:
    """Return what a path leads to; None where a part of it is missing, or a link into another file."""
    found: Any = group
    for name in path.split("/"):
        is_group = isinstance(found, h5py.Group) and name in found
        if not is_group or isinstance(found.get(name, getlink=True), h5py.ExternalLink):
            return None
        found = found.get(name)
    return found


def _is_table(found: object) -> bool:
    return isinstance(found, h5py.Dataset) and found.dtype.names is not None and found.ndim == 1


def _columns(table: h5py.Dataset) -> dict[str, Floats]:
    """Return the columns of numbers; other ones, such as a date as text, are left out."""
    samples = table[:]
    names = [name for name in samples.dtype.names if samples.dtype[name].kind in "iuf"]
    return {printable(name): samples[name].astype(np.float64) for name in names}


def _recognises(head: Head) -> bool:
    ends = tuple(f"/{name.split('/')[0]}" for name in TABLES)
    return STEPS in head.groups or any(name.endswith(ends) for name in head.groups)


FORMAT = Format("slurm-profile", _recognises, read_slurm_profile, holds_runs=True, takes_kind=True)
