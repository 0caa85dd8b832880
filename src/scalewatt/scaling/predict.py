"""Predict time and energy of runs by the scaling model, as draws that can be summed.

In one draw all runs share the costs of the terms, and each has its own deviation. So a sum of runs is the
sum within each draw; summing ends of intervals would overstate the uncertainty.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import TypeAdapter, ValidationError

from scalewatt import __version__
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_text
from scalewatt.common.project_files import find_file, project_path
from scalewatt.scaling.model import (
    LEAST_FACTOR,
    Array,
    Draws,
    Kind,
    KindModel,
    Load,
    assumed_finetuning,
    energy_columns,
    kind_of_spec,
    load_of_spec,
    pretraining_of,
    time_columns,
)

INTERVAL = (0.05, 0.95)
"""Quantiles of the nominal 90 % intervals."""
FAR = 4
"""Beyond this multiple of the calibrated n a prediction carries a warning."""
NEAR = 1.0
"""Doublings of n or LBS within which a calibrated point determines the uncertainty of a time."""
UNSEEN = 0.05
"""Relative standard deviation of a time that each doubling beyond these adds; assumed."""
DEVIATIONS = 4
"""Deviations of a run drawn for each draw of the costs: quantiles become smoother."""
_SEED, _SEED_OF_CONFIGURATIONS = 2, 5


class Estimate(NamedTuple):
    """A median with its nominal 90 % interval."""

    median: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """True if a value lies in the interval."""
        return self.low <= value <= self.high


def estimate(draws: Array) -> Estimate:
    """Median and nominal 90 % interval of draws (draws,)."""
    low, median, high = np.quantile(draws, [INTERVAL[0], 0.5, INTERVAL[1]]).tolist()
    return Estimate(median, low, high)


# --- single runs ----------------------------------------------------------------------------------


class Predicted(NamedTuple):
    """Draws (draws, loads) of single runs, including their deviations from the model."""

    runtime_s: Array
    energy_j: Array | None
    """None if no energy is known."""


def predict(model: KindModel, loads: Sequence[Load], seed: int = _SEED) -> Predicted:
    """Draw run times and energies of `loads`, each a separate run."""
    random = np.random.default_rng(seed)
    times_s = _draw_runs(model.time, time_columns(loads, model.time_terms), random)
    times_s = times_s * unseen(model, loads)
    return Predicted(times_s, predict_energy(model, loads, times_s, random))


def predict_energy(
    model: KindModel, loads: Sequence[Load], runtimes_s: Array, random: np.random.Generator
) -> Array | None:
    """Draw energies at known run times, (loads,) or (draws, loads); None if no energy is known."""
    if model.energy is None:
        return None
    return _draw_runs(model.energy, energy_columns(loads, runtimes_s), random)


def _draw_runs(draws: Draws, columns: Array, random: np.random.Generator) -> Array:
    """Draw DEVIATIONS values of each run for each draw of the costs: those of time and energy stay paired."""
    terms, spread = (np.repeat(part, DEVIATIONS, axis=0) for part in (draws.terms, draws.spread))
    means = Draws(terms, spread).means(columns)
    factors = 1 + spread[:, None] * random.standard_normal(means.shape)
    return means * np.maximum(factors, LEAST_FACTOR)


def unseen(model: KindModel, loads: Sequence[Load]) -> Array:
    """Factors (draws, loads) on times of loads far from all points; 1 for loads near one.

    The error of the terms grows with the distance, in the same direction for all loads of a draw.
    """
    random = np.random.default_rng(zlib.crc32(model.kind.name.encode()))
    deviations = random.standard_normal(DEVIATIONS * len(model.time.spread))
    beyond = [max(0.0, doublings_apart(model, load) - NEAR) for load in loads]
    return np.exp(UNSEEN * np.outer(deviations, beyond))


def doublings_apart(model: KindModel, load: Load) -> float:
    """Doublings of n or LBS, the larger, between a load and the nearest calibrated point."""
    points = np.array([(p.load.gpus, p.load.pass_size) for p in model.points])
    return float(np.abs(np.log2([load.gpus, load.pass_size] / points)).max(axis=1).min())


def extrapolation_warnings(model: KindModel, load: Load) -> list[str]:
    """Warn of an extrapolated prediction."""
    largest = max(point.load.gpus for point in model.points)
    warning = (
        f"n = {load.gpus} is more than {FAR} times the largest calibrated ({largest}): extrapolated"
    )
    return [warning] if load.gpus > FAR * largest else []


# --- all kinds ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScalingModel:
    """All kinds of training that were calibrated together."""

    kinds: tuple[KindModel, ...]
    sources: tuple[str, ...]
    path: str | None = None
    """Where it was read from."""

    @property
    def name(self) -> str:
        """Its path, within the project that of a shipped one."""
        return "scaling model" if self.path is None else str(project_path(Path(self.path)))

    def find(self, kind: Kind) -> KindModel:
        """Model of a kind; InputError, with the remedy, if it has none.

        A fine-tuning that was not calibrated is assumed to be like its pre-training.
        """
        calibrated = {model.kind: model for model in self.kinds}
        if kind in calibrated:
            return calibrated[kind]
        before = pretraining_of(kind)
        if before in calibrated:
            return assumed_finetuning(kind, calibrated[before])
        has = "; ".join(model.kind.name for model in self.kinds)
        raise InputError(
            f"{self.name}: is not calibrated for {kind.name} (it has: {has}); to make it possible "
            "run what `scalewatt pilot CAMPAIGN` writes, then `scalewatt calibrate` on the results"
        )

    def find_for(self, spec: RunSpec) -> KindModel:
        """Model of a spec's kind; InputError if there is none, or all its points have one other LBS.

        Nor is there one of trainings to a target.
        """
        if spec.protocol == TARGET_PROTOCOL:
            raise InputError(
                f"{spec.configuration}: trains to a target, and how many samples that takes is not known"
            )
        load = load_of_spec(spec)
        model = self.find(kind_of_spec(spec))
        sizes = {point.load.pass_size for point in model.points}
        if len(sizes) == 1 and load.pass_size not in sizes:
            raise InputError(
                f"{model.kind.name}: is calibrated on local batch size {sizes.pop():g} alone, so "
                f"{load.pass_size:g} cannot be predicted; calibrate on runs of another one as well"
            )
        return model

    def predict_runs(self, spec: RunSpec, repeats: int = 1) -> Predicted:
        """Draws (draws, repeats) of runs of one configuration; InputError if it has no model.

        They are the same each time, whatever is predicted before.
        """
        loads = [load_of_spec(spec)] * repeats
        return predict(self.find_for(spec), loads, _seed_of(spec))

    def predict_energy(self, spec: RunSpec, runtime_s: float) -> Array | None:
        """Draws (draws, 1) of the energy in J of a run whose time is known; None if no energy is."""
        random = np.random.default_rng(_seed_of(spec))
        load, times_s = load_of_spec(spec), np.array([runtime_s])
        return predict_energy(self.find_for(spec), [load], times_s, random)

    def upper_runtime_s(self, spec: RunSpec) -> float | None:
        """Upper end of the run time's interval, in s; None if the run cannot be predicted."""
        try:
            return estimate(self.predict_runs(spec).runtime_s[:, 0]).high
        except InputError:
            return None

    def warnings(self, spec: RunSpec) -> list[str]:
        """Warnings about predictions of a spec's runs: extrapolated, far from all points, assumed."""
        model, load = self.find_for(spec), load_of_spec(spec)
        warnings = extrapolation_warnings(model, load)
        if doublings_apart(model, load) > NEAR:
            warnings.append("no calibrated n and batch size within one doubling: wider interval")
        return [*warnings, model.assumed] if model.assumed else warnings


