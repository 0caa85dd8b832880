"""Recordings of a run's segments, node by node, in unix seconds.

The journal is the record of a run of ours: the samples of perun's sensors, as they were taken. A node without
a journal is read from perun's HDF5. Of a run that another tool recorded, its files are the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.energies.checks import readings
from scalewatt.energies.stages import Window, seconds_where
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.detect import copies_of, read_together
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
    clock_known: bool = True
    """Whether the times are unix times, and not seconds from an unknown start."""
    perun_j: Mapping[str, float] = field(default_factory=dict)
    """What perun itself computed, by device kind, in J."""

    def shared_s(self, window: Window) -> float:
        """Seconds of a window for which another run was measured on the node."""
        counts = readings(self.telemetry, "concurrent_samplers")
        return max(
            (seconds_where(c.block.time_s, c.values > 0, window) for c in counts), default=0.0
        )


@dataclass(frozen=True, eq=False)
class Segment:
    """Recordings of one segment; a node is read, when it is asked for, from the first that has it."""

    number: int
    recordings: Sequence[Recording]
    telemetry: Sequence[Block] = ()
    flags: tuple[Flag, ...] = ()
    alone: bool = False
    """Whether a file is all that there is, so that damage in it is an error."""

    @cached_property
    def _nodes(self) -> dict[str, str]:
        """Nodes by the names that files have for them."""
        sources = [recording.nodes for recording in self.recordings]
        return nodes_by_name(*sources, {block.node for block in self.telemetry})

    @property
    def hosts(self) -> tuple[str, ...]:
        """Nodes of all files, by the name in the last of these, sorted."""
        names = {self._nodes[name]: name for r in self.recordings for name in r.nodes}
        return tuple(sorted(names.values()))

    def node(self, host: str) -> NodeRecording:
        """Read one node; it has no blocks if no file has a sample of it."""
        is_of_node = {name for name, node in self._nodes.items() if node == self._nodes[host]}
        named = [(r, name) for r in self.recordings for name in r.nodes if name in is_of_node]
        recording = NodeRecording(host, [])
        flags: list[Flag] = []
        for source, name in named:
            try:
                recording = _placed(source, host, source.nodes[name])
            except InputError as error:
                if self.alone:
                    raise
                flags.append(flag("unreadable", None, str(error)))
            if recording.blocks:
                break
        return replace(
            recording,
            flags=(*flags, *recording.flags),
            telemetry=[block for block in self.telemetry if block.node in is_of_node],
            perun_j={
                kind: joules
                for source in self.recordings
                for (name, kind), joules in (source.perun_j or {}).items()
                if name in is_of_node
            },
        )


def _placed(source: Recording, host: str, blocks: Sequence[Block]) -> NodeRecording:
    """Blocks of a node under its name in the segment, in unix seconds as far as its clock is known."""
    # A sensor that could not be read is a block without samples: of a device uncovered.
    if not any(block.time_s.size for block in blocks):
        return NodeRecording(host, [], source.period_s)
    if source.clock_known:
        flags = tuple(f for block in blocks for f in block.flags if f["device"] is None)
        blocks = [replace(block, node=host) for block in blocks]
        return NodeRecording(host, blocks, source.period_s, flags=flags)
    try:
        start_s = datetime.fromisoformat(source.started or "").timestamp()
        detail = f"{host}: no journal; times count from perun's start {source.started} (local time)"
        of_clock = flag("time_assumed", None, detail)
    except ValueError:
        detail = f"{host}: no journal and no start time in the file"
        start_s, of_clock = 0.0, flag("time_unknown", None, detail)
    blocks = [replace(block, node=host, time_s=block.time_s + start_s) for block in blocks]
    known = of_clock["code"] != "time_unknown"
    return NodeRecording(host, blocks, source.period_s, flags=(of_clock,), clock_known=known)


def segment_numbers(folder: Path) -> set[int]:
    """Numbers of the segments that have a recording in `folder`."""
    if not folder.is_dir():
        return set()
    matches = (_SEGMENT_FILE.match(path.name) for path in folder.iterdir())
    return {int(match.group(1)) for match in matches if match}


@contextmanager
def open_segment(folder: Path, number: int) -> Iterator[Segment]:
    """Open what a segment left in `folder`; what cannot be read is a flag."""
    stem = f"segment-{number:03d}"
    flags: list[Flag] = []
    recordings: list[Recording] = []
    # perun renames the file of a program that failed.
    named = (folder / f"{stem}.hdf5", folder / f"failed_{stem}.hdf5")
    with ExitStack() as files:
        sources: list[tuple[Callable[..., Recording], Any]] = []
        if journals := journal_files(folder).get(number):
            sources.append((read_journal, [*journals.values()]))
        for path in [path for path in named if path.exists()][:1]:
            sources.append((lambda path: files.enter_context(open_perun_file(path)), path))
        if not sources and (foreign := copies_of(folder, number)):
            sources.append((read_together, foreign))
        for read, source in sources:
            try:
                recordings.append(read(source))
                flags += recordings[-1].flags
            except InputError as error:
                flags.append(flag("unreadable", None, str(error)))
        telemetry, damaged = read_telemetry(sorted(folder.glob(f"{stem}.*.telemetry.csv")))
        flags += damaged
        yield Segment(number, recordings, telemetry, tuple(flags))
