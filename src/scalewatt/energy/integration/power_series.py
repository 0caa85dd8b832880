"""Validation of samples of power; `integrate` states the rules."""

from __future__ import annotations

import numpy as np

from scalewatt.energy.integration.curve import (
    Device,
    Validated,
    bridge_s,
    cumulate,
    is_even,
    sampling_period,
)
from scalewatt.energy.integration.sample_checks import (
    BRIDGED,
    GAP_PERIODS,
    UNCOVERED,
    Marks,
    after_gaps,
    forward,
    quality_flags,
    standing_still,
)
from scalewatt.recordings.series import Floats


def clean_power(time_s: Floats, power_w: Floats, device: Device) -> Validated | None:
    """Integrate power in W without any flag in few passes; None where full validation is needed."""
    step = np.diff(time_s)
    # A NaN fails every comparison.
    if not is_even(step, device.period_s) or not float(power_w.max()) <= device.limit_w:
        return None
    lowest = float(power_w.min())
    if not lowest >= 0 or (lowest == 0 and device.measured):
        return None
    if device.measured and any(m.any() for m in standing_still(time_s, power_w)):
        return None
    energy = power_w[1:] + power_w[:-1]
    energy *= step
    energy *= 0.5
    flags = np.zeros(power_w.size, dtype=np.uint8)
    return Validated(cumulate(time_s, energy), [], power_w, flags)


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
        frozen, unsure = standing_still(time_s[knots], power_w[knots])
        constant = knots[unsure]
        marks.mark("frozen", knots[frozen])
        knots = knots[~frozen]
        marks.mark("constant", constant)
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
