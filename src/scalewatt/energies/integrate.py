"""From samples to energy: cumulated curves that can be asked for any two times.

Every sample is validated first. Between two adjacent valid samples the energy is the trapezoid
(power), the difference (counter) or the power times the step (mean power since the sample before).
Invalid samples are flagged with the seconds between the valid samples around them, and then:

clock            left out: the fewest samples that must go for the clock to run forward. If these run
                 on among themselves for over MOST_AGAIN of the time, the clock was set back, and
                 nothing is known. Nor is it if they are half of all samples or more, as of several
                 sensors of one name; but a counter that keeps rising has coarse stamps, and is exact
missing_samples  no value (NaN or below 0), 0 W of a device that cannot draw 0 W, or a counter at 0, which
                 is a failed read: left out; the difference of a counter over it is exact
over_limit       more than the device can draw: left out, and so is a single sample over SPIKE times its
                 limit (stated, or of GPUs of its name) between two samples within it; of mean powers,
                 which come of a counter, with the last one before and the first one after it that are
                 not 0, and all between: the same failed reads may have corrupted them
counter          a stretch over GAP_PERIODS times the counter's usual step without a change. If the next
                 difference makes up for it (mean power at least half of the power on both sides) it
                 is exact, else unknown
                 a difference that the counter cannot have made: unknown
                 a difference that a further wrap could hide in: left out
constant         of a power: a stretch repeating one value for longer than chance allows, of a steady
                 device or a frozen sensor: counted
                 of a node's meter: less than a hundredth of its median power, which no running node
                 draws. What stands behind such a reading is not known: counted
gap              samples over GAP_PERIODS periods apart

A power that is the mean over the second before its sample counts at the middle of that second, half a
second earlier, or all edges of stages would come late.

Time between valid samples that is left out or unknown is bridged up to BRIDGE_S (GAP_PERIODS
periods, if that is longer): of power by the trapezoid, of a counter by the power on both sides.
Beyond that, and before the first and after the last valid sample, it is uncovered and adds nothing.
A difference of a counter is exact over any time in which its range leaves only one possible value.
Of totals (`totals` of a sensor) nothing is bridged, and nothing but their energy is known.
A counter that changes less often than it is read is exact from its first change to its last; its
lag before and after is bridged.

What is not detected. A frozen power sensor: it is flagged and counted. A
counter that lost up to GAP_PERIODS usual steps. A reset whose apparent difference is possible: at
most limit · (step + LAG_S), over long steps twice the largest power of the usual ones · step. Of
mean powers the same holds of failed reads at the beginning or the end; four or more in a row during
a wrap may cost limit · their time, up to the longest time that is bridged.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from scalewatt.energies.estimate import FACTOR
from scalewatt.recordings.block import Block
from scalewatt.recordings.terms import (
    ESTIMATED,
    GAP_PERIODS,
    MEAN_OVER_S,
    MOVING_MEAN,
    NODE,
    PLAUSIBLE_W,
    Flag,
    Floats,
    bridge_s,
    flag,
)

Bools = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Indices = NDArray[np.intp]

SAMPLE_FLAGS = ("", "clock", "missing_samples", "over_limit", "counter", "constant", "gap")
"""Flag of a sample by its code; 0 is no flag."""
# Short peaks above a device's limit are real; twice the limit is not, and half as much again only where it
# lasts. The limit is that of GPUs of its name where none is stated, else a third of what is plausible.
LIMIT_FACTOR, SPIKE, PLAUSIBLE_FACTOR = 2.0, 1.5, 3.0
# Idle nodes with 8 GPUs draw a third of their full power; five meters read 2 to 17 W of 6 kW for a minute.
LEAST_OF_NODE = 0.01
# Length of a stretch of one value that chance may not explain, and how improbable it must be.
FROZEN_S, FROZEN_SAMPLES, CHANCE = 60.0, 30, 1e-6
# Seconds that a counter's content may be old: a shorter step may hold more energy than the limit.
LAG_S = 0.1
# A counter that changes at every second read only, or less often, is slow. What it has not shown at
# the beginning and the end is not much more than its usual step.
SLOW_READS, LAG_STEPS = 2, 1.5
# A long step's mean power is not below this share of the power on both sides, if the counter stood
# still, and not above this multiple of the largest of all usual steps.
CAUGHT_UP, RESET = 0.5, 2.0
# The smallest range at which counters of power are known to wrap, where theirs is not recorded.
LEAST_RANGE_J = 65_000.0
# Counters seldom begin anew. Where more of the steps fall, several counters have one name.
MOST_FALLS = 0.01
# Share of the time that a clock may show again; a kind whose power is unknown for longer has no energy.
MOST_AGAIN = 0.05
_JITTER = 1 + 1e-6  # of a float32 clock, which makes no gap of three periods

_EXACT, _BRIDGED, _UNCOVERED = 0, 1, 2


@dataclass(frozen=True, eq=False)
class EnergyCurve:
    """Energy cumulated over time: `time_s`, `energy_j`, `cumulated_s` (covered time), all (n,).

    Between two samples the curve is a straight line; outside of the samples it is flat.
    """

    time_s: Floats
    energy_j: Floats
    cumulated_s: Floats

    def between(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Energy in J between two times (scalars or arrays); additive over any split."""
        return self.until(end_s) - self.until(start_s)

    def covered_s(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Seconds between two times of which the energy is known."""
        return self.covered_until(end_s) - self.covered_until(start_s)

    def until(self, time_s: ArrayLike) -> Floats:
        """Energy in J from the first sample to some times."""
        return self._at(self.energy_j, time_s)

    def covered_until(self, time_s: ArrayLike) -> Floats:
        """Seconds from the first sample to some times of which the energy is known."""
        return self._at(self.cumulated_s, time_s)

    def times(self, factor: float) -> EnergyCurve:
        """Curve of a power that is `factor` times as high."""
        return replace(self, energy_j=factor * self.energy_j)

    def _at(self, values: Floats, time_s: ArrayLike) -> Floats:
        if self.time_s.size == 0:
            return np.zeros_like(np.asarray(time_s, dtype=np.float64))
        return np.asarray(np.interp(np.asarray(time_s), self.time_s, values))


@dataclass(frozen=True, eq=False)
class Validated:
    """The n validated samples of one sensor."""

    curve: EnergyCurve
    flags: list[Flag]
    power_w: Floats
    """Power in W at each sample, (n,); NaN where unknown. Of a counter and of mean powers: the mean
    since the sample before, so the first is unknown. May be the values of the block themselves."""
    sample_flags: Codes
    """Index in SAMPLE_FLAGS of the first flag of each sample, (n,). `gap`: first sample after it."""


@np.errstate(all="ignore")  # absurd values are flagged, not warned of
def validate(block: Block, column: int, period_s: float | None = None) -> Validated:
    """Energy, power and quality flags of one sensor; `period_s` is the declared sampling period."""
    sensor = _Samples.of(block, column, period_s)
    if sensor.row["totals"]:
        return _of_totals(sensor)
    validated = _of_clean(sensor)
    if sensor.row["quantity"] == "counter":
        return validated or _of_counter(sensor)
    if sensor.row["quantity"] == "mean_power":
        return _of_means(sensor)
    validated = validated or _of_powers(sensor)
    if sensor.row["samples"] == MOVING_MEAN:
        return replace(validated, curve=_centred(validated))
    return validated


def bounds(
    block: Block, column: int, curve: EnergyCurve, period_s: float | None = None
) -> tuple[EnergyCurve, EnergyCurve]:
    """Energy curves of both ends of an estimate's interval; `curve` is that of the estimate.

    An estimate that states no interval, like those of other tools, gets × or ÷ FACTOR.
    """
    if block.bounds is None:
        return curve.times(1 / FACTOR), curve.times(FACTOR)
    low, high = (replace(block, values=ends, bounds=None) for ends in block.bounds)
    return validate(low, column, period_s).curve, validate(high, column, period_s).curve


def sampling_period(time_s: Floats, declared_s: float | None = None) -> float:
    """Sampling period in s: the declared one or, if that is longer or alone, the median step."""
    steps = np.diff(time_s)
    if not (ahead := steps > 0).all():
        steps = steps[ahead]
    return max(float(np.median(steps)) if steps.size else 0.0, declared_s or 0.0)


def cumulate(time_s: Floats, energy_j: Floats, covered_s: Floats) -> EnergyCurve:
    """Curve of k samples from the energy and covered time of the k-1 intervals."""
    sums = np.zeros((2, time_s.size))
    np.cumsum(energy_j, out=sums[0, 1:])
    np.cumsum(covered_s, out=sums[1, 1:])
    return EnergyCurve(time_s, *sums)


def differences(counter_j: Floats, range_j: float) -> Floats:
    """Steps in J of a counter, (n - 1,), which wraps at most once in each; a range of NaN is unknown."""
    difference = np.diff(counter_j)
    if not np.isnan(range_j):
        difference[difference < 0] += range_j
    return difference


def forward(time_s: Floats) -> Bools:
    """Mark the samples whose clock runs forward: the most that one can keep in strict order.

    One stamp far in the future costs itself alone, not everything until then.
    """
    good = np.isfinite(time_s)
    if good.all() and (np.diff(time_s) > 0).all():
        return good
    # From the end: of two that exclude each other the earlier one is kept.
    tails: list[float] = []
    last: list[int] = []
    after: dict[int, int | None] = {}
    for index in np.flatnonzero(good)[::-1].tolist():
        until = -float(time_s[index])
        length = bisect_left(tails, until)
        after[index] = last[length - 1] if length else None
        if length == len(tails) or until < tails[length]:
            tails[length : length + 1], last[length : length + 1] = [until], [index]
    kept, following = [], last[-1] if last else None
    while following is not None:
        kept.append(following)
        following = after[following]
    return np.isin(np.arange(time_s.size), kept)


def forward_ends(time_s: Floats) -> tuple[float, float] | None:
    """First and last time of the samples whose clock runs forward; None without any."""
    good = time_s[forward(time_s)]
    return (float(good[0]), float(good[-1])) if good.size else None


# --- what all quantities share ----------------------------------------------------------------------


@cache
def gpu_limit_w(device: str) -> float:
    """Largest power limit in W that GPUs of a name are sold with; NaN if unknown."""
    text = files("scalewatt.recordings").joinpath("gpu_limits.csv").read_text(encoding="utf-8")
    rows = (line.rsplit(",", 1) for line in text.splitlines()[1:])
    limits = (float(watts) for name, watts in rows if re.search(rf"\b(?:{name})\b", device))
    return next(limits, np.nan)


@dataclass(frozen=True, eq=False)
class _Axis:
    """The n times of a block; `backwards` and `gaps` are indices of samples out of order and after gaps."""

    time_s: Floats
    backwards: Indices
    gaps: Indices
    period_s: float
    is_crowded: bool
    """Whether samples share most of the times."""
    was_set_back: bool
    """Whether the clock ran for long through times that it had shown before."""
    rows: list[dict[Any, Any]]
    """The rows of the block's frame of sensors."""

    @property
    def is_even(self) -> bool:
        """Whether no sample is out of order or comes after a gap."""
        return self.time_s.size > 1 and not self.backwards.size and not self.gaps.size

    @cached_property
    def step_s(self) -> Floats:
        """Steps between the samples, (n-1,)."""
        return np.diff(self.time_s)

    @cached_property
    def longest_s(self) -> float:
        """Longest step."""
        return float(self.step_s.max())

    @cached_property
    def covered_s(self) -> Floats:
        """Time since the first sample, (n,)."""
        return self.time_s - self.time_s[0]


@lru_cache(maxsize=1)  # the columns of a block are asked for one after the other
def _axis(block: Block, period_s: float | None) -> _Axis:
    time_s = np.asarray(block.time_s, dtype=np.float64)
    runs_forward, period = forward(time_s), sampling_period(time_s, period_s)
    in_order = np.flatnonzero(runs_forward)
    is_gap = np.diff(_kept(time_s, in_order)) > GAP_PERIODS * period * _JITTER
    backwards = np.flatnonzero(~runs_forward)
    again_s = np.diff(time_s[backwards])[np.diff(backwards) == 1]
    was_set_back = again_s[again_s > 0].sum() > MOST_AGAIN * np.diff(time_s[in_order]).sum()
    is_crowded = 2 * backwards.size >= max(time_s.size, 1)
    gaps, rows = in_order[1:][is_gap], block.sensors.to_dict("records")
    return _Axis(time_s, backwards, gaps, period, is_crowded, bool(was_set_back), rows)


def _kept(values: Any, indices: Indices) -> Any:
    """Values at indices in order, without a copy where these are all."""
    return values if indices.size == values.size else values[indices]


@dataclass(frozen=True, eq=False)
class _Samples:
    """The n samples of a sensor, and what is wrong with them."""

    axis: _Axis
    values: Floats
    row: Mapping[str, Any]
    """Of the frame of sensors."""
    usual_w: float
    """What its device draws at most, but for short peaks; infinite for an estimate."""
    limit_w: float
    """What its device cannot draw more than."""
    is_trusted: bool
    codes: Codes
    """(n,), indices in SAMPLE_FLAGS; a sample keeps its first flag."""
    marks: list[tuple[str, str, Indices]] = field(default_factory=list)
    """Flag, words for the samples, and their indices."""

    @classmethod
    def of(cls, block: Block, column: int, period_s: float | None) -> _Samples:
        """Take a column of a block, and mark what its clock tells."""
        axis = _axis(block, period_s)
        row = axis.rows[column]
        limit_w = np.inf if row["origin"] == ESTIMATED else PLAUSIBLE_W[row["kind"]]
        usual_w = limit_w / PLAUSIBLE_FACTOR
        own_w = row["limit_w"]
        if row["kind"] == "gpu" and not own_w > 0:  # NaN is unknown
            own_w = gpu_limit_w(row["device"])
        if own_w > 0 and row["origin"] != ESTIMATED:
            usual_w, limit_w = own_w, min(limit_w, LIMIT_FACTOR * own_w)
        values = np.asarray(block.values[:, column], dtype=np.float64)
        is_trusted = not axis.is_crowded
        if axis.is_crowded and row["quantity"] == "counter":
            is_trusted = bool(np.mean(np.diff(values) < 0) < MOST_FALLS)
        is_trusted &= not axis.was_set_back
        codes = np.zeros(values.size, dtype=np.uint8)
        sensor = cls(axis, values, row, usual_w, limit_w, is_trusted, codes)
        words = "samples not after the one before" + ", so nothing is known" * (not is_trusted)
        sensor.mark("clock", words, axis.backwards)
        return sensor

    @property
    def bridge_s(self) -> float:
        """Longest time in s that is bridged."""
        return bridge_s(self.axis.period_s) if self.is_trusted else 0.0

    def mark(self, code: str, words: str, where: Bools | Indices) -> None:
        """Mark samples: those of a mask, (n,), that have no flag yet, or all at some indices."""
        indices: Any = where
        if where.dtype == np.bool_:
            indices = np.flatnonzero(where & (self.codes == 0)) if where.any() else ()
        if len(indices):
            self.marks.append((code, words, indices))
            self.codes[indices[self.codes[indices] == 0]] = SAMPLE_FLAGS.index(code)

    def usable(self) -> Indices:
        """Indices of the samples without a flag."""
        return np.flatnonzero(self.codes == 0)

    def validated(
        self, knots: Indices, energy_j: Floats, state: Codes, power_w: Floats
    ) -> Validated:
        """Put together what is known of the valid samples `knots`, (k,), and the steps between, (k-1,)."""
        if not self.row["totals"]:
            gap_s = GAP_PERIODS * self.axis.period_s
            self.mark("gap", f"samples after a gap over {gap_s:g} s", self.axis.gaps)
        time_s = _kept(self.axis.time_s, knots)
        step_s = np.diff(time_s)
        if not (known := state != _UNCOVERED).all():
            energy_j, step_s = np.where(known, energy_j, 0.0), np.where(known, step_s, 0.0)
        flags = list(_flags(self, knots, state)) if self.marks else []
        return Validated(cumulate(time_s, energy_j, step_s), flags, power_w, self.codes)


def _flags(sensor: _Samples, knots: Indices, state: Codes) -> Iterator[Flag]:
    """Yield a flag for each code, with its samples and the seconds concerned.

    These are the seconds between the valid samples on both sides of its samples; before the first and
    after the last valid sample they are uncovered.
    """
    time_s, outside = sensor.axis.time_s, [_UNCOVERED]
    finite = time_s[np.isfinite(time_s)]
    # Stamps out of order may lie on either side of the valid samples.
    seconds = np.diff(np.concatenate((finite[:1], time_s[knots], finite[-1:])))
    seconds = np.maximum(seconds, 0.0) if seconds.size else np.zeros(1)
    states = np.concatenate((outside, state, outside[: knots.size])).astype(np.intp)
    for code in dict.fromkeys(code for code, _, _ in sensor.marks):
        marks = [(words, where) for other, words, where in sensor.marks if other == code]
        samples = [f"{where.size} of {time_s.size} {words}" for words, where in marks]
        concerned = np.unique(np.searchsorted(knots, np.concatenate([w for _, w in marks])))
        parts = np.bincount(states[concerned], weights=seconds[concerned], minlength=3)
        exact = f"{parts[_EXACT]:.1f} s exact, " if parts[_EXACT] else ""
        rest = f"{parts[_BRIDGED]:.1f} s bridged, {parts[_UNCOVERED]:.1f} s uncovered"
        detail = f"{', '.join(samples)}, {parts.sum():.1f} s: {exact}{rest}"
        yield flag(code, sensor.row["name"], detail)


def _of_clean(sensor: _Samples) -> Validated | None:
    """Integrate a power or a counter without doubtful samples, in a quarter of the time; None if some may be.

    What holds of its extremes holds of every sample.
    """
    axis, values, limit_w = sensor.axis, sensor.values, sensor.limit_w
    if not (axis.is_even and sensor.is_trusted and values.min() > 0 and values.max() < np.inf):
        return None
    if sensor.row["quantity"] == "counter":
        energy_j = differences(values, sensor.row["range_j"])
        shown_w = np.full(values.size, np.nan)
        np.divide(energy_j, axis.step_s, out=shown_w[1:])
        known_j = sensor.row["range_j"]
        range_j = LEAST_RANGE_J if np.isnan(known_j) else known_j
        least_j = energy_j.min()
        if not (
            least_j > 0 and shown_w[1:].max() <= limit_w < (least_j + range_j) / axis.longest_s
        ):
            return None
    elif sensor.row["quantity"] == "power" and sensor.row["kind"] != NODE:
        shown_w, energy_j = values, 0.5 * (values[1:] + values[:-1]) * axis.step_s
        if values.max() > min(SPIKE * sensor.usual_w, limit_w) or axis.longest_s > sensor.bridge_s:
            return None
        if sensor.row["origin"] != ESTIMATED and _standing_still(axis.time_s, values).any():
            return None
    else:
        return None
    sums_j = np.zeros(values.size)
    np.cumsum(energy_j, out=sums_j[1:])
    return Validated(EnergyCurve(axis.time_s, sums_j, axis.covered_s), [], shown_w, sensor.codes)


# --- power ------------------------------------------------------------------------------------------


def _of_powers(sensor: _Samples) -> Validated:
    """Validate every sample of power in W and integrate between the valid ones."""
    _mark_powers(sensor)
    knots = sensor.usable()
    time_s, power_w = _kept(sensor.axis.time_s, knots), _kept(sensor.values, knots)
    if sensor.row["origin"] != ESTIMATED:
        words = "samples of one value, of a steady device or a frozen sensor, counted"
        sensor.mark("constant", words, knots[_standing_still(time_s, power_w)])
    if sensor.row["kind"] == NODE and knots.size:
        words = "samples of less than a hundredth of the usual power, counted"
        sensor.mark("constant", words, knots[power_w < LEAST_OF_NODE * np.median(power_w)])
    step_s = np.diff(time_s)
    state = np.where(step_s <= sensor.bridge_s, _BRIDGED, _UNCOVERED)
    energy_j = 0.5 * (power_w[1:] + power_w[:-1]) * step_s
    shown_w = sensor.values
    if knots.size < shown_w.size:
        shown_w = np.full(shown_w.size, np.nan)
        shown_w[knots] = power_w
    return sensor.validated(knots, energy_j, state, shown_w)


def _mark_powers(sensor: _Samples) -> None:
    """Mark what is no power of the device."""
    power_w, usual_w, limit_w = sensor.values, sensor.usual_w, sensor.limit_w
    spike_w, most_w = min(SPIKE * usual_w, limit_w), power_w.max(initial=0.0)
    if power_w.min(initial=np.inf) > 0 and most_w <= spike_w and most_w < np.inf:
        return
    has_value = np.isfinite(power_w) & (power_w >= 0)
    sensor.mark("missing_samples", "samples without a value", ~has_value)
    if sensor.row["origin"] != ESTIMATED:  # no device draws nothing
        sensor.mark("missing_samples", "samples of 0 W", power_w == 0)
    sensor.mark("over_limit", f"samples above {limit_w:g} W", power_w > limit_w)
    is_usual = (sensor.codes == 0) & (power_w <= usual_w)
    is_spike = power_w > spike_w
    is_spike[[0, -1]] = False
    is_spike[1:-1] &= is_usual[:-2] & is_usual[2:]
    words = f"single samples above {spike_w:g} W between samples up to {usual_w:g} W"
    sensor.mark("over_limit", words, is_spike)


def _standing_still(time_s: Floats, power_w: Floats) -> Bools:
    """Mark the samples that repeat one power for longer than chance allows.

    A stretch of one value, FROZEN_S and FROZEN_SAMPLES long or longer, is improbable where
    r**k < CHANCE: k repeats, r the share of repeats among all other adjacent samples. The device may
    be steady, or its sensor frozen.
    """
    some = power_w[:: FROZEN_SAMPLES // 4]
    same = some[1:] == some[:-1]
    if power_w.size < FROZEN_SAMPLES or not (same[2:] & same[1:-1] & same[:-2]).any():
        return np.zeros(power_w.size, dtype=np.bool_)  # no value stands so long
    first = np.concatenate(([0], np.flatnonzero(np.diff(power_w)) + 1))
    last = np.append(first[1:] - 1, power_w.size - 1)
    repeats = last - first
    share = (repeats.sum() - repeats + 1) / (power_w.size - repeats + 1)
    long = (repeats + 1 >= FROZEN_SAMPLES) & (time_s[last] - time_s[first] >= FROZEN_S)
    marked = np.repeat(long & (repeats * np.log(share) < np.log(CHANCE)), repeats + 1)
    marked[first] = False
    return marked


def _centred(validated: Validated) -> EnergyCurve:
    """Energy curve of samples that are means over the MEAN_OVER_S before them.

    Each is the power at the middle of that time, and the last one that until its sample.
    """
    curve, half_s = validated.curve, MEAN_OVER_S / 2
    if curve.time_s.size < 2:
        return curve
    last_w = validated.power_w[np.isfinite(validated.power_w)][-1]
    return EnergyCurve(
        np.append(curve.time_s - half_s, curve.time_s[-1]),
        np.append(curve.energy_j, curve.energy_j[-1] + half_s * last_w),
        np.append(curve.cumulated_s, curve.cumulated_s[-1] + half_s),
    )


# --- counters, and mean powers computed from them ---------------------------------------------------


def _of_counter(sensor: _Samples) -> Validated:
    """Validate every sample of a counter in J and every step between the valid ones."""
    sensor.mark("missing_samples", "samples without a value", ~np.isfinite(sensor.values))
    # A counter in µJ is never exactly 0 by itself; perun writes 0 for a failed read.
    sensor.mark("missing_samples", "failed reads (counter at 0)", sensor.values == 0)
    usable = sensor.usable()
    difference = differences(_kept(sensor.values, usable), sensor.row["range_j"])
    return _of_differences(sensor, difference, usable)


def _of_means(sensor: _Samples) -> Validated:
    """Validate mean powers in W, each over the time since the sample before.

    perun makes them of a counter. Failed reads (0) give a wrong one, 0 W for each further failed
    read, and another wrong one. Only one of the two need be above the limit: all that
    `_with_adjacent` marks is left out.
    """
    usable, limit_w = sensor.usable(), sensor.limit_w
    mean_w, step_s = _kept(sensor.values, usable), np.diff(_kept(sensor.axis.time_s, usable))
    energy_j = mean_w[1:] * step_s
    missing = ~(np.isfinite(mean_w) & (mean_w >= 0))
    over = mean_w == np.inf
    over[1:] |= energy_j > limit_w * (step_s + LAG_S)
    if over.any():
        over = _with_adjacent(over, mean_w != 0)
    sensor.mark("over_limit", f"samples above {limit_w:g} W or next to one", usable[over])
    sensor.mark("missing_samples", "samples without a value", usable[missing & ~over])
    energy_j[(missing | over)[1:]] = np.nan
    return _of_differences(sensor, energy_j, usable)


def _with_adjacent(marked: Bools, changed: Bools) -> Bools:
    """Mark also the next changes on both sides of each marked one, and what lies between them.

    All are of shape (n,); what is no change belongs to the change after it.
    """
    # One more change behind the last sample, for the samples after the last change.
    among = np.append(marked[changed], False)
    adjacent = np.convolve(among, [1, 1, 1])[1:-1] > 0
    following: Indices = np.cumsum(changed) - changed
    return np.asarray(adjacent[following])


def _of_totals(sensor: _Samples) -> Validated:
    """Validate totals of windows: the counter's rises. All else is between two windows, or unknown.

    There is nothing to tell a wrap or a gap by, and nothing to bridge by.
    """
    usable, limit_w = sensor.usable(), sensor.limit_w
    sensor.mark("missing_samples", "samples without a value", ~np.isfinite(sensor.values))
    step_s, energy_j = np.diff(sensor.axis.time_s[usable]), np.diff(sensor.values[usable])
    over = energy_j > limit_w * (step_s + LAG_S)
    sensor.mark("over_limit", f"totals above {limit_w:g} W", usable[1:][over])
    known = (energy_j > 0) & ~over & sensor.is_trusted
    shown_w = np.full(sensor.values.size, np.nan)
    shown_w[usable[1:]] = np.where(known, energy_j / step_s, np.nan)
    return sensor.validated(usable, energy_j, np.where(known, _EXACT, _UNCOVERED), shown_w)


@dataclass(frozen=True, eq=False)
class _Steps:
    """The k steps of a counter from change to change, between k+1 of the m usable samples."""

    ends: Indices
    """(k+1,) indices among the usable samples."""
    step_s: Floats
    energy_j: Floats
    still: Bools
    """True where the counter stood still for a part of the step."""
    outer: Bools
    """True of the first step of a slow counter, begun before, and of a last one that is not over yet."""
    usual_s: float
    """The usual step, at least the sampling period."""

    @cached_property
    def power_w(self) -> Floats:
        """Mean power in W of each step, (k,)."""
        return self.energy_j / self.step_s

    @cached_property
    def long(self) -> Bools:
        """Mark the steps much longer than usual, (k,)."""
        return self.step_s > GAP_PERIODS * self.usual_s * _JITTER

    def spread(self, values: Any) -> Any:
        """Values of the steps, (k,), at the samples in which these are, (m-1,)."""
        return np.repeat(values, np.diff(self.ends)) if self.still.any() else values


def _steps(time_s: Floats, difference: Floats, period_s: float) -> _Steps:
    """Join each time without a change to the change after it; `time_s` (m,), the other (m-1,)."""
    ends = np.concatenate(([0], np.flatnonzero(difference != 0) + 1))
    usual_s, is_slow = period_s, False
    if 1 < ends.size < time_s.size:
        usual_s = max(float(np.median(np.diff(time_s[ends]))), period_s)
        is_slow = float(np.median(np.diff(ends))) >= SLOW_READS
    if is_open := bool(ends[-1] < time_s.size - 1):
        ends = np.append(ends, time_s.size - 1)
    if ends.size < time_s.size:
        difference = np.add.reduceat(difference, ends[:-1])
    still = np.diff(ends) > 1
    outer = np.zeros(still.size, dtype=np.bool_)
    outer[:1] = is_slow
    still[-1:] |= is_open
    outer[-1:] |= is_open
    return _Steps(ends, np.diff(_kept(time_s, ends)), difference, still, outer, usual_s)


def _of_differences(sensor: _Samples, difference: Floats, usable: Indices) -> Validated:
    """Validate the m-1 differences in J between m usable samples; NaN is an unknown one."""
    axis, shown_w = sensor.axis, np.full(sensor.values.size, np.nan)
    if not usable.size:
        return sensor.validated(usable, difference, sensor.codes[:0], shown_w)
    steps = _steps(_kept(axis.time_s, usable), difference, axis.period_s)
    possible, ambiguous = _possible(steps, sensor.limit_w, sensor.row["range_j"])
    exact = _caught_up(possible & ~ambiguous & sensor.is_trusted, steps)
    bridged, across_w = _bridged(exact, ambiguous, steps, sensor.bridge_s)
    knots = _kept(usable, steps.ends)
    repeats = steps.spread(steps.still & steps.long)
    repeats[steps.ends[1:] - 1] &= steps.energy_j == 0  # a change ends a step, but for an open one
    sensor.mark("counter", "samples that repeat the one before", usable[1:][repeats])
    impossible = ~possible & np.isfinite(steps.energy_j) & ~steps.outer
    sensor.mark("counter", "steps that the counter cannot have made", knots[1:][impossible])
    sensor.mark("counter", "steps that may hide a further wrap", knots[1:][ambiguous])
    state = np.where(exact, _EXACT, np.where(bridged, _BRIDGED, _UNCOVERED))
    energy_j = np.where(bridged, across_w * steps.step_s, steps.energy_j)
    shown_w[usable[1:]] = steps.spread(_resolved(steps, exact, sensor.limit_w))
    return sensor.validated(knots, energy_j, state, shown_w)


def _possible(steps: _Steps, limit_w: float, range_j: float) -> tuple[Bools, Bools]:
    """Mark the steps that the counter can have made, and those of them that may hide a further wrap."""
    energy_j, step_s = steps.energy_j, steps.step_s
    possible = (energy_j > 0) & (energy_j <= limit_w * (step_s + LAG_S)) & ~steps.outer
    # The mean power of a very short step is mostly the counter's lag.
    usual_w = steps.power_w[possible & ~steps.long & (step_s >= 0.5 * steps.usual_s)]
    if usual_w.size:
        possible &= ~steps.long | (steps.power_w <= RESET * usual_w.max())
    wrapped_j = energy_j + (LEAST_RANGE_J if np.isnan(range_j) else range_j)
    return possible, possible & (wrapped_j <= limit_w * step_s) & np.isfinite(limit_w)


def _caught_up(possible: Bools, steps: _Steps) -> Bools:
    """Drop the steps in which a counter stood still and lost what was used meanwhile."""
    doubtful = possible & steps.still & steps.long
    if not doubtful.any():
        return possible
    sure_w = pd.Series(np.where(possible & ~doubtful, steps.power_w, np.nan))
    floor_w = CAUGHT_UP * np.fmin(sure_w.ffill().to_numpy(), sure_w.bfill().to_numpy())
    return (possible & ~doubtful) | (doubtful & (steps.power_w >= floor_w))


def _bridged(
    exact: Bools, ambiguous: Bools, steps: _Steps, longest_s: float
) -> tuple[Bools, Floats]:
    """Mark the steps of unknown energy that are bridged, with the power in W by those on both sides.

    A slow counter's lag at the beginning and the end is bridged from the one side there is.
    """
    if exact.all() or not exact.any():
        return np.zeros_like(exact), steps.power_w
    unknown = ~exact & ~ambiguous
    inside = np.maximum.accumulate(exact) & np.maximum.accumulate(exact[::-1])[::-1]
    run = np.cumsum(exact)  # seconds of each unbroken run of steps that are not exact
    run_s = np.bincount(run, weights=np.where(exact, 0.0, steps.step_s))[run]
    bridged = unknown & inside & (run_s <= longest_s)
    if steps.outer[0]:
        bridged |= unknown & steps.outer & (steps.step_s <= LAG_STEPS * steps.usual_s)
    middle_s = np.cumsum(steps.step_s) - 0.5 * steps.step_s
    return bridged, np.interp(middle_s, middle_s[exact], steps.power_w[exact])


def _resolved(steps: _Steps, exact: Bools, limit_w: float) -> Floats:
    """Power to show in W, (k,), NaN where unknown: a step too short to resolve it shares the one before."""
    power_w = np.where(exact, steps.power_w, np.nan)
    short = np.flatnonzero(power_w[1:] > limit_w) + 1
    if short.size:
        energy_j = np.where(exact, steps.energy_j, np.nan)
        joined_s = steps.step_s[short] + steps.step_s[short - 1]
        power_w[short] = (energy_j[short] + energy_j[short - 1]) / joined_s
    return power_w
