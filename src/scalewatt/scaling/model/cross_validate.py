"""Cross-validate the scaling model, and compare it with two simple rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scalewatt.scaling.model.calibrate import MIN_POINTS, calibrate_kind
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.kind_model import DEVIATIONS, KindModel, Point, repeated
from scalewatt.scaling.model.posterior import best
from scalewatt.scaling.model.predict import Estimate, energies_at, estimate, predict

POINT, SERIES, UPPER, LARGEST = "point", "series", "upper half of n", "largest n"
"""Folds: each point; each series of one LBS or GBS; all n above the middle; the largest n."""
SCHEMES = (POINT, SERIES, UPPER, LARGEST)
TIME, ENERGY, ENERGY_AT_TIME = "time", "energy", "energy at known time"
PER_GPUH, PER_SAMPLE = "constant per GPUh", "constant per sample"
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
    baselines: dict[str, float]
    """Of energies: the predictions of the two rules, fitted on the same points."""

    @property
    def error(self) -> float:
        """Return the relative error of the median."""
        return self.predicted.median / self.value - 1


def validate(points: Sequence[Point], schemes: Sequence[str] = SCHEMES) -> list[HeldOut]:
    """Leave points out, calibrate on the rest with newly selected terms, and predict what was left out."""
    found = []
    for scheme, group, left_out in _folds(points):
        rest = [point for point in points if point not in left_out]
        if scheme in schemes and len(rest) >= MIN_POINTS - (scheme == POINT):
            model = calibrate_kind(points[0].kind, rest, few=True)
            found += [one for point in left_out for one in held_out(scheme, group, model, point)]
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
        found.setdefault(f"GBS {load.local_batch_size * load.gpus}", []).append(point)
    return {name: own for name, own in found.items() if SERIES_POINTS <= len(own) < len(points)}


def held_out(scheme: str, group: str, model: KindModel, point: Point) -> Iterator[HeldOut]:
    """Yield a model's predictions of a point that it was not calibrated on, by quantity."""

    def held(quantity: str, value: float, draws: Array, rules: dict[str, float]) -> HeldOut:
        found = estimate(draws)
        return HeldOut(
            scheme,
            group,
            point.configuration,
            point.load.gpus,
            quantity,
            value,
            found,
            rules,
        )

    model = repeated(model, DEVIATIONS)
    predicted = predict(model, [point.load])
    yield held(TIME, point.runtime_s, predicted.runtime_s[:, 0], {})
    if point.energy_j is None or predicted.total_j is None:
        return
    rules = _baselines(model.points, point)
    yield held(ENERGY, point.energy_j, predicted.total_j[:, 0], {})
    known = energies_at(model, [point.load], np.array([point.runtime_s]), np.random.default_rng(1))
    yield held(ENERGY_AT_TIME, point.energy_j, sum(known.values())[:, 0], rules)  # type: ignore[index]


def _baselines(points: Sequence[Point], point: Point) -> dict[str, float]:
    """Return the energy in J of a point at its known time, by the two rules fitted on `points`."""
    known = [one for one in points if one.energy_j is not None]
    values = np.array([one.energy_j for one in known])
    amounts = {
        PER_GPUH: lambda one: one.load.gpus * one.runtime_s,
        PER_SAMPLE: lambda one: one.load.samples,
    }
    return {
        name: float(best(np.array([[amount(one)] for one in known], float), values)[0])
        * amount(point)
        for name, amount in amounts.items()
    }


@dataclass(frozen=True)
class Score:
    """The errors of one scheme and quantity; relative."""

    scheme: str
    quantity: str
    points: int
    mean_error: float
    largest_error: float
    covered: float
    """Share of the points in their 90 % intervals."""
    half_width: float
    """Mean half width of the intervals, as a part of the median."""
    baseline_errors: dict[str, float]


def scores(held_out: Sequence[HeldOut]) -> list[Score]:
    """Return a score for each scheme and quantity."""
    grouped: dict[tuple[str, str], list[HeldOut]] = {}
    for one in held_out:
        grouped.setdefault((one.scheme, one.quantity), []).append(one)
    return [_score(scheme, quantity, own) for (scheme, quantity), own in grouped.items()]


def _score(scheme: str, quantity: str, held_out: Sequence[HeldOut]) -> Score:
    errors = [abs(one.error) for one in held_out]
    widths = [(o.predicted.high - o.predicted.low) / 2 / o.predicted.median for o in held_out]
    rules = held_out[0].baselines
    return Score(
        scheme,
        quantity,
        len(held_out),
        float(np.mean(errors)),
        max(errors),
        float(np.mean([one.predicted.holds(one.value) for one in held_out])),
        float(np.mean(widths)),
        {
            name: float(np.mean([abs(one.baselines[name] / one.value - 1) for one in held_out]))
            for name in rules
        },
    )
