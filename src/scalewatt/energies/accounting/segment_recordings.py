"""What was recorded of a segment: perun's file, the journals, and telemetry.

perun's HDF5 is the record; where it cannot be read, or lacks a host, the journals stand in
(`from_journal`). Of a run that another tool recorded, its files are the record. All times come out as
unix seconds. A node is read when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.energies.stages import seconds_where, start_of
from scalewatt.recordings.concurrent_samplers import read_samplers
from scalewatt.recordings.detect import read_together
from scalewatt.recordings.foreign_files import foreign_files
from scalewatt.recordings.journal import journal_files, read_journal
from scalewatt.recordings.perun_file import open_perun_file
from scalewatt.recordings.series import (
    Flag,
    Recording,
    SensorSeries,
    flag,
    nodes_by_name,
)
from scalewatt.recordings.telemetry import TelemetrySeries, read_telemetry, telemetry_series
from scalewatt.recordings.transition import recording_to_old

_SEGMENT_FILE = re.compile(r"^(?:failed_)?segment-(\d+)\.(?:hdf5|.+\.csv|.+\.recording)$")


@dataclass(frozen=True, eq=False)
class NodeRecording:
    """The recordings of one node in one segment, on the wall clock."""

    node: str
    series: tuple[SensorSeries, ...]
    journal: tuple[SensorSeries, ...]
    """The journal's series, where `series` are perun's own."""
    period_s: float | None
    telemetry: tuple[TelemetrySeries, ...]
    flags: tuple[Flag, ...]
    met: tuple[str, ...] = ()
    """Other runs that were measured on the node meanwhile."""

    @property
    def clock_known(self) -> bool:
        """Return True if the times are unix times, and not seconds from an unknown start."""
        return not any(one["code"] == "time_unknown" for one in self.flags)

    def shared_s(self, window: tuple[float, float]) -> float:
        """Return for how many seconds of a window another run was measured on the node."""
        counts = (c for c in self.telemetry if c.quantity == "concurrent_samplers")
        return max((seconds_where(c.time_s, c.values > 0, window) for c in counts), default=0.0)

    def unwatched_s(self, window: tuple[float, float]) -> float:
        """Return for how many seconds of a window the sampler could not see other samplers."""
        counts = (c for c in self.telemetry if c.quantity == "concurrent_samplers")
        blind = (seconds_where(c.time_s, np.isnan(c.values), window) for c in counts)
        return max(blind, default=0.0)


@dataclass(frozen=True, eq=False)
class Segment:
    """One segment's recordings."""

    number: int
    record: Recording | None
    journal: Recording | None
    telemetry: tuple[TelemetrySeries, ...] = ()
    samplers: tuple[dict[str, Any], ...] = ()
    flags: tuple[Flag, ...] = ()
    slurm: dict[str, Any] | None = None
    """Slurm's own figure of the segment's energy, where it gave one."""
    alone: bool = False
    """True if this one file is all that there is: no journal stands in for damage in it."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of all files by their names in the record, if they are in it, sorted."""
        return tuple(sorted({**self._in_journal, **self._in_record}.values()))

    # Every node asks, and of hundreds there are thousands of series.
    @cached_property
    def _nodes(self) -> dict[str, str]:
        """Return the node of each name that a file has."""
        recordings = [r.hosts for r in (self.journal, self.record) if r is not None]
        telemetry = {one.node for one in self.telemetry}
        return nodes_by_name(*recordings, telemetry, {one["host"] for one in self.samplers})

    @cached_property
    def _in_record(self) -> dict[str, str]:
        """Return each node's name in the record."""
        return {self._nodes[host]: host for host in (self.record.hosts if self.record else ())}

    @cached_property
    def _in_journal(self) -> dict[str, str]:
        return {self._nodes[host]: host for host in (self.journal.hosts if self.journal else ())}

    @cached_property
    def _telemetry(self) -> dict[str, list[TelemetrySeries]]:
        found: dict[str, list[TelemetrySeries]] = {}
        for series in self.telemetry:
            found.setdefault(self._nodes[series.node], []).append(series)
        return found

    @cached_property
    def _met(self) -> dict[str, list[str]]:
        """Return the other runs that were measured on each node."""
        found: dict[str, list[str]] = {}
        for sampler in self.samplers:
            found.setdefault(self._nodes[sampler["host"]], []).append(sampler["run"])
        return found

    def node(self, host: str) -> NodeRecording:
        """Read one node; its series are empty if no file has a sample of it."""
        node = self._nodes[host]
        telemetry = tuple(self._telemetry.get(node, ()))
        met = tuple(dict.fromkeys(self._met.get(node, ())))
        own, flags = self._of_record(host)
        theirs = _of_host(self.journal, self._in_journal.get(node), host)
        if self.record is not None and any(s.time_s.size for s in own):
            own, of_clock = on_wall_clock(self.record, own, theirs)
            theirs = _with_ranges(theirs, own)
            period = self.record.sampling_period_s
            return NodeRecording(host, own, theirs, period, telemetry, (*flags, *of_clock), met)
        if theirs and not self.alone:
            detail = f"{host}: perun's file has no data of this segment; the journal is used"
            flags.append(flag("from_journal", None, detail))
        period = self.journal.sampling_period_s if self.journal else None
        return NodeRecording(host, theirs, (), period, telemetry, tuple(flags), met)

    def _of_record(self, host: str) -> tuple[tuple[SensorSeries, ...], list[Flag]]:
        """Read a host of perun's file: damage shows when its samples are read."""
        try:
            return _of_host(self.record, self._in_record.get(self._nodes[host]), host), []
        except InputError as error:
            if self.alone:
                raise
            return (), [flag("unreadable", None, str(error))]


