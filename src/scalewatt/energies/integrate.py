"""From samples to energy: cumulated curves that can be asked for any two times.

Between two adjacent valid samples the energy is the trapezoid (power), the difference (counter) or the
power times the step (mean power since the sample before). Samples and steps may be

- left out: stamps out of order, samples without a value, failed reads (a counter at 0, 0 W of a sensor that
  measures), and what the device cannot draw, with the mean powers next to it that come of the same reads;
- unknown: steps that the counter cannot have made, a stretch without a change that the next one does not
  make up for, and all samples if the clock was set back for long or most of them share their stamps;
- counted, but flagged: powers that stand still, of a steady device or a frozen sensor.

Each flag states the seconds between the valid samples around those that it is about. What is left out or
unknown is bridged up to 30 s or three periods: of power by the trapezoid, of a counter by the power on both
sides. Beyond that, and before the first and after the last valid sample, it is uncovered and adds nothing. A
counter's difference is exact over any time in which its range leaves only one possible value.

What is not detected: a counter that lost up to GAP_PERIODS usual steps, and a reset whose apparent difference
is possible, at most limit · (step + LAG_S), over long steps RESET times the largest usual power · step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from scalewatt.recordings import terms
from scalewatt.recordings.block import Block, median
from scalewatt.recordings.terms import Flag, Floats, flag

Bools = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Indices = NDArray[np.intp]

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
_EXACT, _BRIDGED, _UNCOVERED = np.arange(3, dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class EnergyCurve:
    """Energy and covered time cumulated over time: `time_s`, `energy_j` and `cumulated_s`, all (n,).

    Between two samples the curves are straight lines; outside of the samples they are flat. Covered time
    counts from any start.
    """

    time_s: Floats
    energy_j: Floats
    cumulated_s: Floats

    def between(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Energy in J between two times (scalars or arrays); additive over any split."""
        return self._at(self.energy_j, end_s) - self._at(self.energy_j, start_s)

    def covered_s(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Seconds between two times of which the energy is known."""
        return self._at(self.cumulated_s, end_s) - self._at(self.cumulated_s, start_s)

    def _at(self, values: Floats, time_s: ArrayLike) -> Floats:
        if self.time_s.size == 0:
            return np.zeros(np.shape(time_s))
        return np.asarray(np.interp(np.asarray(time_s), self.time_s, values))


@dataclass(frozen=True, eq=False)
class Validated:
    """The n validated samples of a sensor."""

    curve: EnergyCurve
    flags: list[Flag]
    power_w: Floats
    """Power in W at each sample, (n,); NaN where unknown. Of a counter and of mean powers: the mean
    since the sample before, so the first is unknown. May be the values of the block themselves."""


@np.errstate(all="ignore")  # absurd values are flagged, not warned of
def validate(block: Block, column: int, period_s: float | None = None) -> Validated:
    """Energy, power and quality flags of a sensor; `period_s` is the declared sampling period."""
    sensor = _Samples(block, column, period_s)
    if sensor.row.totals:
        return _totals(sensor)
    by_quantity = {"counter": _counter, "mean_power": _means}
    return by_quantity.get(sensor.row.quantity, _powers)(sensor)


def cumulate(time_s: Floats, energy_j: Floats, known: Bools) -> EnergyCurve:
    """Curve of k samples from the energies of the k-1 steps; those that are not known add nothing."""
    if known.all():
        return EnergyCurve(time_s, _cumulated(energy_j)[: time_s.size], time_s)
    steps = (np.where(known, each, 0.0) for each in (energy_j, np.diff(time_s)))
    return EnergyCurve(time_s, *map(_cumulated, steps))


def _cumulated(steps: Floats) -> Floats:
    """Sums of the first 0, 1, … steps."""
    sums = np.zeros(steps.size + 1)
    np.cumsum(steps, out=sums[1:])
    return sums


# --- what all quantities share ----------------------------------------------------------------------


class _Samples:
    """The n samples of a sensor while they are checked."""

    def __init__(self, block: Block, column: int, period_s: float | None) -> None:
        self.block, self.row, self.values = block, block.rows[column], block.values[:, column]
        self.time_s = block.time_s
        self.usual_w, self.limit_w = _limits_w(self.row)
        self.period_s = max(block.step_s, period_s or 0.0)
        self.gap_s = terms.GAP_PERIODS * self.period_s
        self.gaps = block.in_order[1:][block.steps_s > self.gap_s * _JITTER]
        self.is_trusted = _is_clock_known(block, self.row.quantity, self.values)
        self.bridge_s = max(terms.BRIDGE_S, self.gap_s) if self.is_trusted else 0.0
        self.is_flagged: Bools = np.zeros(self.values.size, dtype=np.bool_)
        self.marks: list[tuple[str, str, Indices]] = []
        words = "samples not after the one before" + ", so nothing is known" * (not self.is_trusted)
        self.mark("clock", words, block.backwards)

    def mark(self, code: str, words: str, where: Bools | Indices) -> None:
        """Flag samples: those of a mask, (n,), that have no flag yet, or all at some indices."""
        indices: Any = where
        if where.dtype == np.bool_:
            indices = np.flatnonzero(where & ~self.is_flagged) if where.any() else where[:0]
        if indices.size:
            self.marks.append((code, words, indices))
            self.is_flagged[indices] = True

    def usable(self) -> tuple[Indices, Floats, Floats]:
        """Indices and values of the samples without a flag, (m,), and the steps between them in s."""
        if not self.marks:
            return self.block.in_order, self.values, self.block.steps_s
        usable = np.flatnonzero(~self.is_flagged)
        return usable, self.values[usable], np.diff(self.time_s[usable])

    def validated(
        self, knots: Indices, energy_j: Floats, state: Codes, power_w: Floats
    ) -> Validated:
        """Cumulate the energies of the steps between the valid samples `knots`, (k,), by their states.

        Flags have the number of samples and the seconds between the valid ones on both sides of them. Before
        the first and after the last valid sample these are uncovered.
        """
        if not self.row.totals:
            self.mark("gap", f"samples after a gap over {self.gap_s:g} s", self.gaps)
        time_s = self.time_s if knots.size == self.time_s.size else self.time_s[knots]
        validated = Validated(cumulate(time_s, energy_j, state != _UNCOVERED), [], power_w)
        if not self.marks:
            return validated
        stamps = self.time_s[np.isfinite(self.time_s)]
        # Stamps out of order may lie on either side of the valid samples.
        seconds = np.diff(np.concatenate((stamps[:1], self.time_s[knots], stamps[-1:])))
        seconds = np.maximum(seconds, 0.0) if seconds.size else np.zeros(1)
        is_uncovered = np.ones(seconds.size, np.bool_)
        is_uncovered[1 : 1 + state.size] = state == _UNCOVERED
        for code in dict.fromkeys(code for code, _, _ in self.marks):
            marks = [(words, where) for other, words, where in self.marks if other == code]
            samples = [f"{where.size} of {self.values.size} {words}" for words, where in marks]
            concerned = np.unique(np.searchsorted(knots, np.concatenate([w for _, w in marks])))
            uncovered_s = (seconds * is_uncovered)[concerned].sum()
            times = f"{seconds[concerned].sum():.1f} s, {uncovered_s:.1f} s uncovered"
            validated.flags.append(flag(code, self.row.name, f"{', '.join(samples)}, {times}"))
        return validated


def _limits_w(row: Any) -> tuple[float, float]:
    """Upper power limit of a sensor's device but for short peaks, and the power it cannot exceed, in W."""
    if row.origin == terms.ESTIMATED:
        return np.inf, np.inf
    plausible_w, limit_w = terms.PLAUSIBLE_W[row.kind], row.limit_w
    if row.kind == "gpu" and not limit_w > 0:  # NaN is unknown
        limit_w = float(terms.gpu_fact(row.device, "limit_w") or "nan")
    if not limit_w > 0:
        return plausible_w / PLAUSIBLE_FACTOR, plausible_w
    return limit_w, min(plausible_w, LIMIT_FACTOR * limit_w)


def _is_clock_known(block: Block, quantity: str, values: Floats) -> bool:
    """True if the clock was not set back for long, and does not show most times twice.

    A counter that keeps rising has coarse stamps only.
    """
    backwards = block.backwards
    again_s = np.diff(block.time_s[backwards])[np.diff(backwards) == 1]
    if again_s[again_s > 0].sum() > MOST_AGAIN * block.steps_s.sum():
        return False
    if 2 * backwards.size < values.size:
        return True
    falls = np.count_nonzero(np.diff(values) < 0)
    return quantity == "counter" and bool(falls < MOST_FALLS * (values.size - 1))


# --- power ------------------------------------------------------------------------------------------


def _powers(sensor: _Samples) -> Validated:
    """Validate every sample of power in W and integrate between the valid ones."""
    row, values, usual_w, limit_w = sensor.row, sensor.values, sensor.usual_w, sensor.limit_w
    is_estimate = row.origin == terms.ESTIMATED
    # What the device cannot draw; what holds of the extremes holds of every sample
    spike_w, most_w = min(SPIKE * usual_w, limit_w), values.max(initial=0.0)
    if not (values.min(initial=1.0) > 0 and most_w <= spike_w and most_w < np.inf):
        missing = ~((values >= 0) & (values < np.inf))
        sensor.mark("missing_samples", "samples without a value", missing)
        if not is_estimate:  # no device draws nothing
            sensor.mark("missing_samples", "samples of 0 W", values == 0)
        sensor.mark("missing_samples", f"samples above {limit_w:g} W", values > limit_w)
        is_usual = ~sensor.is_flagged & (values <= usual_w)
        is_between = np.zeros_like(is_usual)
        is_between[1:-1] = is_usual[:-2] & is_usual[2:]
        words = f"single samples above {spike_w:g} W between samples up to {usual_w:g} W"
        sensor.mark("missing_samples", words, is_between & (values > spike_w))

    # What is doubtful, but counted
    knots, power_w, step_s = sensor.usable()
    if not is_estimate:
        words = "samples of one value, of a steady device or a frozen sensor, counted"
        sensor.mark("constant", words, knots[_standing_still(power_w, step_s)])
    if row.kind == terms.NODE and knots.size:
        words = "samples of less than a hundredth of the usual power, counted"
        sensor.mark("constant", words, knots[power_w < LEAST_OF_NODE * median(power_w)])

    energy_j = 0.5 * (power_w[1:] + power_w[:-1]) * step_s
    state = np.where(step_s <= sensor.bridge_s, _BRIDGED, _UNCOVERED)
    shown_w = values
    if knots.size < values.size:
        shown_w = np.full(values.size, np.nan)
        shown_w[knots] = power_w
    validated = sensor.validated(knots, energy_j, state, shown_w)
    if row.samples != terms.MOVING_MEAN or knots.size < 2:
        return validated
    # A mean over the time before a sample is the power at the middle of that time, or all edges of stages
    # would come late; the last one is the power until its sample.
    curve, half_s = validated.curve, terms.MEAN_OVER_S / 2
    centred = EnergyCurve(
        np.append(curve.time_s - half_s, curve.time_s[-1]),
        np.append(curve.energy_j, curve.energy_j[-1] + half_s * power_w[-1]),
        np.append(curve.cumulated_s, curve.cumulated_s[-1] + half_s),
    )
    return replace(validated, curve=centred)


def _standing_still(power_w: Floats, step_s: Floats) -> Bools:
    """Mark the samples that repeat a power for longer than chance allows.

    A stretch of one value, FROZEN_S and FROZEN_SAMPLES long or longer, is improbable where
    r**k < CHANCE: k repeats, r the share of repeats among all other adjacent samples.
    """
    some = power_w[:: FROZEN_SAMPLES // 4]
    same = some[1:] == some[:-1]
    if power_w.size < FROZEN_SAMPLES or not (same[2:] & same[1:-1] & same[:-2]).any():
        return np.zeros(power_w.size, dtype=np.bool_)  # no value stands so long
    first = np.append(0, np.flatnonzero(np.diff(power_w)) + 1)
    last = np.append(first[1:] - 1, power_w.size - 1)
    repeats = last - first
    share = (repeats.sum() - repeats + 1) / (power_w.size - repeats + 1)
    time_s = np.append(0.0, np.cumsum(step_s))
    is_long = (repeats + 1 >= FROZEN_SAMPLES) & (time_s[last] - time_s[first] >= FROZEN_S)
    marked = np.repeat(is_long & (repeats * np.log(share) < np.log(CHANCE)), repeats + 1)
    marked[first] = False
    return marked


# --- counters, and mean powers computed from them ---------------------------------------------------


def _totals(sensor: _Samples) -> Validated:
    """Validate totals of windows: the counter's rises. All else is between two windows, or unknown.

    There is nothing to tell a wrap or a gap by, and nothing to bridge by.
    """
    usable, total_j, step_s = sensor.usable()
    energy_j = np.diff(total_j)
    sensor.mark("missing_samples", "samples without a value", ~np.isfinite(sensor.values))
    over = energy_j > sensor.limit_w * (step_s + LAG_S)
    sensor.mark("missing_samples", f"totals above {sensor.limit_w:g} W", usable[1:][over])
    known = (energy_j > 0) & ~over & sensor.is_trusted
    shown_w = np.full(sensor.values.size, np.nan)
    shown_w[usable[1:]] = np.where(known, energy_j / step_s, np.nan)
    return sensor.validated(usable, energy_j, np.where(known, _EXACT, _UNCOVERED), shown_w)


def _counter(sensor: _Samples) -> Validated:
    """Validate every sample of a counter in J and every step between the valid ones."""
    sensor.mark("missing_samples", "samples without a value", ~np.isfinite(sensor.values))
    # A counter in µJ is never exactly 0 by itself; perun writes 0 for a failed read.
    sensor.mark("missing_samples", "failed reads (counter at 0)", sensor.values == 0)
    usable, counter_j, step_s = sensor.usable()
    energy_j = np.diff(counter_j)
    if not np.isnan(sensor.row.range_j):  # it wraps at most once in a step
        energy_j[energy_j < 0] += sensor.row.range_j
    return _differences(sensor, usable, energy_j, step_s)


def _means(sensor: _Samples) -> Validated:
    """Validate mean powers in W, each over the time since the sample before.

    perun makes them of a counter. Failed reads (0) give a wrong one, 0 W for each further failed
    read, and another wrong one. Only one of the two need be above the limit: left out are also the next
    samples that are not 0 on both sides of it, and all between.
    """
    usable, mean_w, step_s = sensor.usable()
    energy_j = mean_w[1:] * step_s
    missing = ~((mean_w >= 0) & (mean_w < np.inf))
    over = mean_w == np.inf
    over[1:] |= energy_j > sensor.limit_w * (step_s + LAG_S)
    # A sample of 0 belongs to the next one that is not, and those after the last of these to one more.
    is_read = mean_w != 0
    spoilt = np.convolve(np.append(over[is_read], False), [1, 1, 1])[1:-1] > 0
    over = spoilt[np.cumsum(is_read) - is_read]
    sensor.mark(
        "missing_samples", f"samples above {sensor.limit_w:g} W or next to one", usable[over]
    )
    sensor.mark("missing_samples", "samples without a value", usable[missing & ~over])
    energy_j[(missing | over)[1:]] = np.nan
    return _differences(sensor, usable, energy_j, step_s)


def _differences(sensor: _Samples, usable: Indices, energy_j: Floats, step_s: Floats) -> Validated:
    """Validate the energies in J, (m-1,), between m usable samples; NaN is an unknown one.

    Time without a change belongs to the change after it: that is a step.
    """
    shown_w = np.full(sensor.values.size, np.nan)
    if usable.size < 2:
        return sensor.validated(usable, energy_j, np.full(energy_j.size, _UNCOVERED), shown_w)
    steps, usual_s = _steps(energy_j, step_s, sensor.period_s)
    possible, ambiguous = _possible(steps, usual_s, sensor)
    exact = possible & ~ambiguous & sensor.is_trusted
    # A counter that stood still for long may have lost what was used meanwhile. If it did not, the step's
    # mean power is at least CAUGHT_UP of that on both sides.
    doubtful = exact & steps["is_still"] & steps["is_long"]
    if doubtful.any():
        sure_w = steps["power_w"].where(exact & ~doubtful)
        floor_w = CAUGHT_UP * np.fmin(sure_w.ffill(), sure_w.bfill())
        exact = (exact & (~doubtful | (steps["power_w"] >= floor_w))).to_numpy()
    bridged, across_w = _bridged(exact, ~exact & ~ambiguous, steps, usual_s, sensor.bridge_s)

    reads, step_s = steps["reads"].to_numpy(), steps["step_s"].to_numpy()
    ends = usable[np.cumsum(reads)]
    # A change ends a step; it does not repeat.
    stands = (steps["is_still"] & steps["is_long"]).to_numpy()
    repeats = np.repeat(stands, reads) & (energy_j == 0)
    sensor.mark("counter", "samples that repeat the one before", usable[1:][repeats])
    impossible = ~possible & (np.isfinite(steps["energy_j"]) & ~steps["is_outer"]).to_numpy()
    sensor.mark("counter", "steps that the counter cannot have made", ends[impossible])
    sensor.mark("counter", "steps that may hide a further wrap", ends[ambiguous])

    power_w, known_j = (np.where(exact, steps[n], np.nan) for n in ("power_w", "energy_j"))
    # A step too short to resolve its power shows that of it and the one before.
    short = np.flatnonzero(power_w[1:] > sensor.limit_w) + 1
    power_w[short] = (known_j[short] + known_j[short - 1]) / (step_s[short] + step_s[short - 1])
    shown_w[usable[1:]] = np.repeat(power_w, reads)
    state = np.where(exact, _EXACT, np.where(bridged, _BRIDGED, _UNCOVERED))
    known_j = np.where(bridged, across_w * step_s, steps["energy_j"])
    return sensor.validated(np.append(usable[0], ends), known_j, state, shown_w)


def _steps(energy_j: Floats, step_s: Floats, period_s: float) -> tuple[pd.DataFrame, float]:
    """The k steps of a counter from change to change, and the usual time of one in s.

    Columns: `reads`, `step_s`, `energy_j`, `power_w`; `is_still`, if the counter stood still for a part of
    it; `is_outer` of the first step of a slow counter, begun before, and of a last one that is not over yet;
    `is_long`.
    """
    changes = np.flatnonzero(energy_j != 0)
    is_open = energy_j[-1] == 0
    begins = np.append(0, changes + 1)
    begins = begins if is_open else begins[:-1]
    reads = np.diff(begins, append=energy_j.size)
    joined_s, joined_j = (np.add.reduceat(each, begins) for each in (step_s, energy_j))
    usual_s, is_slow = period_s, False
    if 0 < changes.size < energy_j.size:
        usual_s = max(median(joined_s[: changes.size]), period_s)
        is_slow = median(reads[: changes.size]) >= SLOW_READS
    number = np.arange(reads.size)
    is_last_open = (number == reads.size - 1) & is_open
    columns = {
        **{
            "reads": reads,
            "step_s": joined_s,
            "energy_j": joined_j,
            "power_w": joined_j / joined_s,
        },
        "is_still": (reads > 1) | is_last_open,
        "is_outer": is_last_open | ((number == 0) & is_slow),
        "is_long": joined_s > terms.GAP_PERIODS * usual_s * _JITTER,
    }
    return pd.DataFrame(columns), usual_s


def _possible(steps: pd.DataFrame, usual_s: float, sensor: _Samples) -> tuple[Bools, Bools]:
    """Mark the steps that the counter can have made, and those of them that may hide a further wrap."""
    energy_j, step_s, is_long = (
        steps[name].to_numpy() for name in ("energy_j", "step_s", "is_long")
    )
    power_w, limit_w, range_j = steps["power_w"].to_numpy(), sensor.limit_w, sensor.row.range_j
    possible = (
        (energy_j > 0) & (energy_j <= limit_w * (step_s + LAG_S)) & ~steps["is_outer"].to_numpy()
    )
    # The mean power of a very short step is mostly the counter's lag.
    usual_w = power_w[possible & ~is_long & (step_s >= 0.5 * usual_s)]
    possible &= ~is_long | (power_w <= RESET * usual_w.max(initial=0.0)) | (not usual_w.size)
    range_j = LEAST_RANGE_J if np.isnan(range_j) else range_j
    return possible, possible & (energy_j + range_j <= limit_w * step_s) & np.isfinite(limit_w)


def _bridged(
    exact: Bools, unknown: Bools, steps: pd.DataFrame, usual_s: float, longest_s: float
) -> tuple[Bools, Floats]:
    """Mark the steps of unknown energy that are bridged, with the power in W by those on both sides.

    A slow counter's lag at the beginning and the end is bridged from the one side there is.
    """
    step_s, power_w, is_outer = (steps[n].to_numpy() for n in ("step_s", "power_w", "is_outer"))
    if exact.all() or not exact.any():
        return np.zeros_like(exact), power_w
    before = np.cumsum(exact)  # exact steps before each: equal ones are an unbroken run
    run_s = np.bincount(before, weights=np.where(exact, 0.0, step_s))[before]
    bridged = unknown & (before > 0) & (before < before[-1]) & (run_s <= longest_s)
    if is_outer[0]:
        bridged |= unknown & is_outer & (step_s <= LAG_STEPS * usual_s)
    middle_s = np.cumsum(step_s) - 0.5 * step_s
    return bridged, np.interp(middle_s, middle_s[exact], power_w[exact])
