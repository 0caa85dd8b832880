"""Student's t: numbers with a spread, intervals of what is made of them, how many repeats would decide.

A number is an estimate with a standard error that `freedom` degrees of freedom tell. It is said to lie
within bounds where its whole 95 % interval does, outside of them where its whole interval is on the
other side of one, and else nothing is said. For a truth on a bound the former is wrong with a probability
of 2.5 % at most (two one-sided tests: Schuirmann 1987), the latter of 5 %: 2.5 % beyond each bound, the
farther of which counts only where both are close.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
LEVEL = (1 - CONFIDENCE) / 2
"""Of each of two one-sided tests."""
POWER = 0.8
"""Probability of a verdict for which repeats are counted."""
MOST_REPEATS = 1000
_PROBABILITIES = (np.arange(400) + 0.5) / 400
"""Those of the standard errors that stand for their distribution."""
_MANY = 1e6
"""Degrees of freedom from which the normal distribution is meant."""


Floats = npt.NDArray[np.float64]


def quantile(freedom: float) -> float:
    """Half the width of a 95 % interval, over its standard error."""
    return float(_quantiles(freedom, CONFIDENCE))


def _quantiles(freedom: npt.ArrayLike, confidence: float) -> Floats:
    """Half the widths of intervals of this confidence, over their standard errors."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return np.asarray(stdtrit(np.minimum(freedom, _MANY), (1 + confidence) / 2))


# --- numbers and contrasts ------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Origin of a spread: a configuration's repeats, a pool of repeats, published ones, an estimate."""

    name: str
    pool: str = field(default="", compare=False)
    """The source whose estimate these repeats are a part of, if they are."""
    words: str = field(default="", compare=False)
    """On what the interval rests, where it is not on a number's repeats."""


class Part(NamedTuple):
    """Squares of standard errors by one source, an array each with an item per number."""

    square: Floats
    freedom: Floats
    single: Floats
    """The part that repeats would divide, as of single runs."""
    fixed: Floats
    """The part of `square` that no further run changes: that of a published number, or of an estimate."""

    def times(self, factor: npt.ArrayLike) -> Part:
        """Multiply the squares by a factor; 0 gives 0, whatever they are."""
        factor = np.asarray(factor, float)

        def scaled(squares: Floats) -> Floats:
            return np.where(factor == 0, 0.0, squares * np.where(factor == 0, 1.0, factor))

        return Part(scaled(self.square), self.freedom, scaled(self.single), scaled(self.fixed))


