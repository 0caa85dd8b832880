"""Clocks and power limits between those that were calibrated, where leaving one out says that it works.

Each calibrated operating point is a kind with costs of its own. Between them two laws are tried: the one
of clocked circuits (a part of the time follows the clock, the dynamic power its cube), and straight lines in
the logarithms between neighbours. Each calibrated point but the two ends is predicted from the others, at
every load that all share; the law with the smaller largest error counts, and none where that is above
MOST_ERROR.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from scalewatt.campaign.operating_points import LEVERS
from scalewatt.common.untrusted_text import parse_json
from scalewatt.results.text.number_format import count
from scalewatt.scaling.model.cost_terms import Array, Load
from scalewatt.scaling.model.kind_model import KindModel
from scalewatt.scaling.model.posterior import Draws, factors_around_one
from scalewatt.scaling.model.training_kind import Kind

LEAST_POINTS = 4
MOST_ERROR = 0.05
"""The largest relative error, of time and of energy, of a left-out point with which a law counts."""
_CLOCKS = tuple(lever for lever in LEVERS if lever.endswith("clock_mhz"))
_OF_TIME = ("node", "gpu")
"""Terms of an energy that are multiplied with the time."""
Law = Callable[[Array, Array, float], float]
"""Predicts the value at a lever from the values (k,) at others (k,)."""


@dataclass(frozen=True)
class _Fit:
    """Time and energy at an operating point, over those of the kind nearest to it."""

    nearest: KindModel
    time: float
    energy: float
    error: float
    """The largest of a left-out point."""
    words: str


def at_operating_point(kind: Kind, calibrated: Sequence[KindModel]) -> KindModel | str:
    """Return the model of a kind whose clock or limit lies between calibrated ones; else why there is none.

    An empty reason means that no calibrated kind differs in one lever alone.
    """
    own = _levers(kind)
    for lever in own:
        siblings = [one for one in calibrated if _differs_in(kind, one.kind, lever)]
        if siblings:
            found = _fit(kind, lever, siblings)
            return found if isinstance(found, str) else _made(kind, found)
    return ""


def _levers(kind: Kind) -> dict[str, float]:
    settings = parse_json(kind.settings)
    return {lever: settings[lever] for lever in LEVERS if lever in settings}


def _differs_in(kind: Kind, other: Kind, lever: str) -> bool:
    """Return True if two kinds have the lever, and differ in nothing else."""
    mine, theirs = (parse_json(one.settings) for one in (kind, other))
    if lever not in theirs:
        return False
    return (
        replace(other, settings=json.dumps(theirs | {lever: mine[lever]}, sort_keys=True)) == kind
    )


def _fit(kind: Kind, lever: str, siblings: Sequence[KindModel]) -> _Fit | str:
    wanted = _levers(kind)[lever]
    by_value = {_levers(one.kind)[lever]: one for one in siblings}
    unit = LEVERS[lever].unit
    values = np.array(sorted(by_value))
    if len(values) < LEAST_POINTS:
        known = f"{count(len(values), 'value')} of {lever} {'is' if len(values) == 1 else 'are'}"
        return f"{known} calibrated; expected at least {LEAST_POINTS}"
    if not values[0] < wanted < values[-1]:
        return f"{wanted:g} {unit} is beyond the calibrated {values[0]:g} to {values[-1]:g} {unit}"
    models = [by_value[value] for value in values]
    loads = _shared_loads(models)
    found = [np.array([_at(model, load) for model in models]) for load in loads]
    if not found or not np.isfinite(found).all():
        return "the calibrated operating points share no load whose energy is known"
    laws: dict[str, tuple[Law, Law]] = {"interpolated between neighbours": (_between, _between)}
    if lever in _CLOCKS:
        laws["by a law of the clock"] = (_time_of_clock, _power_of_clock)
    errors = {
        words: max(_error(values, own[:, 0], own[:, 1] / own[:, 0], law) for own in found)
        for words, law in laws.items()
    }
    words = min(errors, key=lambda one: errors[one])
    nearest = int(np.argmin(np.abs(values - wanted)))
    ratios = np.array([_ratios(values, own, wanted, nearest, laws[words]) for own in found])
    usual = np.exp(np.log(ratios).mean(axis=0))
    error = max(errors[words], float(np.abs(ratios / usual - 1).max()))
    if not error <= MOST_ERROR:
        return (
            f"a left-out {lever} is predicted with an error of up to {100 * error:.1f} %; allowed: at "
            f"most {100 * MOST_ERROR:g} %"
        )
    return _Fit(models[nearest], float(usual[0]), float(usual[1]), error, words)


def _shared_loads(models: Sequence[KindModel]) -> list[Load]:
    """Return the loads that every model was calibrated on."""
    by_model = [{point.load for point in model.points} for model in models]
    return sorted(set.intersection(*by_model), key=str)


def _ratios(
    values: Array, found: Array, wanted: float, nearest: int, laws: tuple[Law, Law]
) -> tuple[float, float]:
    """Return time and energy of a load at a lever, over those at the nearest calibrated one."""
    times, energies = found.T
    time = laws[0](values, times, wanted)
    energy = time * laws[1](values, energies / times, wanted)
    return time / times[nearest], energy / energies[nearest]


def _at(model: KindModel, load: Load) -> tuple[float, float]:
    """Return the medians of time and energy of a load, in s and J; NaN where no energy is known."""
    times = model.time.means(model.time_terms.columns([load]))
    runtime_s = float(np.median(times))
    if not model.energy:
        return runtime_s, float("nan")
    columns = model.energy_terms.columns([load], np.array([runtime_s]))
    total: Any = sum(draws.means(columns) for draws in model.energy.values())
    return runtime_s, float(np.median(total))


def _error(values: Array, times: Array, powers: Array, laws: tuple[Law, Law]) -> float:
    """Return the largest relative error of time and energy of a point but the ends, left out."""
    worst = 0.0
    for place in range(1, len(values) - 1):
        kept = np.arange(len(values)) != place
        time, power = (
            law(values[kept], own[kept], float(values[place]))
            for law, own in zip(laws, (times, powers), strict=True)
        )
        energy = times[place] * powers[place]
        worst = max(worst, abs(time / times[place] - 1), abs(time * power / energy - 1))
    return worst


def _between(levers: Array, values: Array, wanted: float) -> float:
    return float(np.exp(np.interp(np.log(wanted), np.log(levers), np.log(values))))


def _time_of_clock(clocks: Array, times: Array, wanted: float) -> float:
    return _two_terms(clocks, times, wanted, -1.0)


def _power_of_clock(clocks: Array, powers: Array, wanted: float) -> float:
    return _two_terms(clocks, powers, wanted, 3.0)


def _two_terms(clocks: Array, values: Array, wanted: float, exponent: float) -> float:
    """Return a + b·(clock)^exponent, by least squares of relative errors with a, b ≥ 0."""
    from scipy.optimize import nnls  # takes long to import, and reading a model needs none

    scaled = (clocks / clocks[-1]) ** exponent
    columns = np.column_stack([np.ones_like(scaled), scaled]) / values[:, None]
    (constant, slope), _ = nnls(columns, np.ones(len(values)))
    return float(constant + slope * (wanted / clocks[-1]) ** exponent)


def _made(kind: Kind, fit: _Fit) -> KindModel:
    """Return the nearest kind's model, scaled; each draw has an unknown factor as wide as the error."""
    model = fit.nearest
    spread = max(fit.error, 1e-3) / NormalDist().inv_cdf(0.95)
    factors = factors_around_one(len(model.time.spread), spread)
    at = ", ".join(LEVERS[lever].label(value) for lever, value in _levers(kind).items())
    assumed = (
        f"{at} was not calibrated: {fit.words}, whose largest error of a left-out point is "
        f"{100 * fit.error:.1f} %"
    )
    return replace(
        model,
        kind=kind,
        time=Draws(model.time.terms * (fit.time * factors)[:, None], model.time.spread),
        energy={
            name: Draws(draws.terms * _energy_factors(model, fit, factors), draws.spread)
            for name, draws in model.energy.items()
        },
        assumed="; ".join(filter(None, (assumed, model.assumed))),
    )


def _energy_factors(model: KindModel, fit: _Fit, unknown: Array) -> Array:
    """Return the factors (draws, terms) of an energy; terms of time have the time's own already."""
    of_time = np.full(unknown.shape, fit.energy / fit.time)
    names = model.energy_terms.names
    return np.column_stack(
        [of_time if name in _OF_TIME else fit.energy * unknown for name in names]
    )
