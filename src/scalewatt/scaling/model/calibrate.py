"""From points to the scaling model: which terms a run time has, and draws of what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.series import DEVICE_KINDS
from scalewatt.scaling.model.calibration_points import by_kind
from scalewatt.scaling.model.cost_terms import Array, EnergyTerms, TimeTerms
from scalewatt.scaling.model.kind_model import KindModel, Point, assumed_of
from scalewatt.scaling.model.posterior import Draws, best, draw, widened
from scalewatt.scaling.model.training_kind import Kind
from scalewatt.scaling.model.workload_size import Load

MIN_POINTS = 3
SURE = 3
"""With fewer points than so many more than terms, the spread alone is not believed (`_honest`)."""
FOR_MEDIANS = 8
"""Autocorrelation lengths of a chain of which only medians count."""
BASE = ("epoch", "sample", "update")
OPTIONAL = ("startup", "first_batch", "straggler", "synchronisation")
SHORT_S = 3600.0
"""Of runs below it the start, half a minute or more, is a felt part."""
WORTH = 0.95
"""A further term must bring the mean leave-one-out error down to this part of what it was."""


def calibrate(points: Iterable[Point]) -> list[KindModel]:
    """One model per kind that has enough points. InputError where none has, or energies are unequal."""
    kinds, _ = calibratable(points)
    return [calibrate_kind(kind, own) for kind, own in kinds.items()]


def calibratable(points: Iterable[Point]) -> tuple[dict[Kind, list[Point]], tuple[str, ...]]:
    """The points of the kinds that have enough of them, and what the others lack.

    InputError where no kind has enough, or energies of one are of several origins or scopes.
    """
    kinds = by_kind(points)
    lacks = {kind: f"{kind.name}: {lack}" for kind, own in kinds.items() if (lack := lacking(own))}
    if len(lacks) == len(kinds):
        raise InputError("; ".join(lacks.values()))
    return {kind: own for kind, own in kinds.items() if kind not in lacks}, tuple(lacks.values())


def lacking(points: Sequence[Point]) -> str | None:
    """Which points are missing before they decide anything; None where there are enough.

    One LBS will do: then no other one can be predicted (`KindModel.check`).
    """
    gpus = {point.load.gpus for point in points}
    missing = []
    if len(points) < MIN_POINTS:
        missing.append(f"{MIN_POINTS - len(points)} more of {MIN_POINTS} configurations")
    if len(gpus) < 2:
        missing.append(f"another number of GPUs than {min(gpus, default=0)}")
    if not missing:
        return None
    return (
        f"too few points to calibrate ({len(points)}); missing: {', '.join(missing)} "
        "(scalewatt pilot CAMPAIGN makes a campaign that has them)"
    )


def calibrate_kind(kind: Kind, points: Sequence[Point], few: bool = False) -> KindModel:
    """The model of one kind's points. `few`: of its energies fewer points will do (for validation)."""
    terms, time = fit_time(points)
    known = [point for point in points if point.energy_j is not None]
    lack = None if few and known else lacking(known)
    energies = {} if lack else fit_energy(known)
    return KindModel(
        kind=kind,
        points=tuple(points),
        time_terms=terms,
        time=time,
        energy_terms=EnergyTerms(),
        energy=energies,
        origin=known[0].origin if energies else None,
        scope=known[0].scope if energies else None,
        assumed=assumed_of(points),
        no_energy=f"of energies {lack}" if lack else None,
    )


def fit_time(points: Sequence[Point]) -> tuple[TimeTerms, Draws]:
    """The terms that the points ask for, and what they cost."""
    loads = [point.load for point in points]
    values = np.array([point.runtime_s for point in points])
    terms = choose_terms(loads, values)
    return terms, _honest(terms.columns(loads), values)


def fit_energy(points: Sequence[Point]) -> dict[str, Draws]:
    """Costs by device kind where every point has them, else of the total."""
    terms = EnergyTerms()
    columns = terms.columns([p.load for p in points], np.array([p.runtime_s for p in points]))
    return {name: _honest(columns, np.array(values)) for name, values in _energies(points).items()}


def _honest(columns: Array, values: Array) -> Draws:
    """Draws that are no surer than leaving points out shows, where the points are few.

    With hardly more points than terms any costs fit, and what is left over says nothing. There the
    standard deviation of all that is predicted is at least the root mean square of the errors of
    points left out, times (points - 1) / points: who lacks one of three points knows a third less. It
    is a factor that all predictions of a draw share.
    """
    found = draw(columns, values)
    points, terms = columns.shape
    if points - terms >= SURE:
        return found
    off = float(np.sqrt(np.mean(np.square(_unseen_errors(columns, values)))))
    return widened(found, off * (points - 1) / points)


def _unseen_errors(columns: Array, values: Array) -> list[float]:
    """Relative errors of the medians of points that the draws have not seen."""
    errors = []
    for number, value in enumerate(values):
        others = np.arange(len(values)) != number
        found = draw(columns[others], values[others], lengths=FOR_MEDIANS)
        errors.append(float(np.median(found.means(columns[number : number + 1]))) / value - 1)
    return errors


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
    is taken where that error falls to WORTH of it. Beyond the least a set has at least two terms less
    than points; the least, BASE and a start-up that can be felt, is taken whatever the points.
    """
    least = _least(loads, values)
    chosen = TimeTerms(least)
    error = _left_out_error(chosen, loads, values)
    for size in range(1, min(len(OPTIONAL) + 1, len(values) - len(least) - 1)):
        found = [
            (_left_out_error(terms, loads, values), terms) for terms in _sets(least, size, loads)
        ]
        smallest, terms = min(found, key=lambda one: one[0], default=(np.inf, chosen))
        if smallest <= WORTH * error:
            chosen, error = terms, smallest
    return chosen


def _least(loads: Sequence[Load], values: Array) -> tuple[str, ...]:
    """Terms that are always there. Short runs have a start-up, which else were an epoch's."""
    short = values.min() < SHORT_S and len({load.epochs for load in loads}) > 1
    return ("startup", *BASE) if short and len(loads) > len(BASE) else BASE


def _sets(least: Sequence[str], size: int, loads: Sequence[Load]) -> Iterator[TimeTerms]:
    """All sets with `size` terms beyond `least`; a maximum takes the place of a constant update."""
    same_epochs = len({load.epochs for load in loads}) == 1
    allowed = [
        name for name in OPTIONAL if name not in least and not (same_epochs and name == "startup")
    ]
    for extra in combinations(allowed, size):
        yield TimeTerms((*least, *extra))
    knees = sorted({load.local_batch_size for load in loads})[1:-1]
    for extra in combinations(allowed, size - 1):
        for knee in knees:
            names = tuple(name for name in least if name != "update")
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