@dataclass(frozen=True)
class Numbers:
    """Numbers with the squares of their standard errors, by the sources of spread that tell them.

    Numbers that share a source are independent of each other, but how much they scatter is told by the same
    runs, which count once: two single runs by the three repeats of a third have two degrees of freedom, not
    four. So have an energy and a time by these, whose scatter may be common to both.

    The numbers are the last axis of all arrays; others before it, as of many campaigns, are kept.
    """

    values: Floats
    parts: Mapping[Source, Part] = field(default_factory=dict)
    origins: frozenset[str] = frozenset()
    """Of the energies among them: measured, estimated, …"""

    def __len__(self) -> int:
        return int(self.values.shape[-1])

    def __getitem__(self, index: Any) -> Numbers:
        """Select numbers by an array of indices, a slice or a mask."""
        parts = {s: Part(*(array[..., index] for array in part)) for s, part in self.parts.items()}
        return replace(self, values=self.values[..., index], parts=parts)

    def times(self, factor: npt.ArrayLike) -> Numbers:
        """Multiply the numbers."""
        factor = np.asarray(factor, float)
        parts = {source: part.times(factor**2) for source, part in self.parts.items()}
        return replace(self, values=self.values * factor, parts=parts)

    def logarithms(self) -> Numbers:
        """Logarithms of positive numbers, errors to first order."""
        return replace(self.times(1 / self.values), values=np.log(self.values))

    def contrast(self, weights: npt.ArrayLike) -> Numbers:
        """Weighted sums of independent numbers; `weights` is (…, sums, numbers) or (numbers,)."""
        rows = np.atleast_2d(np.asarray(weights, float))

        def summed(part: Part) -> Part:
            each = Part(*(array[..., None, :] for array in part)).times(rows**2)
            freedom = np.where(rows != 0, each.freedom, np.inf).min(axis=-1, initial=np.inf)
            return Part(each.square.sum(-1), freedom, each.single.sum(-1), each.fixed.sum(-1))

        parts = {source: summed(part) for source, part in self.parts.items()}
        return replace(self, values=(rows @ self.values[..., None])[..., 0], parts=parts)

    def with_errors_of(self, x: Numbers, slope: npt.ArrayLike) -> Numbers:
        """Add the errors that those of x cause by this slope, as if independent."""
        both = joined([self, x.times(slope)])
        wide = both.contrast(np.hstack([np.eye(len(self))] * 2))
        return replace(wide, values=self.values)

    @cached_property
    def errors(self) -> Floats:
        """Standard errors."""
        total = sum((part.square for part in self.parts.values()), np.zeros(self.values.shape))
        return np.asarray(np.sqrt(total))

    @cached_property
    def spreads(self) -> Floats:
        """Standard deviations, were each number that they are made of a single run."""
        parts = self.parts.values()
        none = np.zeros(self.values.shape)
        return np.asarray(np.sqrt(sum((p.single + p.fixed for p in parts), none)))

    @cached_property
    def freedom(self) -> Floats:
        """Degrees of freedom of the errors (Welch 1947, Satterthwaite 1946)."""
        return np.broadcast_to(_freedom_of(self._apart()), self.values.shape)

    def _apart(self) -> list[tuple[Floats, Floats]]:
        """Squares and degrees of freedom of the independent estimates that the errors are made of.

        A pool's estimate is the mean of its repeats' ones, weighted by their degrees of freedom: of repeats
        that are a source next to their pool, their part of it is one estimate with their own.
        """
        by_name = {source.name: part for source, part in self.parts.items()}
        rest: dict[str, list[Floats]] = {
            name: [part.square, part.freedom] for name, part in by_name.items()
        }
        for source, part in self.parts.items():
            whole = by_name.get(source.pool)
            if whole is None:
                continue
            both = (part.square > 0) & (whole.square > 0) & np.isfinite(part.square + whole.square)
            taken = np.where(both, part.freedom, 0.0)
            share = np.minimum(1.0, taken / np.where(both, whole.freedom, 1.0))
            common = np.where(both, whole.square, 0.0) * share
            square, freedom = rest[source.pool]
            rest[source.name][0] = part.square + common
            rest[source.pool] = [
                np.where(both, np.maximum(square - common, 0.0), square),
                np.where(both, np.maximum(freedom - taken, 0.0), freedom),
            ]
        return [(square, freedom) for square, freedom in rest.values()]

    @cached_property
    def halves(self) -> Floats:
        """Half the widths of the 95 % intervals."""
        return self.halves_at(CONFIDENCE)

    def halves_at(self, confidence: float) -> Floats:
        """Half the widths of intervals of this confidence; 0 for exact numbers."""
        errors = self.errors
        quantiles = _quantiles(self.freedom, confidence)
        return np.where(errors > 0, quantiles * np.where(errors > 0, errors, 1.0), 0.0)

    def with_repeats(self, count: int) -> tuple[float, float]:
        """Error and freedom of the only number, were all it is made of means of so many repeats."""
        estimates = [
            pair
            for part in self.parts.values()
            for pair in (
                (part.fixed, part.freedom),
                (part.single / count, np.maximum(part.freedom, count - 1)),
            )
        ]
        square = sum((square for square, _ in estimates), np.zeros(len(self)))
        return math.sqrt(float(square[0])), float(_freedom_of(estimates)[0])

    def words(self, at: int) -> str:
        """What the interval of a number rests on, if not on repeats of what it is made of."""
        known = {s.words for s, part in self.parts.items() if s.words and part.square[at] > 0}
        unbounded = {s.words for s, part in self.parts.items() if np.isinf(part.square[at])}
        return min(unbounded) if unbounded else " and ".join(sorted(known))


