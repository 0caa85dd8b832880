"""What quality costs: the metric of each configuration against its energy and its run time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.results.figures.breakdown_table import chosen_runs
from scalewatt.results.figures.figure_schema import COPIED, panel_letter
from scalewatt.results.tables.published import is_overlaid, published_of_series
from scalewatt.results.tables.read_table import PUBLISHED
from scalewatt.results.tables.table_schema import CONFIGURATIONS, PARTS, table

Row = dict[str, Any]

COSTS = ("energy_kwh", "runtime_h")
"""The panels of each model and phase, left to right."""
METRIC = "metric_last"
ENDS = tuple(part for part in PARTS if part != "mean")

PARETO = pa.schema(
    [
        *((name, pa.string()) for name in ("figure", "panel", "series", "label")),
        *((name, CONFIGURATIONS.field(name).type) for name in COPIED),
        *((name, pa.string()) for name in ("metric_name", "metric_goal")),
        *(
            column
            for axis in ("x", "y")
            for column in (
                (f"{axis}_name", pa.string()),
                (axis, pa.float64()),
                *((f"{axis}_{end}", pa.float64()) for end in ENDS),
            )
        ),
        ("non_dominated", pa.bool_()),
    ]
)


def pareto(definition: dict[str, Any], configurations: list[Row], _results: Path) -> pa.Table:
    """One row per configuration and cost, under the first series that has the configuration.

    With the option `overlay: published` also the published points of the same trainings, as far as
    both their coordinates are.
    """
    chosen = [(series, own) for series, own, _ in chosen_runs(definition, configurations)]
    kinds = dict.fromkeys((own["model"], own["phase"]) for _, own in chosen)
    if is_overlaid(definition):
        chosen += _published(definition)
        kinds |= dict.fromkeys((own["model"], own["phase"]) for _, own in chosen)
    rows: list[Row] = []
    for index, kind in enumerate(kinds):
        of_kind = [(s, own) for s, own in chosen if (own["model"], own["phase"]) == kind]
        for place, cost in enumerate(COSTS):
            panel = panel_letter(index * len(COSTS) + place)
            head = {"figure": definition["figure"], "panel": panel}
            points = [head | _point(series, own, cost) for series, own in of_kind]
            rows += with_front([point for point in points if _is_shown(point)])
    return table(rows, PARETO)


def _published(definition: dict[str, Any]) -> list[tuple[Row, Row]]:
    """Each published configuration once, with its first series."""
    found: dict[str, tuple[Row, Row]] = {}
    for series in definition["series"]:
        for row in published_of_series(series):
            found.setdefault(row["configuration"], (series, row))
    return list(found.values())


def _is_shown(point: Row) -> bool:
    """A run without a value has a row, which says so; of what was never published there is none."""
    return point["energy_origin"] != PUBLISHED or None not in (point["x"], point["y"])


def _point(series: Row, own: Row, cost: str) -> Row:
    row = {"series": series["name"], "label": series["label"]}
    row |= {name: own[name] for name in (*COPIED, "metric_name", "metric_goal")}
    for axis, name in (("x", cost), ("y", METRIC)):
        row |= {f"{axis}_name": name, axis: own[f"{name}_mean"]}
        row |= {f"{axis}_{end}": own[f"{name}_{end}"] for end in ENDS}
    return row


def with_front(rows: Sequence[Row]) -> list[Row]:
    """The rows of one panel with `non_dominated`: no comparable one is as good and as cheap.

    Energies compare within one origin and scope alone. Null without a value, and of published rows.
    """
    return [{**row, "non_dominated": _is_on_front(row, rows)} for row in rows]


def _is_on_front(row: Row, rows: Sequence[Row]) -> bool | None:
    if None in (row["x"], row["y"]) or row["energy_origin"] == PUBLISHED:
        return None
    return not any(_dominates(other, row) for other in rows if _comparable(other, row))


def _comparable(one: Row, other: Row) -> bool:
    if None in (one["x"], one["y"]) or one["energy_origin"] == PUBLISHED:
        return False
    keys = ("energy_origin", "energy_scope") if one["x_name"] == "energy_kwh" else ()
    return all(one[key] == other[key] for key in (*keys, "metric_goal"))


def _dominates(one: Row, other: Row) -> bool:
    sign = -1.0 if other["metric_goal"] == "max" else 1.0
    gains = (other["x"] - one["x"], sign * (other["y"] - one["y"]))
    return min(gains) >= 0 and max(gains) > 0
