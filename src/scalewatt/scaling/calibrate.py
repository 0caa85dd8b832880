"""From points to the scaling model: which terms a run time has, and draws of what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from scalewatt.energy.samples import DEVICE_KINDS
from scalewatt.errors import InputError
from scalewatt.scaling.kind import Kind
from scalewatt.scaling.load import Load
from scalewatt.scaling.points import Point, by_kind
from scalewatt.scaling.posterior import Draws, best, draw
from scalewatt.scaling.terms import Array, EnergyTerms, TimeTerms

MIN_POINTS = 3
BASE = ("epoch", "sample", "update")
OPTIONAL = ("startup", "first_batch", "straggler", "synchronisation")
WORTH = 0.95
"""A further term must bring the mean leave-one-out error down to this part of what it was."""


@dataclass(frozen=True)
class KindModel:
    """Time and energy of one kind of training."""

    kind: Kind
    points: tuple[Point, ...]
    time_terms: TimeTerms
    time: Draws
    energy_terms: EnergyTerms
    energy: Mapping[str, Draws]
    """By device kind where every point has them, else `total` alone; empty where no energy is known."""
    origin: str | None
    scope: str | None
    assumed: str | None = None
    """What it rests on where it was not calibrated itself: a sentence that goes with all it says."""

    @property
    def largest_gpus(self) -> int:
        """The largest n it was calibrated on."""
        return max(point.load.gpus for point in self.points)


def calibrate(points: Iterable[Point]) -> list[KindModel]:
    """One model per kind. InputError where a kind has too few points, or unequal energies."""
    grouped = by_kind(points)
    for kind, own in grouped.items():
        check_enough(kind, own)
    return [calibrate_kind(kind, own) for kind, own in grouped.items()]


def check_enough(kind: Kind, points: Sequence[Point]) -> None:
    """InputError where the points cannot decide anything; it says which are missing."""
    gpus = {point.load.gpus for point in points}
    batches = {point.load.local_batch_size for point in points}
    missing = []
    if len(points) < MIN_POINTS:
        missing.append(f"{MIN_POINTS - len(points)} more of {MIN_POINTS} configurations")
    if len(gpus) < 2:
        missing.append(f"another number of GPUs than {min(gpus)}")
    if len(batches) < 2:
        missing.append(f"another local batch size than {min(batches)}")
    if missing:
        raise InputError(
            f"{kind.name}: too few points to calibrate ({len(points)}); missing: "
            f"{', '.join(missing)} (scalewatt pilot CAMPAIGN makes a campaign that has them)"
        )


def calibrate_kind(kind: Kind, points: Sequence[Point]) -> KindModel:
    """The model of one kind's points."""
    terms, time = fit_time(points)
    known = [point for point in points if point.energy_j is not None]
    energies = fit_energy(known) if known else {}
    return KindModel(
        kind=kind,
        points=tuple(points),
        time_terms=terms,
        time=time,
        energy_terms=EnergyTerms(),
        energy=energies,
        origin=known[0].origin if known else None,
        scope=known[0].scope if known else None,
    )


def fit_time(points: Sequence[Point]) -> tuple[TimeTerms, Draws]:
    """The terms that the points ask for, and what they cost."""
    loads = [point.load for point in points]
    values = np.array([point.runtime_s for point in points])
    terms = choose_terms(loads, values)
    return terms, draw(terms.columns(loads), values)


def fit_energy(points: Sequence[Point]) -> dict[str, Draws]:
    """Costs by device kind where every point has them, else of the total."""
    terms = EnergyTerms()
    columns = terms.columns([p.load for p in points], np.array([p.runtime_s for p in points]))
    return {name: draw(columns, np.array(values)) for name, values in _energies(points).items()}


def _energies(points: Sequence[Point]) -> dict[str, list[float]]:
    kinds = (points[0].scope or "").split("+")
    parts = {
        kind: [joules for point in points if (joules := point.joules.get(kind))]
        for kind in DEVICE_KINDS
        if kind in kinds
    }
    if len(kinds) > 1 and all(len(values) == len(points) for values in parts.values()):
        return parts
    return {"total": [point.energy_j for point in points if point.energy_j is not None]}


# --- which terms ----------------------------------------------------------------------------------


def choose_terms(loads: Sequence[Load], values: Array) -> TimeTerms:
    """The fewest terms that predict points left out well.

    Of all sets of one size the one with the smallest mean leave-one-out error counts; a larger size
    is taken where that error falls to WORTH of it. A set has at least two terms less than points.
    """
    chosen, error = TimeTerms(BASE), _left_out_error(TimeTerms(BASE), loads, values)
    for size in range(1, min(len(OPTIONAL) + 1, len(values) - len(BASE) - 1)):
        found = [(_left_out_error(terms, loads, values), terms) for terms in _sets(size, loads)]
        smallest, terms = min(found, key=lambda one: one[0], default=(np.inf, chosen))
        if smallest <= WORTH * error:
            chosen, error = terms, smallest
    return chosen


def _sets(size: int, loads: Sequence[Load]) -> Iterator[TimeTerms]:
    """All sets with `size` terms beyond BASE; a maximum takes the place of a constant update."""
    same_epochs = len({load.epochs for load in loads}) == 1
    allowed = [name for name in OPTIONAL if not (same_epochs and name == "startup")]
    for extra in combinations(allowed, size):
        yield TimeTerms((*BASE, *extra))
    knees = sorted({load.local_batch_size for load in loads})[1:-1]
    for extra in combinations(allowed, size - 1):
        for knee in knees:
            names = tuple(name for name in BASE if name != "update")
            yield TimeTerms((*names, "input_excess", *extra), float(knee))


def _left_out_error(terms: TimeTerms, loads: Sequence[Load], values: Array) -> float:
    """Mean relative error of points that the costs were not fitted on."""
    columns = terms.columns(loads)
    errors = []
    for number, value in enumerate(values):
        others = np.arange(len(values)) != number
        costs = best(columns[others], values[others])
        errors.append(abs(columns[number] @ costs / value - 1))
    return float(np.mean(errors))
