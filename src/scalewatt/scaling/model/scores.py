"""Scores of a cross-validation: what a model's file, `scalewatt calibrate` and plans say of its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

POINT, SERIES, UPPER, LARGEST = "point", "series", "upper half of n", "largest n"
"""Folds: each point; each series of one LBS or GBS; all n above the middle; the largest n."""
SCHEMES = (POINT, SERIES, UPPER, LARGEST)
TIME, ENERGY, ENERGY_AT_TIME = "time", "energy", "energy at known time"
MODEL = "the model"
NOMINAL = "nominal 90 %"
"""What intervals are called: how many real runs they hold is not known yet."""
_COMPARED = {
    TIME: "run time, mean error, by the list of terms to choose from:",
    ENERGY_AT_TIME: "energy at known time, mean error, beside simple rules fitted on the same points:",
}


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
    baseline_errors: Mapping[str, float]
    """Mean errors on the same points: of times with other lists of terms, of energies by simple rules."""


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
    for quantity, title in _COMPARED.items():
        own = [one for one in found if one.quantity == quantity and one.baseline_errors]
        if own:
            rows += ["", title, *_beside(own)]
    return [f"{head}   in {NOMINAL}", *rows]


def _beside(found: Sequence[Score]) -> list[str]:
    """Return one row for the model and each of what it is compared with, one column per scheme."""
    names = dict.fromkeys(name for one in found for name in one.baseline_errors)
    width = max(map(len, names))
    columns = [(one.scheme, {MODEL: one.mean_error, **one.baseline_errors}) for one in found]
    lines = [f"{'':<{width}}" + "".join(f"{head:>{max(len(head), 5) + 3}}" for head, _ in columns)]
    for name in (MODEL, *names):
        cells = [
            f"{f'{errors[name]:.1%}' if name in errors else '–':>{max(len(head), 5) + 3}}"
            for head, errors in columns
        ]
        lines.append(f"{name:<{width}}" + "".join(cells))
    return lines


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
        others = max(single.baseline_errors.values(), default=0.0)
        by = f"; {_percent(others)} by another list of terms" if others > single.mean_error else ""
        parts.append(f"{_percent(single.mean_error)} (one point left out{by})")
    if worst:
        parts.append(f"{_percent(worst.mean_error)} ({worst.scheme} left out)")
    return ", ".join(parts)


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %" if part < 0.0995 else f"{100 * part:.0f} %"
