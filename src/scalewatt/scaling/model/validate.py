"""Cross-validate the scaling model: leave points out, calibrate on the rest, predict what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from scalewatt.scaling.model.fit import MIN_POINTS, KindModel, Point, Score, calibrate
from scalewatt.scaling.model.predict import energy_at, estimate, predict

POINT, SERIES, UPPER, LARGEST = "point", "series", "upper half of n", "largest n"
"""Schemes: each point; each series of one LBS or GBS; all n above the middle; the largest n."""
TIME, ENERGY, ENERGY_AT_TIME = "time", "energy", "energy at known time"
SERIES_POINTS = 3
"""The fewest points of a series that is left out."""


def folds(points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Which points are left out together, with the scheme."""
    for point in points:
        yield POINT, [point]
    series: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        lbs = point.load.local_batch_size
        series.setdefault(("LBS", lbs), []).append(point)
        series.setdefault(("GBS", lbs * point.load.replicas), []).append(point)
    for of_series in series.values():
        if SERIES_POINTS <= len(of_series) < len(points):
            yield SERIES, of_series
    counts = sorted({point.load.gpus for point in points})
    middle = (counts[0] * counts[-1]) ** 0.5
    yield UPPER, [point for point in points if point.load.gpus > middle]
    yield LARGEST, [point for point in points if point.load.gpus == counts[-1]]


def validate(
    points: Sequence[Point], schemes: Iterable[str] = (POINT, SERIES, UPPER, LARGEST)
) -> pd.DataFrame:
    """A row for each prediction of a point that was left out: scheme, quantity, error, covered.

    The terms are selected anew from the rest.
    """
    rows = []
    for scheme, left_out in folds(points):
        rest = [point for point in points if point not in left_out]
        if scheme in schemes and len(rest) >= MIN_POINTS - (scheme == POINT):
            model = calibrate(rest, few=True)
            rows += [
                {"scheme": scheme, **row} for point in left_out for row in errors(model, point)
            ]
    return pd.DataFrame(rows, columns=["scheme", "quantity", "error", "covered"])


def errors(model: KindModel, point: Point) -> Iterator[dict[str, object]]:
    """By quantity the relative error of a prediction, and whether its interval holds the point."""
    predicted = predict(model, [point.load])
    draws = [(TIME, point.runtime_s, predicted.runtime_s)]
    random = np.random.default_rng(1)
    at_time = energy_at(model, [point.load], np.array([point.runtime_s]), random)
    if point.energy_j is not None and predicted.energy_j is not None and at_time is not None:
        draws.append((ENERGY, point.energy_j, predicted.energy_j))
        draws.append((ENERGY_AT_TIME, point.energy_j, at_time))
    for quantity, value, of_run in draws:
        found = estimate(of_run[:, 0])
        yield {
            "quantity": quantity,
            "error": found.median / value - 1,
            "covered": found.holds(value),
        }


def scores(validated: pd.DataFrame) -> list[Score]:
    """A score for each scheme and quantity."""
    return [
        Score(
            str(scheme),
            str(quantity),
            len(rows),
            float(rows["error"].abs().mean()),
            float(rows["error"].abs().max()),
            float(rows["covered"].mean()),
        )
        for (scheme, quantity), rows in validated.groupby(["scheme", "quantity"], sort=False)
    ]
