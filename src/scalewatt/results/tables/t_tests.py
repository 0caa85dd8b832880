"""Student's t: intervals of means, the probability that one decides, and how many repeats would.

A number is an estimate with a standard error that `freedom` degrees of freedom tell. It is said to lie
within bounds where its whole 95 % interval does, outside of them where its whole interval is on the
other side of one, and else nothing is said. For a truth on a bound the former is wrong with a probability
of 2.5 % at most (two one-sided tests: Schuirmann 1987), the latter of 5 %: 2.5 % beyond each bound, the
farther of which counts only where both are close.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

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


def quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return half the width of an interval of this confidence, over its standard error."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    return float(stdtrit(min(freedom, _MANY), (1 + confidence) / 2))


@dataclass(frozen=True)
class LogMean:
    """The mean of a positive quantity as a logarithm, with the square of its standard error."""

    value: float
    square: float
    freedom: float
    """The degrees of freedom that tell the error."""

    @classmethod
    def of_repeats(cls, values: Sequence[float]) -> LogMean | None:
        """Return the mean of the logarithms of repeats; None of a single one."""
        n = len(values)
        if n < 2:
            return None
        logs = [math.log(value) for value in values]
        mean = math.fsum(logs) / n
        return cls(mean, math.fsum((log - mean) ** 2 for log in logs) / (n - 1) / n, n - 1)

    @classmethod
    def of_mean(cls, mean: float | None, sd: float | None, n: int | None) -> LogMean | None:
        """Return the logarithm of a mean over repeats, its error to first order; None without repeats."""
        if mean is None or sd is None or n is None or n < 2 or mean <= 0:
            return None
        return cls(math.log(mean), (sd / mean) ** 2 / n, n - 1)


@dataclass(frozen=True)
class LogRatio:
    """The ratio of two independent means, as a logarithm with its standard error."""

    value: float
    error: float
    freedom: float

    @property
    def ends(self) -> tuple[float, float]:
        """Return the 95 % interval of the ratio, which is positive whatever the repeats."""
        half = quantile(self.freedom) * self.error
        return math.exp(self.value - half), math.exp(self.value + half)


def log_ratio(top: LogMean, bottom: LogMean) -> LogRatio:
    """Return the ratio of two means: the interval of every ratio in tables, figures and advice.

    A t interval of the difference of logarithms: spreads may differ (Welch 1947), the degrees of freedom are
    Satterthwaite's (1946).
    """
    square = top.square + bottom.square
    parts = top.square**2 / top.freedom + bottom.square**2 / bottom.freedom
    freedom = square**2 / parts if parts else math.inf
    return LogRatio(top.value - bottom.value, math.sqrt(square), freedom)


def below(value: float, bound: float, error: float, freedom: float) -> float:
    """Return the probability of an estimate as low as `value` or lower, were the truth at `bound`.

    With an `error` of 0 it is 0 or 1; with an unknown one it is 1.
    """
    from scipy.special import stdtr

    if not math.isfinite(error):
        return 1.0
    if not error:
        return float(value >= bound)
    return float(stdtr(min(freedom, _MANY), (value - bound) / error))


def chance_inside(
    truth: float,
    low: float,
    high: float,
    error: float,
    freedom: float,
    confidence: float = CONFIDENCE,
) -> float:
    """Return the probability that an estimate's whole interval lies within bounds, for this truth.

    `error` is the true standard error; the one found varies about it as `freedom` says. An estimate whose
    error is not known (infinite, or NaN) decides nothing: 0.
    """
    if not math.isfinite(error):
        return 0.0
    if not error:
        return float(low <= truth <= high)
    return float(np.mean(_insides(truth, low, high, error, freedom, confidence)))


def chance_outside(
    truth: float,
    low: float,
    high: float,
    error: float,
    freedom: float,
    confidence: float = CONFIDENCE,
) -> float:
    """Return the probability that an estimate's whole interval lies outside of bounds, for this truth.

    0 where its error is not known.
    """
    if not math.isfinite(error):
        return 0.0
    if not error:
        return float(not low <= truth <= high)
    return float(np.mean(_outsides(truth, low, high, error, freedom, confidence)))


def chance_equivalent_or_different(
    truth: float, room: float, error: float, freedom: float
) -> float:
    """Return the probability that an estimate's 95 % interval is within ± room or leaves out 0.

    Either will do: an interval that is beyond 0, but not beyond `room`, tells a difference.
    """
    if not math.isfinite(error):
        return 0.0
    if not error:
        return float(truth != 0.0 or room > 0.0)
    inside = _insides(truth, -room, room, error, freedom, CONFIDENCE)
    apart = _outsides(truth, 0.0, 0.0, error, freedom, CONFIDENCE)
    # For one standard error both together are all estimates, or they exclude each other.
    return float(np.mean(np.minimum(inside + apart, 1.0)))


def _insides(
    truth: float, low: float, high: float, error: float, freedom: float, confidence: float
) -> npt.NDArray[np.float64]:
    """Return the probability that an interval lies within bounds, for each standard error found."""
    from scipy.special import ndtr

    half = _halves(error, freedom, confidence)
    room = ndtr((high - half - truth) / error) - ndtr((low + half - truth) / error)
    return np.asarray(np.maximum(room, 0.0))


def _outsides(
    truth: float, low: float, high: float, error: float, freedom: float, confidence: float
) -> npt.NDArray[np.float64]:
    """Return the probability that an interval lies outside of bounds, for each standard error found."""
    from scipy.special import ndtr

    half = _halves(error, freedom, confidence)
    return np.asarray(ndtr((low - half - truth) / error) + ndtr((truth - high - half) / error))


def _halves(error: float, freedom: float, confidence: float) -> npt.NDArray[np.float64]:
    """Return half the widths of intervals, each as probable: the error found is chi-distributed."""
    return _relative_halves(min(freedom, _MANY), confidence) * error


@lru_cache(maxsize=256)
def _relative_halves(freedom: float, confidence: float) -> npt.NDArray[np.float64]:
    from scipy.special import gammaincinv

    spreads = np.sqrt(gammaincinv(freedom / 2, _PROBABILITIES) * 2 / freedom)
    return np.asarray(quantile(freedom, confidence) * spreads)


def first_with_power(chance: Callable[[int], float], least: int = 2) -> int | None:
    """Return the smallest number of repeats from `least` on whose chance of a verdict is POWER.

    `chance` must not fall with their number. Null for more than MOST_REPEATS.
    """
    if chance(MOST_REPEATS) < POWER:
        return None
    low, high = least, MOST_REPEATS
    while low < high:
        middle = (low + high) // 2
        if chance(middle) >= POWER:
            high = middle
        else:
            low = middle + 1
    return low
