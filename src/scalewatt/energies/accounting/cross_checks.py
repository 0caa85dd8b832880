"""Cross-checks: the same energy by other sources, where the machine has them, compared with what was counted.

Of a GPU: NVML's own energy counter, and its instantaneous and averaged power. Of a node: its meters
(`whole_node`). Of a segment: Slurm's ConsumedEnergy. They are recorded in addition and never counted.
A difference over MAX_DIFFERENCE is flagged; a power that was read now and then must also differ by more
than SIGMAS standard errors of its mean. A node's meter counts more than its parts: below their sum it is
flagged likewise, above it only over MOST_BEYOND, and only where the parts are GPUs, CPUs and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scalewatt.energies.accounting.node_energy import (
    JOURNAL_TOLERANCE,
    UNUSED_GPU,
    KindEnergy,
    Window,
    node_window,
)
from scalewatt.energies.accounting.segment_recordings import NodeRecording
from scalewatt.recordings.series import ESTIMATED, NODE, Flag, Floats, flag
from scalewatt.recordings.telemetry import TelemetrySeries

MAX_DIFFERENCE = 0.03
MOST_BEYOND = 0.5
"""Fans, boards, drives and losses of power supplies draw no more than this share of what the parts do."""
ALL_PARTS = "gpu+cpu+ram"
"""Less than this recorded, and a node's meter cannot be too high."""
SIGMAS = 3.0
SHORTEST_S = 10.0
"""Below this the moments of reading matter more than the sources."""

SOURCES = {
    "energy_total": "nvml_energy_counter",
    "power_instant": "nvml_power_instant",
    "power_average": "nvml_power_average",
}
METERS = {"node_power_hwmon": "hwmon"}
"""Telemetry of a whole node, and the source that it is."""
NODE_METER = "node_meter"
"""The same of a recording by another tool."""
WHOLE_NODE = (*METERS.values(), "slurm_consumed_energy", NODE_METER)
"""Sources that also count fans, boards, disks and network, and losses of the power supply."""


@dataclass(frozen=True)
class CrossCheck:
    """Another source's energy of a GPU, a node, or (node None) of all nodes of a segment."""

    node: str | None
    device_kind: str
    device_index: int | None
    source: str
    duration_s: float
    energy_j: float | None
    """Null if the source was not read over enough of the time."""
    recorded_j: float | None
    """What was recorded over the same time; null if nothing was measured."""
    tolerance: float
    """Relative difference from which on it is flagged."""
    recorded_scope: str | None = None
    """Of a node's meter: the device kinds that `recorded_j` is the sum of."""

    @property
    def difference(self) -> float | None:
        """Return this source's energy over the recorded one, minus 1."""
        if self.energy_j is None or not self.recorded_j:
            return None
        return self.energy_j / self.recorded_j - 1

    @property
    def extra_w(self) -> float | None:
        """Return the mean power that a node's meter has beyond what its parts were measured to draw."""
        if self.recorded_scope is None or self.difference is None or not self.duration_s > 0:
            return None
        return self.difference * (self.recorded_j or 0.0) / self.duration_s

    @property
    def differs(self) -> bool:
        """Return True if the difference is over the tolerance."""
        if self.difference is None:
            return False
        if self.recorded_scope is None:
            return abs(self.difference) > self.tolerance
        too_high = self.recorded_scope == ALL_PARTS and self.difference > MOST_BEYOND
        return too_high or self.difference < -self.tolerance

    def row(self, segment: int) -> dict[str, Any]:
        """Return the row of CROSS_CHECKS_SCHEMA."""
        computed = {"difference": self.difference, "extra_w": self.extra_w}
        return {**asdict(self), "segment": segment, **computed}


def gpu_cross_checks(
    recording: NodeRecording, kinds: Sequence[KindEnergy], window: Window
) -> list[CrossCheck]:
    """Return the cross-checks of a node's GPUs by NVML."""
    found = []
    for one in recording.telemetry:
        if one.quantity not in SOURCES:
            continue
        known = np.isfinite(one.values) & (one.time_s >= window[0]) & (one.time_s <= window[1])
        time, values = one.time_s[known], one.values[known]
        if time.size < 2 or time[-1] - time[0] < SHORTEST_S:
            continue
        found.append(_cross_check(one, time, values, kinds))
    return found


def measured_j(kinds: Sequence[KindEnergy], window: Window) -> float | None:
    """Return what the parts of a node were measured to use, whatever its own meter says.

    None if one is estimated or not known, and if none was measured.
    """
    parts = [kind for kind in kinds if kind.device_kind != NODE]
    unknown = any(
        kind.origin == ESTIMATED or not (kind.known or kind.coverage is None) for kind in parts
    )
    if unknown or not any(kind.series for kind in parts):
        return None
    return sum(kind.recorded_j(window) for kind in parts)


