"""Validation of counters and of mean powers computed from them; `integrate` states the rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewatt.energies.integration.sample_checks import (
    BRIDGED,
    EXACT,
    GAP_PERIODS,
    UNCOVERED,
    Bools,
    Codes,
    Device,
    Indices,
    Marks,
    Validated,
    after_gaps,
    bridge_s,
    code_of,
    cumulate,
    forward,
    quality_flags,
    sampling_period,
)
from scalewatt.recordings.series import Floats

# Seconds that a counter's content may be old: a shorter step may hold more energy than the limit.
LAG_S = 0.1
# A counter that changes at every second read only, or less often, is slow. What it has not shown at
# the beginning and the end is not much more than its usual step.
SLOW_READS = 2
LAG_STEPS = 1.5
# A long step's mean power is not below this share of the power on both sides, if the counter stood
# still, and not above this multiple of the largest of all usual steps.
CAUGHT_UP = 0.5
RESET = 2.0
# The smallest range at which counters of power are known to wrap, where theirs is not recorded.
LEAST_RANGE_J = 65_000.0


def validate_counter(time_s: Floats, counter_j: Floats, device: Device) -> Validated:
    """Validate every sample of a counter in J and every step between the valid ones."""
    marks = Marks(np.zeros(counter_j.size, dtype=np.uint8))
    marks.mark_where("clock_backwards", ~forward(time_s))
    marks.mark_where("missing_samples", ~np.isfinite(counter_j))
    # A counter in µJ is never exactly 0 by itself; perun writes 0 for a failed read.
    marks.mark_where("counter_zero", counter_j == 0)
    usable = marks.usable()
    difference = differences(counter_j[usable], device.valid_max)
    return _validate_differences(time_s, difference, usable, marks, device)


def validate_means(time_s: Floats, mean_w: Floats, device: Device) -> Validated:
    """Validate mean powers in W, each over the time since the sample before.

    perun makes them of a counter. Failed reads (0) give a wrong one, 0 W for each further failed
    read, and another wrong one. Only one of the two need be above the limit: all that
    `_with_adjacent` marks is left out.
    """
    marks = Marks(np.zeros(mean_w.size, dtype=np.uint8))
    in_order = forward(time_s)
    marks.mark_where("clock_backwards", ~in_order)
    usable = np.flatnonzero(in_order)
    mean = mean_w[usable]
    step = np.diff(time_s[usable])
    energy = mean[1:] * step
    missing = ~(np.isfinite(mean) & (mean >= 0))
    over = mean == np.inf
    over[1:] |= energy > device.limit_w * (step + LAG_S)
    beside = _with_adjacent(over, mean != 0)
    marks.mark("over_limit", usable[beside])
    marks.mark("missing_samples", usable[missing & ~beside])
    energy[(missing | beside)[1:]] = np.nan
    return _validate_differences(time_s, energy, usable, marks, device)


def _with_adjacent(marked: Bools, changed: Bools) -> Bools:
    """Mark also the next changes on both sides of each marked one, and what lies between them.

    All are of shape (n,); what is no change belongs to the change after it.
    """
    # One more change behind the last sample, for the samples after the last change.
    among = np.append(marked[changed], False)
    beside = among.copy()
    beside[1:] |= among[:-1]
    beside[:-1] |= among[1:]
    following: Indices = np.cumsum(changed) - changed
    return np.asarray(beside[following])


def validate_totals(time_s: Floats, counter_j: Floats, device: Device) -> Validated:
    """Validate totals of windows: the counter's rises. All else is between two windows, or unknown.

    There is nothing to tell a wrap or a gap by, and nothing to bridge by.
    """
    marks = Marks(np.zeros(counter_j.size, dtype=np.uint8))
    in_order = forward(time_s)
    marks.mark_where("clock_backwards", ~in_order)
    marks.mark_where("missing_samples", ~np.isfinite(counter_j))
    usable = np.flatnonzero(in_order)
    time = time_s[usable]
    step, energy = np.diff(time), np.diff(counter_j[usable])
    over = energy > device.limit_w * (step + LAG_S)
    marks.mark("over_limit", usable[1:][over])
    known = (energy > 0) & ~over
    state = np.where(known, EXACT, UNCOVERED).astype(np.uint8)
    words = {"over_limit": f"totals above {device.limit_w:g} W"}
    flags = quality_flags(time_s, marks, usable, state, device.sensor, words)
    power = np.full(time_s.size, np.nan)
    power[usable[1:]] = np.where(known, energy / step, np.nan)
    curve = cumulate(time, np.where(known, energy, 0.0), np.where(known, step, 0.0))
    return Validated(curve, flags, power, marks.codes)


def differences(counter_j: Floats, valid_max: float | None) -> Floats:
    """Return the steps of a counter, (n - 1,), which wraps at most once in each."""
    difference = np.diff(counter_j)
    if valid_max is not None:
        difference[difference < 0] += valid_max
    return difference


@dataclass(frozen=True, eq=False)
class _Steps:
    """The k steps of a counter from change to change, between k+1 of the m usable samples."""

    ends: Indices
    """(k+1,) places among the usable samples."""
    step_s: Floats
    energy_j: Floats
    still: Bools
    """True where the counter stood still for a part of the step."""
    open_end: bool
    """True if the last step ends without a change."""
    usual_s: float
    """The usual step, at least the sampling period."""
    slow: bool
    """True if the counter changes less often than it is read."""

    @property
    def outer(self) -> Bools:
        """Mark the first step of a slow counter, begun before, and the last one, not over yet."""
        outer = np.zeros(self.step_s.size, dtype=np.bool_)
        outer[:1] = self.slow
        outer[-1:] |= self.open_end
        return outer

    @property
    def long(self) -> Bools:
        """Mark the steps much longer than usual."""
        return self.step_s > GAP_PERIODS * self.usual_s * (1 + 1e-6)


def _steps(time_s: Floats, difference: Floats, period_s: float) -> _Steps:
    """Join each time without a change to the change after it; `time_s` (m,), the other (m-1,)."""
    ends = np.concatenate(([0], np.flatnonzero(difference != 0) + 1))
    usual, slow = 0.0, False
    if 1 < ends.size < time_s.size:
        usual = float(np.median(np.diff(time_s[ends])))
        slow = float(np.median(np.diff(ends))) >= SLOW_READS
    open_end = bool(ends[-1] < time_s.size - 1)
    if open_end:
        ends = np.concatenate((ends, [time_s.size - 1]))
    still = np.diff(ends) > 1
    still[-1:] |= open_end
    return _Steps(
        ends,
        np.diff(time_s[ends]),
        np.add.reduceat(difference, ends[:-1]) if difference.size else difference,
        still,
        open_end,
        max(usual, period_s),
        slow,
    )


def _validate_differences(
    time_s: Floats, difference: Floats, usable: Indices, marks: Marks, device: Device
) -> Validated:
    """Validate the m-1 differences in J between m usable samples; NaN is an unknown one."""
    period = sampling_period(time_s, device.period_s)
    in_order = np.flatnonzero(marks.codes != code_of("clock_backwards"))
    gaps = in_order[after_gaps(time_s[in_order], period)]
    words = {
        "over_limit": f"samples above {device.limit_w:g} W or next to one",
        "gap": f"samples after a gap over {GAP_PERIODS * period:g} s",
    }
    if usable.size == 0:
        marks.mark("gap", gaps)
        flags = quality_flags(time_s, marks, usable, usable.astype(np.uint8), device.sensor, words)
        return Validated(
            cumulate(time_s[:0], time_s[:0], time_s[:0]), flags, time_s * np.nan, marks.codes
        )
    steps = _steps(time_s[usable], difference, period)
    states = _step_states(steps, device, period)
    knots = usable[steps.ends]
    marks.mark("frozen", usable[_repeats(steps)])
    marks.mark("counter_reset", knots[1:][states.impossible])
    marks.mark("counter_ambiguous", knots[1:][states.ambiguous])
    marks.mark("gap", gaps)
    flags = quality_flags(time_s, marks, knots, states.state, device.sensor, words)
    covered = np.where(states.known, steps.step_s, 0.0)
    energy = np.where(states.known, states.power_w, 0.0) * covered
    shown = _resolved(np.where(states.exact, states.power_w, np.nan), steps, device.limit_w)
    samples = np.full(time_s.size, np.nan)
    samples[usable[1:]] = np.repeat(shown, np.diff(steps.ends))
    return Validated(cumulate(time_s[knots], energy, covered), flags, samples, marks.codes)


@dataclass(frozen=True, eq=False)
class _StepStates:
    """The state of each of a counter's k steps; all arrays (k,)."""

    power_w: Floats
    exact: Bools
    bridged: Bools
    ambiguous: Bools
    impossible: Bools

    @property
    def known(self) -> Bools:
        return self.exact | self.bridged

    @property
    def state(self) -> Codes:
        state = np.where(self.bridged, BRIDGED, UNCOVERED)
        return np.where(self.exact, EXACT, state).astype(np.uint8)


