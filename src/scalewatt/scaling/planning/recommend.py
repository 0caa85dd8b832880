"""Recommend a number of GPUs: for a deadline the cheapest n, for a limit on energy the fastest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewatt.campaign.campaign_types import Series
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.planning.plan import Planner

DEADLINE, ENERGY = "deadline_h", "energy_kwh"
BY_ENERGY, BY_TIME, BY_GPU_HOURS = "energy_kwh", "runtime_h", "gpu_hours"
"""What is minimised: the energy, for a limit on it the time; GPU hours where no energy is known."""
SURE = 0.95
"""Probability that a recommended n keeps the limit; besides, the n whose median does is given."""


@dataclass(frozen=True)
class Recommendation:
    """The recommendation for one series and one limit on a run."""

    series: str
    limit: str
    """deadline_h or energy_kwh."""
    value: float
    gpus_with_95_percent: int | None = None
    """The best n that keeps the limit with 95 % probability; None if none does."""
    gpus_with_median: int | None = None
    """The best n whose median keeps it; None if none does."""
    least: str | None = None
    """What is minimised among the n that keep the limit."""
    reason: str | None = None
    """Why nothing is recommended."""


_Choices = dict[int, dict[str, Array]]
"""Draws of what is limited or minimised, by n; without the energy where it is not known."""


def recommendations(
    planner: Planner, deadline_h: float | None, energy_kwh: float | None
) -> list[Recommendation]:
    """Return one for each series and given limit; InputError if a limit is not a positive number."""
    limits = [(DEADLINE, deadline_h), (ENERGY, energy_kwh)]
    found = []
    for name, value in limits:
        if value is None:
            continue
        if not (np.isfinite(value) and value > 0):
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option}: {value:g}; expected a number above 0")
        found += [_of(planner, series, name, value) for series in planner.campaign.series.values()]
    return found


def _of(planner: Planner, series: Series, limit: str, value: float) -> Recommendation:
    configurations = [planner.campaign.configurations[id_] for id_ in series.points.values()]
    if len({one.dataset_samples for one in configurations}) > 1:
        reason = "its dataset grows with n: its points are not the same training"
        return Recommendation(series.name, limit, value, reason=reason)
    choices = _choices(planner, series)
    with_energy = {n: one for n, one in choices.items() if BY_ENERGY in one}
    by = BY_TIME if limit == ENERGY else BY_ENERGY if with_energy else BY_GPU_HOURS
    considered = choices if by == BY_GPU_HOURS else with_energy
    if not considered:
        reason = "the energy of none of its points is known"
        if not choices:
            reason = "none of its points can be predicted"
        return Recommendation(series.name, limit, value, reason=reason)
    sure, likely = (_best(considered, limit, value, share, by) for share in (SURE, 0.5))
    what = "is as fast" if limit == DEADLINE else "takes as little"
    none = f"none of its points {what}" if likely is None else None
    return Recommendation(series.name, limit, value, sure, likely, by, none)


def _choices(planner: Planner, series: Series) -> _Choices:
    found: _Choices = {}
    for gpus, id_ in series.points.items():
        predicted = planner.point(id_)
        if predicted is not None:
            hours = predicted.runtime_s[:, 0] / 3600
            found[gpus] = {BY_TIME: hours, BY_GPU_HOURS: gpus * hours}
            if predicted.total_j is not None:
                found[gpus][BY_ENERGY] = predicted.total_j[:, 0] / J_PER_KWH
    return found


def _best(choices: _Choices, limit: str, value: float, share: float, by: str) -> int | None:
    """Return the n with the smallest median of `by`, among those that keep the limit."""
    limited = BY_TIME if limit == DEADLINE else BY_ENERGY
    kept = [n for n, one in choices.items() if np.quantile(one[limited], share) <= value]
    return min(kept, key=lambda n: float(np.median(choices[n][by])), default=None)
