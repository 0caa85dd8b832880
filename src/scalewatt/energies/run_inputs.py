"""What is known of a run in addition to its recordings: spec, provenance, stage events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.common.schema_validation import check, schema
from scalewatt.energies.checks import SETTINGS
from scalewatt.energies.node import Window
from scalewatt.provenance.versions import Gpu, held_gpus
from scalewatt.recordings.node_names import same_node
from scalewatt.recordings.stages import read_stages


class Planned(Protocol):
    """The part of a run's spec that accounting needs; None if unknown."""

    @property
    def configuration(self) -> str | None: ...
    @property
    def repeat(self) -> int | None: ...
    @property
    def nodes(self) -> int | None: ...
    @property
    def ranks_per_node(self) -> int | None: ...
    @property
    def sampling_period_s(self) -> float | None: ...
    @property
    def protocol(self) -> str | None: ...
    @property
    def operating_point(self) -> dict[str, Any] | None: ...


@dataclass(frozen=True)
class PlannedRun:
    """The part of a spec.json that accounting reads, whoever wrote it; None if absent."""

    configuration: str | None = None
    repeat: int | None = None
    device: str | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    sampling_period_s: float | None = None
    protocol: str | None = None
    operating_point: dict[str, Any] | None = None


_TEXT = {"type": ["string", "null"]}
_COUNT = {"type": ["integer", "null"], "minimum": 1}
_SPEC = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("configuration", "device", "protocol"), _TEXT),
        **dict.fromkeys(("repeat", "nodes", "ranks_per_node"), _COUNT),
        "sampling_period_s": {"type": ["number", "null"]},
        "operating_point": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {name: {"type": "number", "exclusiveMinimum": 0} for name in SETTINGS},
        },
    },
}