def _step_states(steps: _Steps, device: Device, period_s: float) -> _StepStates:
    energy, step = steps.energy_j, steps.step_s
    power = energy / step
    possible = (energy > 0) & (energy <= device.limit_w * (step + LAG_S)) & ~steps.outer
    # The mean power of a very short step is mostly the counter's lag.
    usual = power[possible & ~steps.long & (step >= 0.5 * steps.usual_s)]
    if usual.size:
        possible &= ~steps.long | (power <= RESET * usual.max())
    ambiguous = np.zeros_like(possible)
    if np.isfinite(device.limit_w):
        further = energy + (device.valid_max or LEAST_RANGE_J)
        ambiguous = possible & (further <= device.limit_w * step)
    exact = _caught_up(possible & ~ambiguous, power, steps.still & steps.long)
    power, bridged = _bridged(exact, ambiguous, power, steps, period_s)
    impossible = ~possible & np.isfinite(energy) & ~steps.outer
    return _StepStates(power, exact, bridged, ambiguous, impossible)


def _caught_up(possible: Bools, power_w: Floats, too_long: Bools) -> Bools:
    """Drop the steps in which a counter stood still and lost what was used meanwhile."""
    validated = possible & too_long
    if not validated.any():
        return possible
    sure = possible & ~too_long
    places = np.arange(power_w.size)
    left = np.maximum.accumulate(np.where(sure, places, -1))
    right = np.minimum.accumulate(np.where(sure, places, power_w.size)[::-1])[::-1]
    around = np.concatenate((power_w, [np.inf]))
    # -1 and size both mean that there is none, and point at the infinity put at the end.
    floor = CAUGHT_UP * np.minimum(around[left], around[right])
    return sure | (validated & (power_w >= floor))


