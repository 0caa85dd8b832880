"""Where one new measurement is expected, by earlier ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewatt.results.tables.repeat_statistics import CONFIDENCE, summarise


@dataclass(frozen=True)
class Interval:
    """A prediction interval, in the unit of the values that it is made from."""

    low: float
    high: float
    mean: float
    n: int

    def holds(self, value: float) -> bool:
        """Whether a value lies within it, its ends included."""
        return self.low <= value <= self.high


def prediction_interval(earlier: Sequence[float]) -> Interval | None:
    """The 95 % Student-t interval in which one further observation is expected; None of fewer than two.

    mean ± t · s · √(1 + 1/n), s the sample standard deviation, t the quantile of n − 1 degrees of
    freedom: for observations that are independent and normal. Unlike the interval of the mean it does
    not shrink to nothing with n. Source: G. J. Hahn and W. Q. Meeker, "Statistical Intervals", Wiley
    1991, on intervals to contain a single future observation.
    """
    found = summarise(earlier)
    if found.n < 2 or found.mean is None or found.sd is None:
        return None
    from scipy.special import stdtrit  # as in results.statistics

    t = float(stdtrit(found.n - 1, (1 + CONFIDENCE) / 2))
    half = t * found.sd * math.sqrt(1 + 1 / found.n)
    return Interval(found.mean - half, found.mean + half, found.mean, found.n)
