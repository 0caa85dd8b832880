"""A run as the accounting reads it: its segments, node by node, in unix seconds; spec, provenance, stages.

The journal is the record of a run of ours: the samples of perun's sensors, as they were taken. A node without
a journal is read from perun's HDF5. Of a run that another tool recorded, its files are the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.energies.node import Node
from scalewatt.energies.stages import Window
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

    def node(self, host: str) -> Node:
        """Read one node; it has no blocks if no file has a sample of it."""
        names = {name for name, node in self._nodes.items() if node == self._nodes[host]}
        node, flags = Node(host, []), list[Flag]()
        for source in self.recordings:
            for name in names & {*source.nodes} if not node.blocks else ():
                try:
                    node = _node_of(source, host, source.nodes[name])
                except InputError as error:
                    if self.alone:
                        raise
                    flags.append(flag("unreadable", None, str(error)))
        stated = ((r.perun_j or {}).items() for r in self.recordings)
        return replace(
            node,
            flags=(*flags, *node.flags),
            telemetry=[block for block in self.telemetry if block.node in names],
            perun_j={kind: j for rows in stated for (name, kind), j in rows if name in names},
        )


def _node_of(source: Recording, host: str, blocks: Sequence[Block]) -> Node:
    """Blocks of a node under its name in the segment, in unix seconds as far as its clock is known."""
    # A sensor that could not be read is a block without samples: of a device uncovered.
    if not any(block.time_s.size for block in blocks):
        return Node(host, [], source.period_s)
    if source.clock_known:
        flags = tuple(f for block in blocks for f in block.flags if f["device"] is None)
        return Node(host, [replace(b, node=host) for b in blocks], source.period_s, flags=flags)
    try:
        start_s, is_known = datetime.fromisoformat(source.started or "").timestamp(), True
        detail = f"{host}: no journal; times count from perun's start {source.started} (local time)"
    except ValueError:
        start_s, is_known = 0.0, False
        detail = f"{host}: no journal and no start time in the file"
    clock = flag("time_assumed" if is_known else "time_unknown", None, detail)
    blocks = [replace(block, node=host, time_s=block.time_s + start_s) for block in blocks]
    return Node(host, blocks, source.period_s, flags=(clock,), clock_known=is_known)


def segment_numbers(folder: Path) -> set[int]:
    """Numbers of the segments that have a recording in `folder`."""
    paths = folder.iterdir() if folder.is_dir() else ()
    matches = (_SEGMENT_FILE.match(path.name) for path in paths)
    return {int(match.group(1)) for match in matches if match}


@contextmanager
def open_segment(folder: Path, number: int) -> Iterator[Segment]:
    """Open what a segment left in `folder`; what cannot be read is a flag."""
    stem = f"segment-{number:03d}"
    readers: list[Callable[[], Recording]] = []
    with ExitStack() as files:
        if journals := journal_files(folder).get(number):
            readers.append(partial(read_journal, [*journals.values()]))
        # perun renames the file of a program that failed.
        paths = [path for path in (folder / f"{stem}.hdf5", folder / f"failed_{stem}.hdf5")]
        if path := next((path for path in paths if path.exists()), None):
            readers.append(lambda: files.enter_context(open_perun_file(path)))
        if not readers and (copies := copies_of(folder, number)):
            readers.append(partial(read_together, copies))
        recordings: list[Recording] = []
        telemetry, flags = read_telemetry(sorted(folder.glob(f"{stem}.*.telemetry.csv")))
        for read in readers:
            try:
                recordings.append(read())
                flags += recordings[-1].flags
            except InputError as error:
                flags.append(flag("unreadable", None, str(error)))
        yield Segment(number, recordings, telemetry, tuple(flags))


def recordings_of(folder: Path) -> Path:
    """Folder of a run's recordings: perun/, or else the run folder."""
    perun = folder / "perun"
    return perun if perun.is_dir() else folder


# --- the run --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A run's spec, stages and window, in addition to its recordings."""

    folder: Path
    spec: Mapping[str, Any]
    """Content of its spec.json, as far as there is one."""
    powers: Mapping[str, Any]
    provenance: Mapping[str, Any]
    events: pa.Table | None

    @classmethod
    def of(
        cls, folder: Path, powers: Mapping[str, Any], spec: Mapping[str, Any] | None = None
    ) -> Run:
        """Read a run folder, by default its spec.json too; InputError for a damaged file."""
        paths = (folder / "spec.json", folder / "provenance.json")
        read, provenance = (read_json_object(p) if p.exists() else {} for p in paths)
        events = folder / "events.parquet"
        stages = read_stages(events, unended=True) if events.exists() else None
        return cls(folder, read if spec is None else spec, powers, provenance, stages)

    @property
    def recordings(self) -> Path:
        """Folder of its recordings."""
        return recordings_of(self.folder)

    @property
    def operating_point(self) -> Mapping[Any, float]:
        """Clocks and power limit whose keeping its telemetry shows; none of a registered run."""
        is_registered = self.spec.get("sampling_period_s") is None
        return {} if is_registered else self.spec.get("operating_point") or {}

    @property
    def segments(self) -> dict[int, dict[str, Any]]:
        """Records of the segments, by number."""
        return {int(row["segment"]): row for row in self.provenance.get("segments") or []}

    def window_of(self, recorded: Window) -> Window:
        """Time of a node that counts: the run's, if that is known, else what was recorded.

        Without length if nothing was recorded in the run's time.
        """
        if not (of_run := self.provenance.get("window")):
            return recorded
        begin, end = float(of_run["start_s"]), float(of_run["end_s"])
        is_within = begin < recorded[1] and recorded[0] < end
        return (begin, end) if is_within else (recorded[0], recorded[0])

    def hosts_of(self, segment: int) -> list[str]:
        """Names of a segment's hosts, where its ranks are recorded, else of the run's."""
        ranks = self.segments.get(segment, {}).get("ranks") or []
        hosts = [rank["host"] for rank in ranks] or self.provenance.get("hostnames") or []
        return list(dict.fromkeys(hosts))

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
        if segment is not None and any(row.get("ranks") for row in self.segments.values()):
            held = held_gpus(self.segments.get(segment, {}).get("ranks") or [])
        indices, uuids = (
            by_host.get(same_node(node, by_host, hosts))
            for by_host in (held.get("gpus") or {}, held.get("gpu_uuids") or {})
        )
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