def _seed_of(spec: RunSpec) -> int:
    return _SEED_OF_CONFIGURATIONS + zlib.crc32(spec.configuration.encode())


def check_any(campaign: Campaign, model: ScalingModel) -> None:
    """Raise InputError, with the remedy, if no run of a campaign can be predicted."""
    reasons = []
    for id_ in campaign.configurations:
        try:
            model.find_for(run_spec(campaign, id_, 1))
            return
        except InputError as error:
            reasons.append(str(error))
    raise InputError(f"{campaign.path}: no run can be predicted: {reasons[0]}")


def model_for(campaign: Campaign, cluster: Cluster, path: Path | None = None) -> ScalingModel:
    """Read the model in a file, by default the cluster's; InputError without both."""
    if file := path or cluster.scaling_model:
        return read_model(file)
    raise no_model(f"the cluster '{cluster.name}'", campaign)


def no_model(where: str, campaign: Campaign) -> InputError:
    """Error that the cluster `where` names no scaling model."""
    return InputError(
        f"{where}: has no key 'scaling_model', so nothing can be predicted; name "
        "reference/scaling_model.json there, or in `scalewatt plan --model`, for the paper's trainings; for "
        f"others run what `scalewatt pilot {campaign.path}` writes, then `scalewatt calibrate`"
    )


# --- the file -------------------------------------------------------------------------------------

_CONTENT = TypeAdapter(ScalingModel)
"""Points, terms, scores, and the draws, so that reading needs no SciPy."""


def write_model(path: Path, model: ScalingModel, provenance: Mapping[str, Any]) -> None:
    """Write a model and its provenance."""
    content = {
        "what": "scalewatt's scaling model of time and energy; docs/planning.md explains it",
        "scalewatt": __version__,
        "provenance": dict(provenance),
        **_CONTENT.dump_python(model, mode="json", exclude={"path"}),
    }
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_model(path: str | Path) -> ScalingModel:
    """Read a model, a relative path from here or from the project; InputError for another file."""
    path = find_file(path)
    content = read_json(path)
    try:
        return replace(_CONTENT.validate_python(content), path=str(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{path}: is no scaling model of this scalewatt ({'.'.join(map(str, first['loc']))}: "
            f"{first['msg']}); run scalewatt calibrate again"
        ) from error
