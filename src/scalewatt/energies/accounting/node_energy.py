"""The energy of one node in one recording, by device kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from scalewatt.energies.estimate import (
    FACTOR,
    estimated_cpu,
    estimated_gpus,
    estimated_ram,
    node_utilisation,
)
from scalewatt.energies.integrate import (
    GAP_PERIODS,
    EnergyCurve,
    Validated,
    bounds,
    forward_ends,
    sampling_period,
    validate,
)
from scalewatt.energies.stages import StageIntervals
from scalewatt.recordings.perun_file import UNKNOWN_BACKEND
from scalewatt.recordings.series import (
    DEVICE_KINDS,
    ESTIMATED,
    MEAN_OVER_S,
    NODE,
    PLAUSIBLE_W,
    Flag,
    Floats,
    SensorSeries,
    flag,
)
from scalewatt.recordings.transition import to_blocks, to_series

UNUSED_GPU = "unused_gpu"
# More of the window than this without a known power, and the kind's energy is null.
MAX_UNCOVERED = 0.05
# Of all nodes together that may be missing, of 64 three. But one that lacks most was not recorded.
LEAST_OF_A_NODE = 0.5
"""A node whose coverage of a kind is less than this over the run has no energy of it, nor has the run."""
# Up to here perun's file and the journal agree.
JOURNAL_TOLERANCE = 0.005

# perun adds up the same samples; it lacks a step or two where it computes with powers of counters.
PERUN_TOLERANCE, PERUN_STEPS = 0.01, 2
_COUNTED = {"constant", "gap", UNKNOWN_BACKEND}
"""Flags of samples that perun counts as we do, where gaps are bridged."""
_ROUNDING = 1e-9

Window = tuple[float, float]


@dataclass(frozen=True, eq=False)
class KindEnergy:
    """One device kind of one node: its series with their energy curves, over the node's window."""

    node: str
    device_kind: str
    series: tuple[SensorSeries, ...]
    validated: tuple[Validated, ...]
    devices: int | None
    """How many devices (CPU sockets, memories, GPUs) the energy belongs to; None if not recorded."""
    origin: str | None
    coverage: float | None
    """Share of device seconds with a known power; None if the kind is absent."""
    flags: tuple[Flag, ...]
    device_s: float = 0.0
    """Device seconds of which the power should be known."""
    shared: bool = False
    """True if another run was measured on the node at the same time, and cannot be told apart."""
    period_s: float = 0.0
    """What its series resolve in time: the longest sampling period; 0 without any."""
    uncounted_known: bool = True
    """True if the energy of the time that does not count may be stated."""
    lacking: int = 0
    """Devices that must be there and have no series: they are uncovered."""
    rated_w: float = 0.0
    """What a device draws at most by the cluster file; 0 if that does not tell."""
    bounds: tuple[tuple[EnergyCurve, EnergyCurve], ...] = ()
    """Of an estimate: each series' curves at the ends of its interval."""

    @property
    def known(self) -> bool:
        """Return True if the energy of this node in this segment may be stated by itself."""
        return not self.shared and self.coverage is not None and self.coverage >= 1 - MAX_UNCOVERED

    @property
    def curves(self) -> tuple[EnergyCurve, ...]:
        """Return the energy curve of each series."""
        return tuple(one.curve for one in self.validated)

    def recorded_j(self, window: Window) -> float:
        """Return what was recorded between two times, whether or not that is enough to state."""
        return sum(float(curve.between(*window)) for curve in self.curves)

    def intervals_j(
        self, intervals: StageIntervals, outside_s: float = 0.0
    ) -> tuple[Floats, Floats, Floats]:
        """Return the energy in J of each device in each interval, (devices, k), and both ends of it.

        The ends are what an estimate leaves open. In uncovered time a device used at least nothing, and at
        most `most_w`; `outside_s` is uncovered time outside of the intervals, put to the first one. Sums
        take it that the errors of all devices and nodes have the same sign.
        """
        shape = len(self.series), intervals.start_s.size
        energies = np.array([intervals.energy_j(one) for one in self.curves]).reshape(shape)
        low = high = energies
        if self.bounds:
            low, high = (
                np.array([intervals.energy_j(pair[end]) for pair in self.bounds]) for end in (0, 1)
            )
        uncovered = np.array([intervals.uncovered_s(one) for one in self.curves]).reshape(shape)
        uncovered[:, :1] += outside_s
        if uncovered.any():
            high = high + self.most_w[:, None] * uncovered
        return energies, low, high

    def bounds_j(self, window: Window) -> tuple[float, float]:
        """Return the interval of what all devices used between two times, as `intervals_j` has it."""
        _, low, high = self.intervals_j(StageIntervals.of_window(window))
        return float(low.sum()), float(high.sum() + self.lacking_w * (window[1] - window[0]))

    @property
    def lacking_w(self) -> float:
        """Return the most that the devices without a series can draw in W."""
        return self.lacking * float(self.most_w.max(initial=0.0)) if self.lacking else 0.0

    @cached_property
    def most_w(self) -> Floats:
        """Return the most that each device can draw in W, (devices,).

        That is its limit by the recording or the cluster file, or more where more was recorded; of an
        estimate the upper end. Where nothing tells, what its like drew, or what no such device exceeds.
        """
        shown = zip(self.series, self.validated, strict=True)
        most = np.array([max(_most_w(*one), self.rated_w) for one in shown])
        unknown = most.max(initial=0.0) or PLAUSIBLE_W[_kind(self)]
        return np.where(most > 0, most, unknown)


