"""Worlds whose numbers are known, and campaigns that are measured in them, as the claims' checks see them.

A world has the true time, energies and error of each configuration of the paper's campaign. A campaign
draws its runs: the logarithms of time and energy are normal and go together, with the published spreads.
Means, deviations and intervals of repeats are made by the code that makes those of real runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import run_spec
from scalewatt.claims.evidence import Evidence, Key, Line, Point, Row, key_of, no_runs
from scalewatt.claims.load_evidence import lines_of
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH, Floats
from scalewatt.results.tables.derived_quantities import Facility, Work, energy_columns
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import (
    REFERENCE,
    SCOPES,
    SOCKETS_PER_NODE,
    published_configurations,
)
from scalewatt.results.tables.published_spread import Spread, pooled
from scalewatt.results.tables.repeat_statistics import summarise, summary_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, PARTS, QUANTITIES
from scalewatt.scaling.model.model_file import read_model
from scalewatt.scaling.model.training_kind import kind_of_spec
from scalewatt.scaling.simulation.learning_curves import final_metric
from scalewatt.scaling.simulation.run import draw_run

CORRELATION = 0.0
"""Of the logarithms of energy and time of a run: nothing is published, and with none the energy per GPU hour
scatters most."""
ERROR_SPREAD = 0.005
"""Relative standard deviation of a model's error between seeds: assumed, as nothing is published."""
EXACT = 1e-10
"""The relative spread of a campaign that knows the truth."""
EXACT_REPEATS = 3
_COLUMNS = {f"{name}_{part}": (name, part) for name in QUANTITIES for part in PARTS}


@dataclass(frozen=True)
class Scatter:
    """Standard deviations of the logarithms of a single run's energy, time and error."""

    energy: float
    time: float
    error: float = ERROR_SPREAD


@cache
def published_scatter() -> dict[str, Scatter]:
    """By model: those of reference/published_results.csv, pooled over its rows with repeats."""
    rows = pd.read_csv(REFERENCE)
    rows = rows[rows["energy_popstd_kwh"].notna()]
    found = {}
    for model, own in rows.groupby("model"):
        n = own["repeats"]

        def pooled(
            sd: str, mean: str, own: pd.DataFrame = own, n: pd.Series = n
        ) -> float:  # n/(n-1)·popvar is the sample's variance, with n-1 degrees of freedom
            return math.sqrt(float((n * (own[sd] / own[mean]) ** 2).sum() / (n - 1).sum()))

        found[str(model)] = Scatter(
            pooled("energy_popstd_kwh", "energy_kwh"), pooled("gpu_hours_popstd", "gpu_hours")
        )
    return found


# --- the truth ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """One configuration."""

    hours: float
    kwh: Mapping[str, float]
    """By device kind, over all nodes."""
    error: float

    @property
    def total_kwh(self) -> float:
        return math.fsum(self.kwh.values())

    def times(self, what: str, factor: float) -> Truth:
        """The same with its `hours`, `energy`, `error` or a device kind's energy times a factor."""
        if what == "hours":
            return replace(self, hours=self.hours * factor)
        if what == "error":
            return replace(self, error=self.error * factor)
        if what in self.kwh:
            return replace(self, kwh={**self.kwh, what: self.kwh[what] * factor})
        return replace(self, kwh={kind: one * factor for kind, one in self.kwh.items()})


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
    found = {}
    for id_ in campaign().configurations:
        spec = run_spec(campaign(), id_, 1)
        drawn = draw_run(spec, model.of(kind_of_spec(spec)), cluster.devices[spec.device])
        kwh = {kind: float(joules) / J_PER_KWH for kind, joules in drawn.joules.items()}
        own = Truth(float(drawn.runtime_s) / 3600, kwh, float(final_metric(spec).value))
        found[id_] = _as_published(own, published.get(id_), spec.gpus)
    return found


def _as_published(own: Truth, row: Mapping[str, Any] | None, gpus: int) -> Truth:
    if row is None:
        return own
    if row["gpu_hours_mean"] is not None:
        own = replace(own, hours=row["gpu_hours_mean"] / gpus)
    if row["energy_kwh_mean"] is not None:
        own = own.times("energy", row["energy_kwh_mean"] / own.total_kwh)
    kinds = {kind: row[f"{kind}_energy_kwh_mean"] for kind in ("gpu", "cpu")}
    known = {kind: kwh for kind, kwh in kinds.items() if kwh is not None}
    if row["metric_last_mean"] is not None:
        own = replace(own, error=row["metric_last_mean"])
    return replace(own, kwh={**own.kwh, **known})


