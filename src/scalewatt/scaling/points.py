"""The points that a scaling model is calibrated on: configurations of a campaign, or the published ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.spec import read_spec
from scalewatt.energy.samples import DEVICE_KINDS, J_PER_KWH
from scalewatt.errors import InputError
from scalewatt.results.checked import CONFIGURATION_KEY, read_checked
from scalewatt.results.published import REFERENCE, published_configurations
from scalewatt.results.schema import CONFIGURATIONS
from scalewatt.scaling.kind import Kind, kind_of_row, kind_of_spec
from scalewatt.scaling.load import Load

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """What one configuration took: means over its repeats, energies in J, null where not known."""

    source: str
    configuration: str
    kind: Kind
    load: Load
    runtime_s: float
    energy_j: float | None
    joules: Mapping[str, float | None]
    """By device kind."""
    origin: str | None
    scope: str | None
    n_repeats: int
    assumed_settings: bool = False
    """Whether its spec was not there, so that settings are taken to be the model's defaults."""


def points_of(source: Path) -> list[Point]:
    """The points of a results folder, of a table of configurations, or of `reference`.

    Points without a run time are left out. InputError where the source is none of these, has
    no point, or has a value that no measurement can have.
    """
    if source.resolve() in (REFERENCE, REFERENCE.parent):
        name, rows, folder = "published", published_configurations(), None
    else:
        name, rows, folder = str(source), *_table(source)
    found = [_point(name, row, folder) for row in rows if row["runtime_h_mean"] is not None]
    if not found:
        raise InputError(f"{source}: has no configuration with a run time; expected finished runs")
    return found


def _table(source: Path) -> tuple[list[dict[str, Any]], Path | None]:
    """The rows, and the folder of runs where there is one."""
    table = source
    if source.is_dir():
        table = source / "tables" / "configurations.parquet"
        if not table.is_file():
            raise InputError(
                f"{source}: has no tables/configurations.parquet; expected results of a campaign "
                "(snakemake … tables makes it), such a table, or the folder reference"
            )
    rows = read_checked(table, CONFIGURATIONS, unique=CONFIGURATION_KEY).to_pylist()
    runs = table.resolve().parents[1] / "runs"
    return rows, runs if runs.is_dir() else None


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
        configuration=row["configuration"],
        kind=kind_of_row(row) if spec is None else kind_of_spec(spec),
        load=_load(row, where),
        runtime_s=runtime_s,
        energy_j=_joules(row, "energy_kwh_mean", where),
        joules=joules,
        origin=row["energy_origin"],
        scope=row["energy_scope"],
        n_repeats=row["n_repeats"],
        assumed_settings=spec is None and source != "published",
    )


def _spec(runs: Path | None, configuration: str) -> dict[str, Any] | None:
    """The spec of the first repeat that is there: repeats differ in their number alone."""
    folder = None if runs is None else runs / configuration
    if folder is None or not folder.is_dir():
        return None
    return next((read_spec(path) for path in sorted(folder.glob("*/spec.json"))), None)


def _joules(row: Row, name: str, where: str) -> float | None:
    kwh = row[name]
    if kwh is None:
        return None
    if not (math.isfinite(kwh) and kwh >= 0):
        raise InputError(f"{where}: {name} is {kwh}; expected a number that is not negative")
    return kwh * J_PER_KWH


def _load(row: Row, where: str) -> Load:
    names = ("gpus", "nodes", "local_batch_size", "dataset_samples", "epochs")
    for name in names:
        if row[name] is None:
            raise InputError(f"{where}: {name} is not known; the scaling model needs it")
        if row[name] < 1:
            raise InputError(f"{where}: {name} is {row[name]}; expected at least 1")
    share = row["dataset_samples"] // row["gpus"]
    each = -(-share // row["local_batch_size"])
    return Load(
        gpus=row["gpus"],
        nodes=row["nodes"],
        local_batch_size=row["local_batch_size"],
        epochs=row["epochs"],
        samples=share * row["gpus"] * row["epochs"],
        updates=each * row["epochs"],
    )


def by_kind(points: Iterable[Point]) -> dict[Kind, list[Point]]:
    """The points of each kind, in order.

    InputError where energies of several origins or scopes would be one model's.
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
