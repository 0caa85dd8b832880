"""Claims on where FourCastNet's error begins to grow with the global batch (H04 to H06).

- Onset: the largest GBS before the error leaves that of the smallest GBS, for good, by more than 5 %
  or two standard deviations of it, whichever is more. A point beyond the claimed range is needed.
- Knee: of all inner points the one where two joined lines of the error against log2 GBS fit best; five
  points are needed, and a second slope above the first by more than the points' intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from scalewatt.claims.evidence import Evidence, Line, Point
from scalewatt.claims.fourcastnet_points import MODEL, full_size
from scalewatt.claims.model import UNRESOLVED, Outcome, Unresolved, check
from scalewatt.claims.power_rules import portable
from scalewatt.claims.rules import (
    Number,
    attempt,
    combine,
    decided,
    enough,
    quantity,
    shown,
)

LEAVES = 0.05
KNEE_POINTS = 5
ONSETS = {"H05": ("pretrain", 16, 64), "H06": ("finetune", 64, 128)}
"""Phase and the range of the onset."""
KNEE = (32, 128)


def _onset(id_: str, evidence: Evidence) -> Outcome:
    phase, low, high = ONSETS[id_]
    lines = portable(evidence, MODEL, phase, "fd_lbs")
    return combine([attempt(line.title, _onset_in, line, low, high) for line in lines])


for _id in ONSETS:
    check(_id)(partial(_onset, _id))


def _onset_in(line: Line, low: int, high: int) -> Outcome:
    points = enough(full_size(line).having("metric_last"), f"{line.title}, Z500 RMSE")
    numbers = [quantity(point, "metric_last") for point in points]
    base = numbers[0]
    margin = max(LEAVES * base.value, 0.0 if base.assumed else 2 * base.spread)
    found, early, late = (
        _last_at_base(points, [n.value + way * _half(n) for n in numbers], base.value + margin)
        for way in (0, 1, -1)
    )
    if found is None and points[-1].gbs <= high:
        raise Unresolved(
            f"The error stays within {shown(margin)} of {shown(base.value)} up to GBS {points[-1].gbs}; "
            f"a point beyond GBS {high} is needed."
        )
    said = (
        f"The error leaves {shown(base.value)} by more than {shown(margin)} beyond "
        f"GBS {found if found is not None else points[-1].gbs}{' or not at all' if found is None else ''}, "
        f"expected beyond one of {low} to {high}"
    )
    if found is not None and low <= found <= high:
        return decided(True, found, f"{said}.")
    possible = [point.gbs for point in points if (early or 0) <= point.gbs <= (late or math.inf)]
    if early != late and any(low <= gbs <= high for gbs in possible):
        return Outcome(UNRESOLVED, found, f"{said}; within the intervals it may be there.")
    return decided(False, found, f"{said}.")


def _half(own: Number) -> float:
    """Half the interval; of a single run none, as the published spread is one of energy."""
    return 0.0 if own.assumed else own.half


def _last_at_base(points: Sequence[Point], values: Sequence[float], limit: float) -> int | None:
    """Largest GBS before the values stay above the limit; None where the last is not above."""
    if values[-1] <= limit:
        return None
    inside = [p.gbs for p, value in zip(points, values, strict=True) if value <= limit]
    return inside[-1] if inside else points[0].gbs


@check("H04")
def steeper_after_knee(evidence: Evidence) -> Outcome:
    """The error rises with log2 GBS, and faster from a knee between GBS 32 and 128."""
    lines = portable(evidence, MODEL, "pretrain", "fd_lbs")
    return combine([attempt(line.title, _knee_in, line, *KNEE) for line in lines])


def _knee_in(line: Line, low: int, high: int) -> Outcome:
    known = full_size(line).having("metric_last")
    points = enough(known, f"{line.title}, Z500 RMSE", KNEE_POINTS)
    numbers = [quantity(point, "metric_last") for point in points]
    fits = [_joined(points, numbers, knee) for knee in points[1:-1]]
    _, gbs, before, after, difference = min(fits, key=lambda fit: fit[0])
    said = (
        f"Two joined lines fit best with a knee at GBS {gbs}, slopes {shown(before)} and "
        f"{shown(after)} a doubling; expected one at {low} to {high}, after a slight rise"
    )
    holds = difference.value > 0 and before >= 0 and low <= gbs <= high
    if holds and difference.value <= difference.half:
        return Outcome(UNRESOLVED, gbs, f"{said}; the change of slope is within the intervals.")
    return decided(holds, gbs, f"{said}.")


def _joined(
    points: Sequence[Point], numbers: Sequence[Number], knee: Point
) -> tuple[float, int, float, float, Number]:
    """Squares that are left, knee, slope before, slope after, and the change with its interval."""
    import numpy as np

    x = np.log2([point.gbs for point in points])
    beyond = np.maximum(x - math.log2(knee.gbs), 0.0)
    design = np.stack([np.ones_like(x), x, beyond], axis=1)
    inverse = np.linalg.pinv(design)
    y = np.array([one.value for one in numbers])
    found = inverse @ y
    rest = float(np.sum((y - design @ found) ** 2))
    half = float(math.hypot(*(inverse[2] * np.array([_half(one) for one in numbers]))))
    before, change = float(found[1]), float(found[2])
    return rest, knee.gbs, before, before + change, Number(change, half, half / 2)