@dataclass(frozen=True)
class _Spans:
    """The time of a node that counts: a window and what is lost beside it, but for some spans."""

    window: Window
    lost_s: float
    uncounted: tuple[Window, ...]
    """Spans in the window that do not count."""

    @property
    def uncounted_s(self) -> float:
        return sum(end - begin for begin, end in self.uncounted)

    @property
    def counted_s(self) -> float:
        return self.window[1] - self.window[0] + self.lost_s - self.uncounted_s


def _most_w(series: SensorSeries, validated: Validated) -> float:
    """Return the power limit of a device, or the largest power that it had; 0 if neither is known."""
    power_w = validated.power_w
    if series.origin == ESTIMATED:
        power_w = FACTOR * power_w if series.bounds_w is None else series.bounds_w[1]
    return float(np.fmax.reduce(power_w, initial=series.limit_w or 0.0))


def node_window(series: Sequence[SensorSeries]) -> Window | None:
    """Return first and last sample time of a node over all its sensors; None without samples.

    Stamps that a clock running forward cannot have made do not count.
    """
    different = {id(s.time_s): s.time_s for s in series if s.time_s.size}.values()
    ends = [found for t in different if (found := forward_ends(t)) is not None]
    if not ends:
        return None
    return min(first for first, _ in ends), max(last for _, last in ends)


def node_kinds(
    node: str,
    series: Sequence[SensorSeries],
    *,
    powers: dict[str, Any],
    period_s: float | None,
    used_gpus: Sequence[int] | None = None,
    expected_gpus: int | None = None,
    has_gpus: bool = False,
    lost_s: float = 0.0,
    window: Window | None = None,
    uncounted: Sequence[Window] = (),
) -> list[KindEnergy]:
    """Return gpu, cpu, ram and, where there are such, unused_gpu and node of one node.

    Where the node's own meter is all that there is, nothing is expected or estimated of its parts.

    `used_gpus` are the indices that the run held (None: all recorded), `expected_gpus` how many
    there must be (`has_gpus`: there are some, even if none was recorded); a GPU that should be
    there and is not counts as uncovered. `lost_s` is known run time outside of the node's
    recording, uncovered for every kind. `window` is the time that counts (None: all that was
    recorded), but for the spans `uncounted` in it.
    """
    window = window or node_window(series) or (0.0, 0.0)
    if of_whole_node_only(series):
        powers, used_gpus, expected_gpus, has_gpus = {}, None, None, False
    kinds = []
    spans = _Spans(window, lost_s, tuple(uncounted))
    metered = any(one.device_kind == NODE for one in series)
    for kind in (*DEVICE_KINDS, NODE) if metered else DEVICE_KINDS:
        found, flags = _energy_series(node, kind, series, powers)
        unused: list[SensorSeries] = []
        if kind == "gpu" and used_gpus is not None:
            unused = [s for s in found if s.device_index not in used_gpus]
            found = [s for s in found if s.device_index in used_gpus]
        expected = expected_gpus if kind == "gpu" else None
        # What the run held exists, with or without a sensor.
        exists = bool(powers.get(kind)) and expected != 0
        exists |= kind == "gpu" and (bool(used_gpus) or has_gpus)
        if kind == "gpu":
            flags += _gpu_count_flags(node, len(found), expected_gpus, exists)
        if found:
            kinds.append(_measure(node, kind, found, flags, spans, period_s, expected, powers))
        else:
            kinds.append(_without_series(node, kind, flags, exists))
        if unused:
            kinds.append(_measure(node, UNUSED_GPU, unused, [], spans, period_s, None, powers))
    return kinds


def of_whole_node_only(series: Sequence[SensorSeries]) -> bool:
    """Return True if a node has a meter, and none of its parts a sensor of power or energy."""
    kinds = {one.device_kind for one in series if one.quantity != "utilisation"}
    return NODE in kinds and not kinds & set(DEVICE_KINDS)


