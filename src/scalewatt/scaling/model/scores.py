"""Scores of a cross-validation: what a model's file, `scalewatt calibrate` and plans say of its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

POINT, SERIES, UPPER, LARGEST = "point", "series", "upper half of n", "largest n"
"""Folds: each point; each series of one LBS or GBS; all n above the middle; the largest n."""
SCHEMES = (POINT, SERIES, UPPER, LARGEST)
TIME, ENERGY, ENERGY_AT_TIME = "time", "energy", "energy at known time"
NOMINAL = "nominal 90 %"
"""What intervals are called: how many real runs they hold is not known yet."""


@dataclass(frozen=True)
class Score:
    """The errors of one scheme and quantity; relative."""

    scheme: str
    """Of SCHEMES, or SERIES and the name of one."""
    quantity: str
    points: int
    mean_error: float
    largest_error: float
    covered: float
    """Share of the points in their nominal 90 % intervals."""
    half_width: float
    """Mean half width of the intervals, as a part of the median."""


def score_tables(found: Sequence[Score]) -> list[str]:
    """Return the lines that `scalewatt calibrate` prints of one kind of training."""
    if not found:
        return ["too few points to leave any out"]
    width = max(len("left out"), *(len(one.scheme) for one in found)) + 1
    head = f"{'left out':<{width}}{'quantity':<22}{'points':>6}{'mean':>8}{'largest':>9}"
    rows = [
        f"{one.scheme:<{width}}{one.quantity:<22}{one.points:>6}{one.mean_error:>8.1%}"
        f"{one.largest_error:>9.1%}{one.covered:>18.0%}"
        for one in found
    ]
    return [f"{head}   in {NOMINAL}", *rows]


def stated_error(scores: Mapping[str, Iterable[Score]]) -> str:
    """Return what a plan says of its model's errors; `scores` by the name of the kind of training."""
    nominal = "Intervals and probabilities are nominal: no real run has confirmed them."
    parts = [f"{kind} {errors}" for kind, own in scores.items() if (errors := _errors(own))]
    if not parts:
        return nominal
    return (
        f"{nominal} Points left out of its calibration were off in run time by, on average: "
        f"{'; '.join(parts)}. The list of terms was made knowing the errors of published points "
        "(docs/scaling.md)."
    )


def _errors(scores: Iterable[Score]) -> str:
    """Return the errors of the time of one kind: one point left out, and the worst of several."""
    times = {one.scheme: one for one in scores if one.quantity == TIME}
    single = times.pop(POINT, None)
    worst = max(times.values(), key=lambda one: one.mean_error, default=None)
    parts = []
    if single:
        parts.append(f"{_percent(single.mean_error)} (one point left out)")
    if worst:
        parts.append(f"{_percent(worst.mean_error)} ({worst.scheme} left out)")
    return ", ".join(parts)


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %" if part < 0.0995 else f"{100 * part:.0f} %"