def segment_numbers(folder: Path) -> set[int]:
    """Return the numbers of the segments that have a recording in `folder`."""
    if not folder.is_dir():
        return set()
    found = (_SEGMENT_FILE.match(path.name) for path in folder.iterdir())
    return {int(match.group(1)) for match in found if match}


@contextmanager
def open_segment(folder: Path, number: int) -> Iterator[Segment]:
    """Open what a segment left in `folder`; what cannot be read is a flag."""
    with ExitStack() as files:
        yield _open(folder, number, files)


def _open(folder: Path, number: int, files: ExitStack) -> Segment:
    stem = f"segment-{number:03d}"
    flags: list[Flag] = []
    journal = record = None
    journals = journal_files(folder).get(number)
    if journals:
        try:
            journal = recording_to_old(read_journal(journals.values()))
            flags += journal.problems
        except InputError as error:
            flags.append(flag("unreadable", None, str(error)))
    # perun renames the file of a program that failed.
    paths = [folder / f"{stem}.hdf5", folder / f"failed_{stem}.hdf5"]
    for path in [path for path in paths if path.exists()][:1]:
        try:
            record = recording_to_old(files.enter_context(open_perun_file(path)))
            flags += record.problems
        except InputError as error:
            flags.append(flag("unreadable", None, str(error)))
    if record is None and (foreign := foreign_files(folder, number)):
        try:
            record = read_together(foreign)
            flags += record.problems
        except InputError as error:
            flags.append(flag("unreadable", None, str(error)))
    telemetry, damaged = read_telemetry(sorted(folder.glob(f"{stem}.*.telemetry.csv")))
    slurm = folder / f"{stem}.slurm-energy.json"
    return Segment(
        number,
        record,
        journal,
        tuple(telemetry_series(telemetry)),
        tuple(read_samplers(sorted(folder.glob(f"{stem}.*.samplers.jsonl")))),
        (*flags, *damaged),
        read_json(slurm) if slurm.exists() else None,
    )


def _of_host(recording: Recording | None, name: str | None, host: str) -> tuple[SensorSeries, ...]:
    """Return the series of the host called `name` in a recording, as those of `host`."""
    if recording is None or name is None:
        return ()
    return tuple(
        one if one.node == host else replace(one, node=host) for one in recording.nodes[name]
    )


def _with_ranges(
    journal: Iterable[SensorSeries], record: Iterable[SensorSeries]
) -> tuple[SensorSeries, ...]:
    """Give the journal's counters the range that perun's file states for them."""
    ranges = {s.sensor: s.valid_max for s in record}
    return tuple(s if s.valid_max else replace(s, valid_max=ranges.get(s.sensor)) for s in journal)


def on_wall_clock(
    recording: Recording, series: Sequence[SensorSeries], journal: Sequence[SensorSeries]
) -> tuple[tuple[SensorSeries, ...], list[Flag]]:
    """Shift the series of one host of `recording` to unix seconds.

    The offset is the median of journal time minus HDF5 time, sample by sample from the first (the
    same sampler writes both). A host without journal starts at perun's start time.
    """
    if recording.t0_known:
        return tuple(series), []
    offset, flags = _journal_offset(series, journal), []
    if offset is None:
        offset, of_clock = start_of(recording.execution_dt, series[0].node if series else "")
        flags.append(of_clock)
    shifted = {id(one.time_s): one.time_s + offset for one in series}
    return tuple(replace(one, time_s=shifted[id(one.time_s)]) for one in series), flags


def _journal_offset(
    series: Sequence[SensorSeries], journal: Sequence[SensorSeries]
) -> float | None:
    ours, theirs = ([s.time_s for s in part if s.time_s.size] for part in (series, journal))
    if not ours or not theirs:
        return None
    a, b = max(ours, key=len), max(theirs, key=len)
    count = min(a.size, b.size)
    return float(np.median(b[:count] - a[:count]))
