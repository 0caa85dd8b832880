"""A run's energy table summed up: totals, scope, origin, coverage. And its quality flags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from scalewatt.energies.accounting.energy_schema import BOUNDS
from scalewatt.recordings.series import DEVICE_KINDS, NODE, Flag, flag


class EnergyTotals:
    """Sums of a table of ENERGY_SCHEMA. Under the paper's protocol staging does not count."""

    def __init__(self, table: pa.Table, with_staging: bool) -> None:
        rows = table.to_pylist()
        self.rows = [r for r in rows if with_staging or r["stage"] != "stage_data"]
        self.staging = [r for r in rows if r["stage"] == "stage_data"]
        self.scope = [
            kind
            for kind in DEVICE_KINDS
            if any(row["coverage"] is not None for row in self.of_kind(kind))
        ] or [NODE for row in self.of_kind(NODE)[:1]]
        """The device kinds that count: those that the nodes have a sensor or an estimate of; where
        there is nothing of a node's parts, the whole nodes by their own meters."""

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of a device kind."""
        return [r for r in self.rows if r["device_kind"] == kind]

    def joules(self, kind: str) -> float | None:
        """Return the energy of a device kind over all nodes, segments and stages; None if any part is."""
        return known_sum(r["energy_j"] for r in self.of_kind(kind))

    def bounds_j(self, kind: str) -> tuple[float | None, float | None]:
        """Return the interval of `joules`, by what is estimated and what uncovered time can have cost.

        None where the energy is, and where an estimate's interval is not known.
        """
        low, high = (known_sum(r[name] for r in self.of_kind(kind)) for name in BOUNDS)
        return low, high

    @property
    def total_bounds_j(self) -> tuple[float | None, float | None]:
        """Return the interval of `total_j`, as if the errors of all kinds had the same sign."""
        ends = [self.bounds_j(kind) for kind in self.scope]
        return known_sum(low for low, _ in ends), known_sum(high for _, high in ends)

    def discarded_j(self, kind: str) -> float | None:
        """Return the part of `joules` that was lost work."""
        return known_sum(r["discarded_j"] for r in self.of_kind(kind))

    def recorded_j(self, kind: str) -> float:
        """Return what was recorded of a device kind, whether or not that is enough to be stated."""
        return sum(r["recorded_j"] or 0.0 for r in self.of_kind(kind))

    @property
    def total_j(self) -> float | None:
        """Return the energy of all device kinds in scope; None if one is, or none is in scope."""
        return known_sum(self.joules(kind) for kind in self.scope)

    def origin_of(self, kind: str) -> str | None:
        """Return the origin of a kind's energy; None if it has none, or several."""
        origins = {r["energy_origin"] for r in self.of_kind(kind)}
        return origins.pop() if len(origins) == 1 else None

    @property
    def runtime_s(self) -> float:
        """Return the sum over segments of the longest node's time, recorded or known to lie outside."""
        times: dict[tuple[int, str, str], float] = {}
        for r in self.rows:
            key = (r["segment"], r["node"], r["device_kind"])
            times[key] = times.get(key, r["unrecorded_s"] or 0.0) + r["duration_s"]
        segments = {segment for segment, _, _ in times}
        return sum(max(t for (s, _, _), t in times.items() if s == segment) for segment in segments)

    def device_seconds(self, kind: str) -> float:
        """Return the recorded time of each device of a kind, summed over devices, nodes and segments."""
        return sum(r["duration_s"] * (r["devices"] or 0) for r in self.of_kind(kind))

    def node_seconds(self, kind: str) -> float:
        """Return the recorded time of a kind, summed over nodes and segments."""
        return sum(r["duration_s"] for r in self.of_kind(kind))

    def devices(self, kind: str) -> int:
        """Return the most devices of a kind that a segment had, over all its nodes."""
        found = {(r["segment"], r["node"]): r["devices"] or 0 for r in self.of_kind(kind)}
        counts: dict[int, int] = {}
        for (segment, _), devices in found.items():
            counts[segment] = counts.get(segment, 0) + devices
        return max(counts.values(), default=0)

    @property
    def origin(self) -> str | None:
        """Return measured, estimated, …, or mixed; None if there is no energy."""
        counted = [r for r in self.rows if r["device_kind"] in self.scope]
        return one_origin(r["energy_origin"] for r in counted if r["energy_j"] is not None)

    @property
    def hosts(self) -> list[str]:
        """Return the names of the nodes, sorted."""
        return sorted({row["node"] for row in self.rows})

    @property
    def coverage(self) -> float | None:
        """Return the least of the device kinds that count and have sensors."""
        found = [r["coverage"] for kind in self.scope for r in self.of_kind(kind)]
        return min((c for c in found if c is not None), default=None)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if one value is, or there is none."""
    found = list(values)
    if not found or None in found:
        return None
    return float(sum(v for v in found if v is not None))


def one_origin(origins: Iterable[str | None]) -> str | None:
    """Return the one origin of several energies, `mixed` where they have several, None without any."""
    known = set(origins) - {None, ""}
    return known.pop() if len(known) == 1 else ("mixed" if known else None)


def flags_of_run(flags: pa.Table) -> list[Flag]:
    """Return the different flags of a table of FLAGS_SCHEMA, in order, but for those of stages."""
    return _different(flags, of_stages=False)


def flags_of_stages(flags: pa.Table) -> list[Flag]:
    """Return the different flags of stages, which say nothing about a total."""
    return _different(flags, of_stages=True)


def _different(flags: pa.Table, of_stages: bool) -> list[Flag]:
    rows = (row for row in flags.to_pylist() if (row["stage"] is not None) == of_stages)
    return [
        flag(*one) for one in dict.fromkeys((r["code"], r["sensor"], r["detail"]) for r in rows)
    ]
