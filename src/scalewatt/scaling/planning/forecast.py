"""Forecast a campaign's runs by the scaling model, as posterior samples that can be summed.

In one posterior sample all runs share the costs of the terms, and each has its own deviation. So a
sum of runs is the sum within each sample; summing ends of intervals would overstate the uncertainty.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.model_registry import model_key
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.project_files import PROJECT_ROOT, given_file
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.scaling.model.cost_terms import Array, Load, load_of_spec
from scalewatt.scaling.model.kind_model import DEVIATIONS, KindModel, repeated
from scalewatt.scaling.model.model_file import ScalingModel, read_model
from scalewatt.scaling.model.predict import (
    Predicted,
    energies_at,
    estimate,
    predict,
    unseen_warnings,
    warnings_of,
)
from scalewatt.scaling.model.scores import stated_error
from scalewatt.scaling.model.training_kind import Kind, kind_of_spec

SHIPPED = PROJECT_ROOT / "reference" / "scaling_model.json"
"""The model that comes with the project."""
SEED = 5
"""Of deviations, before what a configuration adds."""


@dataclass
class Forecaster:
    """Forecasts of runs by one scaling model, cached."""

    model: ScalingModel
    _kinds: dict[Kind, KindModel] = field(default_factory=dict, init=False)
    _upper_s: dict[tuple[str, Kind, Load], float] = field(default_factory=dict, init=False)
    """By configuration too: deviations are drawn for each separately, whatever the order of requests."""

    def of_kind(self, spec: RunSpec) -> KindModel:
        """Return the model of a spec's kind, its draws repeated; InputError if there is none."""
        load = load_of_spec(spec)  # a command need not say its samples
        kind = kind_of_spec(spec)
        if kind not in self._kinds:
            self._kinds[kind] = repeated(self.model.of(kind), DEVIATIONS)
        self._kinds[kind].check(load)
        return self._kinds[kind]

    def runs(self, spec: RunSpec, repeats: int = 1) -> Predicted:
        """Return draws (draws, repeats) of runs of one configuration; InputError if it has no model."""
        seed = _seed_of(spec.configuration)
        return predict(self.of_kind(spec), [load_of_spec(spec)] * repeats, seed)

    def energy_at(self, spec: RunSpec, runtime_s: float) -> dict[str, Array]:
        """Return draws (draws,) of the energy in J of a run whose time is known."""
        found = self.energies_at(spec, [runtime_s])
        return {name: joules[:, 0] for name, joules in found.items()}

    def energies_at(self, spec: RunSpec, runtimes_s: Sequence[float]) -> dict[str, Array]:
        """Return draws (draws, runs) of the energies in J of one configuration's runs of known times."""
        random = np.random.default_rng(_seed_of(spec.configuration))
        loads = [load_of_spec(spec)] * len(runtimes_s)
        return energies_at(self.of_kind(spec), loads, np.array(runtimes_s), random)

    def upper_runtime_s(self, spec: RunSpec) -> float | None:
        """Return the upper end of the run time's interval, in s; None if the run cannot be predicted."""
        try:
            key = spec.configuration, kind_of_spec(spec), load_of_spec(spec)
            if key not in self._upper_s:
                self._upper_s[key] = estimate(self.runs(spec).runtime_s[:, 0]).high
            return self._upper_s[key]
        except InputError:
            return None

    def energy_kwh(self, spec: RunSpec) -> float | None:
        """Return the median of a run's energy; None if it cannot be predicted."""
        try:
            total = self.runs(spec).total_j
        except InputError:
            return None
        return None if total is None else float(np.median(total)) / J_PER_KWH

    def stated_error(self, specs: Iterable[RunSpec]) -> str:
        """Return what is known of the errors of forecasts of `specs`, in a sentence or more."""
        known = (self.model.scores_of(kind_of_spec(spec)) for spec in specs)
        return stated_error({kind.name: scores for kind, scores in known if kind is not None})

    def warnings(self, spec: RunSpec) -> list[str]:
        """Return the warnings about a forecast of a spec's runs."""
        model = self.of_kind(spec)
        load = load_of_spec(spec)
        assumed = [model.assumed] if model.assumed else []
        return [*warnings_of(model, load), *unseen_warnings(model, load), *assumed]


def check_any(campaign: Campaign, forecaster: Forecaster) -> None:
    """Raise InputError, with what would make it possible, where no run of a campaign can be predicted."""
    reasons = []
    for id_ in campaign.configurations:
        try:
            forecaster.of_kind(run_spec(campaign, id_, 1))
            return
        except InputError as error:
            reasons.append(str(error))
    different = len(set(reasons))
    more = f" (and {different - 1} more reasons)" if different > 1 else ""
    raise InputError(f"{campaign.path}: no run can be predicted: {reasons[0]}{more}")


def model_path(path: str | Path | None) -> Path | None:
    """Path of a cluster's `scaling_model`; None without one."""
    return None if path is None else given_file(path)


def forecaster_of(path: str | Path | None) -> Forecaster | None:
    """Return the forecaster of a cluster's `scaling_model`; None without one, InputError if it is damaged."""
    found = model_path(path)
    return None if found is None else Forecaster(read_model(found))


def no_model(where: str, campaign: Campaign) -> InputError:
    """Error that the cluster `where` names no scaling model, with one that fits."""
    asked = {
        (model_key(one.model, one.phase), one.device) for one in campaign.configurations.values()
    }
    known = {(one.kind.key, one.kind.device) for one in read_model(SHIPPED).kinds}
    name = SHIPPED.relative_to(PROJECT_ROOT)
    named = ", ".join(f"{model} on {device}" for model, device in sorted(known))
    fits = (
        f"name {name} there, or in `scalewatt plan --model`"
        if known & asked
        else f"run what `scalewatt pilot {campaign.path}` writes, then `scalewatt calibrate`"
    )
    return InputError(
        f"{where}: has no key 'scaling_model', so nothing can be predicted; {fits} "
        f"({name} knows {named})"
    )


def _seed_of(configuration: str) -> int:
    """Return the seed of a configuration's deviations, the same each time."""
    return SEED + zlib.crc32(configuration.encode())
