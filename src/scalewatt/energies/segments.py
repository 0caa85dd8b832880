"""A run as the accounting reads it: its segments, node by node, in unix seconds; spec, provenance, stages.

The journal is the record of a run of ours: the samples of perun's sensors, as they were taken. A node without
a journal is read from perun's HDF5. Of a run that another tool recorded, its files are the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.energies.checks import readings
from scalewatt.energies.stages import Window, seconds_where
from scalewatt.provenance.rank_placement import held_gpus
from scalewatt.recordings.block import Block, Recording
from scalewatt.recordings.detect import copies_of, read_together
from scalewatt.recordings.journal import journal_files, read_journal
from scalewatt.recordings.node_names import nodes_by_name, same_node
from scalewatt.recordings.perun_file import open_perun_file
from scalewatt.recordings.stages import read_stages
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


def recordings_of(folder: Path) -> Path:
    """Folder of a run's recordings: perun/, or else the run folder."""
    perun = folder / "perun"
    return perun if perun.is_dir() else folder


# --- the run --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedRun:
    """The part of a spec.json that accounting reads; None if absent."""

    configuration: str | None = None
    repeat: int | None = None
    device: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    sampling_period_s: float | None = None
    operating_point: dict[str, float] | None = None

    @classmethod
    def of(cls, spec: Any) -> PlannedRun:
        """The part of a spec that was read whole."""
        return cls(**{f.name: getattr(spec, f.name) for f in fields(cls)})


def read_planned_run(path: Path) -> PlannedRun:
    """Read a spec.json; InputError if it is not a JSON object."""
    content = read_json_object(path)
    return PlannedRun(**{f.name: content.get(f.name) for f in fields(PlannedRun)})


@dataclass(frozen=True)
class Run:
    """A run's spec, stages and window, in addition to its recordings."""

    folder: Path
    spec: PlannedRun
    powers: dict[str, Any]
    provenance: dict[str, Any]
    events: pa.Table | None

    @classmethod
    def of(cls, folder: Path, spec: PlannedRun, powers: dict[str, Any]) -> Run:
        """Read a run folder. Raises InputError for a damaged file of events or provenance."""
        path, events = folder / "provenance.json", folder / "events.parquet"
        provenance = read_json_object(path) if path.exists() else {}
        stages = read_stages(events, own=True) if events.exists() else None
        return cls(folder, spec, powers, provenance, stages)

    def window_of(self, recorded: Window) -> Window:
        """Time of a node that counts: the run's, if that is known, else what was recorded.

        Without length if nothing was recorded in the run's time.
        """
        if not (of_run := self.provenance.get("window")):
            return recorded
        begin, end = float(of_run["start_s"]), float(of_run["end_s"])
        is_within = begin < recorded[1] and recorded[0] < end
        return (begin, end) if is_within else (recorded[0], recorded[0])

    @property
    def operating_point(self) -> Mapping[Any, float]:
        """Clocks and power limit whose keeping its telemetry shows; none of a registered run."""
        is_registered = self.spec.sampling_period_s is None
        return {} if is_registered else self.spec.operating_point or {}

    @property
    def recordings(self) -> Path:
        """Folder of its recordings."""
        return recordings_of(self.folder)

    def hosts_of(self, segment: int) -> list[str]:
        """Names of a segment's hosts, where its ranks are recorded, else of the run's."""
        ranks = self.segment(segment).get("ranks") or []
        hosts = [rank["host"] for rank in ranks] or self.provenance.get("hostnames") or []
        return list(dict.fromkeys(hosts))

    def segment(self, number: int) -> dict[str, Any]:
        """Record of a segment; empty if there is none."""
        segments = self.provenance.get("segments") or []
        return next((row for row in segments if row["segment"] == number), {})

    def used_gpus(
        self,
        node: str,
        gpus: Iterable[tuple[int, str]],
        segment: int | None = None,
        hosts: Sequence[str] = (),
    ) -> list[int] | None:
        """Indices of the GPUs that the run held on a node; None if not recorded.

        Those of `segment`, None if it ended before it noted them while others did; of a run whose segments
        note no ranks, those that it noted as a whole. They are identified by uuid where the `gpus` (index,
        uuid) have one, else by index. `hosts` are all that were recorded.
        """
        if self.provenance.get("torch_device") == "cpu":
            return []
        held = self.provenance
        if segment is not None and any(s.get("ranks") for s in held.get("segments") or []):
            held = held_gpus(self.segment(segment).get("ranks") or [])
        indices, uuids = (_of_node(held.get(name), node, hosts) for name in ("gpus", "gpu_uuids"))
        known = sorted({index for index, uuid in gpus if uuid and uuid in (uuids or ())})
        return known if uuids and len(known) == len(uuids) else indices

    def concurrent(self, node: str, window: Window) -> list[tuple[float, list[int] | None]]:
        """Seconds of a window that each run noted at registration shared a node, and its GPUs there."""
        rows = self.provenance.get("concurrent_runs") or []
        spans = [
            (min(window[1], float(row["end_s"])) - max(window[0], float(row["start_s"])), row)
            for row in rows
            if same_node(node, [row["host"]])
        ]
        return [(seconds, row.get("gpus")) for seconds, row in spans if seconds > 0]


def _of_node(
    by_host: dict[str, list[Any] | None] | None, node: str, hosts: Sequence[str]
) -> list[Any] | None:
    name = same_node(node, by_host or (), hosts)
    return by_host[name] if by_host and name else None
