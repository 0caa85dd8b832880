"""Worlds whose numbers are known, and campaigns that are measured in them, as the claims' checks see them.

A world has the true time, energies and error of each configuration of the paper's campaign. A campaign
draws its runs: the logarithms of time and energy are normal, with the published spreads.
Means, deviations and intervals of repeats are made by the code that makes those of real runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.claims.evidence import Evidence, Row, points_of, prepared, series_of
from scalewatt.claims.reference_tables import TESTED, Claim, read_checks, read_claims
from scalewatt.claims.settings import RUN_RULES, SPEC_RULES
from scalewatt.claims.verdicts import verdict_of
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH, Floats
from scalewatt.results.tables.derived_quantities import Facility, energy_columns
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import (
    FULL_SAMPLES,
    SCOPES,
    SOCKETS_PER_NODE,
    published_configurations,
    published_spread,
)
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.table_schema import CONFIGURATIONS, SUMMARY
from scalewatt.scaling.model import kind_of_spec
from scalewatt.scaling.predict import read_model
from scalewatt.scaling.simulation.simulate import draw_run, final_metric

ERROR_SPREAD = 0.005
"""Relative standard deviation of a model's error between seeds: assumed, as nothing is published."""
EXACT = 1e-10
"""The relative spread of a campaign that knows the truth."""


class Scatter(NamedTuple):
    """Standard deviations of the logarithms of a single run's energy, time and error.

    Energy and time are independent: how they go together is not published.
    """

    energy: float
    time: float
    error: float = ERROR_SPREAD


@cache
def published_scatter() -> dict[str, Scatter]:
    """By model: that of its published repeats."""
    scatter = {}
    for model in FULL_SAMPLES:
        energy, time = (published_spread(model, name) for name in ("energy_kwh", "gpu_hours"))
        assert energy and time
        scatter[model] = Scatter(energy.relative, time.relative)
    return scatter


# --- the truth ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """One configuration; arrays (worlds, 1) hold several worlds at once."""

    hours: Floats
    kwh: Mapping[str, Floats]
    """By device kind, over all nodes."""
    error: Floats

    @property
    def total_kwh(self) -> Floats:
        return np.asarray(sum(self.kwh.values()))

    def times(self, what: str, factor: npt.ArrayLike) -> Truth:
        """The same with its `hours`, `energy` or a device kind's energy times a factor."""
        factor = np.asarray(factor)
        if what == "hours":
            return replace(self, hours=self.hours * factor)
        if what in self.kwh:
            return replace(self, kwh={**self.kwh, what: self.kwh[what] * factor})
        return replace(self, kwh={kind: kwh * factor for kind, kwh in self.kwh.items()})


World = Mapping[str, Truth]
"""By configuration."""


@cache
def campaign() -> Campaign:
    """The paper's, on the cluster that simulates it."""
    cluster = load_cluster(PROJECT_ROOT / "config" / "simulate.yaml")
    return load_campaign(PROJECT_ROOT / "campaigns/paper.yaml", cluster)


@cache
def paper_world() -> dict[str, Truth]:
    """The paper's numbers where they are published, elsewhere the curves of the scaling model."""
    cluster = load_cluster(PROJECT_ROOT / "config" / "simulate.yaml")
    model = read_model(PROJECT_ROOT / "reference" / "scaling_model.json")
    published = {row["configuration"]: row for row in records(published_configurations())}
    world = {}
    for id_ in campaign().configurations:
        spec = run_spec(campaign(), id_, 1)
        drawn = draw_run(spec, model.find(kind_of_spec(spec)), cluster.devices[spec.device])
        kwh = {kind: np.array(joules) / J_PER_KWH for kind, joules in drawn.joules.items()}
        error = np.array(final_metric(spec).value)
        truth = Truth(np.array(drawn.runtime_s) / 3600, kwh, error)
        world[id_] = _as_published(truth, published.get(id_), spec.gpus)
    return world


def _as_published(truth: Truth, row: Mapping[str, Any] | None, gpus: int) -> Truth:
    if row is None:
        return truth
    if row["gpu_hours_mean"] is not None:
        truth = replace(truth, hours=row["gpu_hours_mean"] / gpus)
    if row["energy_kwh_mean"] is not None:
        truth = truth.times("energy", row["energy_kwh_mean"] / truth.total_kwh)
    kinds = {kind: row[f"{kind}_energy_kwh_mean"] for kind in ("gpu", "cpu")}
    known = {kind: kwh for kind, kwh in kinds.items() if kwh is not None}
    if row["metric_last_mean"] is not None:
        truth = replace(truth, error=row["metric_last_mean"])
    return replace(truth, kwh={**truth.kwh, **known})


# --- what a campaign measures -------------------------------------------------------------------


@dataclass(frozen=True)
class Runs:
    """A configuration's runs in many campaigns: hours, kWh by device kind and errors (campaigns, repeats)."""

    hours: Floats
    kwh: Mapping[str, Floats]
    error: Floats


Quantities = Mapping[str, Mapping[str, Floats]]
"""By configuration and name: values (campaigns, repeats)."""


