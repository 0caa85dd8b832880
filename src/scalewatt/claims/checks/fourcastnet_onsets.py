"""Claims on where FourCastNet's error begins to grow with the global batch (H04 to H06).

- Onset: between the last GBS at the error of the smallest GBS and the first beyond it by more than 5 %
  or two standard deviations of it, whichever is more (`rules.onset`).
- Knee: of all inner points the one where two joined lines of the error against log2 GBS fit best; any
  other with which all points lie on the lines within their intervals is possible too. Five points are
  needed, and a second slope above the first by more than the points' intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from scalewatt.claims.evidence.claim_types import UNRESOLVED, Outcome, check
from scalewatt.claims.evidence.evidence import Evidence, Line, Point
from scalewatt.claims.rules.fourcastnet_points import MODEL, in_paper
from scalewatt.claims.rules.tolerance import (
    all_of,
    attempt,
    band,
    combine,
    decided,
    enough,
    onset,
    positive,
)
from scalewatt.claims.rules.uncertain_number import Number, basis, quantity

LEAVES = 0.05
KNEE_POINTS = 5
ONSETS = {"H05": ("pretrain", 16, 64), "H06": ("finetune", 64, 128)}
"""Phase and the range of the onset."""
KNEE = (32, 128)


def _onset(id_: str, evidence: Evidence) -> Outcome:
    phase, low, high = ONSETS[id_]
    lines = evidence.anywhere(MODEL, phase, "a100", "fd_lbs")
    found = combine([attempt(line.title, _onset_in, line, low, high) for line in lines])
    return replace(found, expected=f"onset: a GBS above {low}, up to {high}")


for _id in ONSETS:
    check(_id)(partial(_onset, _id))


def _onset_in(line: Line, low: int, high: int) -> Outcome:
    points = enough(in_paper(line).having("metric_last"), f"{line.title}, Z500 RMSE")
    numbers = [quantity(point, "metric_last") for point in points]
    base = numbers[0]
    margin = max(LEAVES * base.value, 0.0 if base.assumed else 2 * base.spread)
    return onset("Z500 RMSE", [point.gbs for point in points], numbers, margin, low, high)


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
    def possible(self) -> bool:
        """Whether all points lie on them within their intervals."""
        return self.furthest.value <= self.furthest.half


@check("H04")
def steeper_after_knee(evidence: Evidence) -> Outcome:
    """The error rises with log2 GBS, and faster from a knee between GBS 32 and 128."""
    lines = evidence.anywhere(MODEL, "pretrain", "a100", "fd_lbs")
    return combine([attempt(line.title, _knee_in, line) for line in lines])


def _knee_in(line: Line) -> Outcome:
    known = in_paper(line).having("metric_last")
    points = enough(known, f"{line.title}, Z500 RMSE", KNEE_POINTS)
    numbers = [quantity(point, "metric_last") for point in points]
    bends = [_joined(points, numbers, knee) for knee in points[1:-1]]
    best = min(bends, key=lambda bend: bend.squares)
    others = [bend for bend in bends if bend.possible and _in_range(bend) != _in_range(best)]
    said = f"Two joined lines fit best with a knee at GBS {best.gbs}, expected at {KNEE[0]} to {KNEE[1]}"
    place = decided(_in_range(best), best.gbs, f"{said}.")
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


def _in_range(bend: _Bend) -> bool:
    return KNEE[0] <= bend.gbs <= KNEE[1]


def _joined(points: Sequence[Point], numbers: Sequence[Number], knee: Point) -> _Bend:
    import numpy as np

    x = np.log2([point.gbs for point in points])
    beyond = np.maximum(x - math.log2(knee.gbs), 0.0)
    design = np.stack([np.ones_like(x), x, beyond], axis=1)
    inverse = np.linalg.pinv(design)
    y = np.array([one.value for one in numbers])
    found = inverse @ y
    rests = y - design @ found

    def coefficient(index: int) -> Number:
        half, spread = (
            math.hypot(*(inverse[index] * np.array([getattr(one, part) for one in numbers])))
            for part in ("half", "spread")
        )
        return Number(float(found[index]), half, spread, basis(*numbers))

    distances = [
        Number(abs(float(rest)), one.half, one.spread, one.assumed)
        for rest, one in zip(rests, numbers, strict=True)
    ]
    furthest = max(distances, key=lambda one: one.value / (one.half or math.ulp(1.0)))
    squares = float(np.sum(rests**2))
    return _Bend(knee.gbs, coefficient(1), coefficient(2), squares, furthest)