def against_perun(kinds: Sequence[KindEnergy]) -> list[KindEnergy]:
    """Flag the kinds whose samples do not add up to what perun itself computed of them.

    Only where no other flag says already that perun has counted samples that are none.
    """
    found = []
    for kind in kinds:
        # GPUs that the run did not hold are in perun's total too.
        parts = [other for other in kinds if _kind(other) == _kind(kind)]
        measured = (one for one in kind.series if one.origin != ESTIMATED)
        stated = next((one.perun_kind_j for one in measured if one.perun_kind_j), None)
        codes = {one["code"] for part in parts for one in part.flags}
        # perun bridges a gap of any length.
        known = all(part.coverage is None or part.coverage > 1 - _ROUNDING for part in parts)
        if stated is not None and known and not codes - _COUNTED:
            recorded = sum(part.recorded_j((-np.inf, np.inf)) for part in parts)
            # Of power perun takes the same trapezoids.
            steps = [one.time_s.size - 1 for one in kind.series if one.quantity != "power"]
            tolerance = max(PERUN_TOLERANCE, *(PERUN_STEPS / max(n, 1) for n in steps), 0.0)
            if abs(recorded - stated) > tolerance * stated:
                detail = (
                    f"{kind.node}: {kind.device_kind} {recorded:.1f} J by its samples, {stated:.1f} J "
                    "by perun's own total: one of them is damaged"
                )
                kind = replace(kind, flags=(*kind.flags, flag("disagrees", None, detail)))
        found.append(kind)
    return found


def _kind(energy: KindEnergy) -> str:
    return energy.device_kind.removeprefix("unused_")


def shared_kinds(
    kinds: Sequence[KindEnergy], shared_s: float, others: Sequence[str] = (), own_gpus: bool = False
) -> list[KindEnergy]:
    """Return the kinds of a node on which other runs were measured at the same time: unknown.

    Their energies cannot be separated, but for those of GPUs where it is known which are this run's
    (`own_gpus`). `others` names them in the flag `node_shared`.
    """
    return [_shared(kind, shared_s, others, own_gpus) if kind.series else kind for kind in kinds]


def _shared(kind: KindEnergy, shared_s: float, others: Sequence[str], own_gpus: bool) -> KindEnergy:
    who = ", ".join(others) or "another run"
    detail = f"{kind.node}: {who} measured on the node for {shared_s:.1f} s of this run"
    known = own_gpus and _kind(kind) == "gpu"
    if known:
        detail += "; its own GPUs are known, and count with all that was done on them"
    return replace(kind, shared=not known, flags=(*kind.flags, flag("node_shared", None, detail)))


def _energy_series(
    node: str, kind: str, series: Sequence[SensorSeries], powers: dict[str, Any]
) -> tuple[list[SensorSeries], list[Flag]]:
    """Return one power or counter series per device, measured if there is any, else estimated."""
    of_kind = [s for s in series if s.device_kind == kind]
    best: dict[int, SensorSeries] = {}
    flags: list[Flag] = []
    measured = (s for s in of_kind if s.quantity != "utilisation")
    for one in sorted(measured, key=lambda s: (_is_of_unknown_backend(s), _preference(s))):
        if one.device_index in best:
            first = best[one.device_index]
            flags.append(flag("second_sensor", one.sensor, f"not added: {first.sensor} is counted"))
        else:
            best[one.device_index] = one
    if best:
        return [best[index] for index in sorted(best)], flags
    return _estimated(kind, series, powers)


def _is_of_unknown_backend(series: SensorSeries) -> bool:
    return any(one["code"] == UNKNOWN_BACKEND for one in series.flags)


def _preference(series: SensorSeries) -> tuple[bool, bool, bool, str]:
    counter = series.quantity == "counter"
    return series.totals, not counter, not series.sensor.endswith("_POWER"), series.sensor


def _estimated(
    kind: str, series: Sequence[SensorSeries], powers: dict[str, Any]
) -> tuple[list[SensorSeries], list[Flag]]:
    rated = powers.get(kind)
    if not rated:
        return [], []
    if kind == "ram":
        axis = max(series, key=lambda s: s.time_s.size, default=None)
        return (to_series(estimated_ram(to_blocks([axis])[0], rated)) if axis else []), []
    if kind == "cpu":
        utilisation, flags = node_utilisation(to_blocks(series))
        return (to_series(estimated_cpu(utilisation, rated)) if utilisation else []), flags
    busy = {
        s.device_index: s for s in series if s.device_kind == kind and s.quantity == "utilisation"
    }
    blocks = [to_blocks([busy[index]])[0] for index in sorted(busy)]
    return [one for block in blocks for one in to_series(estimated_gpus(block, rated))], []


