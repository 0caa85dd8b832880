"""Read the points to calibrate a scaling model on: a campaign's configurations, or the published ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.tables.frames import read_frame, records
from scalewatt.results.tables.published import REFERENCE, published_configurations
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.model.fit import Point
from scalewatt.scaling.model.terms import (
    Kind,
    Load,
    kind_of_published,
    kind_of_spec,
    load_of,
    load_of_spec,
)

Row = Mapping[str, Any]


def points_of(source: Path) -> list[Point]:
    """Points of a results folder, or of `reference`; configurations without a run time are left out.

    InputError if the source is neither, has no point, lacks the specs of its runs, or has a value that
    no measurement can have.
    """
    table = table_of(source)
    is_published = table == REFERENCE
    frame = published_configurations() if is_published else read_frame(table, CONFIGURATIONS)
    rows = records(frame[frame["runtime_h_mean"].notna()])
    if not rows:
        raise InputError(f"{source}: has no configuration with a run time; expected finished runs")
    return [_published(row) if is_published else _measured(source, row) for row in rows]


def table_of(source: Path) -> Path:
    """The table that a source's points are read from; InputError if it is missing."""
    if source.resolve() in (REFERENCE, REFERENCE.parent):
        return REFERENCE
    table = source / "tables" / "configurations.parquet"
    if not table.is_file():
        raise InputError(
            f"{table}: is missing; expected the folder of a campaign's results (`snakemake tables` makes "
            "it), or reference"
        )
    return table


def _published(row: Row) -> Point:
    names = ("gpus", "nodes", "local_batch_size", "dataset_samples", "epochs")
    load = load_of(*(row[name] for name in names))
    return _point("reference", row, kind_of_published(row), load)


def _measured(source: Path, row: Row) -> Point:
    where = f"{source}: {row['configuration']}"
    # Repeats differ in their number only.
    specs = sorted((source / "runs" / row["configuration"]).glob("*/spec.json"))
    if not specs:
        raise InputError(f"{where}: its runs have no spec.json; expected a whole folder of results")
    spec = read_spec(specs[0])
    load = _load_to_target(row, where) if spec.protocol == TARGET_PROTOCOL else load_of_spec(spec)
    return _point(where, row, kind_of_spec(spec), load)


def _load_to_target(row: Row, where: str) -> Load:
    """Load of runs that stop at a target: the mean samples and updates that they took."""
    rates = [row["samples_per_gpuh_mean"], row["passes_per_gpuh_mean"], row["gpu_hours_mean"]]
    if None in rates:
        raise InputError(f"{where}: the samples and passes that its runs took are not known")
    samples, passes = (rate * rates[2] for rate in rates[:2])
    per_replica, steps = row["gpus_per_replica"] or 1, row["gradient_accumulation_steps"] or 1
    return Load(
        gpus=row["gpus"],
        nodes=row["nodes"],
        local_batch_size=row["local_batch_size"],
        epochs=row["epochs"],
        samples=round(samples),
        updates=round(passes / (row["gpus"] // per_replica) / steps),
        gpus_per_replica=per_replica,
        gradient_accumulation_steps=steps,
    )


def _point(where: str, row: Row, kind: Kind, load: Load) -> Point:
    hours, kwh = (_positive(row, f"{name}_mean", where) for name in ("runtime_h", "energy_kwh"))
    assert hours is not None
    return Point(
        campaign=row["campaign"],
        configuration=row["configuration"],
        kind=kind,
        load=load,
        runtime_s=hours * 3600,
        energy_j=None if kwh is None else kwh * J_PER_KWH,
        origin=row["energy_origin"],
        scope=row["energy_scope"],
    )


def _positive(row: Row, name: str, where: str) -> float | None:
    value = row[name]
    if value is not None and not (math.isfinite(value) and value > 0):
        raise InputError(f"{where}: {name} is {value}; expected more than 0, or null")
    return None if value is None else float(value)
