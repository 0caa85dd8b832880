"""Calibrate the scaling model on points: select the terms of the run time, and sample their costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import DEVICE_KINDS
from scalewatt.scaling.model.calibration_points import by_kind
from scalewatt.scaling.model.cost_terms import Array, EnergyTerms, Load, TimeTerms
from scalewatt.scaling.model.kind_model import KindModel, Point, assumed_of
from scalewatt.scaling.model.posterior import Draws, draw, left_out_error, widened
from scalewatt.scaling.model.training_kind import Kind

MIN_POINTS = 3
SURE = 3
"""With fewer points beyond the number of terms, the fitted spread is too small (`_robust`)."""
BASE = ("epoch", "sample", "update")
OPTIONAL = ("startup", "first_batch", "straggler", "synchronisation")
SHORT_S = 3600.0
"""In shorter runs the start, half a minute or more, is a considerable part."""
WORTH = 0.95
"""A further term must reduce the mean leave-one-out error to this part of what it was."""


def calibrate(points: Iterable[Point]) -> list[KindModel]:
    """Return a model of each kind that has enough points; InputError as of `calibratable`."""
    kinds, _ = calibratable(points)
    return [calibrate_kind(kind, own) for kind, own in kinds.items()]


def calibratable(points: Iterable[Point]) -> tuple[dict[Kind, list[Point]], tuple[str, ...]]:
    """Return the points of the kinds that have enough of them, and what the others lack.

    InputError if no kind has enough, or energies of one are of several origins or scopes.
    """
    kinds = by_kind(points)
    lacks = {kind: f"{kind.name}: {lack}" for kind, own in kinds.items() if (lack := lacking(own))}
    if len(lacks) == len(kinds):
        raise InputError("; ".join(lacks.values()))
    return {kind: own for kind, own in kinds.items() if kind not in lacks}, tuple(lacks.values())


def lacking(points: Sequence[Point]) -> str | None:
    """Return which points are missing for a calibration; None if there are enough.

    One LBS is enough: then no other one can be predicted (`KindModel.check`).
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
    """Return the model of one kind's points; with `few`, for validation, also of fewer energies."""
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
    """Return the selected terms of the run time, and draws of their costs."""
    loads = [point.load for point in points]
    values = np.array([point.runtime_s for point in points])
    terms = choose_terms(loads, values)
    return terms, _robust(terms.columns(loads), values)


def fit_energy(points: Sequence[Point]) -> dict[str, Draws]:
    """Return draws of costs by device kind where every point has them, else of the total."""
    terms = EnergyTerms()
    columns = terms.columns([p.load for p in points], np.array([p.runtime_s for p in points]))
    energies = _energies(points).items()
    return {name: _robust(columns, np.array(values)) for name, values in energies}


def _robust(columns: Array, values: Array) -> Draws:
    """Return draws whose spread is at least the leave-one-out error, where the points are few.

    With hardly more points than terms any costs fit, and residuals are meaningless. Then the
    standard deviation of all predictions is at least the root mean square of the leave-one-out errors,
    times (points - 1) / points, because each fit lacks one of the points. It is a factor that all
    predictions of a draw share.
    """
    found = draw(columns, values)
    points, terms = columns.shape
    if points - terms >= SURE:
        return found
    off = float(np.sqrt(np.mean(np.square(_unseen_errors(columns, values)))))
    return widened(found, off * (points - 1) / points)


def _unseen_errors(columns: Array, values: Array) -> list[float]:
    """Return the relative leave-one-out errors of the medians."""
    errors = []
    for number, value in enumerate(values):
        others = np.arange(len(values)) != number
        found = draw(columns[others], values[others])
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
    """Return the fewest terms that predict points left out well.

    Of all sets of one size, that with the smallest mean leave-one-out error is considered; a larger
    size is chosen where the error falls to WORTH of it. A set beyond the minimal one has at least two
    terms less than points; the minimal one, what is required and a considerable start-up, is always
    allowed.
    """
    least = _least(loads, values)
    chosen = TimeTerms(least)
    error = left_out_error(chosen.columns(loads), values)
    for size in range(1, min(len(OPTIONAL) + 1, len(values) - len(least) - 1)):
        sets = _sets(least, size, loads)
        found = [(left_out_error(terms.columns(loads), values), terms) for terms in sets]
        smallest, terms = min(found, key=lambda one: one[0], default=(np.inf, chosen))
        if smallest <= WORTH * error:
            chosen, error = terms, smallest
    return chosen


def _least(loads: Sequence[Load], values: Array) -> tuple[str, ...]:
    """Return the minimal terms. Short runs have a start-up, which would else be attributed to epochs."""
    short = values.min() < SHORT_S and len({load.epochs for load in loads}) > 1
    return ("startup", *BASE) if short and len(loads) > len(BASE) else BASE


def _sets(least: Sequence[str], size: int, loads: Sequence[Load]) -> Iterator[TimeTerms]:
    """Yield all sets with `size` terms beyond `least`; a maximum replaces a constant update."""
    same_epochs = len({load.epochs for load in loads}) == 1
    allowed = [
        name for name in OPTIONAL if name not in least and not (same_epochs and name == "startup")
    ]
    for extra in combinations(allowed, size):
        yield TimeTerms((*least, *extra))
    knees = sorted({load.pass_size for load in loads})[1:-1]
    names = tuple(name for name in least if name != "update")
    for extra in combinations(allowed, size - 1):
        for knee in knees:
            yield TimeTerms((*names, "input_excess", *extra), float(knee))
