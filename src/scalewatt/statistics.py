"""Student's t: numbers with standard errors, intervals of what follows from them, repeats that would decide.

The standard error of a number is itself an estimate, with `freedom` degrees of freedom. A number lies within
bounds where its whole 95 % interval does, and outside where the whole interval lies beyond one of them;
otherwise nothing is decided. For a truth on a bound the former is wrong with a probability of 2.5 % at most
(two one-sided tests: Schuirmann 1987), the latter of 5 %: 2.5 % beyond each bound, the farther of which
counts only where both are close.
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
"""Equally probable quantiles that stand for the distribution of an estimated standard error."""
_MANY = 1e6
"""Degrees of freedom from which Student's t is taken for normal."""

Floats = npt.NDArray[np.float64]


def quantile(freedom: npt.ArrayLike, confidence: float = CONFIDENCE) -> Floats:
    """Half the width of an interval, over its standard error."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return np.asarray(stdtrit(np.minimum(freedom, _MANY), (1 + confidence) / 2))


# --- numbers and contrasts ------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Origin of a spread: a configuration's repeats, a pool of repeats, published ones, an estimate."""

    name: str
    pool: str = field(default="", compare=False)
    """The source whose estimate includes these repeats, if any."""
    words: str = field(default="", compare=False)
    """What the interval rests on, where that is not a number's repeats."""


class Part(NamedTuple):
    """Variances of numbers from one source; arrays with an item per number."""

    square: Floats
    """Squared standard error."""
    freedom: Floats
    single: Floats
    """The part that repeats would divide, for a single run."""
    fixed: Floats
    """The part of `square` that no further run changes: of a published number, or of an estimate."""

    def times(self, factor: npt.ArrayLike) -> Part:
        """Multiply the variances by a factor; 0 gives 0, even for unknown (infinite) ones."""
        factor = np.asarray(factor, float)
        with np.errstate(invalid="ignore"):
            square, single, fixed = (
                np.where(factor == 0, 0.0, variance * factor)
                for variance in (self.square, self.single, self.fixed)
            )
        return Part(square, self.freedom, single, fixed)


@dataclass(frozen=True)
class Numbers:
    """Numbers with their variances by source.

    Numbers that share a source are independent, but the same runs tell how much they scatter, and count
    once: two single runs judged by the three repeats of a third have two degrees of freedom, not four. So
    have an energy and a time judged by them, whose scatter may be common to both.

    The numbers are the last axis of all arrays; axes before it, such as many campaigns, are kept.
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
        zeros = np.zeros(self.values.shape)
        return np.asarray(np.sqrt(sum((part.square for part in self.parts.values()), zeros)))

    @cached_property
    def spreads(self) -> Floats:
        """Standard deviations, were all that the numbers are made of single runs."""
        zeros = np.zeros(self.values.shape)
        return np.asarray(np.sqrt(sum((p.single + p.fixed for p in self.parts.values()), zeros)))

    @cached_property
    def freedom(self) -> Floats:
        """Degrees of freedom of the errors (Welch 1947, Satterthwaite 1946).

        A pool's estimate is the mean of its repeats' estimates, weighted by their degrees of freedom. Where
        repeats are a source next to their pool, their share of it forms one estimate with their own.
        """
        by_name = {source.name: part for source, part in self.parts.items()}
        estimates = {name: (part.square, part.freedom) for name, part in by_name.items()}
        for source, part in self.parts.items():
            if source.pool not in by_name:
                continue
            pool = by_name[source.pool]
            both = (part.square > 0) & (pool.square > 0) & np.isfinite(part.square + pool.square)
            taken = np.where(both, part.freedom, 0.0)
            share = np.minimum(1.0, taken / np.where(both, pool.freedom, 1.0))
            common = np.where(both, pool.square, 0.0) * share
            square, freedom = estimates[source.pool]
            estimates[source.name] = part.square + common, part.freedom
            estimates[source.pool] = (
                np.maximum(square - common, 0.0),
                np.maximum(freedom - taken, 0.0),
            )
        return np.broadcast_to(_summed_freedom([*estimates.values()]), self.values.shape)

    @cached_property
    def halves(self) -> Floats:
        """Half the widths of the 95 % intervals."""
        return self.halves_at(CONFIDENCE)

    def halves_at(self, confidence: float) -> Floats:
        """Half the widths of intervals of this confidence; 0 for exact numbers."""
        half, exact = np.zeros(self.errors.shape), self.errors == 0
        return np.multiply(quantile(self.freedom, confidence), self.errors, out=half, where=~exact)

    def with_repeats(self, count: int) -> tuple[float, float]:
        """Error and freedom of the only number, were all it is made of means of so many repeats."""
        estimates = []
        for part in self.parts.values():
            estimates.append((part.fixed, part.freedom))
            estimates.append((part.single / count, np.maximum(part.freedom, count - 1)))
        square = sum(float(square[0]) for square, _ in estimates)
        return math.sqrt(square), float(np.ravel(_summed_freedom(estimates))[0])

    def words(self, at: int) -> str:
        """What the interval of a number rests on, if not on repeats of what it is made of."""
        known = {s.words for s, part in self.parts.items() if s.words and part.square[at] > 0}
        unbounded = {s.words for s, part in self.parts.items() if np.isinf(part.square[at])}
        return min(unbounded) if unbounded else " and ".join(sorted(known))


def _summed_freedom(estimates: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Degrees of freedom of sums of variances, each with its own (Satterthwaite 1946).

    Those of an unknown variance are 1, those of an exact number infinite.
    """
    if not estimates:
        return np.array(np.inf)
    variances, freedom = map(np.array, zip(*estimates, strict=True))
    variances = np.where(freedom > 0, variances, 0.0)
    total = variances.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = variances / total
        combined = 1 / (shares**2 / np.where(freedom > 0, freedom, 1.0)).sum(axis=0)
    return np.where(np.isinf(total), 1.0, np.where(total > 0, combined, np.inf))


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
    """One number with its variance; `single`: that of a single run, by default the same."""
    parts = (square, freedom, square if single is None else single, fixed)
    return replace(exact(value), parts={source: Part(*(np.array([float(p)]) for p in parts))})


