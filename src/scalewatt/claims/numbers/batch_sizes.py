"""Where errors change along the batch sizes: an onset, a knee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

import numpy as np

from scalewatt.claims.evidence.claim_types import (
    CONTRADICTED,
    SUPPORTED,
    UNDECIDED,
    NotTestable,
    Outcome,
)
from scalewatt.claims.numbers.decisions import LEVEL, against, all_of, band, needed, positive, told
from scalewatt.claims.numbers.uncertain_number import Number, shown, text, weighted

ROUNDING = 1e-12
"""The part of a number by which lines through exact points may miss them."""


def onset(
    what: str,
    sizes: Sequence[int],
    numbers: Sequence[Number],
    margin: float,
    low: int,
    high: int,
    unit: str = "",
) -> Outcome:
    """Check whether numbers leave the first by more than `margin` above the batch size `low`, up to `high`.

    The onset is between the last size that is at base and the first beyond, both with their whole
    intervals. Undecided if that step is not inside or outside of the range, and where the first
    size is not below it: then nothing says what the base is. Numbers of unknown spread make no test.
    """
    if sizes[0] >= low:
        raise NotTestable(
            f"{what} is known from GBS {sizes[0]} on, which need not be its base; 1 more needed, at a GBS "
            f"below {low}."
        )
    rises = [one - numbers[0] for one in numbers[1:]]
    known = list(zip(sizes[1:], rises, strict=True))
    calm = [size for size, _ in takewhile(lambda one: one[1].high <= margin, known)]
    last = max([sizes[0], *calm])
    first = next((size for size, rise in known if rise.low > margin), None)
    end = math.inf if first is None else first
    where = f"beyond GBS {last}, if at all" if first is None else f"between GBS {last} and {first}"
    apart = "pp" if unit == "%" else unit
    sentence = (
        f"{what} leaves {text(numbers[0], unit)} (at GBS {sizes[0]}) by more than "
        f"{f'{shown(margin)} {apart}'.rstrip()} {where}; expected above {low}, up to {high}"
    )
    value = None if first is None else float(first)
    early = [against(rise, -math.inf, margin) for size, rise in known if size <= low]
    late = [against(rise, margin, math.inf) for size, rise in known if size >= high][:1]
    tests = [*early, *late]
    p = min(1.0, len(tests) * min(tests, default=1.0))
    if first is not None and last >= low and first <= high:
        return Outcome(SUPPORTED, value, f"{sentence}.", p=p)
    if p <= LEVEL:
        return Outcome(CONTRADICTED, value, f"{sentence}.", p=p)
    open_ = [g for g in (low, high) if last < g < end and g not in sizes]
    more = [f"points at GBS {' and '.join(map(str, open_))} are needed"] if open_ else []
    between = ((size, rise) for size, rise in known if last < size < end)
    more += [f"at GBS {g} {needed(rise, -math.inf, margin)}" for g, rise in islice(between, 1)]
    is_told = any(math.isfinite(rise.error) for rise in rises)
    return Outcome(UNDECIDED, value, f"{sentence}; {'; '.join(more)}.", p=p if is_told else None)


@dataclass(frozen=True)
class _Bend:
    """Two joined lines: the knee, the slope before it and its change there, and how they fit."""

    gbs: int
    before: Number
    change: Number
    squares: float
    furthest: Number
    """The distance from them of the point that is furthest by its interval."""

    misfit: float
    """The mean square of the points' distances over their standard errors, for the lines' freedom.

    Exact points add nothing to it; where all are exact, the distances are parts of the largest number.
    """
    points: int
    freedom: float
    """Degrees of freedom of these errors."""
    is_exact: bool
    """True if all points are."""

    def p(self, least: float) -> float:
        """Return the probability of points so far from the lines, were these the truth.

        `least` is the misfit of the lines that fit best: where even they do not, or nothing else tells
        what a point scatters, curves are no two lines, and others are compared with these.
        """
        from scipy.special import fdtrc

        mine = self.points - 3
        if mine < 1:
            return 1.0
        if math.isinf(self.misfit):
            return 0.0
        expected = ROUNDING**2 if self.is_exact else 1.0
        is_compared = self.is_exact or least > expected
        errors = min(self.freedom, mine) if is_compared else self.freedom
        return float(fdtrc(mine, min(errors, 1e6), self.misfit / max(least, expected)))


def knee(sizes: Sequence[int], numbers: Sequence[Number], low: float, high: float) -> Outcome:
    """Check whether numbers rise with log2 of the batch sizes, and faster from `low` to `high` on.

    The knee is the inner point where two joined lines fit best; any other whose lines the points fit, by
    the F test of their distances, is possible too. Where all points are exact, these are compared with those
    of the best lines, so that no verdict depends on the unit. The second slope must be above the first by
    more than the points' intervals. NotTestable where no inner point is within the range, or none outside
    of it. Numbers of unknown spread make no test.
    """

    bends = [_joined(sizes, numbers, size) for size in sizes[1:-1]]
    inside = [bend for bend in bends if low <= bend.gbs <= high]
    outside = [bend for bend in bends if bend not in inside]
    for where, there in (
        (f"from {low:g} to {high:g}", inside),
        (f"below {low:g} or above {high:g}", outside),
    ):
        if not there:
            raise NotTestable(
                f"No knee at a GBS {where} can be compared: 1 more needed there, between other points."
            )
    best = min(bends, key=lambda bend: bend.squares)
    sentence = (
        f"Two joined lines fit best with a knee at GBS {best.gbs}, expected at {low:g} to {high:g}"
    )
    place = _place(sentence, best, inside, outside)
    if all(math.isinf(one.error) for one in numbers):
        place = replace(place, p=None)
    return all_of(
        [
            ("", place),
            ("", band("The slope per doubling before it", best.before, 0.0, None)),
            ("", positive("Its change there", best.change)),
        ]
    )


def _place(
    sentence: str, best: _Bend, inside: Sequence[_Bend], outside: Sequence[_Bend]
) -> Outcome:
    """Return whether the knee lies inside of the range, by the knees that points fit on either side."""
    fits = {one.gbs: one.p(best.misfit) for one in (*inside, *outside)}
    p = min(1.0, max(fits[one.gbs] for one in inside) * len(inside))
    if best in inside and max(fits[one.gbs] for one in outside) <= LEVEL:
        return Outcome(SUPPORTED, best.gbs, f"{sentence}.", p=1.0)
    if best in outside and p <= LEVEL:
        return Outcome(CONTRADICTED, best.gbs, f"{sentence}.", p=p)
    other = max(outside if best in inside else inside, key=lambda one: fits[one.gbs])
    tells = "1 more GBS or several would tell" if other.is_exact else told(other.furthest)
    more = f"one at GBS {other.gbs} fits too (p = {fits[other.gbs]:.2g}); {tells}"
    return Outcome(UNDECIDED, best.gbs, f"{sentence}; {more}.", p=max(p, 2 * LEVEL))


def _joined(sizes: Sequence[int], numbers: Sequence[Number], at: int) -> _Bend:
    x = np.log2(sizes)
    beyond = np.maximum(x - math.log2(at), 0.0)
    design = np.stack([np.ones_like(x), x, beyond], axis=1)
    inverse = np.linalg.pinv(design)
    y = np.array([one.value for one in numbers])
    rests = y - design @ (inverse @ y)

    distances = [
        replace(one.linear(), value=abs(float(rest)))
        for rest, one in zip(rests, numbers, strict=True)
    ]
    # An exact point is told by no more repeats: it is the furthest only where all are.
    furthest = max(distances, key=lambda one: (one.error > 0, _over(one.value, one.half)))
    before, change = (weighted(map(float, inverse[index]), numbers) for index in (1, 2))
    errors = np.array([one.error for one in distances])
    known = errors > 0
    largest = float(np.max(np.abs(y))) or 1.0
    parts = rests[known] / errors[known] if known.any() else rests / largest
    misfit = float(np.sum(parts**2)) / max(len(sizes) - 3, 1)
    freedom = min(one.freedom for one in numbers)
    squares = float(np.sum(rests**2))
    return _Bend(
        at,
        before,
        change,
        squares,
        furthest,
        misfit,
        len(sizes),
        freedom,
        is_exact=not bool(known.any()),
    )


def _over(value: float, half: float) -> float:
    return value / half if half else value
