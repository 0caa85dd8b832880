"""From samples to energy: cumulated curves that can be asked for any two times.

Every sample is validated first. Between two adjacent valid samples the energy is the trapezoid
(power), the difference (counter) or the power times the step (mean power since the sample before).
Invalid samples are flagged with the seconds between the valid samples around them, and then:

clock_backwards    left out: the fewest samples that must go for the clock to run forward
missing_samples    NaN or below 0: left out
zero_power         0 W of a device that cannot draw 0 W: left out
over_limit         more than the device can draw: left out; of mean powers, which come of a counter,
                   with the last one before and the first one after it that are not 0, and all
                   between: the same failed reads may have spoilt them
counter_zero       a failed read: left out, the difference over it is exact
frozen             of a power: a stretch repeating one value for longer than chance allows, its
                   samples after the first left out. Of a counter: a stretch over GAP_PERIODS times
                   its usual step without a change. If the next difference makes up for it (mean
                   power at least half of the power on both sides) it is exact, else unknown
constant           as frozen, where it may as well be a steady device: counted
counter_reset      a difference that the counter cannot have made: unknown
counter_ambiguous  a difference that a further wrap could hide in: left out
gap                samples over GAP_PERIODS periods apart

Time between valid samples that is left out or unknown is bridged up to BRIDGE_S (GAP_PERIODS
periods, if that is longer): of power by the trapezoid, of a counter by the power on both sides.
Beyond that, and before the first and after the last true sample, it is uncovered and adds nothing.
A difference of a counter is exact over any time in which its range leaves only one possible value.
A counter that changes less often than it is read is exact from its first change to its last; its
lag before and after is bridged.

What is not detected. A frozen power sensor of under 60 s or 30 samples. A counter that lost up to
GAP_PERIODS usual steps. A reset where the difference that it feigns is possible: at most limit ·
(step + LAG_S), over long steps twice the largest power of the usual ones · step. Of mean powers the
same holds of failed reads at the beginning or the end; four or more in a row during a wrap may cost
limit · their time, up to the longest time that is bridged.
"""

from __future__ import annotations

import numpy as np

from scalewatt.energy.integration.counter_series import (
    clean_counter,
    clean_means,
    validate_counter,
    validate_means,
)
from scalewatt.energy.integration.curve import Device, EnergyCurve, Validated
from scalewatt.energy.integration.power_series import clean_power, validate_power
from scalewatt.energy.integration.sample_checks import SAMPLE_FLAGS
from scalewatt.recordings.series import ESTIMATED, PLAUSIBLE_W, SensorSeries

__all__ = ["SAMPLE_FLAGS", "EnergyCurve", "Validated", "validate"]

# Short peaks above a device's limit are real; twice the limit is not.
LIMIT_FACTOR = 2.0

# Per quantity the fast path for samples without a flag, and the full validation of all others.
_PATHS = {
    "power": (clean_power, validate_power),
    "mean_power": (clean_means, validate_means),
    "counter": (clean_counter, validate_counter),
}


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
    )
    time = np.asarray(series.time_s, dtype=np.float64)
    values = np.asarray(series.values, dtype=np.float64)
    fast_path, full_validation = _PATHS.get(series.quantity, _PATHS["power"])
    # Absurd values are flagged, not warned of.
    with np.errstate(all="ignore"):
        return fast_path(time, values, device) or full_validation(time, values, device)


def _limit(series: SensorSeries) -> float:
    if series.origin == ESTIMATED:
        return np.inf
    plausible = PLAUSIBLE_W[series.device_kind]
    return min(plausible, LIMIT_FACTOR * series.limit_w) if series.limit_w else plausible