def joined(numbers: Sequence[Numbers]) -> Numbers:
    """Concatenate numbers."""
    ends = np.cumsum([0, *map(len, numbers)])
    shape = (*numbers[0].values.shape[:-1], ends[-1])
    parts: dict[Source, Part] = {}
    for start, end, group in zip(ends[:-1], ends[1:], numbers, strict=True):
        for source, part in group.parts.items():
            blank = (np.full(shape, fill) for fill in (0.0, np.inf, 0.0, 0.0))
            for array, piece in zip(parts.setdefault(source, Part(*blank)), part, strict=True):
                array[..., start:end] = piece
    values = np.concatenate([group.values for group in numbers], axis=-1)
    return Numbers(values, parts, frozenset().union(*(group.origins for group in numbers)))


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


# --- ratios of means ------------------------------------------------------------------------------


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

    `sides`: the squared relative standard errors of the means on each side, and their degrees of freedom.
    The interval of every ratio in tables, figures and advice: Student's t of the difference of logarithms,
    whose spreads may differ.
    """
    parts = {Source(side): Part(*pair, *pair) for side, pair in sides.items()}
    return Numbers(np.zeros(len(next(iter(sides.values()))[0])), parts).halves


# --- verdicts, and repeats that would give one ----------------------------------------------------


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


def chances(
    truth: float, low: float, high: float, error: float, freedom: float
) -> tuple[Floats, Floats]:
    """Probabilities that an estimate's whole interval lies within bounds, and outside, for this truth.

    `error` is the true standard error. The estimated one varies about it, chi-distributed as `freedom` says:
    an item for each of many equally probable ones. If the error is not known (infinite or NaN), nothing is
    decided: 0.
    """
    from scipy.special import ndtr

    if not error:
        is_inside = float(low <= truth <= high)
        return np.array([is_inside]), np.array([1 - is_inside])
    if not math.isfinite(error):
        return np.zeros(1), np.zeros(1)
    half = _estimated_halves(min(freedom, _MANY)) * error
    inside = ndtr((high - half - truth) / error) - ndtr((low + half - truth) / error)
    outside = ndtr((low - half - truth) / error) + ndtr((truth - high - half) / error)
    return np.maximum(inside, 0.0), np.asarray(outside)


@lru_cache(maxsize=256)
def _estimated_halves(freedom: float) -> Floats:
    """Half the widths of intervals over the true standard error, for each standard error estimated."""
    from scipy.special import gammaincinv

    spreads = np.sqrt(gammaincinv(freedom / 2, _PROBABILITIES) * 2 / freedom)
    return quantile(freedom) * np.asarray(spreads)


def first_with_power(chance: Callable[[int], float], least: int = 2) -> int | None:
    """The smallest number of repeats, at least `least`, whose chance of a verdict is POWER.

    `chance` must not fall with their number. Null for more than MOST_REPEATS.
    """
    if chance(MOST_REPEATS) < POWER:
        return None
    counts = range(least, MOST_REPEATS + 1)
    return counts[bisect_left(counts, POWER, key=chance)]


def repeats_to_tell(number: Numbers, low: float, high: float) -> int | None:
    """Count the repeats that give a verdict with the probability POWER, were the only number the truth.

    Null for more than MOST_REPEATS.
    """
    truth = float(number.values[0])

    def chance(count: int) -> float:
        inside, outside = chances(truth, low, high, *number.with_repeats(count))
        return float(max(inside.mean(), outside.mean()))

    return first_with_power(chance)