def slurm_cross_check(
    slurm: dict[str, Any] | None, recorded_j: float | None, recorded_s: float
) -> CrossCheck | None:
    """Return Slurm's energy of a segment of which `recorded_j` were measured (None: not all).

    Slurm's step begins before the recording and ends after it: that time adds to the tolerance.
    """
    if slurm is None or slurm.get("consumed_energy_j") is None:
        return None
    elapsed = float(slurm.get("elapsed_s") or recorded_s)
    outside = abs(elapsed - recorded_s) / recorded_s if recorded_s > 0 else 0.0
    return CrossCheck(
        node=None,
        device_kind="node",
        device_index=None,
        source="slurm_consumed_energy",
        duration_s=elapsed,
        energy_j=float(slurm["consumed_energy_j"]),
        recorded_j=recorded_j,
        tolerance=MAX_DIFFERENCE + outside,
    )


def cross_check_flags(checks: Sequence[CrossCheck], device_kind: str) -> list[Flag]:
    """Return a flag for each cross-check of a device kind (`node`: of all) that differs."""
    return [
        flag("disagrees", None, _sentence(one))
        for one in checks
        if one.differs and one.device_kind == device_kind
    ]


def compared_with_journal(
    kinds: Sequence[KindEnergy], journals: Iterable[KindEnergy], window: Window
) -> list[KindEnergy]:
    """Flag the kinds of which perun's file and the journal disagree."""
    theirs = {kind.device_kind: kind for kind in journals}
    return [
        replace(kind, flags=(*kind.flags, *_disagreement(kind, theirs.get(kind.device_kind))))
        for kind in kinds
    ]


def _disagreement(record: KindEnergy, journal: KindEnergy | None) -> list[Flag]:
    """Compare perun's file with the journal where both were recording."""
    if journal is None or not record.series or not journal.series:
        return []
    if "estimated" in (record.origin, journal.origin):
        return []
    ours, theirs = node_window(record.series), node_window(journal.series)
    if ours is None or theirs is None:
        return []
    common = max(ours[0], theirs[0]), min(ours[1], theirs[1])
    a, b = record.recorded_j(common), journal.recorded_j(common)
    if common[1] > common[0] and abs(a - b) <= JOURNAL_TOLERANCE * max(a, b):
        return []
    detail = f"{record.node}: {record.device_kind} HDF5 {a:.1f} J, journal {b:.1f} J"
    return [flag("disagrees", None, detail)]


def _sentence(check: CrossCheck) -> str:
    where = check.node or "all nodes"
    if check.device_index is not None and check.device_kind != "node":
        where += f": GPU {check.device_index}"
    scope = ", which counts the whole node" if check.source in WHOLE_NODE else ""
    parts = f" of {check.recorded_scope}" if check.recorded_scope else ""
    return (
        f"{where}: {check.source}{scope}: {check.energy_j:.0f} J over "
        f"{check.duration_s:.0f} s, recorded {check.recorded_j:.0f} J{parts} "
        f"({100 * (check.difference or 0.0):+.1f} %)"
    )


def tolerance_of(values: Floats) -> float:
    """Return the tolerance of a power that was read now and then, by the spread of its readings."""
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) / np.sqrt(values.size)
    return max(MAX_DIFFERENCE, SIGMAS * spread / mean if mean > 0 else 0.0)


def _cross_check(
    one: TelemetrySeries, time: Floats, values: Floats, kinds: Sequence[KindEnergy]
) -> CrossCheck:
    span = float(time[0]), float(time[-1])
    tolerance = MAX_DIFFERENCE
    if one.unit == "J":
        energy = float(values[-1] - values[0])
    else:
        energy = float(np.trapezoid(values, time))
        tolerance = tolerance_of(values)
    index = one.device_index
    kind, recorded = _gpu_j(kinds, index, span)
    return CrossCheck(
        one.node, kind, index, SOURCES[one.quantity], span[1] - span[0], energy, recorded, tolerance
    )


def _gpu_j(kinds: Sequence[KindEnergy], index: int, span: Window) -> tuple[str, float | None]:
    """Return the kind of a GPU, held or not, and what it was measured to use; None if it was not."""
    for kind in kinds:
        if kind.device_kind in ("gpu", UNUSED_GPU) and kind.origin == "measured":
            for series, curve in zip(kind.series, kind.curves, strict=True):
                if series.device_index == index:
                    return kind.device_kind, float(curve.between(*span))
    return "gpu", None