# --- what a campaign measures -------------------------------------------------------------------


class Measured(Mapping[str, Any]):
    """A row of `configurations` whose repeats are summed up when they are looked at."""

    def __init__(self, identity: Mapping[str, Any], runs: Mapping[str, list[float]]):
        repeats = len(runs["runtime_h"]) if runs else 1
        self._found = {**identity, "n_repeats": repeats}
        for known, name in (("n_energies", "energy_kwh"), ("n_metrics", "metric_last")):
            values = runs.get(name, ())
            self._found[known] = sum(value is not None for value in values)
        self.runs = runs

    def __getitem__(self, column: str) -> Any:
        try:
            return self._found[column]
        except KeyError:
            name, _ = _COLUMNS[column]
        summary = summarise(self.runs.get(name) or [None])
        for part in PARTS:
            self._found[f"{name}_{part}"] = getattr(summary, part)
        return self._found[column]

    def __iter__(self) -> Iterator[str]:
        return iter(CONFIGURATIONS.names)

    def __len__(self) -> int:
        return len(CONFIGURATIONS.names)


@dataclass(frozen=True)
class Study:
    """How campaigns are measured."""

    scatter: Mapping[str, Scatter] = field(default_factory=published_scatter)
    correlation: float = CORRELATION
    repeats: int | None = None
    """In place of each configuration's own."""

    def campaigns(
        self, world: World, count: int, seed: int, keep: frozenset[str] | None = None
    ) -> Iterator[Evidence]:
        """Yield the evidence of so many campaigns, with all configurations or these alone."""
        random = np.random.default_rng(seed)
        ids = [id_ for id_ in world if keep is None or id_ in keep]
        drawn = {id_: self._draw(id_, world[id_], count, random) for id_ in ids}
        known = quantities(drawn)
        for number in range(count):
            rows = {
                id_: Measured(
                    _identity(id_), {name: all_[number] for name, all_ in known[id_].items()}
                )
                for id_ in ids
            }
            yield evidence_of(rows)

    def _draw(self, id_: str, truth: Truth, count: int, random: np.random.Generator) -> Runs:
        one = campaign().configurations[id_]
        spread = self.scatter[one.model]
        shape = count, self.repeats or campaign().repeats[id_]
        common = random.standard_normal(shape)
        # Kinds vary for themselves beside what goes with time, so that the total has its spread.
        parts = np.array(list(truth.kwh.values())) / truth.total_kwh
        own = math.sqrt((1 - self.correlation**2) / float(np.sum(parts**2)))
        kwh = {
            kind: each
            * np.exp(
                spread.energy * (self.correlation * common + own * random.standard_normal(shape))
            )
            for kind, each in truth.kwh.items()
        }
        error = truth.error * np.exp(spread.error * random.standard_normal(shape))
        return Runs(truth.hours * np.exp(spread.time * common), kwh, error)


@dataclass(frozen=True)
class Runs:
    """A configuration's runs in many campaigns: hours, kWh by device kind and errors (campaigns, repeats)."""

    hours: Floats
    kwh: Mapping[str, Floats]
    error: Floats


def quantities(drawn: Mapping[str, Runs]) -> dict[str, dict[str, list[list[float]]]]:
    """Return by configuration what the table of runs derives: values (campaigns, repeats), if known."""
    ones = [campaign().configurations[id_] for id_ in drawn]
    sizes = [runs.hours.size for runs in drawn.values()]

    def flat(arrays: Iterable[Floats]) -> pd.Series:
        return pd.Series(np.concatenate([np.ravel(one) for one in arrays]))

    def each(numbers: Iterable[float]) -> pd.Series:
        return pd.Series(np.repeat(np.array(list(numbers), float), sizes))

    hours, error = flat(r.hours for r in drawn.values()), flat(r.error for r in drawn.values())
    joules = {
        kind: J_PER_KWH
        * flat(r.kwh.get(kind, np.full(r.hours.shape, np.nan)) for r in drawn.values())
        for kind in DEVICE_KINDS
    }
    gpus, nodes = each(one.gpus for one in ones), each(one.nodes for one in ones)
    samples = each((one.samples_per_epoch or 0) * one.epochs for one in ones)
    updates = each(one.updates or 0 for one in ones)
    held = hours * gpus
    seconds = hours * 3600
    sockets_s, nodes_s = seconds * SOCKETS_PER_NODE * nodes, seconds * nodes
    work = Work(held, nodes, samples, updates, held * 3600, sockets_s, nodes_s)
    total = pd.DataFrame(joules).sum(axis=1)
    found = {
        **energy_columns(joules, total, work, Facility()),
        "runtime_h": hours,
        "gpu_hours": held,
        "samples_per_gpuh": samples / held,
        "passes_per_gpuh": updates * gpus / held,
        "metric_last": error,
    }
    ends = np.cumsum(sizes)
    known: dict[str, dict[str, list[list[float]]]] = {id_: {} for id_ in drawn}
    for name, column in found.items():
        if column.isna().all():
            continue
        for (id_, runs), own in zip(
            drawn.items(), np.split(column.to_numpy(float), ends[:-1]), strict=True
        ):
            if not np.isnan(own[0]):
                known[id_][name] = own.reshape(runs.hours.shape).tolist()
    return known


