"""Recordings that repeat another's samples: how much of an energy rests on copies.

Whether two devices share a sensor, or a copy stands in for a lost file, no file says. An energy summed
over copies is no sum of independent measurements, so it is flagged, and what the others alone tell
stands beside it: the mean of the different recordings, times the number of devices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np

from scalewatt.recordings.series import MEASURED, Flag, Floats, SensorSeries, flag

DUPLICATE = "duplicate"
"""Flag of a device kind with recordings that repeat others."""
LEAST_CHANGES = 10
"""A recording whose values change less often may be like another by chance: idle devices, whole watts."""
_LISTED = 4

Row = dict[str, Any]


class Originals:
    """Remembers every recording of a segment, and tells of which earlier one the next is a copy."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, str, bytes, int, bytes, int], str] = {}
        self._last: tuple[Floats, tuple[bytes, int]] | None = None

    def _times(self, time_s: Floats) -> tuple[bytes, int]:
        """Return what tells times from others; the sensors of a node share theirs."""
        if self._last is None or self._last[0] is not time_s:
            self._last = time_s, _content(time_s)
        return self._last[1]

    def original_of(self, segment: int, series: SensorSeries) -> str | None:
        """Return `<node>/<sensor>` of the first recording with the same times and values; None if new.

        Only of what was measured, and changed LEAST_CHANGES times.
        """
        if series.origin != MEASURED or not _changes(series.values):
            return None
        key = segment, series.device_kind, *self._times(series.time_s), *_content(series.values)
        name = f"{series.node}/{series.sensor}"
        first = self._names.setdefault(key, name)
        return None if first == name else first


def _changes(values: Floats) -> bool:
    """Return True if a recording changes LEAST_CHANGES times; the first samples of most tell."""
    for some in (values[: 1 << 10], values):
        known = some[np.isfinite(some)]
        if np.count_nonzero(np.diff(known)) >= LEAST_CHANGES:
            return True
    return False


def _content(values: Floats) -> tuple[bytes, int]:
    """Return what tells values from others: every 16th of them by a hash, and a checksum of all.

    A hash of all would take longer than their energy.
    """
    some = blake2b(values[::16].tobytes(), digest_size=16)
    return some.digest(), crc32(np.ascontiguousarray(values).data)


@dataclass(frozen=True)
class Copies:
    """What the copies are of some devices' energy."""

    devices: int
    copies: int
    recorded_j: float
    copied_j: float

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Copies:
        """Return the copies among rows of DEVICES_SCHEMA, of one segment and device kind."""
        devices: dict[tuple[str, str], bool] = {}
        recorded_j = copied_j = 0.0
        for row in rows:
            devices[row["node"], row["sensor"]] = row["copy_of"] is not None
            recorded_j += row["recorded_j"]
            copied_j += row["recorded_j"] if row["copy_of"] is not None else 0.0
        return cls(len(devices), sum(devices.values()), recorded_j, copied_j)

    @property
    def distinct_j(self) -> float:
        """Return the mean energy of the recordings that are no copies, times all devices, in J."""
        return (self.recorded_j - self.copied_j) / (self.devices - self.copies) * self.devices

    @property
    def share(self) -> float:
        """Return the share of the recorded energy that rests on copies."""
        return self.copied_j / self.recorded_j if self.recorded_j > 0 else 0.0


def copies_by_kind(rows: Iterable[Row]) -> dict[tuple[int, str], Copies]:
    """Return by segment and device kind what there is of copies in rows of DEVICES_SCHEMA."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["segment"], row["device_kind"]), []).append(row)
    return {key: Copies.of(own) for key, own in groups.items()}


def duplicate_flags(rows: Iterable[Row]) -> list[tuple[int, Flag]]:
    """Return a flag for each segment and device kind with copies."""
    found = list(rows)
    flags = []
    for (segment, kind), copies in copies_by_kind(found).items():
        if copies.copies:
            own = (r for r in found if (r["segment"], r["device_kind"]) == (segment, kind))
            flags.append((segment, flag(DUPLICATE, None, _sentence(kind, copies, own))))
    return flags


def _sentence(kind: str, copies: Copies, rows: Iterable[Row]) -> str:
    """Say what is the same as what, and how much rests on it."""
    pairs = {(row["node"], row["sensor"]): row["copy_of"] for row in rows if row["copy_of"]}
    several = len({node for node, _ in pairs}) < len(pairs) or any(
        of.startswith(f"{node}/") for (node, _), of in pairs.items()
    )
    named = [
        f"{f'{node}/{sensor}' if several else node} as {of if several else of.split('/')[0]}"
        for (node, sensor), of in list(pairs.items())[:_LISTED]
    ]
    more = f" and {len(pairs) - _LISTED} more" if len(pairs) > _LISTED else ""
    return (
        f"{kind}: {copies.copies} of {copies.devices} recordings are the same as another to the last "
        f"sample ({', '.join(named)}{more}): {100 * copies.share:.0f} % of the energy rests on them"
    )