def exact(values: npt.ArrayLike) -> Numbers:
    """Numbers without error."""
    return Numbers(np.atleast_1d(np.asarray(values, float)))


def estimate(
    value: float,
    source: Source,
    square: float,
    freedom: float,
    single: float | None = None,
    fixed: float = 0.0,
) -> Numbers:
    """One number with the square of its error; `single`: that of a single run, by default the same."""
    parts = (square, freedom, square if single is None else single, fixed)
    return replace(exact(value), parts={source: Part(*(np.array([float(p)]) for p in parts))})


def joined(numbers: Sequence[Numbers]) -> Numbers:
    """Concatenate numbers."""
    ends = np.cumsum([0, *map(len, numbers)])
    shape = (*numbers[0].values.shape[:-1], ends[-1])
    parts: dict[Source, Part] = {}
    for start, these in zip(ends[:-1], numbers, strict=True):
        for source, part in these.parts.items():
            blank = (0.0, np.inf, 0.0, 0.0)
            whole = parts.setdefault(source, Part(*(np.full(shape, fill) for fill in blank)))
            for array, piece in zip(whole, part, strict=True):
                array[..., start : start + len(these)] = piece
    values = np.concatenate([these.values for these in numbers], axis=-1)
    return Numbers(values, parts, frozenset().union(*(these.origins for these in numbers)))