def read_planned_run(path: Path) -> PlannedRun:
    """Read a spec.json; InputError if it is no JSON object or a value in it has another type."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: is no spec; expected a JSON object")
    check(content, _SPEC, str(path), _SPEC)
    return PlannedRun(**{f.name: content.get(f.name) for f in fields(PlannedRun)})


@dataclass(frozen=True)
class Run:
    """A run's spec, stages and windows, in addition to its recordings."""

    folder: Path
    spec: Planned
    powers: dict[str, Any]
    provenance: dict[str, Any]
    events: pa.Table | None
    gpus_per_node: int | None = None
    """How many GPUs each node must have recorded, where that is given."""

    @classmethod
    def of(cls, folder: Path, spec: Planned, powers: dict[str, Any]) -> Run:
        """Read a run folder. Raises InputError for a damaged file of events or provenance."""
        path = folder / "provenance.json"
        provenance = read_provenance(path) if path.exists() else {}
        events = folder / "events.parquet"
        return cls(
            folder,
            spec,
            powers,
            provenance,
            read_stages(events, own=True) if events.exists() else None,
        )

    @property
    def window(self) -> Window:
        """Return from when to when the run lasted, in unix s, where that was told; else without limits.

        What was recorded outside of it is not of the run.
        """
        told = self.provenance.get("window") or {}
        return float(told.get("start_s", "-inf")), float(told.get("end_s", "inf"))

    @property
    def operating_point(self) -> dict[str, float]:
        """Return the clocks and power limit whose keeping its telemetry shows; none of a registered run."""
        known = self.spec.sampling_period_s is not None
        return (self.spec.operating_point or {}) if known else {}

    @property
    def uncounted_stages(self) -> tuple[str, ...]:
        """Return the stages that are no part of its totals, and need not be covered."""
        return ("stage_data",) if self.spec.protocol == "paper" else ()

    @property
    def recordings(self) -> Path:
        """Return the folder of its recordings: perun/, or else its own."""
        perun = self.folder / "perun"
        return perun if perun.is_dir() else self.folder

    @property
    def hostnames(self) -> list[str]:
        """Return the names of the hosts that the run had, as it recorded them."""
        return list(dict.fromkeys(self.provenance.get("hostnames") or []))

    def hosts_of(self, segment: int) -> list[str]:
        """Return the names of a segment's hosts, where its ranks are recorded, else of the run's."""
        ranks = self.segment(segment).get("ranks")
        return list(dict.fromkeys(rank["host"] for rank in ranks)) if ranks else self.hostnames

    def segment(self, number: int) -> dict[str, Any]:
        """Return the record of one of its segments; empty if there is none."""
        noted = self.provenance.get("segments") or []
        return next((one for one in noted if one["segment"] == number), {})

    def used_gpus(
        self,
        node: str,
        gpus: Iterable[tuple[int, str]],
        segment: int | None = None,
        hosts: Sequence[str] = (),
    ) -> list[int] | None:
        """Return the indices of the GPUs that the run held on a node; None if not recorded.

        Those of `segment`; of a run whose segments note no ranks, those that it noted as a whole.
        They are identified by uuid where the `gpus` (index, uuid) have one, else by index. `hosts` are all
        that were recorded.
        """
        if self.provenance.get("torch_device") == "cpu":
            return []
        held = self.held(segment)
        uuids = _of_node(held["gpu_uuids"], node, hosts)
        found = sorted({index for index, uuid in gpus if uuid and uuid in (uuids or ())})
        if uuids and len(found) == len(uuids):
            return found
        return _of_node(held["gpus"], node, hosts)

    def held(self, segment: int | None) -> dict[str, Any]:
        """Return `held_gpus` of a segment, or of all together where none noted its ranks.

        Of a segment that ended before it noted them, while others did: unknown.
        """
        # Every node asks, and each of thousands of ranks is looked at.
        if segment not in self._held:
            self._held[segment] = self._held_in(segment)
        return self._held[segment]

    @cached_property
    def _held(self) -> dict[int | None, dict[str, Any]]:
        return {}

    def _held_in(self, segment: int | None) -> dict[str, Any]:
        noted = self.provenance.get("segments") or []
        if segment is not None and any(one.get("ranks") for one in noted):
            ranks = self.segment(segment).get("ranks") or []
            return held_gpus((rank["host"], Gpu(rank["gpu"], rank["gpu_uuid"])) for rank in ranks)
        return {name: self.provenance.get(name) for name in ("gpus", "gpu_uuids")}

    def shared_s(self, node: str, window: Window) -> float:
        """Return the seconds that other runs, noted at registration, shared a node."""
        return max((seconds for _, seconds in self._concurrent(node, window)), default=0.0)

    def shares_gpus(self, node: str, held: Sequence[int], window: Window) -> bool:
        """Return True if such a run may have held one of the GPUs `held` on a node."""
        others = (other.get("gpus") for other, s in self._concurrent(node, window) if s > 0)
        return any(gpus is None or not set(held).isdisjoint(gpus) for gpus in others)

    def _concurrent(self, node: str, window: Window) -> Iterator[tuple[dict[str, Any], float]]:
        """Yield the other runs on a node, and how many seconds of a window they were there."""
        for other in concurrent_runs(self.provenance):
            if same_node(node, [other["host"]]):
                end = min(window[1], float(other["end_s"]))
                yield other, end - max(window[0], float(other["start_s"]))


def _of_node(
    by_host: dict[str, list[Any] | None] | None, node: str, hosts: Sequence[str]
) -> list[Any] | None:
    name = same_node(node, by_host or (), hosts)
    return by_host[name] if by_host and name else None


def concurrent_runs(provenance: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs recorded at the same time on the nodes."""
    return provenance.get("concurrent_runs") or []


def read_provenance(path: Path, required: Sequence[str] = ()) -> dict[str, Any]:
    """Read a run's provenance.json; InputError if it is none, or lacks one of the `required` keys."""
    found = read_json(path)
    root = schema("provenance")
    check(found, {**root, "required": list(required)}, str(path), root)
    return dict(found)
