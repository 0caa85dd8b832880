"""Lines and rank correlation, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scalewatt.claims.evidence.claim_types import NotTestable, Unresolved
from scalewatt.results.tables.repeat_statistics import CONFIDENCE


@dataclass(frozen=True)
class Fit:
    """A line y = slope·x + intercept by least squares."""

    slope: float
    intercept: float
    r2: float
    origin_slope: float
    """Of the line through the origin; likewise `origin_r2`, about the mean like `r2`."""
    origin_r2: float
    slope_half: float | None
    """Half the 95 % interval; null for two points. Likewise `intercept_half`."""
    intercept_half: float | None
    n: int


def line_fit(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Fit a line to at least two points that differ in x (Unresolved otherwise)."""
    n = len(x)
    if n < 2 or max(x) == min(x):
        raise Unresolved("A line needs two points that differ in x.")
    mx, my = math.fsum(x) / n, math.fsum(y) / n
    sxx = math.fsum((a - mx) ** 2 for a in x)
    syy = math.fsum((b - my) ** 2 for b in y)
    slope = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sxx
    intercept = my - slope * mx
    rest = math.fsum((b - slope * a - intercept) ** 2 for a, b in zip(x, y, strict=True))
    through = math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.fsum(a * a for a in x)
    origin_rest = math.fsum((b - through * a) ** 2 for a, b in zip(x, y, strict=True))
    halves: tuple[float | None, float | None] = (None, None)
    if n > 2:
        from scipy.special import stdtrit

        t = float(stdtrit(n - 2, (1 + CONFIDENCE) / 2))
        error = math.sqrt(rest / (n - 2))
        halves = (t * error / math.sqrt(sxx), t * error * math.sqrt(1 / n + mx * mx / sxx))
    r2, origin_r2 = (1 - one / syy if syy else 0.0 for one in (rest, origin_rest))
    return Fit(slope, intercept, r2, through, origin_r2, *halves, n)


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rank correlation, ties by mean ranks; 0 where one of both is constant."""
    a, b = ranks(x), ranks(y)
    fit = line_fit(a, b)
    return math.copysign(math.sqrt(max(fit.r2, 0.0)), fit.slope) if fit.slope else 0.0


def variation(values: Sequence[float]) -> float:
    """Return coefficient of variation: sample standard deviation over mean; NotTestable for a mean of 0."""
    mean = math.fsum(values) / len(values)
    if not mean:
        raise NotTestable("A coefficient of variation needs a mean that is not 0.")
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)) / abs(mean)


def ranks(values: Iterable[float]) -> list[float]:
    """Return rank of each value from 1, ties by their mean."""
    values = list(values)
    return [
        sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2
        for one in values
    ]
