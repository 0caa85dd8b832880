"""Squares of standard errors by the source of spread that tells them, and their degrees of freedom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Variance:
    """The square of a standard error, from one source of spread."""

    square: float
    freedom: float
    single: float = 0.0
    """The part that repeats would divide, as of single runs."""
    fixed: float = 0.0
    """The part of `square` that no further run changes: that of a published number."""
    pool: str = ""
    """The source whose estimate these repeats are a part of, if they are."""

    def times(self, factor: float) -> Variance:
        """Return that of a multiple, by the square of its factor; none for 0, whatever it is."""
        if not factor:
            return Variance(0.0, self.freedom)
        square, single, fixed = (part * factor for part in (self.square, self.single, self.fixed))
        return replace(self, square=square, single=single, fixed=fixed)

    def __add__(self, other: Variance) -> Variance:
        """Return that of a sum of independent numbers whose spread is one estimate."""
        return Variance(
            self.square + other.square,
            min(self.freedom, other.freedom),
            self.single + other.single,
            self.fixed + other.fixed,
            self.pool,
        )


def freedom_of(parts: Sequence[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of squares, each with its own (Satterthwaite 1946)."""
    total = math.fsum(square for square, _ in parts)
    if not total:
        return math.inf
    if math.isinf(total):
        return 1.0
    weights = [(square / total) ** 2 / freedom for square, freedom in parts if square]
    found = math.fsum(weights)
    return 1 / found if found else math.inf


def apart(variances: Mapping[str, Variance]) -> list[tuple[float, float]]:
    """Return squares and degrees of freedom of independent estimates that the variances are made of.

    A pool's estimate is the mean of its repeats' ones, weighted by their degrees of freedom: of repeats
    that are a source beside their pool, their part of it is one estimate with their own.
    """
    found = []
    rest = {source: (one.square, one.freedom) for source, one in variances.items()}
    for source, one in variances.items():
        whole = variances.get(one.pool)
        if whole is None or not math.isfinite(one.square + whole.square):
            continue
        share = min(1.0, one.freedom / whole.freedom)
        square, freedom = rest[one.pool]
        del rest[source]
        found.append((one.square + whole.square * share, one.freedom))
        rest[one.pool] = max(0.0, square - whole.square * share), max(0.0, freedom - one.freedom)
    return found + [part for part in rest.values() if part[1] > 0]


def times(variances: Mapping[str, Variance], factor: float) -> dict[str, Variance]:
    """Return those of a multiple, by the square of its factor."""
    return {source: one.times(factor) for source, one in variances.items()}


def added(*all_of: Mapping[str, Variance]) -> dict[str, Variance]:
    """Return those of a sum of independent numbers."""
    found: dict[str, Variance] = {}
    for variances in all_of:
        for source, one in variances.items():
            found[source] = found[source] + one if source in found else one
    return found