@cache
def _identity(id_: str) -> dict[str, Any]:
    one = campaign().configurations[id_]
    spec = run_spec(campaign(), id_, 1)
    unit = np.ones((1, 1))
    drawn = quantities({id_: Runs(unit, dict.fromkeys(SCOPES[one.device].split("+"), unit), unit)})
    found: dict[str, Any] = {
        name: None
        for name in CONFIGURATIONS.names
        if _COLUMNS.get(name, ("",))[0] not in drawn[id_]
    }
    return found | {
        "campaign": "coverage",
        "configuration": id_,
        **{name: getattr(one, name) for name in ("model", "phase", "device", "gpus", "nodes")},
        **{name: getattr(one, name) for name in ("local_batch_size", "global_batch_size")},
        **{name: getattr(one, name) for name in ("dataset_samples", "epochs", "protocol")},
        "precision": spec.settings.get("precision"),
        "loader": "hdf5" if one.model == "fourcastnet" else "pil",
        "energy_origin": "measured",
        "energy_scope": SCOPES[one.device],
        "metric_name": final_metric(spec).name,
        "metric_goal": "min",
        "torch_device": "cuda",
    }


@cache
def _lines() -> tuple[Line, ...]:
    """The campaign's series, with points that know nothing yet."""
    rows = [Measured(_identity(id_), {}) for id_ in campaign().configurations]
    return tuple(
        replace(line, points=tuple(replace(point, varies_seeds=True) for point in line.points))
        for line in lines_of(campaign(), rows)
    )


_no_runs = cache(no_runs)


class Spreads(Mapping[Key, Spread]):
    """What repeats say of single runs, pooled when it is asked for: `evidence.pooled_spreads`, lazily."""

    def __init__(self, rows: Iterable[Row]):
        self._rows = [row for row in rows if row["n_repeats"] > 1]
        self._found: dict[Key, Spread | None] = {}

    def __getitem__(self, key: Key) -> Spread:
        if key not in self._found:
            name, model, phase = str(key[0]), *key[1:3]
            there = [r for r in self._rows if (r["model"], r["phase"]) == (model, phase)]
            own = [summary_of(row, name) for row in there if key_of(row, name) == key]
            self._found[key] = pooled(own)
        spread = self._found[key]
        if spread is None:
            raise KeyError(key)
        return spread

    def __iter__(self) -> Iterator[Key]:
        keys = {key_of(row, name): None for row in self._rows for name in QUANTITIES}
        return (key for key in keys if self.get(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def evidence_of(rows: Mapping[str, Row]) -> Evidence:
    """Return the evidence that has these rows of configurations alone."""
    spreads = Spreads(rows.values())
    points = {
        point.id: replace(point, row=rows[point.id], spreads=spreads)
        for point in _points()
        if point.id in rows
    }
    lines = tuple(
        replace(line, points=tuple(points[p.id] for p in line.points if p.id in points))
        for line in _lines()
    )
    return Evidence(
        "coverage",
        lines=lines,
        points=tuple(points.values()),
        runs=_no_runs(),
        campaign=campaign(),
    )


@cache
def _points() -> tuple[Point, ...]:
    return tuple({point.id: point for line in _lines() for point in line.points}.values())


def exact(world: World, keep: frozenset[str] | None = None) -> Evidence:
    """Return the evidence of a campaign that knows the truth."""
    spreads = {
        one.model: Scatter(EXACT, EXACT, EXACT) for one in campaign().configurations.values()
    }
    study = Study(spreads, repeats=EXACT_REPEATS)
    return next(study.campaigns(world, 1, 0, keep))