def _gpu_count_flags(node: str, found: int, expected: int | None, exist: bool) -> list[Flag]:
    if expected is None or found == expected or not (found or exist):
        return []
    return [flag("device_count", None, f"{node}: power of {found} GPUs, {expected} expected")]


def _measure(
    node: str,
    kind: str,
    series: list[SensorSeries],
    flags: list[Flag],
    spans: _Spans,
    period_s: float | None,
    expected: int | None,
    powers: dict[str, Any],
) -> KindEnergy:
    window = spans.window
    blocks = [to_blocks([one])[0] for one in series]
    validated = tuple(validate(block, 0, period_s) for block in blocks)
    curves = [one.curve for one in validated]
    for own, one in zip(series, validated, strict=True):
        found = (*own.flags, *one.flags, *_short_flags(own, window, period_s))
        flags = [*flags, *({**each, "detail": f"{node}: {each['detail']}"} for each in found)]
    length, devices = spans.counted_s, max(len(series), expected or 0)
    device_s = devices * length
    apart_s = sum(float(curve.covered_s(*span)) for curve in curves for span in spans.uncounted)
    covered = sum(float(curve.covered_s(*window)) for curve in curves) - apart_s
    coverage = min(covered / device_s, 1.0) if device_s > 0 else float(spans.uncounted_s > 0)
    if coverage < 1 - MAX_UNCOVERED:
        recorded = sum(float(curve.between(*window)) for curve in curves)
        detail = (
            f"{node}: {100 * coverage:.1f} % of {length:.1f} s of {kind} covered; "
            f"{recorded:.1f} J were recorded"
        )
        flags = [*flags, flag("coverage", None, detail)]
    origin = series[0].origin
    apart = devices * spans.uncounted_s
    lacking = devices - len(series)
    devices = len(series)
    rated = powers.get(kind.removeprefix("unused_")) or {}
    if origin == ESTIMATED and kind == "cpu" and powers.get("cpu"):
        devices = int(powers["cpu"]["sockets"])
    return KindEnergy(
        node,
        kind,
        tuple(series),
        validated,
        devices,
        origin,
        coverage,
        tuple(flags),
        device_s,
        period_s=_resolved_s(series, period_s),
        uncounted_known=apart_s >= (1 - MAX_UNCOVERED) * apart,
        lacking=lacking,
        rated_w=float(rated.get("rated_w") or rated.get("power_w") or 0.0),
        bounds=tuple(
            bounds(block, 0, curve, period_s)
            for own, block, curve in zip(series, blocks, curves, strict=True)
            if own.origin == ESTIMATED
        ),
    )


def _resolved_s(series: Sequence[SensorSeries], declared_s: float | None) -> float:
    """Return the longest sampling period; of GPUs no less than what their sensors may average over."""
    times = {id(one.time_s): one.time_s for one in series}  # sensors of a host share them
    longest = max(sampling_period(time_s, declared_s) for time_s in times.values())
    windows = (np.diff(one.time_s).max(initial=0.0) for one in series if one.totals)
    longest = max(longest, *map(float, windows), 0.0)
    measured = any(one.device_kind == "gpu" and one.origin != ESTIMATED for one in series)
    return max(longest, MEAN_OVER_S) if measured else longest


def _short_flags(series: SensorSeries, window: Window, period_s: float | None) -> list[Flag]:
    """Return a flag for a sensor whose samples begin or end much later or earlier than those of its node."""
    if (own := node_window([series])) is None:
        if series.flags or window[1] <= window[0]:
            return []
        missing = window[1] - window[0]
    else:
        outside = max(own[0] - window[0], 0.0), max(window[1] - own[1], 0.0)
        if not any(outside):
            return []
        period = sampling_period(series.time_s, period_s)
        # The tolerance is that of a gap.
        missing = sum(s for s in outside if s > GAP_PERIODS * period * (1 + 1e-6))
        missing = min(missing, window[1] - window[0])
    if missing <= 0:
        return []
    detail = f"no samples for {missing:.1f} s at the beginning or the end of the recording"
    return [flag("recording_short", series.sensor, f"{detail}: uncovered")]


def _without_series(node: str, kind: str, flags: list[Flag], exists: bool) -> KindEnergy:
    """Tell a kind that is out of scope (`absent`) from one that used energy (`not_recorded`)."""
    if exists:
        detail = f"{node}: there are {kind} devices, but neither power nor utilisation of them"
        flags = [*flags, flag("not_recorded", None, detail)]
        return KindEnergy(node, kind, (), (), 0, None, 0.0, tuple(flags))
    detail = f"{node}: no {kind} sensor and nothing to estimate from"
    flags = [*flags, flag("absent", None, detail)]
    return KindEnergy(node, kind, (), (), 0, None, None, tuple(flags))