def _bridged(
    exact: Bools, ambiguous: Bools, power_w: Floats, steps: _Steps, period_s: float
) -> tuple[Floats, Bools]:
    """Return the power of all steps, those of unknown energy from both sides, and which these are.

    A counter's own lag at the beginning and the end is bridged from the one side there is.
    """
    if exact.all() or not exact.any():
        return power_w, np.zeros_like(exact)
    unknown = ~exact & ~ambiguous
    bridged = unknown & _inside(exact) & (_run_length(steps.step_s, exact) <= bridge_s(period_s))
    if steps.slow:
        bridged |= unknown & steps.outer & (steps.step_s <= LAG_STEPS * steps.usual_s)
    middle = np.cumsum(steps.step_s) - 0.5 * steps.step_s
    across = np.interp(middle, middle[exact], power_w[exact])
    return np.where(bridged, across, power_w), bridged


def _repeats(steps: _Steps) -> Indices:
    """Return the places of the samples at which the counter stood still for too long."""
    long = steps.still & steps.long
    if not long.any():
        return np.zeros(0, dtype=np.intp)
    begins, ends = steps.ends[:-1][long] + 1, steps.ends[1:][long]
    places = np.concatenate([np.arange(a, b) for a, b in zip(begins, ends, strict=True)])
    last = steps.ends[-1:] if steps.open_end and long[-1] else steps.ends[:0]
    return np.concatenate((places, last)).astype(np.intp)


def _resolved(power_w: Floats, steps: _Steps, limit_w: float) -> Floats:
    """Return the power to show: a step too short to resolve it shares the one before."""
    short = np.flatnonzero(power_w > limit_w)
    short = short[short > 0]
    if short.size:
        before = short - 1
        energy = power_w * steps.step_s
        both = steps.step_s[short] + steps.step_s[before]
        power_w = power_w.copy()
        power_w[short] = (energy[short] + energy[before]) / both
    return power_w


def _run_length(step: Floats, good: Bools) -> Floats:
    """Return for each interval that is not good the seconds of its unbroken run of such ones."""
    run = np.cumsum(good)
    seconds = np.bincount(run, weights=np.where(good, 0.0, step), minlength=1)
    return np.asarray(seconds[run], dtype=np.float64)


def _inside(good: Bools) -> Bools:
    """Mark what lies between the first and the last good interval."""
    return np.maximum.accumulate(good) & np.maximum.accumulate(good[::-1])[::-1]
