"""Where two joined lines fit best: the knee of an error against the global batch size.

Of all inner points the one where two joined lines of the error against log2 GBS fit best; any other
with which all points lie on the lines within their intervals is possible too. The second slope must be
above the first by more than the points' intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scalewatt.claims.evidence.claim_types import UNRESOLVED, Outcome
from scalewatt.claims.rules.tolerance import all_of, band, decided, positive
from scalewatt.claims.rules.uncertain_number import Number, weighted


@dataclass(frozen=True)
class _Bend:
    """Two joined lines: the knee, the slope before it and its change there, and how they fit."""

    gbs: int
    before: Number
    change: Number
    squares: float
    furthest: Number
    """The distance from them of the point that is furthest by its interval."""

    @property
    def is_possible(self) -> bool:
        """Return True if all points lie on the lines within their intervals."""
        return self.furthest.value <= self.furthest.half


def knee(sizes: Sequence[int], numbers: Sequence[Number], low: float, high: float) -> Outcome:
    """Return whether numbers rise with log2 of the batch sizes, and faster from `low` to `high` on."""

    def is_inside(bend: _Bend) -> bool:
        return low <= bend.gbs <= high

    bends = [_joined(sizes, numbers, size) for size in sizes[1:-1]]
    best = min(bends, key=lambda bend: bend.squares)
    others = [b for b in bends if b.is_possible and is_inside(b) != is_inside(best)]
    said = (
        f"Two joined lines fit best with a knee at GBS {best.gbs}, expected at {low:g} to {high:g}"
    )
    place = decided(is_inside(best), best.gbs, f"{said}.")
    if others:
        other = max(others, key=lambda bend: bend.furthest.value)
        what = f"the distance from lines with a knee at GBS {other.gbs}"
        place = Outcome(UNRESOLVED, best.gbs, f"{said}; {positive(what, other.furthest).detail}")
    return all_of(
        [
            ("", place),
            ("", band("The slope per doubling before it", best.before, 0.0, None)),
            ("", positive("Its change there", best.change)),
        ]
    )


def _joined(sizes: Sequence[int], numbers: Sequence[Number], at: int) -> _Bend:
    import numpy as np

    x = np.log2(sizes)
    beyond = np.maximum(x - math.log2(at), 0.0)
    design = np.stack([np.ones_like(x), x, beyond], axis=1)
    inverse = np.linalg.pinv(design)
    y = np.array([one.value for one in numbers])
    rests = y - design @ (inverse @ y)

    distances = [
        Number(abs(float(rest)), one.half, one.spread, one.assumed)
        for rest, one in zip(rests, numbers, strict=True)
    ]
    furthest = max(distances, key=lambda one: one.value / (one.half or math.ulp(1.0)))
    before, change = (weighted(map(float, inverse[index]), numbers) for index in (1, 2))
    return _Bend(at, before, change, float(np.sum(rests**2)), furthest)
