"""What is known of a run in addition to its recordings: spec, provenance, stage events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.common.files import read_json_object
from scalewatt.energies.stages import Window
from scalewatt.provenance.rank_placement import held_gpus
from scalewatt.recordings.node_names import same_node
from scalewatt.recordings.stages import read_stages


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
        """Folder of its recordings: perun/, or else the run folder."""
        perun = self.folder / "perun"
        return perun if perun.is_dir() else self.folder

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
