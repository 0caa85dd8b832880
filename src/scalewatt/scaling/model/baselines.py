"""Simple rules for the energy of a run whose time is known, to compare the scaling model with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from scalewatt.scaling.model.calibrate import WORTH
from scalewatt.scaling.model.cost_terms import ENERGY_UNITS, Array, EnergyTerms
from scalewatt.scaling.model.kind_model import Point
from scalewatt.scaling.model.posterior import best, left_out_error

PER_GPUH, PER_SAMPLE = "constant per GPUh", "constant per sample"
REGRESSION, REGRESSION_NODES = "regression", "regression with node hours"
CHOSEN = "chosen terms"
_CONSTANTS = {PER_GPUH: ("gpu",), PER_SAMPLE: ("sample",)}
_REGRESSIONS = {
    REGRESSION: ("gpu", "sample", "pass"),
    REGRESSION_NODES: ("gpu", "sample", "pass", "node"),
}


def baselines(points: Sequence[Point], point: Point) -> dict[str, float]:
    """Return the energy in J of a point at its known time, by each rule fitted on `points`.

    A constant is fitted as the model is, by relative errors. A regression is that of claim A03: the energy
    per GPU hour by ordinary least squares on samples and passes per GPU hour, so E = c · GPU hours +
    a · samples + b · passes, of any sign, and with node hours as a fourth term; it is left out where
    the points do not determine it (on whole nodes GPU hours and node hours are one). `CHOSEN` is the
    model's best costs of the fewest of its terms that predict points left out well.
    """
    known = [one for one in points if one.energy_j is not None]
    values = np.array([one.energy_j for one in known], float)
    found = {}
    chosen = _chosen(known, values)
    for name, terms in {**_CONSTANTS, CHOSEN: chosen}.items():
        found[name] = float(_columns(terms, [point])[0] @ best(_columns(terms, known), values))
    for name, terms in _REGRESSIONS.items():
        columns = _columns(terms, known)
        hours = columns[:, 0]
        costs = _least_squares(columns / hours[:, None], values / hours)
        if costs is not None:
            found[name] = float(_columns(terms, [point])[0] @ costs)
    return found


def _chosen(points: Sequence[Point], values: Array) -> tuple[str, ...]:
    """Return the terms that a choice like that of the run time's terms would take."""
    chosen: tuple[str, ...] = ("gpu",)
    error = np.inf
    if len(points) < 2:  # nothing to leave out
        return chosen
    for size in range(1, min(len(ENERGY_UNITS), max(1, len(points) - 2)) + 1):
        sets = combinations(ENERGY_UNITS, size)
        found = [(left_out_error(_columns(terms, points), values), terms) for terms in sets]
        smallest, terms = min(found)
        if smallest <= WORTH * error:
            chosen, error = terms, smallest
    return chosen


def _columns(terms: tuple[str, ...], points: Sequence[Point]) -> Array:
    """Return one row per point, one column per term; hours are of the known times."""
    times = np.array([one.runtime_s for one in points])
    return EnergyTerms(terms).columns([one.load for one in points], times)


def _least_squares(columns: Array, values: Array) -> Array | None:
    """Return the costs with the smallest squares; None if the points do not determine them."""
    scale = np.abs(columns).max(axis=0)
    costs, _, rank, _ = np.linalg.lstsq(columns / scale, values, rcond=1e-9)
    return costs / scale if rank == columns.shape[1] else None
