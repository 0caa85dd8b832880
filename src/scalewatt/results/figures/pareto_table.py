"""What quality costs: the metric of each configuration against its energy and its run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.results.figures.figure_schema import PARETO, panel_letter
from scalewatt.results.tables.estimates import is_estimated, quantity_bounds
from scalewatt.results.tables.frames import column_of, to_frame, to_table, values
from scalewatt.results.tables.published import is_overlaid, published_lines
from scalewatt.results.tables.read_table import PUBLISHED
from scalewatt.results.tables.scaling import lines_of, points_of
from scalewatt.results.tables.table_schema import PARTS

COSTS = ("energy_kwh", "runtime_h")
"""The panels of each model and phase, left to right."""
METRIC = "metric_last"


def pareto(definition: dict[str, Any], configurations: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration and cost, under the first series that has the configuration.

    With the option `overlay: published` also the published points of the same trainings, as far as
    both their coordinates are.
    """
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    if is_overlaid(definition):
        published = published_lines(points_of(definition["series"]))
        chosen = pd.concat([chosen, published.drop_duplicates("configuration")], ignore_index=True)
    found = []
    for index, (_, own) in enumerate(chosen.groupby(["model", "phase"], sort=False)):
        for place, cost in enumerate(COSTS):
            panel = panel_letter(index * len(COSTS) + place)
            found.append(_points(own, cost).assign(figure=definition["figure"], panel=panel))
    if not found:
        return to_frame(PARETO.empty_table())
    rows = pd.concat(found, ignore_index=True)
    # A run without a value has a row, which says so; of what was never published there is none.
    complete = rows["x"].notna() & rows["y"].notna()
    rows = rows[complete | (rows["energy_origin"] != PUBLISHED).fillna(True)].reset_index(drop=True)
    return to_frame(to_table(with_front(rows)[PARETO.names], PARETO))


def _points(configurations: pd.DataFrame, cost: str) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for axis, name in (("x", cost), ("y", METRIC)):
        columns |= {f"{axis}_name": name, axis: configurations[f"{name}_mean"]}
        columns |= {f"{axis}_{end}": configurations[f"{name}_{end}"] for end in PARTS[1:]}
    open_ = quantity_bounds(configurations, cost)
    columns |= {f"x_estimate_{end}": open_[end] for end in open_}
    return configurations.assign(**columns)


def with_front(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `non_dominated`: no comparable point of the panel is as good and as cheap.

    Energies compare within one origin and scope alone. Null without a value, of published rows, and of
    estimated energies.
    """
    of_energy = rows["x_name"] == "energy_kwh"
    shown = rows["x"].notna() & rows["y"].notna() & ~(of_energy & is_estimated(rows))
    shown &= (rows["energy_origin"] != PUBLISHED).fillna(True)
    compared = rows[shown]
    goal = compared["metric_goal"]
    keys = [compared["panel"], goal]
    keys += [compared[name].where(of_energy, "") for name in ("energy_origin", "energy_scope")]
    cost, error = compared["x"], compared["y"].where(goal.ne("max").fillna(True), -compared["y"])
    front = pareto_optimal(cost, error, keys)
    return rows.assign(
        non_dominated=column_of(values(front.reindex(rows.index)), pa.bool_(), rows.index)
    )


def cheapest_and_fastest(rows: pd.DataFrame, energy: str, slowness: pd.Series) -> pd.Series:
    """Return which settings no comparable one beats in energy and slowness, by their means.

    Comparable are settings of one model, phase, origin and scope. Null without a value, and of estimated
    energies. `energy` is the column's name; less is better of both.
    """
    points = rows[rows[energy].notna() & slowness.notna() & ~is_estimated(rows)]
    keys = [points[name] for name in ("model", "phase", "energy_origin", "energy_scope")]
    front = pareto_optimal(points[energy], slowness[points.index], keys)
    return column_of(values(front.reindex(rows.index)), pa.bool_(), rows.index)


def pareto_optimal(x: pd.Series, y: pd.Series, keys: list[pd.Series]) -> pd.Series:
    """Return which points no other point of the same `keys` dominates; less is better along both axes."""
    front = pd.Series(index=x.index, dtype=object)
    for _, own in x.groupby(keys, dropna=False, sort=False):
        ours, theirs = own.to_numpy(dtype=np.float64), y[own.index].to_numpy(dtype=np.float64)
        as_good = (ours[:, None] <= ours) & (theirs[:, None] <= theirs)
        better = (ours[:, None] < ours) | (theirs[:, None] < theirs)
        front[own.index] = ~(as_good & better).any(axis=0)
    return front
