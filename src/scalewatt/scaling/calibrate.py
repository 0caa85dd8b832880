"""`scalewatt calibrate`: the scaling model from a campaign's configurations, or the published ones.

It is validated at once: points are left out, the rest calibrated, and what was left out predicted.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.tables.frames import read_frame, records
from scalewatt.results.tables.published import REFERENCE, published_configurations
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.model import (
    DRAWS,
    MIN_POINTS,
    SEED,
    Kind,
    KindModel,
    Load,
    Point,
    by_kind,
    calibrate,
    kind_of_published,
    kind_of_spec,
    lacking,
    load_of,
    load_of_spec,
)
from scalewatt.scaling.predict import ScalingModel, estimate, predict, predict_energy, write_model

Row = Mapping[str, Any]

POINT, SERIES, UPPER, LARGEST = "point", "series", "upper half of n", "largest n"
"""Schemes: each point; each series of one LBS or GBS; all n above the middle; the largest n."""
TIME, ENERGY, ENERGY_AT_TIME = "time", "energy", "energy at known time"
_SIZES = ("gpus", "nodes", "local_batch_size", "dataset_samples", "epochs")
SERIES_POINTS = 3
"""The fewest points of a series that is left out."""


def calibrate_sources(sources: Sequence[Path], out: Path) -> str:
    """Calibrate on results, validate, write the model to `out`; the text to print.

    InputError if no kind of training has enough points.
    """
    read = [read_points(source) for source in sources]
    kinds = by_kind(point for points, _ in read for point in points)
    unusable = [reason for _, reasons in read for reason in reasons]
    lacks = [f"{kind.name}: {lack}" for kind, points in kinds.items() if (lack := lacking(points))]
    if len(lacks) == len(kinds):
        raise InputError("; ".join([*unusable, *lacks]))
    models = tuple(
        replace(calibrate(kind, points), scores=tuple(score(validate(kind, points))))
        for kind, points in kinds.items()
        if not lacking(points)
    )
    provenance = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy")},
        "seed": SEED,
        "draws": DRAWS,
        "tables_sha256": {str(source): file_sha256(_table_of(source)) for source in sources},
    }
    write_model(out, ScalingModel(models, tuple(map(str, sources))), provenance)
    left_out = [f"left out: {lack}" for lack in [*unusable, *lacks]]
    return "\n\n".join([*map(_text, models), *left_out, f"{out}: written"])


def _text(model: KindModel) -> str:
    counts = [point.load.gpus for point in model.points]
    title = f"{model.kind.name}: {len(counts)} configurations, n = {min(counts)} to {max(counts)}"
    energy = [] if model.energy else ["its energies are too few to predict any"]
    table = pd.DataFrame(model.scores)
    return "\n".join([title, *energy, table.to_string(index=False, float_format="{:.1%}".format)])


# --- points ---------------------------------------------------------------------------------------


def read_points(source: Path) -> tuple[list[tuple[Kind, Point]], list[str]]:
    """Kinds and points of a results folder, or of `reference`, but for configurations without a run time.

    Then why others are no points: their samples are not known. InputError if the source is neither, has no
    run time, lacks the specs of its runs, or has a value that no measurement can have.
    """
    table = _table_of(source)
    is_published = table == REFERENCE
    frame = published_configurations() if is_published else read_frame(table, CONFIGURATIONS)
    rows = records(frame[frame["runtime_h_mean"].notna()])
    if not rows:
        raise InputError(f"{source}: has no configuration with a run time; expected finished runs")
    points, unusable = [], []
    for row in rows:
        where = f"{source}: {row['configuration']}"
        if is_published:
            kind, load = kind_of_published(row), load_of(*(row[name] for name in _SIZES))
        else:
            spec = _spec_of(source, row, where)
            kind = kind_of_spec(spec)
            try:
                is_to_target = spec.protocol == TARGET_PROTOCOL
                load = _load_to_target(row, where) if is_to_target else load_of_spec(spec)
            except InputError as error:
                unusable.append(str(error))
                continue
        hours, kwh = row["runtime_h_mean"], row["energy_kwh_mean"]
        for name, value in (("runtime_h_mean", hours), ("energy_kwh_mean", kwh)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{where}: {name} is {value}; expected more than 0, or null")
        point = Point(
            **{name: row[name] for name in ("campaign", "configuration")},
            **{name: row[f"energy_{name}"] for name in ("origin", "scope")},
            load=load,
            runtime_s=hours * 3600,
            energy_j=None if kwh is None else kwh * J_PER_KWH,
        )
        points.append((kind, point))
    return points, unusable


def _table_of(source: Path) -> Path:
    """The table that a source's points are read from."""
    is_published = source.resolve() in (REFERENCE, REFERENCE.parent)
    return REFERENCE if is_published else source / "tables" / "configurations.parquet"


