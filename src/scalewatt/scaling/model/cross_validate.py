"""Cross-validate the scaling model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scalewatt.scaling.model.calibrate import MIN_POINTS, calibrate_kind
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.kind_model import DEVIATIONS, KindModel, Point, repeated
from scalewatt.scaling.model.predict import Estimate, energies_at, estimate, predict
from scalewatt.scaling.model.scores import (
    ENERGY,
    ENERGY_AT_TIME,
    LARGEST,
    POINT,
    SCHEMES,
    SERIES,
    TIME,
    UPPER,
    Score,
)

SERIES_POINTS = 3


@dataclass(frozen=True)
class HeldOut:
    """A point that was left out, and its prediction from the others."""

    scheme: str
    group: str
    """What was left out together."""
    configuration: str
    gpus: int
    quantity: str
    value: float
    """In s or J, as measured."""
    predicted: Estimate

    @property
    def error(self) -> float:
        """Return the relative error of the median."""
        return self.predicted.median / self.value - 1


def validate(points: Sequence[Point], schemes: Sequence[str] = SCHEMES) -> list[HeldOut]:
    """Leave points out, calibrate on the rest with newly selected terms, and predict what was left out."""
    found: list[HeldOut] = []
    for scheme, group, left_out in _folds(points):
        rest = [point for point in points if point not in left_out]
        if scheme in schemes and len(rest) >= MIN_POINTS - (scheme == POINT):
            model = calibrate_kind(points[0].kind, rest, few=True)
            for point in left_out:
                found += held_out(scheme, group, model, point)
    return found


def _folds(points: Sequence[Point]) -> Iterator[tuple[str, str, list[Point]]]:
    for point in points:
        yield POINT, point.configuration, [point]
    for name, own in _series(points).items():
        yield SERIES, name, own
    counts = sorted({point.load.gpus for point in points})
    middle = (counts[0] * counts[-1]) ** 0.5
    yield UPPER, f"n > {middle:.0f}", [p for p in points if p.load.gpus > middle]
    yield LARGEST, f"n = {counts[-1]}", [p for p in points if p.load.gpus == counts[-1]]


def _series(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points with one LBS, and with one GBS, where they are several but not all."""
    found: dict[str, list[Point]] = {}
    for point in points:
        load = point.load
        found.setdefault(f"LBS {load.local_batch_size}", []).append(point)
        found.setdefault(f"GBS {load.local_batch_size * load.replicas}", []).append(point)
    return {name: own for name, own in found.items() if SERIES_POINTS <= len(own) < len(points)}


def held_out(scheme: str, group: str, model: KindModel, point: Point) -> Iterator[HeldOut]:
    """Yield a model's predictions of a point that it was not calibrated on, by quantity."""

    def held(quantity: str, value: float, draws: Array) -> HeldOut:
        name, gpus = point.configuration, point.load.gpus
        return HeldOut(scheme, group, name, gpus, quantity, value, estimate(draws))

    model = repeated(model, DEVIATIONS)
    predicted = predict(model, [point.load])
    yield held(TIME, point.runtime_s, predicted.runtime_s[:, 0])
    if point.energy_j is None or predicted.total_j is None:
        return
    yield held(ENERGY, point.energy_j, predicted.total_j[:, 0])
    known = energies_at(model, [point.load], np.array([point.runtime_s]), np.random.default_rng(1))
    yield held(ENERGY_AT_TIME, point.energy_j, np.sum(list(known.values()), axis=0)[:, 0])


def scores(held_out: Sequence[HeldOut]) -> list[Score]:
    """Return a score for each scheme and quantity, and of the times of each series if there are several."""
    grouped: dict[tuple[str, str], list[HeldOut]] = {}
    single: dict[tuple[str, str], list[HeldOut]] = {}
    for one in held_out:
        grouped.setdefault((one.scheme, one.quantity), []).append(one)
        if (one.scheme, one.quantity) == (SERIES, TIME):
            single.setdefault((f"{SERIES} {one.group}", TIME), []).append(one)
    every = {**grouped, **(single if len(single) > 1 else {})}
    return [_score(scheme, quantity, own) for (scheme, quantity), own in every.items()]


def _score(scheme: str, quantity: str, held_out: Sequence[HeldOut]) -> Score:
    errors = [abs(one.error) for one in held_out]
    widths = [(o.predicted.high - o.predicted.low) / 2 / o.predicted.median for o in held_out]
    return Score(
        scheme,
        quantity,
        len(held_out),
        float(np.mean(errors)),
        max(errors),
        float(np.mean([one.predicted.holds(one.value) for one in held_out])),
        float(np.mean(widths)),
    )
