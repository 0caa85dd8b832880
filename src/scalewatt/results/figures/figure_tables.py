"""The points of each figure, from configurations' means. Contents: the paper's Figures 1 to 7."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.results.figures.extra_tables import BUILDERS
from scalewatt.results.figures.figure_schema import (
    COPIED,
    OVERVIEW,
    PANELS,
    POINTS,
    TABLE1,
    TABLE1_QUANTITIES,
    Panel,
)
from scalewatt.results.figures.power_trace import power
from scalewatt.results.figures.variants_table import variants
from scalewatt.results.tables.published import (
    is_overlaid,
    published_of,
    published_of_series,
    timed_alike,
)
from scalewatt.results.tables.scaling import speedup
from scalewatt.results.tables.table_schema import SUMMARY, table

Row = dict[str, Any]


def points(definition: dict[str, Any], configurations: list[Row]) -> pa.Table:
    """One row per plotted point; configurations without finished runs have none.

    With the option `overlay: published`, after each series' own points those that the paper published
    of the same trainings, as far as it says both coordinates.
    """
    by_id = {row["configuration"]: row for row in configurations}
    rows: list[Row] = []
    for panel in PANELS[definition["figure"]]:
        for series in definition["series"]:
            own = [
                by_id[p["configuration"]] for p in series["points"] if p["configuration"] in by_id
            ]
            rows += [_point(definition["figure"], panel, series, row, own[0]) for row in own]
            if is_overlaid(definition):
                rows += _published(definition["figure"], panel, series)
    return table(rows, POINTS)


def _published(figure: str, panel: Panel, series: Row) -> list[Row]:
    """A panel's published points of a series; a speed-up takes run times of two n or more."""
    found = published_of_series(series)
    if panel.y_name == "speedup":
        found = timed_alike(found)
        found = found if len(found) > 1 else []
    drawn = [_point(figure, panel, series, row, found[0]) for row in found]
    return [row for row in drawn if row["x"] is not None and row["y"] is not None]


def _point(figure: str, panel: Panel, series: Row, row: Row, smallest: Row) -> Row:
    value = _speedup(row, smallest) if panel.y_name == "speedup" else _stored(row, panel.y_name)
    x = row[panel.x_name] if panel.x_name in row else row[f"{panel.x_name}_mean"]
    return {
        "figure": figure,
        "panel": panel.letter,
        "series": series["name"],
        "label": series["label"],
        **{name: row[name] for name in COPIED},
        "x_name": panel.x_name,
        "x": None if x is None else float(x),
        "y_name": panel.y_name,
        **value,
    }


def _stored(row: Row, name: str) -> Row:
    return {
        "y": row[f"{name}_mean"],
        "y_sd": row[f"{name}_sd"],
        "y_low": row[f"{name}_low"],
        "y_high": row[f"{name}_high"],
        "y_population_sd": row[f"{name}_population_sd"],
    }


def _speedup(row: Row, smallest: Row) -> Row:
    found = speedup(row, smallest)
    ends = {"y_sd": found.sd, "y_low": found.low, "y_high": found.high}
    return {"y": found.mean, **ends, "y_population_sd": None}


def overview(definition: dict[str, Any], _configurations: list[Row]) -> pa.Table:
    """Figure 1: what happens to batch sizes, data and updates along each series."""
    rows = []
    for series in definition["series"]:
        for point in series["points"]:
            said = {**point, **series, "figure": definition["figure"], "series": series["name"]}
            rows.append({name: said[name] for name in OVERVIEW.names})
    return table(rows, OVERVIEW)


def table1(definition: dict[str, Any], configurations: list[Row]) -> pa.Table:
    """Table 1: one row per chosen configuration, means over its repeats.

    With the option `overlay: published`, after each of them the published row of the same training.
    """
    by_id = {row["configuration"]: row for row in configurations}
    rows = []
    for point in definition["points"]:
        if point["configuration"] in by_id:
            rows.append(_table1_row(by_id[point["configuration"]]))
        if is_overlaid(definition):
            rows += [_table1_row(row) for row in published_of([point])]
    return table(rows, TABLE1)


def _table1_row(row: Row) -> Row:
    copied = ("device", "gpus", "local_batch_size", "global_batch_size")
    kept = ("configuration", "n_repeats", "energy_origin", "energy_scope")
    return {name: row[name] for name in (*copied, *kept)} | {
        name + end: row[f"{name}_{part}"]
        for name in TABLE1_QUANTITIES
        for end, part in zip(("", "_sd", "_low", "_high"), SUMMARY, strict=True)
    }


def builder(figure: str, results: Path) -> Callable[[dict[str, Any], list[Row]], pa.Table]:
    """What builds the table of `figure`."""
    if figure in PANELS:
        return points
    if figure == "figure5":
        return lambda definition, rows: power(definition, rows, results)
    if figure in BUILDERS:
        return lambda definition, rows: BUILDERS[figure](definition, rows, results)
    return {"figure1": overview, "table1": table1, "variants": variants}[figure]