def _spec_of(source: Path, row: Row, where: str) -> RunSpec:
    # Repeats differ only in their number.
    specs = sorted((source / "runs" / row["configuration"]).glob("*/spec.json"))
    if not specs:
        raise InputError(f"{where}: its runs have no spec.json; expected a whole folder of results")
    return read_spec(specs[0])


def _load_to_target(row: Row, where: str) -> Load:
    """Load of runs that stop at a target: the mean samples and updates that they took."""
    rates = [row["samples_per_gpuh_mean"], row["passes_per_gpuh_mean"], row["gpu_hours_mean"]]
    if None in rates:
        raise InputError(f"{where}: the samples and passes that its runs took are not known")
    samples, passes = (rate * rates[2] for rate in rates[:2])
    per_replica, steps = row["gpus_per_replica"] or 1, row["gradient_accumulation_steps"] or 1
    return Load(
        **{name: row[name] for name in ("gpus", "nodes", "local_batch_size", "epochs")},
        samples=round(samples),
        updates=round(passes / (row["gpus"] // per_replica) / steps),
        gpus_per_replica=per_replica,
        gradient_accumulation_steps=steps,
    )


# --- validation -----------------------------------------------------------------------------------


def folds(points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Yield the points that are left out together, with the scheme."""
    for point in points:
        yield POINT, [point]
    series: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        lbs = point.load.local_batch_size
        series.setdefault(("LBS", lbs), []).append(point)
        series.setdefault(("GBS", lbs * point.load.replicas), []).append(point)
    for of_series in series.values():
        if SERIES_POINTS <= len(of_series) < len(points):
            yield SERIES, of_series
    counts = sorted({point.load.gpus for point in points})
    middle = (counts[0] * counts[-1]) ** 0.5
    yield UPPER, [point for point in points if point.load.gpus > middle]
    yield LARGEST, [point for point in points if point.load.gpus == counts[-1]]


def validate(
    kind: Kind, points: Sequence[Point], schemes: Iterable[str] = (POINT, SERIES, UPPER, LARGEST)
) -> pd.DataFrame:
    """A row for each prediction of a left-out point: scheme, quantity, error, covered.

    The terms are selected anew from the rest.
    """
    rows = []
    for scheme, left_out in folds(points):
        rest = [point for point in points if point not in left_out]
        if scheme in schemes and len(rest) >= MIN_POINTS - (scheme == POINT):
            model = calibrate(kind, rest, few=True)
            rows += [(scheme, *row) for point in left_out for row in _errors(model, point)]
    return pd.DataFrame(rows, columns=["scheme", "quantity", "error", "covered"])


def _errors(model: KindModel, point: Point) -> Iterator[tuple[str, float, bool]]:
    """By quantity the relative error of a prediction, and whether its interval holds the point."""
    predicted = predict(model, [point.load])
    times_s = np.array([point.runtime_s])
    at_time = predict_energy(model, [point.load], times_s, np.random.default_rng(1))
    for quantity, value, draws in (
        (TIME, point.runtime_s, predicted.runtime_s),
        (ENERGY, point.energy_j, predicted.energy_j),
        (ENERGY_AT_TIME, point.energy_j, at_time),
    ):
        if value is not None and draws is not None:
            interval = estimate(draws[:, 0])
            yield quantity, interval.median / value - 1, interval.holds(value)


def score(validated: pd.DataFrame) -> list[dict[str, Any]]:
    """Errors of each scheme and quantity: points, mean_error, largest_error, and covered.

    `covered` is the share of the points in their nominal 90 % intervals.
    """
    sizes = validated.assign(size=validated["error"].abs())
    table = sizes.groupby(["scheme", "quantity"], sort=False).agg(
        points=("size", "count"),
        mean_error=("size", "mean"),
        largest_error=("size", "max"),
        covered=("covered", "mean"),
    )
    rows: list[dict[str, Any]] = table.reset_index().to_dict("records")  # type: ignore[assignment]
    return rows
