"""From samples to energy: cumulated curves that can be asked for any two times.

Every sample is validated first. Between two adjacent valid samples the energy is the trapezoid
(power), the difference (counter) or the power times the step (mean power since the sample before).
Invalid samples are flagged with the seconds between the valid samples around them, and then:

clock_backwards    left out: the fewest samples that must go for the clock to run forward
missing_samples    NaN or below 0: left out
zero_power         0 W of a device that cannot draw 0 W: left out
over_limit         more than the device can draw: left out; of mean powers, which come of a counter,
                   with the last one before and the first one after it that are not 0, and all
                   between: the same failed reads may have corrupted them
counter_zero       a failed read: left out, the difference over it is exact
frozen             of a counter: a stretch over GAP_PERIODS times its usual step without a change. If
                   the next difference makes up for it (mean power at least half of the power on both
                   sides) it is exact, else unknown
constant           of a power: a stretch repeating one value for longer than chance allows, of a steady
                   device or a frozen sensor: counted
low_power          of a node's meter: less than a hundredth of its median power, which no running node
                   draws. What stands behind such a reading is not known: counted
counter_reset      a difference that the counter cannot have made: unknown
counter_ambiguous  a difference that a further wrap could hide in: left out
gap                samples over GAP_PERIODS periods apart

A power that is the mean over the second before its sample counts at the middle of that second, half a
second earlier, or all edges of stages would come late.

Time between valid samples that is left out or unknown is bridged up to BRIDGE_S (GAP_PERIODS
periods, if that is longer): of power by the trapezoid, of a counter by the power on both sides.
Beyond that, and before the first and after the last true sample, it is uncovered and adds nothing.
A difference of a counter is exact over any time in which its range leaves only one possible value.
Of totals (`series.totals`) nothing is bridged, and nothing but their energy is known.
A counter that changes less often than it is read is exact from its first change to its last; its
lag before and after is bridged.

What is not detected. A frozen power sensor: it is flagged and counted. A
counter that lost up to GAP_PERIODS usual steps. A reset whose apparent difference is possible: at
most limit · (step + LAG_S), over long steps twice the largest power of the usual ones · step. Of
mean powers the same holds of failed reads at the beginning or the end; four or more in a row during
a wrap may cost limit · their time, up to the longest time that is bridged.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scalewatt.energies.integration.counter_series import (
    validate_counter,
    validate_means,
    validate_totals,
)
from scalewatt.energies.integration.rated_power import FACTOR
from scalewatt.energies.integration.sample_checks import (
    BRIDGED,
    GAP_PERIODS,
    UNCOVERED,
    Device,
    EnergyCurve,
    Marks,
    Validated,
    after_gaps,
    bridge_s,
    cumulate,
    forward,
    quality_flags,
    sampling_period,
    standing_still,
)
from scalewatt.recordings.series import (
    ESTIMATED,
    MEAN_OVER_S,
    MOVING_MEAN,
    NODE,
    PLAUSIBLE_W,
    Floats,
    SensorSeries,
)

# Short peaks above a device's limit are real; twice the limit is not.
LIMIT_FACTOR = 2.0
# Idle nodes with 8 GPUs draw a third of their full power; five meters read 2 to 17 W of 6 kW for a minute.
LEAST_OF_NODE = 0.01


def validate_power(time_s: Floats, power_w: Floats, device: Device) -> Validated:
    """Validate every sample of power in W and integrate between the valid ones."""
    period = sampling_period(time_s, device.period_s)
    marks = Marks(np.zeros(power_w.size, dtype=np.uint8))
    runs_forward = forward(time_s)
    marks.mark_where("clock_backwards", ~runs_forward)
    marks.mark_where("missing_samples", ~(np.isfinite(power_w) & (power_w >= 0)))
    if device.measured:
        marks.mark_where("zero_power", power_w == 0)
    marks.mark_where("over_limit", power_w > device.limit_w)
    knots = marks.usable()
    if device.measured:
        marks.mark("constant", knots[standing_still(time_s[knots], power_w[knots])])
    if device.least_share and knots.size:
        low = power_w[knots] < device.least_share * np.median(power_w[knots])
        marks.mark("low_power", knots[low])
    in_order = np.flatnonzero(runs_forward)
    marks.mark("gap", in_order[after_gaps(time_s[in_order], period)])
    time, power = time_s[knots], power_w[knots]
    step = np.diff(time)
    known = step <= bridge_s(period)
    energy = np.where(known, 0.5 * (power[1:] + power[:-1]) * step, 0.0)
    state = np.where(known, BRIDGED, UNCOVERED).astype(np.uint8)
    words = {
        "over_limit": f"samples above {device.limit_w:g} W",
        "gap": f"samples after a gap over {GAP_PERIODS * period:g} s",
    }
    flags = quality_flags(time_s, marks, knots, state, device.sensor, words)
    true = np.zeros(power_w.size, dtype=np.bool_)
    true[knots] = True
    curve = cumulate(time, energy, np.where(known, step, 0.0))
    return Validated(curve, flags, np.where(true, power_w, np.nan), marks.codes)


_CHECKS = {"mean_power": validate_means, "counter": validate_counter}
"""Checks of what is not a power."""


def validate(series: SensorSeries, period_s: float | None = None) -> Validated:
    """Return energy, power and quality flags of a series of power, mean power or a counter.

    `period_s` is the declared sampling period.
    """
    device = Device(
        sensor=series.sensor,
        limit_w=_limit(series),
        measured=series.origin != ESTIMATED,
        valid_max=series.valid_max,
        period_s=period_s,
        least_share=LEAST_OF_NODE if series.device_kind == NODE else 0.0,
    )
    time, values = _floats(series.time_s), _floats(series.values)
    if series.totals:
        with np.errstate(all="ignore"):
            return validate_totals(time, values, device)
    check = _CHECKS.get(series.quantity, validate_power)
    # Absurd values are flagged, not warned of.
    with np.errstate(all="ignore"):
        found = check(time, values, device)
    if series.samples == MOVING_MEAN and series.quantity == "power":
        return replace(found, curve=_centred(found))
    return found


def _centred(validated: Validated) -> EnergyCurve:
    """Return the energy curve of samples that are means over the MEAN_OVER_S before them.

    Each is the power at the middle of that time, and the last one that until its sample. The curve begins
    with the first sample, as of other powers.
    """
    curve, half_s = validated.curve, MEAN_OVER_S / 2
    if curve.time_s.size < 2 or curve.time_s[-1] - curve.time_s[0] <= half_s:
        return curve
    last_w = validated.power_w[np.isfinite(validated.power_w)][-1]
    first_s, last_s = curve.time_s[0], curve.time_s[-1]
    later = curve.time_s > first_s + half_s
    energy = curve.energy_j[later], curve.energy_j[-1:] + half_s * last_w
    covered = curve.cumulated_s[later], curve.cumulated_s[-1:] + half_s
    return EnergyCurve(
        np.concatenate(([first_s], curve.time_s[later] - half_s, [last_s])),
        np.concatenate(([curve.until(first_s + half_s)], *energy)),
        np.concatenate(([curve.covered_until(first_s + half_s)], *covered)),
    )


def _floats(values: Floats) -> Floats:
    """Return values as float64; those of another process have a type of their own that is the same."""
    return values if values.dtype == np.float64 else values.astype(np.float64)


def _limit(series: SensorSeries) -> float:
    if series.origin == ESTIMATED:
        return np.inf
    plausible = PLAUSIBLE_W[series.device_kind]
    return min(plausible, LIMIT_FACTOR * series.limit_w) if series.limit_w else plausible


def bounds_of(
    series: SensorSeries, curve: EnergyCurve, period_s: float | None = None
) -> tuple[EnergyCurve, EnergyCurve]:
    """Return the energy curves at both ends of an estimate's interval; `curve` is its own.

    An estimate that states no interval, as one of another tool, gets × or ÷ FACTOR.
    """
    if series.bounds_w is None:
        return curve.times(1 / FACTOR), curve.times(FACTOR)
    low, high = (validate(replace(series, values=ends), period_s).curve for ends in series.bounds_w)
    return low, high
