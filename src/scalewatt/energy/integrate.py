"""From samples to energy: cumulated curves that can be asked for any two times.

Every sample is judged first. Between two neighbouring true samples the energy is the trapezoid
(power), the difference (counter) or the power times the step (mean power since the sample before).
What cannot be true is flagged with the seconds between the true samples around it, and then:

clock_backwards    left out: the fewest samples that must go for the clock to run forward
missing_samples    NaN or below 0: left out
zero_power         0 W of a device that cannot draw 0 W: left out
over_limit         more than the device can draw: left out; of mean powers, which come of a counter,
                   with both neighbours, which the same failed read may have spoilt
counter_zero       a failed read: left out, the difference over it is exact
frozen             of a power: a stretch repeating one value for longer than chance allows, its
                   samples after the first left out. Of a counter: a stretch over GAP_PERIODS times
                   its usual step without a change. If the next difference makes up for it (mean
                   power at least half of the power on both sides) it is exact, else unknown
constant           as frozen, where it may as well be a steady device: counted
counter_reset      a difference that the counter cannot have made: unknown
counter_ambiguous  a difference that a further wrap could hide in: left out
gap                samples over GAP_PERIODS periods apart

Time between true samples that is left out or unknown is bridged up to BRIDGE_S (GAP_PERIODS
periods, if that is longer): of power by the trapezoid, of a counter by the power on both sides.
Beyond that, and before the first and after the last true sample, it is uncovered and adds nothing.
A difference of a counter is exact over any time in which its range leaves only one possible value.
A counter that changes less often than it is read is exact from its first change to its last; its
lag before and after is bridged.

What passes unseen. A frozen power sensor of under 60 s or 30 samples. A counter that lost up to
GAP_PERIODS usual steps. A reset where the difference that it feigns is possible: at most limit ·
(step + LAG_S), over long steps twice the largest power of the usual ones · step.
"""

from __future__ import annotations

import numpy as np

from scalewatt.energy.counter import (
    clean_counter,
    clean_means,
    judge_counter,
    judge_means,
)
from scalewatt.energy.curve import BRIDGE_S, Device, EnergyCurve, Judged, sampling_period
from scalewatt.energy.doubts import DOUBTS, GAP_PERIODS, Codes
from scalewatt.energy.power import clean_power, judge_power
from scalewatt.energy.samples import PLAUSIBLE_W, Flag, Floats, SensorSeries

__all__ = [
    "BRIDGE_S",
    "DOUBTS",
    "GAP_PERIODS",
    "EnergyCurve",
    "Judged",
    "counter_energy",
    "judge",
    "power_samples",
    "sample_doubts",
    "sampling_period",
    "series_energy",
    "trapezoid_energy",
]

# Short peaks above a device's limit are real; twice the limit is not.
LIMIT_FACTOR = 2.0

# Per quantity the quick way for samples without a doubt, and the close look at all others.
_WAYS = {
    "power": (clean_power, judge_power),
    "mean_power": (clean_means, judge_means),
    "counter": (clean_counter, judge_counter),
}


def judge(series: SensorSeries, period_s: float | None = None) -> Judged:
    """Return energy, power and doubts of a series of power, mean power or a counter.

    `period_s` is the declared sampling period.
    """
    measured = series.origin == "measured"
    device = Device(
        sensor=series.sensor,
        limit_w=_limit(series),
        zero_is_missing=measured,
        may_freeze=measured,
        valid_max=series.valid_max,
        period_s=period_s,
    )
    time = np.asarray(series.time_s, dtype=np.float64)
    values = np.asarray(series.values, dtype=np.float64)
    clean, close = _WAYS.get(series.quantity, _WAYS["power"])
    # Absurd values are judged, not warned of.
    with np.errstate(all="ignore"):
        return clean(time, values, device) or close(time, values, device)


def series_energy(
    series: SensorSeries, period_s: float | None = None
) -> tuple[EnergyCurve, list[Flag]]:
    """Return the energy curve of a series, with its flags."""
    judged = judge(series, period_s)
    return judged.curve, judged.flags


def power_samples(series: SensorSeries) -> Floats:
    """Return the power in W at each sample, shape (n,); NaN where unknown."""
    return judge(series).power_w


def sample_doubts(series: SensorSeries, period_s: float | None = None) -> Codes:
    """Return the place in DOUBTS of each sample's doubt, shape (n,)."""
    return judge(series, period_s).doubts


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
    about = Device(device, limit_w, zero_is_missing, period_s=period_s)
    judged = judge_power(time_s, power_w, about)
    return judged.curve, judged.flags


def counter_energy(
    time_s: Floats,
    counter_j: Floats,
    *,
    valid_max: float | None,
    period_s: float | None = None,
    device: str | None = None,
    limit_w: float = np.inf,
) -> tuple[EnergyCurve, list[Flag]]:
    """Take differences of a cumulative counter in J that starts again after `valid_max`."""
    about = Device(device, limit_w, valid_max=valid_max, period_s=period_s)
    judged = judge_counter(time_s, counter_j, about)
    return judged.curve, judged.flags


def _limit(series: SensorSeries) -> float:
    if series.origin != "measured":
        return np.inf
    plausible = PLAUSIBLE_W[series.device_kind]
    return min(plausible, LIMIT_FACTOR * series.limit_w) if series.limit_w else plausible
