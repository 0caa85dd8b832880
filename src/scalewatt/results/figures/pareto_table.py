"""What quality costs: the metric of each configuration against its energy and its run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.recordings.series import Floats
from scalewatt.results.figures.figure_schema import PARETO, panel_letter
from scalewatt.results.tables.estimates import ORIGINS, energy_ratio_bounds, quantity_bounds
from scalewatt.results.tables.frames import column_of, records, to_frame, to_table
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

    Energies compare within one origin and scope alone. Null without a value, of published rows, and
    where the intervals of estimated energies do not tell. `rows` have the columns of their configurations.
    """
    shown = rows["x"].notna() & rows["y"].notna()
    shown &= (rows["energy_origin"] != PUBLISHED).fillna(True)
    compared = rows[shown]
    of_energy = compared["x_name"] == "energy_kwh"
    keys = [compared["panel"], compared["metric_goal"]]
    keys += [compared[name].where(of_energy, "") for name in ("energy_origin", "energy_scope")]
    front = pd.Series(index=rows.index, dtype=pd.ArrowDtype(pa.bool_()))
    for _, own in compared.groupby(keys, dropna=False, sort=False):
        front[own.index] = column_of(is_on_front(own), pa.bool_(), own.index)
    return rows.assign(non_dominated=front)


def is_on_front(rows: pd.DataFrame) -> list[bool | None]:
    """Return for points that compare which no other dominates; None where estimates leave it open."""
    x = rows["x"].to_numpy(dtype=np.float64)
    y = rows["y"].to_numpy(dtype=np.float64)
    y = -y if rows["metric_goal"].iloc[0] == "max" else y
    least, most = _cost_ratios(rows, x)
    as_good, better = y[:, None] <= y, y[:, None] < y
    surely = (((most <= 1) & as_good) & ((most < 1) | better)).any(axis=0)
    perhaps = (((least <= 1) & as_good) & ((least < 1) | better)).any(axis=0)
    return [
        False if sure else None if open_ else True
        for sure, open_ in zip(np.asarray(surely), np.asarray(perhaps), strict=True)
    ]


def _cost_ratios(rows: pd.DataFrame, x: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest ratio of the costs of every two points (n, n), row over column.

    Of estimated energies these differ; where an interval is not known anything is possible.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = np.where(x[:, None] == x, 1.0, x[:, None] / x)
    of_energy = (rows["x_name"] == "energy_kwh").all()
    if not of_energy or not rows["energy_origin"].isin(ORIGINS).any():
        return plain, plain
    points = records(rows)
    ends = [
        [energy_ratio_bounds(one, other) or (0.0, np.inf) for other in points] for one in points
    ]
    found = np.array(ends, dtype=np.float64)
    return found[..., 0], found[..., 1]
