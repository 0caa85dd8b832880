"""Detection of invalid samples of a sensor, and the quality flags of them.

`integrate` states what follows from a flag (bridged or left out).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scalewatt.recordings.series import Flag, Floats, flag

Bools = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Indices = NDArray[np.intp]

SAMPLE_FLAGS = (
    "",
    "clock_backwards",
    "missing_samples",
    "zero_power",
    "over_limit",
    "counter_zero",
    "frozen",
    "counter_reset",
    "counter_ambiguous",
    "constant",
    "gap",
)
"""What the code of a sample's flag means; 0 is no flag."""

GAP_PERIODS = 3.0
FROZEN_S = 60.0
FROZEN_SAMPLES = 30
# How improbable a sensor must be to repeat itself as long by chance.
CHANCE = 1e-6
# Sensors that tell steps under this apart never repeat themselves under a real load; coarser ones
# (whole watts) do.
FINE_W = 0.1

EXACT, BRIDGED, UNCOVERED = 0, 1, 2

_LABELS = {
    "clock_backwards": "samples not after the one before",
    "missing_samples": "samples without a value",
    "zero_power": "samples of 0 W",
    "counter_zero": "failed reads (counter at 0)",
    "frozen": "samples that repeat the one before",
    "counter_reset": "steps that the counter cannot have made",
    "counter_ambiguous": "steps that may hide a further wrap",
    "constant": "samples of one value, of a steady device or a frozen sensor, counted",
}


def code_of(word: str) -> int:
    """Return the code of a flag."""
    return SAMPLE_FLAGS.index(word)


@dataclass(frozen=True, eq=False)
class Marks:
    """The flagged samples of one series of n samples, by flag; a sample keeps its first flag."""

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
    if good.all() and (time_s.size < 2 or np.diff(time_s).min() > 0):
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


def after_gaps(time_s: Floats, period_s: float) -> Indices:
    """Return the places of the samples over GAP_PERIODS periods after the one before."""
    # The tolerance keeps the jitter of a float32 clock from making a gap of three periods.
    return np.flatnonzero(np.diff(time_s) > GAP_PERIODS * period_s * (1 + 1e-6)) + 1


def may_repeat_long(values: Floats) -> bool:
    """Tell cheaply whether any value can stand unchanged over FROZEN_SAMPLES samples."""
    some = values[:: FROZEN_SAMPLES // 4]
    same = some[1:] == some[:-1]
    return bool((same[2:] & same[1:-1] & same[:-2]).any()) or some.size < 4


def standing_still(time_s: Floats, power_w: Floats) -> tuple[Bools, Bools]:
    """Mark the samples that repeat one power too long: surely frozen, and undecidable.

    A stretch of one value, FROZEN_S and FROZEN_SAMPLES long or longer, is improbable where
    r**k < CHANCE: k repeats, r the share of repeats among all other adjacent samples. It is
    frozen where the sensor shows elsewhere, in as many samples at least, that it tells steps of
    less than FINE_W apart. Whole watts and a sensor that never moves cannot be decided.
    """
    size = power_w.size
    frozen = np.zeros(size, dtype=np.bool_)
    unsure = np.zeros(size, dtype=np.bool_)
    if size < FROZEN_SAMPLES or not may_repeat_long(power_w):
        return frozen, unsure
    steps = np.diff(power_w)
    first = np.concatenate(([0], np.flatnonzero(steps) + 1))
    last = np.concatenate((first[1:] - 1, [size - 1]))
    repeats = last - first
    long = (repeats + 1 >= FROZEN_SAMPLES) & (time_s[last] - time_s[first] >= FROZEN_S)
    moving = np.abs(steps[steps != 0])
    fine = moving.size > 0 and float(moving.min()) < FINE_W
    for begin, end, count in zip(first[long], last[long], repeats[long], strict=True):
        others = size - 1 - count
        share = (repeats.sum() - count + 1) / (others + 2)
        if count * np.log(share) < np.log(CHANCE):
            sure = fine and others >= FROZEN_SAMPLES
            (frozen if sure else unsure)[begin + 1 : end + 1] = True
    return frozen, unsure


def quality_flags(
    time_s: Floats,
    marks: Marks,
    knots: Indices,
    state: Codes,
    device: str | None,
    words: Mapping[str, str],
) -> list[Flag]:
    """Return a quality flag per code, each with its samples and the seconds concerned.

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
        flags.append(flag(word, device, detail + _parts(parts)))
    return flags


def _parts(seconds: Iterable[float]) -> str:
    exact, bridged, lost = seconds
    known = f"{exact:.1f} s exact, " if exact else ""
    return f"{known}{bridged:.1f} s bridged, {lost:.1f} s uncovered"