@dataclass(frozen=True)
class Study:
    """How campaigns are measured."""

    scatter: Mapping[str, Scatter] = field(default_factory=published_scatter)
    repeats: int | None = None
    """In place of each configuration's own."""

    def campaigns(self, world: World, count: int, seed: int) -> Iterator[Evidence]:
        """Yield the evidence of so many campaigns."""
        known = self.quantities(world, count, np.random.default_rng(seed))
        for number in range(count):
            yield _evidence({id_: _row(id_, of_id, number) for id_, of_id in known.items()})

    def quantities(self, world: World, count: int, random: np.random.Generator) -> Quantities:
        """Return what so many campaigns measure of the configurations of a world."""
        return quantities({id_: self._draw(id_, world[id_], count, random) for id_ in world})

    def _draw(self, id_: str, truth: Truth, count: int, random: np.random.Generator) -> Runs:
        configuration = campaign().configurations[id_]
        spread = self.scatter[configuration.model]
        shape = count, self.repeats or campaign().repeats[id_]
        hours = truth.hours * np.exp(spread.time * random.standard_normal(shape))
        # Kinds vary one by one, so that the total has its spread.
        parts = np.array(list(truth.kwh.values())) / truth.total_kwh
        sd = spread.energy / math.sqrt(float(np.sum(parts**2)))
        kwh = {
            kind: mean * np.exp(sd * random.standard_normal(shape))
            for kind, mean in truth.kwh.items()
        }
        error = truth.error * np.exp(spread.error * random.standard_normal(shape))
        return Runs(hours, kwh, error)


def quantities(drawn: Mapping[str, Runs]) -> Quantities:
    """Return by configuration what the table of runs derives, if known."""
    by_id = {}
    for id_, runs in drawn.items():
        columns = _derived(campaign().configurations[id_], runs)
        shape = runs.hours.shape
        by_id[id_] = {
            name: column.to_numpy(float).reshape(shape)
            for name, column in columns.items()
            if not column.isna().any()
        }
    return by_id


def _derived(configuration: Configuration, runs: Runs) -> dict[str, pd.Series]:
    def flat(values: npt.ArrayLike) -> pd.Series:
        return pd.Series(np.ravel(np.broadcast_to(np.asarray(values, float), runs.hours.shape)))

    hours = flat(runs.hours)
    joules = {kind: J_PER_KWH * flat(runs.kwh.get(kind, np.nan)) for kind in DEVICE_KINDS}
    samples, updates = (
        (configuration.samples_per_epoch or 0) * configuration.epochs,
        configuration.updates or 0,
    )
    held, node_s = hours * configuration.gpus, hours * 3600 * configuration.nodes
    work = pd.DataFrame({"gpu_hours": held, "gpu_s": held * 3600, "node_s": node_s}).assign(
        socket_s=node_s * SOCKETS_PER_NODE,
        nodes=float(configuration.nodes),
        samples=float(samples),
        updates=float(updates),
    )
    return {
        **energy_columns(joules, pd.DataFrame(joules).sum(axis=1), work, Facility()),
        "runtime_h": hours,
        "gpu_hours": held,
        "samples_per_gpuh": samples / held,
        "passes_per_gpuh": updates * configuration.gpus / held,
        "metric_last": flat(runs.error),
    }


def _row(id_: str, known: Mapping[str, Floats], number: int) -> Row:
    """Return a configuration's row in one of the campaigns."""
    row = dict(_identity(id_))
    for name, values in known.items():
        summary = summarise(values[number].tolist())
        row |= {f"{name}_{part}": summary[part] for part in SUMMARY}
    repeats = known["runtime_h"].shape[1]
    return row | dict.fromkeys(("n_repeats", "n_energies", "n_metrics"), repeats)


@cache
def _identity(id_: str) -> Row:
    configuration = campaign().configurations[id_]
    spec = run_spec(campaign(), id_, 1)
    return {
        **dict.fromkeys(CONFIGURATIONS.names),
        "campaign": "coverage",
        "configuration": id_,
        **{
            name: getattr(configuration, name)
            for name in ("model", "phase", "device", "gpus", "nodes")
        },
        **{
            name: getattr(configuration, name) for name in ("local_batch_size", "global_batch_size")
        },
        **{
            name: getattr(configuration, name) for name in ("dataset_samples", "epochs", "protocol")
        },
        "precision": spec.settings.get("precision"),
        "loader": "hdf5" if configuration.model == "fourcastnet" else "pil",
        "energy_origin": "measured",
        "energy_scope": SCOPES[configuration.device],
        "metric_name": final_metric(spec).name,
        "metric_goal": "min",
        "torch_device": "cuda",
    }


@cache
def _series() -> pd.DataFrame:
    return series_of(campaign())


def _evidence(rows: Mapping[str, Row]) -> Evidence:
    """Return the evidence that has these rows of configurations alone."""
    points = points_of(campaign(), _series(), pd.DataFrame(list(rows.values())))
    points = prepared(points.assign(varies_seeds=True))
    return Evidence("coverage", points=points, series=_series(), campaign=campaign())


EXACT_STUDY = Study(dict.fromkeys(published_scatter(), Scatter(EXACT, EXACT, EXACT)), repeats=3)
"""Campaigns that know the truth."""


@cache
def claims_on_results() -> dict[str, Claim]:
    """The claims that results of the paper's campaign decide, one way or another."""
    (evidence,) = EXACT_STUDY.campaigns(paper_world(), 1, 0)
    claims = [claim for claim in read_claims() if _scatters(claim.id)]
    return {claim.id: claim for claim in claims if verdict_of(claim, evidence).verdict in TESTED}


def _scatters(id_: str) -> bool:
    """Return True if a claim's check is on numbers that differ between campaigns."""
    exact = {*RUN_RULES, *SPEC_RULES, "updates_per_epoch"}
    return any(check.rule not in exact for check in read_checks().get(id_, ()))
