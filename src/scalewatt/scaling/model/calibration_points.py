"""Points to calibrate a scaling model on: configurations of a campaign, or the published ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import REFERENCE, published_configurations
from scalewatt.results.tables.read_table import read_checked
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.scaling.model.cost_terms import Load, load_of, load_of_spec
from scalewatt.scaling.model.kind_model import Point
from scalewatt.scaling.model.training_kind import Kind, kind_of_row, kind_of_spec

Row = Mapping[str, Any]


def points_of(source: Path) -> list[Point]:
    """Return the points of a results folder, of a table of configurations, or of `reference`.

    Points without a run time are left out. InputError if the source is none of these, has
    no point, or has a value that no measurement can have.
    """
    table = table_of(source)
    if table == REFERENCE:
        name, rows, folder = "published", records(published_configurations()), None
    else:
        rows = read_checked(table, CONFIGURATIONS).to_pylist()
        name, folder = str(source), table.resolve().parents[1] / "runs"
    found = [_point(name, row, folder) for row in rows if row["runtime_h_mean"] is not None]
    if not found:
        raise InputError(f"{source}: has no configuration with a run time; expected finished runs")
    return found


def table_of(source: Path) -> Path:
    """Return the table that a source's points are read from; InputError if it is missing."""
    if source.resolve() in (REFERENCE, REFERENCE.parent):
        return REFERENCE
    if not source.is_dir():
        return source
    table = source / "tables" / "configurations.parquet"
    if not table.is_file():
        raise InputError(
            f"{source}: has no tables/configurations.parquet; expected results of a campaign "
            "(snakemake … tables makes it), such a table, or the folder reference"
        )
    return table


def _point(source: str, row: Row, runs: Path | None) -> Point:
    where = f"{source}: {row['configuration']}"
    spec = _spec(runs, row["configuration"])
    runtime_s = row["runtime_h_mean"] * 3600
    joules = {kind: _joules(row, f"{kind}_energy_kwh_mean", where) for kind in DEVICE_KINDS}
    if not (math.isfinite(runtime_s) and runtime_s > 0):
        raise InputError(
            f"{where}: runtime_h_mean is {row['runtime_h_mean']}; expected more than 0"
        )
    return Point(
        source=source,
        campaign=row["campaign"],
        configuration=row["configuration"],
        kind=kind_of_row(row) if spec is None else kind_of_spec(spec),
        load=_load(row, where, spec),
        runtime_s=runtime_s,
        energy_j=_joules(row, "energy_kwh_mean", where),
        joules=joules,
        origin=row["energy_origin"],
        scope=row["energy_scope"],
        n_repeats=row["n_repeats"],
        spec_sha256=None if spec is None else spec.sha256,
        assumed_settings=spec is None and source != "published",
    )


def _spec(runs: Path | None, configuration: str) -> RunSpec | None:
    """Return the spec of the first repeat that exists: repeats differ in their number only."""
    folder = None if runs is None else runs / configuration
    if folder is None or not folder.is_dir():
        return None
    return next((read_spec(path) for path in sorted(folder.glob("*/spec.json"))), None)


def _joules(row: Row, name: str, where: str) -> float | None:
    kwh = row[name]
    if kwh is None:
        return None
    if not (math.isfinite(kwh) and kwh > 0):
        raise InputError(f"{where}: {name} is {kwh}; expected more than 0, or null")
    return float(kwh) * J_PER_KWH


def _load(row: Row, where: str, spec: RunSpec | None) -> Load:
    """Return the load by the spec, else by the row; of a run to a target by the work that it took."""
    if row["protocol"] == TARGET_PROTOCOL:
        return _load_to_target(row, where)
    if spec is not None:
        return load_of_spec(spec)
    _check_known(row, where, "gpus", "nodes", "local_batch_size", "dataset_samples", "epochs")
    return load_of(
        *(row["gpus"], row["nodes"], row["local_batch_size"], row["dataset_samples"]),
        *(row["epochs"], row["gpus_per_replica"] or 1, row["gradient_accumulation_steps"] or 1),
    )


def _load_to_target(row: Row, where: str) -> Load:
    """Return the load of runs that stop at a target: the mean samples and updates that they took."""
    rates = ("samples_per_gpuh_mean", "passes_per_gpuh_mean", "gpu_hours_mean")
    _check_known(row, where, "gpus", "nodes", "local_batch_size", "epochs")
    for name in rates:
        if row[name] is None:
            raise InputError(
                f"{where}: {name} is not known; the scaling model needs it of a target"
            )
    per_replica, steps = row["gpus_per_replica"] or 1, row["gradient_accumulation_steps"] or 1
    samples, passes = (row[name] * row["gpu_hours_mean"] for name in rates[:2])
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


def _check_known(row: Row, where: str, *names: str) -> None:
    for name in names:
        if row[name] is None:
            raise InputError(f"{where}: {name} is not known; the scaling model needs it")
        if row[name] < 1:
            raise InputError(f"{where}: {name} is {row[name]}; expected at least 1")


def by_kind(points: Iterable[Point]) -> dict[Kind, list[Point]]:
    """Return the points of each kind, in order.

    InputError if energies of several origins or scopes would be one model's.
    """
    found: dict[Kind, list[Point]] = {}
    for point in points:
        found.setdefault(point.kind, []).append(point)
    for kind, own in found.items():
        for what in ("origin", "scope"):
            _check_alike(kind, own, what)
    return found


def _check_alike(kind: Kind, points: Iterable[Point], what: str) -> None:
    first: dict[str, Point] = {}
    for point in points:
        if point.energy_j is not None:
            first.setdefault(getattr(point, what), point)
    if len(first) > 1:
        examples = ", ".join(
            f"{value} ({point.source}: {point.configuration})" for value, point in first.items()
        )
        raise InputError(
            f"{kind.name}: energies of several {what}s: {examples}; expected one: "
            "calibrate on sources that agree"
        )
