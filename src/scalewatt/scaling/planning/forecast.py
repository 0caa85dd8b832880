"""Forecast a campaign's runs by the scaling model, as posterior samples that can be summed.

In one posterior sample all runs share the costs of the terms, and each has its own deviation. So a
sum of runs is the sum within each sample; summing ends of intervals would overstate the uncertainty.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import given_file
from scalewatt.scaling.model.fit import KindModel
from scalewatt.scaling.model.model_file import ScalingModel, read_model
from scalewatt.scaling.model.predict import (
    NEAR,
    Predicted,
    doublings_apart,
    energy_at,
    estimate,
    predict,
    warnings_of,
)
from scalewatt.scaling.model.terms import Array, Kind, Load, kind_of_spec, load_of_spec

SEED = 5
"""Of deviations, before what a configuration adds."""


@dataclass
class Forecaster:
    """Forecasts of runs by one scaling model."""

    model: ScalingModel
    _upper_s: dict[tuple[str, Kind, Load], float] = field(default_factory=dict, init=False)
    """By configuration too: deviations are drawn for each separately, whatever the order of requests."""

    def of_kind(self, spec: RunSpec) -> KindModel:
        """Model of a spec's kind; InputError if there is none, or it cannot predict the spec."""
        load = load_of_spec(spec)  # a command need not say its samples
        model = self.model.of(kind_of_spec(spec))
        model.check(load)
        return model

    def runs(self, spec: RunSpec, repeats: int = 1) -> Predicted:
        """Draws (draws, repeats) of runs of one configuration; InputError if it has no model."""
        seed = _seed_of(spec.configuration)
        return predict(self.of_kind(spec), [load_of_spec(spec)] * repeats, seed)

    def energy_at(self, spec: RunSpec, runtime_s: float) -> Array | None:
        """Draws (draws, 1) of the energy in J of a run whose time is known; None if no energy is."""
        random = np.random.default_rng(_seed_of(spec.configuration))
        times = np.array([runtime_s])
        return energy_at(self.of_kind(spec), [load_of_spec(spec)], times, random)

    def upper_runtime_s(self, spec: RunSpec) -> float | None:
        """Upper end of the run time's interval, in s; None if the run cannot be predicted."""
        try:
            key = spec.configuration, kind_of_spec(spec), load_of_spec(spec)
            if key not in self._upper_s:
                self._upper_s[key] = estimate(self.runs(spec).runtime_s[:, 0]).high
            return self._upper_s[key]
        except InputError:
            return None

    def warnings(self, spec: RunSpec) -> list[str]:
        """Warnings about a forecast of a spec's runs: extrapolated, far from all points, assumed."""
        model, load = self.of_kind(spec), load_of_spec(spec)
        found = warnings_of(model, load)
        if doublings_apart(model, load) > NEAR:
            found.append("no calibrated n and batch size within one doubling: wider interval")
        return [*found, model.assumed] if model.assumed else found


def check_any(campaign: Campaign, forecaster: Forecaster) -> None:
    """Raise InputError, with what would make it possible, where no run of a campaign can be predicted."""
    reasons: dict[str, None] = {}
    for id_ in campaign.configurations:
        try:
            forecaster.of_kind(run_spec(campaign, id_, 1))
            return
        except InputError as error:
            reasons[str(error)] = None
    first, *others = reasons
    more = f" (and {len(others)} more reasons)" if others else ""
    raise InputError(f"{campaign.path}: no run can be predicted: {first}{more}")


def forecaster_of(path: str | Path | None) -> Forecaster | None:
    """Forecaster of a cluster's `scaling_model`; None without one, InputError if it is damaged."""
    return None if path is None else Forecaster(read_model(given_file(path)))


def no_model(where: str, campaign: Campaign) -> InputError:
    """Error that the cluster `where` names no scaling model."""
    return InputError(
        f"{where}: has no key 'scaling_model', so nothing can be predicted; name "
        "reference/scaling_model.json there, or in `scalewatt plan --model`, for the paper's trainings; for "
        f"others run what `scalewatt pilot {campaign.path}` writes, then `scalewatt calibrate`"
    )


def _seed_of(configuration: str) -> int:
    """Seed of a configuration's deviations, the same each time."""
    return SEED + zlib.crc32(configuration.encode())
