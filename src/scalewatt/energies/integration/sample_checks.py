"""What all validation of samples shares: invalid samples, their quality flags, and the energy curve.

`integrate` states what follows from a flag (bridged or left out).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scalewatt.recordings.series import Flag, Floats, flag

Bools = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Indices = NDArray[np.intp]

SAMPLE_FLAGS = ("", "clock", "missing_samples", "over_limit", "counter", "constant", "gap")
"""What the code of a sample's flag means; 0 is no flag."""
_FLAG_OF = {
    "clock_backwards": "clock",
    "zero_power": "missing_samples",
    "counter_zero": "missing_samples",
    "frozen": "counter",
    "counter_reset": "counter",
    "counter_ambiguous": "counter",
    "low_power": "constant",
}
"""The flag of a fault that shares it with others; each fault's flag has a detail of its own."""

GAP_PERIODS = 3.0
FROZEN_S = 60.0
FROZEN_SAMPLES = 30
# How improbable a sensor must be to repeat itself as long by chance.
CHANCE = 1e-6

EXACT, BRIDGED, UNCOVERED = 0, 1, 2

BRIDGE_S = 30.0


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
        return self.until(end_s) - self.until(start_s)

    def until(self, time_s: ArrayLike) -> Floats:
        """Return the energy in J from the first sample to some times."""
        return self._at(self.energy_j, time_s)

    def covered_s(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the seconds between two times of which the energy is known."""
        return self.covered_until(end_s) - self.covered_until(start_s)

    def covered_until(self, time_s: ArrayLike) -> Floats:
        """Return the seconds until some times of which the energy is known, from an origin of its own."""
        return self._at(self.cumulated_s, time_s)

    def times(self, factor: float) -> EnergyCurve:
        """Return the curve of a power that is `factor` times as high."""
        return replace(self, energy_j=factor * self.energy_j)

    def _at(self, values: Floats, time_s: ArrayLike) -> Floats:
        if self.time_s.size == 0:
            return np.zeros_like(np.asarray(time_s, dtype=np.float64))
        return np.asarray(np.interp(np.asarray(time_s), self.time_s, values))


@dataclass(frozen=True, eq=False)
class Validated:
    """One validated series of n samples."""

    curve: EnergyCurve
    flags: list[Flag]
    power_w: Floats
    """Power in W at each sample, (n,); NaN where unknown. Of a counter and of mean powers: the mean
    since the sample before, so the first is unknown. May be the values of the series themselves."""
    sample_flags: Codes
    """Place in SAMPLE_FLAGS of the first flag of each sample, (n,); 0: none. `gap`: first sample after it."""


@dataclass(frozen=True)
class Device:
    """The device behind a series, as far as known."""

    sensor: str
    limit_w: float
    """What it cannot draw more than in W."""
    measured: bool
    """True if a sensor stands behind it: one that may freeze, of a device that never draws 0 W."""
    valid_max: float | None
    """Range of the counter in J; None if unknown or no counter."""
    period_s: float | None
    """The declared sampling period; None if unknown."""
    least_share: float = 0.0
    """Share of its median power that it always draws; less is no power of its."""


def sampling_period(time_s: Floats, declared_s: float | None = None) -> float:
    """Return the period in s: the declared one or, if that is longer or alone, the median step."""
    steps = np.diff(time_s)
    steps = steps[steps > 0]
    return max(float(np.median(steps)) if steps.size else 0.0, declared_s or 0.0)


def bridge_s(period_s: float) -> float:
    """Return the longest time in s that is bridged."""
    return max(BRIDGE_S, GAP_PERIODS * period_s)


def cumulate(time_s: Floats, energy_j: Floats, covered_s: Floats) -> EnergyCurve:
    """Return the curve of k samples from the energy and covered time of the k-1 intervals."""
    if time_s.size == 0:
        return EnergyCurve(time_s, time_s, time_s)
    return EnergyCurve(time_s, _summed(energy_j), _summed(covered_s))


def _summed(parts: Floats) -> Floats:
    total = np.empty(parts.size + 1)
    total[0] = 0.0
    np.cumsum(parts, out=total[1:])
    return total


_LABELS = {
    "clock_backwards": "samples not after the one before",
    "missing_samples": "samples without a value",
    "zero_power": "samples of 0 W",
    "counter_zero": "failed reads (counter at 0)",
    "frozen": "samples that repeat the one before",
    "counter_reset": "steps that the counter cannot have made",
    "counter_ambiguous": "steps that may hide a further wrap",
    "constant": "samples of one value, of a steady device or a frozen sensor, counted",
    "low_power": "samples of less than a hundredth of the usual power, counted",
}


def code_of(word: str) -> int:
    """Return the place in SAMPLE_FLAGS of the flag of a fault."""
    return SAMPLE_FLAGS.index(_FLAG_OF.get(word, word))


@dataclass(frozen=True, eq=False)
class Marks:
    """The flagged samples of one series of n samples, by fault; a sample keeps its first flag."""

    codes: Codes
    found: dict[str, Indices] = field(default_factory=dict)

    def usable(self) -> Indices:
        """Return the places of the samples without a flag."""
        return np.flatnonzero(self.codes == 0)

    def mark(self, word: str, where: Indices) -> None:
        """Mark the samples at these places."""
        if where.size:
            self.found[word] = where
            free = where[self.codes[where] == 0]
            self.codes[free] = code_of(word)

    def mark_where(self, word: str, mask: Bools) -> None:
        """Mark the samples of a mask, shape (n,), that have no flag yet."""
        self.mark(word, np.flatnonzero(mask & (self.codes == 0)))


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
    after = np.full(time_s.size, -1)
    for place in np.flatnonzero(good)[::-1].tolist():
        until = -float(time_s[place])
        length = bisect_left(tails, until)
        after[place] = last[length - 1] if length else -1
        if length == len(tails):
            tails.append(until)
            last.append(place)
        elif until < tails[length]:
            tails[length], last[length] = until, place
    kept = np.zeros(time_s.size, dtype=np.bool_)
    place = last[-1] if last else -1
    while place >= 0:
        kept[place] = True
        place = int(after[place])
    return kept


def forward_ends(time_s: Floats) -> tuple[float, float] | None:
    """Return the first and the last of the samples whose clock runs forward; None without any."""
    good = time_s[forward(time_s)]
    return (float(good[0]), float(good[-1])) if good.size else None


def after_gaps(time_s: Floats, period_s: float) -> Indices:
    """Return the places of the samples over GAP_PERIODS periods after the one before."""
    # The tolerance keeps the jitter of a float32 clock from making a gap of three periods.
    return np.flatnonzero(np.diff(time_s) > GAP_PERIODS * period_s * (1 + 1e-6)) + 1


def may_repeat_long(values: Floats) -> bool:
    """Tell cheaply whether any value can stand unchanged over FROZEN_SAMPLES samples."""
    some = values[:: FROZEN_SAMPLES // 4]
    same = some[1:] == some[:-1]
    return bool((same[2:] & same[1:-1] & same[:-2]).any()) or some.size < 4


def standing_still(time_s: Floats, power_w: Floats) -> Bools:
    """Mark the samples that repeat one power for longer than chance allows.

    A stretch of one value, FROZEN_S and FROZEN_SAMPLES long or longer, is improbable where
    r**k < CHANCE: k repeats, r the share of repeats among all other adjacent samples. The device may
    be steady, or its sensor frozen.
    """
    size = power_w.size
    marked = np.zeros(size, dtype=np.bool_)
    if size < FROZEN_SAMPLES or not may_repeat_long(power_w):
        return marked
    first = np.concatenate(([0], np.flatnonzero(np.diff(power_w)) + 1))
    last = np.concatenate((first[1:] - 1, [size - 1]))
    repeats = last - first
    long = (repeats + 1 >= FROZEN_SAMPLES) & (time_s[last] - time_s[first] >= FROZEN_S)
    for begin, end, count in zip(first[long], last[long], repeats[long], strict=True):
        others = size - 1 - count
        share = (repeats.sum() - count + 1) / (others + 2)
        if count * np.log(share) < np.log(CHANCE):
            marked[begin + 1 : end + 1] = True
    return marked


def quality_flags(
    time_s: Floats,
    marks: Marks,
    knots: Indices,
    state: Codes,
    device: str | None,
    words: Mapping[str, str],
) -> list[Flag]:
    """Return a quality flag per fault, each with its samples and the seconds concerned.

    `knots` (k,) are the valid samples, `state` (k-1,) what became of the time between them. The
    seconds of a flag are those between the valid samples on both sides of its samples; before the
    first and after the last valid sample they are uncovered. `words` says what the samples are where
    that needs numbers.
    """
    if not marks.found:
        return []
    finite = time_s[np.isfinite(time_s)]
    ends = (finite[0], finite[-1]) if finite.size else (0.0, 0.0)
    seconds = np.diff(np.concatenate((ends[:1], time_s[knots], ends[1:])))
    # Stamps out of order may lie on either side of the true samples.
    seconds = np.maximum(seconds, 0.0)
    outside = np.full(1, UNCOVERED, dtype=np.uint8)
    states = np.concatenate((outside, state, outside[: knots.size]))
    flags = []
    for word, where in marks.found.items():
        concerned = np.unique(np.searchsorted(knots, where))
        parts = np.bincount(states[concerned], weights=seconds[concerned], minlength=3)
        detail = f"{where.size} of {time_s.size} {words.get(word) or _LABELS[word]}, {parts.sum():.1f} s: "
        flags.append(flag(_FLAG_OF.get(word, word), device, detail + _parts(parts)))
    return flags


def _parts(seconds: Iterable[float]) -> str:
    exact, bridged, lost = seconds
    known = f"{exact:.1f} s exact, " if exact else ""
    return f"{known}{bridged:.1f} s bridged, {lost:.1f} s uncovered"
