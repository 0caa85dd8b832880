"""From samples to energy: cumulated curves that can be asked for any two times.

Rules. Samples that cannot be true (NaN, 0 W of a GPU, a counter at 0, more than the device can
draw) are missing. Between two neighbouring true samples the energy is the trapezoid (power) or the
difference (counter). A distance over GAP_PERIODS sampling periods is flagged `gap`; power is
bridged up to BRIDGE_S (or GAP_PERIODS periods, if that is longer), beyond it the time is uncovered
and adds nothing. A counter's difference stays exact over any gap in which the counter's range
leaves only one possible value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalewatt.energy.samples import PLAUSIBLE_W, Flag, Floats, SensorSeries, flag

GAP_PERIODS = 3.0
BRIDGE_S = 30.0
# Short peaks above a GPU's limit are real; twice the limit is not.
LIMIT_FACTOR = 2.0

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class EnergyCurve:
    """Energy cumulated over time: `time_s`, `energy_j`, `cumulated_s` (covered time), all (n,)."""

    time_s: Floats
    energy_j: Floats
    cumulated_s: Floats

    def between(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the energy in J between two times (scalars or arrays); additive over any split.

        Between two samples the curve is a straight line; outside of the samples it is flat.
        """
        return self._at(self.energy_j, end_s) - self._at(self.energy_j, start_s)

    def covered_s(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the seconds between two times of which the energy is known."""
        return self._at(self.cumulated_s, end_s) - self._at(self.cumulated_s, start_s)

    def _at(self, values: Floats, time_s: ArrayLike) -> Floats:
        if self.time_s.size == 0:
            return np.zeros_like(np.asarray(time_s, dtype=np.float64))
        return np.asarray(np.interp(np.asarray(time_s), self.time_s, values))


def sampling_period(time_s: Floats, declared_s: float | None = None) -> float:
    """Return the period in s: the declared one or, if that is longer or alone, the median step."""
    steps = np.diff(time_s)
    steps = steps[steps > 0]
    median = float(np.median(steps)) if steps.size else 0.0
    return max(median, declared_s or 0.0)


def trapezoid_energy(
    time_s: Floats,
    power_w: Floats,
    *,
    period_s: float | None = None,
    device: str | None = None,
    zero_is_missing: bool = False,
    limit_w: float = np.inf,
) -> tuple[EnergyCurve, list[Flag]]:
    """Integrate power in W over true time stamps in s; see the module's rules."""
    usable, flags = _usable_power(time_s, power_w, device, zero_is_missing, limit_w)
    time, power = time_s[usable], power_w[usable]
    step = np.diff(time)
    period = sampling_period(time_s, period_s)
    bridged = step <= _bridge(period)
    energy = np.where(bridged, 0.5 * (power[1:] + power[:-1]) * step, 0.0)
    flags += _gap_flags(time, step, bridged, period, device)
    return _cumulate(time, energy, np.where(bridged, step, 0.0)), flags


def counter_energy(
    time_s: Floats,
    counter_j: Floats,
    *,
    valid_max: float | None,
    period_s: float | None = None,
    device: str | None = None,
    limit_w: float = np.inf,
) -> tuple[EnergyCurve, list[Flag]]:
    """Take differences of a cumulative counter in J that starts again after `valid_max`.

    A difference counts when it is the only one that the device can have made: with a wrap more it
    would be above `limit_w`. An impossible one (reset, wrap of unknown range) is bridged by the
    power on both sides, up to the bridge length, and flagged `counter_reset`.
    """
    usable, flags = _usable_counter(time_s, counter_j, device)
    time = time_s[usable]
    step = np.diff(time)
    power, exact, ambiguous = _difference_power(step, counter_j[usable], valid_max, limit_w)
    period = sampling_period(time_s, period_s)
    impossible = ~exact & ~ambiguous
    bridged = impossible & (_run_length(step, exact) <= _bridge(period))
    bridged &= _inside(exact)
    if bridged.any():
        middle = time[:-1] + 0.5 * step
        power = np.where(bridged, np.interp(middle, middle[exact], power[exact]), power)
    known = exact | bridged
    flags += _gap_flags(time, step, known, period, device)
    flags += _seconds_flag("counter_reset", step[impossible], step[bridged], device)
    flags += _seconds_flag("counter_ambiguous", step[ambiguous], step[:0], device)
    energy = np.where(known, power * step, 0.0)
    return _cumulate(time, energy, np.where(known, step, 0.0)), flags


def series_energy(
    series: SensorSeries, period_s: float | None = None
) -> tuple[EnergyCurve, list[Flag]]:
    """Return the energy curve of a power or counter series, with its flags."""
    if series.quantity == "counter":
        return counter_energy(
            series.time_s,
            series.values,
            valid_max=series.valid_max,
            period_s=period_s,
            device=series.sensor,
            limit_w=PLAUSIBLE_W[series.device_kind],
        )
    return trapezoid_energy(
        series.time_s,
        series.values,
        period_s=period_s,
        device=series.sensor,
        zero_is_missing=_cannot_be_zero(series),
        limit_w=_limit(series),
    )


def power_samples(series: SensorSeries) -> Floats:
    """Return the power in W at each sample, shape (n,); NaN where unknown.

    Of a counter: the mean power since the sample before, so the first is unknown.
    """
    if series.quantity != "counter":
        usable, _ = _usable_power(
            series.time_s, series.values, None, _cannot_be_zero(series), _limit(series)
        )
        return np.where(usable, series.values, np.nan)
    usable, _ = _usable_counter(series.time_s, series.values, None)
    step = np.diff(series.time_s[usable])
    limit = PLAUSIBLE_W[series.device_kind]
    power, exact, _ = _difference_power(step, series.values[usable], series.valid_max, limit)
    result = np.full(series.time_s.shape, np.nan)
    result[np.flatnonzero(usable)[1:]] = np.where(exact, power, np.nan)
    return result


def _cannot_be_zero(series: SensorSeries) -> bool:
    return series.device_kind == "gpu" and series.origin == "measured"


def _limit(series: SensorSeries) -> float:
    if series.origin != "measured":
        return np.inf
    plausible = PLAUSIBLE_W[series.device_kind]
    return min(plausible, LIMIT_FACTOR * series.limit_w) if series.limit_w else plausible


def _usable_power(
    time_s: Floats, power_w: Floats, device: str | None, zero_is_missing: bool, limit_w: float
) -> tuple[Bools, list[Flag]]:
    forward = _forward(time_s)
    known = np.isfinite(power_w) & (power_w >= 0)
    zero = known & (power_w == 0) & zero_is_missing
    over = known & (power_w > limit_w)
    flags = _count_flag("clock_backwards", ~forward, "samples not after the one before", device)
    flags += _count_flag("missing_samples", ~known, "samples without a value", device)
    flags += _count_flag("zero_power", zero, "samples of 0 W", device)
    flags += _count_flag("over_limit", over, f"samples above {limit_w:g} W", device)
    return forward & known & ~zero & ~over, flags


def _usable_counter(
    time_s: Floats, counter_j: Floats, device: str | None
) -> tuple[Bools, list[Flag]]:
    forward = _forward(time_s)
    known = np.isfinite(counter_j)
    # A counter in µJ is never exactly 0 by itself; perun writes 0 for a failed read.
    zero = known & (counter_j == 0)
    flags = _count_flag("clock_backwards", ~forward, "samples not after the one before", device)
    flags += _count_flag("missing_samples", ~known, "samples without a value", device)
    flags += _count_flag("counter_zero", zero, "failed reads (counter at 0)", device)
    return forward & known & ~zero, flags


def _forward(time_s: Floats) -> Bools:
    """Mark the samples that are later than every one before."""
    if time_s.size == 0:
        return np.zeros(0, dtype=np.bool_)
    latest = np.maximum.accumulate(time_s)
    return np.concatenate(([True], time_s[1:] > latest[:-1]))


def _difference_power(
    step: Floats, counter_j: Floats, valid_max: float | None, limit_w: float
) -> tuple[Floats, Bools, Bools]:
    """Return power (W), whether it is exact, whether a further wrap is possible; each (n-1,)."""
    difference = np.diff(counter_j)
    if valid_max is not None:
        difference = np.where(difference < 0, difference + valid_max, difference)
    possible = (difference >= 0) & (difference <= limit_w * step)
    if valid_max is None or not np.isfinite(limit_w):
        ambiguous = np.zeros_like(possible)
    else:
        ambiguous = possible & (difference + valid_max <= limit_w * step)
    power = np.divide(difference, step, out=np.zeros_like(difference), where=step > 0)
    return power, possible & ~ambiguous, ambiguous


def _run_length(step: Floats, good: Bools) -> Floats:
    """Return for each interval that is not good the seconds of its unbroken run of such ones."""
    run = np.cumsum(good)
    seconds = np.bincount(run, weights=np.where(good, 0.0, step), minlength=1)
    return np.asarray(seconds[run], dtype=np.float64)


def _inside(good: Bools) -> Bools:
    """Mark what lies between the first and the last good interval."""
    return np.maximum.accumulate(good) & np.maximum.accumulate(good[::-1])[::-1]


def _bridge(period_s: float) -> float:
    return max(BRIDGE_S, GAP_PERIODS * period_s)


def _cumulate(time_s: Floats, energy_j: Floats, covered_s: Floats) -> EnergyCurve:
    if time_s.size == 0:
        return EnergyCurve(time_s, np.zeros(0), np.zeros(0))
    return EnergyCurve(
        time_s,
        np.concatenate(([0.0], np.cumsum(energy_j))),
        np.concatenate(([0.0], np.cumsum(covered_s))),
    )


def _gap_flags(
    time_s: Floats, step: Floats, known: Bools, period_s: float, device: str | None
) -> list[Flag]:
    # The tolerance keeps the jitter of a float32 clock from making a gap of three periods.
    gap = step > GAP_PERIODS * period_s * (1 + 1e-6)
    if not gap.any():
        return []
    bridged, lost = step[gap & known].sum(), step[gap & ~known].sum()
    detail = (
        f"{int(gap.sum())} gaps over {GAP_PERIODS * period_s:g} s, the longest {step.max():.1f} s: "
        f"{bridged:.1f} s bridged, {lost:.1f} s uncovered"
    )
    return [flag("gap", device, detail)]


def _count_flag(code: str, where: Bools, what: str, device: str | None) -> list[Flag]:
    count = int(np.count_nonzero(where))
    return [flag(code, device, f"{count} of {where.size} {what}")] if count else []


def _seconds_flag(code: str, all_s: Floats, bridged_s: Floats, device: str | None) -> list[Flag]:
    if all_s.size == 0:
        return []
    lost = all_s.sum() - bridged_s.sum()
    detail = f"{all_s.size} intervals: {bridged_s.sum():.1f} s bridged, {lost:.1f} s uncovered"
    return [flag(code, device, detail)]