def _freedom_of(parts: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Degrees of freedom of sums of squares, each with its own (Satterthwaite 1946)."""
    if not parts:
        return np.array(np.inf)
    squares = np.array([square for square, _ in parts])
    freedom = np.array([freedom for _, freedom in parts])
    squares = np.where(freedom > 0, squares, 0.0)
    total = squares.sum(axis=0)
    known = (total > 0) & np.isfinite(total)
    with np.errstate(invalid="ignore"):
        shares = np.where(squares > 0, squares / np.where(known, total, 1.0), 0.0)
    weights = (shares**2 / np.where(freedom > 0, freedom, 1.0)).sum(axis=0)
    freedom = np.where(weights > 0, 1 / np.where(weights > 0, weights, 1.0), np.inf)
    return np.where(np.isinf(total), 1.0, np.where(known, freedom, np.inf))


def slope_weights(x: npt.ArrayLike) -> Floats:
    """Weights of numbers at these abscissae in the slope of the line through them."""
    abscissae = np.asarray(x, float)
    apart = abscissae - abscissae.mean(axis=-1, keepdims=True)
    return np.asarray(apart / np.sum(apart**2, axis=-1, keepdims=True))


def least_squares(weights: npt.ArrayLike, design: Floats) -> Floats:
    """Weights of numbers in the coefficients of weighted least squares, (coefficients, numbers)."""
    root = np.sqrt(np.asarray(weights, float) / np.max(weights, axis=-1, keepdims=True))
    return np.asarray(np.linalg.pinv(design * root[..., None]) * root[..., None, :])


def quotient(numbers: Numbers, top: Floats, bottom: Floats) -> Numbers:
    """Ratios of two weighted sums of the same numbers, to first order; rows of `top` are ratios."""
    rows, below = np.atleast_2d(top), bottom[..., None, :]
    over = below @ numbers.values[..., None]
    ratios = rows @ numbers.values[..., None] / over
    return replace(numbers.contrast((rows - ratios * below) / over), values=ratios[..., 0])


def holm(tests: Sequence[float], level: float = 2 * LEVEL) -> list[bool]:
    """Which of several contradictions stand when all of them are true with a probability of 95 %.

    `tests` are the probabilities of all claims that were tested (Holm 1979).
    """
    ordered = sorted(range(len(tests)), key=lambda index: tests[index])
    stands = [False] * len(tests)
    for rank, index in enumerate(ordered):
        if tests[index] > level / (len(tests) - rank):
            break
        stands[index] = True
    return stands


# --- ratios of means, and repeats that would tell ---------------------------------------------------


def log_mean_of(values: Sequence[float], name: str) -> Numbers | None:
    """Mean of the logarithms of repeats, with their spread; None of a single one."""
    if len(values) < 2:
        return None
    logs = np.log(values)
    # Equal values differ by nothing: rounding of their mean is no spread.
    square = float(np.var(logs, ddof=1)) if np.ptp(values) else 0.0
    return estimate(float(logs.mean()), Source(name), square / len(logs), len(logs) - 1, square)


def relative_halves(sides: Mapping[str, tuple[Floats, Floats]]) -> Floats:
    """Half the widths of 95 % intervals of log-ratios, an item for each pair of independent means.

    Of each side of the ratios the relative standard error of its means to the square, and its degrees of
    freedom. A t interval of the difference of logarithms: spreads may differ (Welch 1947), the degrees of
    freedom are Satterthwaite's (1946): the interval of every ratio in tables, figures and advice.
    """
    parts = {Source(side): Part(*pair, *pair) for side, pair in sides.items()}
    return Numbers(np.zeros(len(next(iter(sides.values()))[0])), parts).halves


def below(value: float, bound: float, error: float, freedom: float) -> float:
    """Probability of an estimate as low as `value` or lower, were the truth at `bound`.

    With an `error` of 0 it is 0 or 1; with an unknown one it is 1.
    """
    from scipy.special import stdtr

    if not math.isfinite(error):
        return 1.0
    if not error:
        return float(value >= bound)
    return float(stdtr(min(freedom, _MANY), (value - bound) / error))


def chance_inside(truth: float, low: float, high: float, error: float, freedom: float) -> float:
    """Probability that an estimate's whole interval lies within bounds, for this truth.

    `error` is the true standard error; the one estimated varies about it as `freedom` says. An estimate whose
    error is not known (infinite, or NaN) decides nothing: 0.
    """
    if not error:
        return float(low <= truth <= high)
    return float(np.mean(_chances(truth, low, high, error, freedom)[0]))


def chance_outside(truth: float, low: float, high: float, error: float, freedom: float) -> float:
    """Probability that an estimate's whole interval lies outside of bounds; arguments as `chance_inside`."""
    if not error:
        return float(not low <= truth <= high)
    return float(np.mean(_chances(truth, low, high, error, freedom)[1]))


def chance_equivalent_or_different(
    truth: float, room: float, error: float, freedom: float
) -> float:
    """Probability that an estimate's 95 % interval is within ± room or leaves out 0.

    Either will do: an interval that is beyond 0, but not beyond `room`, tells a difference.
    """
    if not error:
        return float(truth != 0.0 or room > 0.0)
    inside, _ = _chances(truth, -room, room, error, freedom)
    _, apart = _chances(truth, 0.0, 0.0, error, freedom)
    # For each standard error both together are all estimates, or they exclude each other.
    return float(np.mean(np.minimum(inside + apart, 1.0)))


def _chances(
    truth: float, low: float, high: float, error: float, freedom: float
) -> tuple[Floats, Floats]:
    """Probabilities that an interval lies within and outside of bounds, for each standard error estimated.

    These are chi-distributed, each as probable.
    """
    from scipy.special import ndtr

    if not math.isfinite(error):
        return np.zeros(1), np.zeros(1)
    half = _relative_halves(min(freedom, _MANY)) * error
    inside = ndtr((high - half - truth) / error) - ndtr((low + half - truth) / error)
    outside = ndtr((low - half - truth) / error) + ndtr((truth - high - half) / error)
    return np.maximum(inside, 0.0), np.asarray(outside)


@lru_cache(maxsize=256)
def _relative_halves(freedom: float) -> Floats:
    from scipy.special import gammaincinv

    spreads = np.sqrt(gammaincinv(freedom / 2, _PROBABILITIES) * 2 / freedom)
    return np.asarray(quantile(freedom) * spreads)


def first_with_power(chance: Callable[[int], float], least: int = 2) -> int | None:
    """The smallest number of repeats, at least `least`, whose chance of a verdict is POWER.

    `chance` must not fall with their number. Null for more than MOST_REPEATS.
    """
    if chance(MOST_REPEATS) < POWER:
        return None
    counts = range(least, MOST_REPEATS + 1)
    return counts[bisect_left(counts, POWER, key=chance)]
