"""Recordings of a run's segments, node by node, in unix seconds.

The journal is the record of a run of ours: the samples of perun's sensors, as they were taken. A node without
a journal is read from perun's HDF5. Of a run that another tool recorded, its files are the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.energies.checks import readings
from scalewatt.energies.stages import seconds_where, start_of
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.concurrent_samplers import read_samplers
from scalewatt.recordings.detect import read_together
from scalewatt.recordings.foreign_files import foreign_files
from scalewatt.recordings.journal import journal_files, read_journal
from scalewatt.recordings.node_names import nodes_by_name
from scalewatt.recordings.perun_file import open_perun_file
from scalewatt.recordings.telemetry import read_telemetry
from scalewatt.recordings.terms import Flag, flag

_SEGMENT_FILE = re.compile(r"^(?:failed_)?segment-(\d+)\.(?:hdf5|.+\.csv|.+\.recording)$")


@dataclass(frozen=True, eq=False)
class NodeRecording:
    """What was recorded of one node in one segment."""

    node: str
    blocks: Sequence[Block]
    period_s: float | None = None
    telemetry: Sequence[Block] = ()
    flags: tuple[Flag, ...] = ()
    met: tuple[str, ...] = ()
    """Other runs that were measured on the node meanwhile."""
    clock_known: bool = True
    """Whether the times are unix times, and not seconds from an unknown start."""
    perun_j: Mapping[str, float] = field(default_factory=dict)
    """What perun itself computed, by device kind, in J."""

    def shared_s(self, window: tuple[float, float]) -> float:
        """Seconds of a window for which another run was measured on the node."""
        counts = readings(self.telemetry, "concurrent_samplers")
        return max((seconds_where(c.time_s, c.values > 0, window) for c in counts), default=0.0)

    def unwatched_s(self, window: tuple[float, float]) -> float:
        """Seconds of a window for which the sampler could not see other samplers."""
        counts = readings(self.telemetry, "concurrent_samplers")
        blind = (seconds_where(c.time_s, np.isnan(c.values), window) for c in counts)
        return max(blind, default=0.0)


@dataclass(frozen=True, eq=False)
class Segment:
    """Recordings of one segment; a node is read, when it is asked for, from the first that has it."""

    number: int
    recordings: Sequence[Recording]
    telemetry: Sequence[Block] = ()
    samplers: Sequence[dict[str, Any]] = ()
    flags: tuple[Flag, ...] = ()
    slurm: dict[str, Any] | None = None
    """Slurm's figure of the segment's energy, where it gave one."""
    alone: bool = False
    """Whether a file is all that there is, so that damage in it is an error."""

    @cached_property
    def _names(self) -> dict[str, str]:
        """The node of each name that a file has."""
        sources = [recording.nodes for recording in self.recordings]
        telemetry = {block.node for block in self.telemetry}
        return nodes_by_name(*sources, telemetry, {each["host"] for each in self.samplers})

    @cached_property
    def _hosts(self) -> list[dict[str, str]]:
        """Of each recording: its name for each node."""
        return [{self._names[host]: host for host in r.nodes} for r in self.recordings]

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Nodes of all files, by the name in the last of these, sorted."""
        names = {node: host for hosts in self._hosts for node, host in hosts.items()}
        return tuple(sorted(names.values()))

    @cached_property
    def _telemetry(self) -> dict[str, list[Block]]:
        return _grouped((self._names[block.node], block) for block in self.telemetry)

    @cached_property
    def _met(self) -> dict[str, list[str]]:
        return _grouped((self._names[each["host"]], each["run"]) for each in self.samplers)

    @cached_property
    def _perun_j(self) -> dict[str, dict[str, float]]:
        totals: dict[str, dict[str, float]] = {}
        for recording in self.recordings:
            for (host, kind), joules in (recording.perun_j or {}).items():
                totals.setdefault(self._names[host], {})[kind] = joules
        return totals

    def node(self, host: str) -> NodeRecording:
        """Read one node; it has no blocks if no file has a sample of it."""
        node = self._names[host]
        flags: list[Flag] = []
        blocks: list[Block] = []
        period_s, clock_known = None, True
        for recording, hosts in zip(self.recordings, self._hosts, strict=True):
            if (name := hosts.get(node)) is None:
                continue
            if blocks:
                break
            try:
                blocks = [replace(block, node=host) for block in recording.nodes[name]]
                # A sensor that could not be read is a block without samples: of a device uncovered.
                blocks = blocks if any(block.time_s.size for block in blocks) else []
            except InputError as error:
                if self.alone:
                    raise
                flags.append(flag("unreadable", None, str(error)))
            period_s = recording.period_s
            if blocks and not recording.clock_known:
                start_s, of_clock = start_of(recording.started, host)
                clock_known = of_clock["code"] != "time_unknown"
                blocks = [replace(block, time_s=block.time_s + start_s) for block in blocks]
                flags.append(of_clock)
        met = tuple(dict.fromkeys(self._met.get(node, ())))
        telemetry = self._telemetry.get(node, ())
        stated = self._perun_j.get(node, {})
        known = (period_s, telemetry, tuple(flags), met, clock_known, stated)
        return NodeRecording(host, blocks, *known)


def _grouped(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def segment_numbers(folder: Path) -> set[int]:
    """Numbers of the segments that have a recording in `folder`."""
    if not folder.is_dir():
        return set()
    found = (_SEGMENT_FILE.match(path.name) for path in folder.iterdir())
    return {int(match.group(1)) for match in found if match}


@contextmanager
def open_segment(folder: Path, number: int) -> Iterator[Segment]:
    """Open what a segment left in `folder`; what cannot be read is a flag."""
    stem = f"segment-{number:03d}"
    flags: list[Flag] = []
    recordings: list[Recording] = []
    with ExitStack() as files:

        def read(reader: Any, paths: Sequence[Any]) -> None:
            try:
                recording = reader(paths)
                recordings.append(recording)
                flags.extend(recording.flags)
            except InputError as error:
                flags.append(flag("unreadable", None, str(error)))

        if journals := journal_files(folder).get(number):
            read(read_journal, [*journals.values()])
        # perun renames the file of a program that failed.
        named = [folder / f"{stem}.hdf5", folder / f"failed_{stem}.hdf5"]
        if perun := [path for path in named if path.exists()]:
            read(lambda paths: files.enter_context(open_perun_file(paths[0])), perun)
        if not recordings and (foreign := foreign_files(folder, number)):
            read(read_together, foreign)
        telemetry, damaged = read_telemetry(sorted(folder.glob(f"{stem}.*.telemetry.csv")))
        slurm = folder / f"{stem}.slurm-energy.json"
        yield Segment(
            number,
            recordings,
            telemetry,
            read_samplers(sorted(folder.glob(f"{stem}.*.samplers.jsonl"))),
            (*flags, *damaged),
            read_json(slurm) if slurm.exists() else None,
        )
