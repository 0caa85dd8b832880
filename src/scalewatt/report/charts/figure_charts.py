"""The chart of each figure, as the page's data, and its places as a table for everyone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from scalewatt.report.charts.bar_charts import breakdown_chart
from scalewatt.report.charts.chart_types import BARS, DEFINED, ORIGIN, SLOTS, Chart, Panel
from scalewatt.report.charts.curve_charts import procedures_chart, scaling_chart
from scalewatt.report.charts.scatter_charts import (
    cost_chart,
    operating_chart,
    pareto_chart,
    prediction_chart,
)
from scalewatt.report.charts.time_charts import learning_chart, power_chart
from scalewatt.report.charts.vega_specs import spec_of
from scalewatt.report.html_tables import Cell, Grid, texts
from scalewatt.results.figures.figure_schema import PANELS
from scalewatt.results.text.number_format import number

_CHARTS: dict[str, Callable[[pd.DataFrame], Chart | None]] = {
    "figure1": procedures_chart,
    "figure5": power_chart,
    **dict.fromkeys(PANELS, scaling_chart),
    "breakdown": breakdown_chart,
    "learning": learning_chart,
    "pareto": pareto_chart,
    "cost_per_sample": cost_chart,
    "operating_points": operating_chart,
    "prediction": prediction_chart,
}
MOST_ROWS = 700
"""Places of a chart that are also a table on the page; of more the CSV has all."""
_DIGITS = 6


def chart_of(name: str, frame: pd.DataFrame | None) -> Chart | None:
    """Return the chart of a figure; None without its table, or where nothing is drawn."""
    make = _CHARTS.get(name)
    return None if frame is None or make is None else make(frame)


def charts_json(charts: Mapping[str, Chart]) -> str:
    """Return all charts as the JSON that the page's script reads; safe inside of a script tag."""
    found = {
        name: {
            "dark": [one.dark for one in chart.series],
            "panels": [
                {"spec": spec_of(panel, chart), "columns": _columns(panel.places)}
                for panel in chart.panels
            ],
        }
        for name, chart in charts.items()
    }
    text = json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c")


def _columns(places: pd.DataFrame) -> dict[str, Any]:
    """Return columns: numbers with six digits, texts as an index into those that there are."""
    return {str(name): _column(column) for name, column in places.items()}


def _column(column: pd.Series) -> Any:
    values = [None if pd.isna(value) else value for value in column]
    if all(value is None or isinstance(value, int | float) for value in values):
        return [None if value is None else _rounded(value) for value in values]
    distinct = list(dict.fromkeys(values))
    place = {value: at for at, value in enumerate(distinct)}
    return {"of": distinct, "at": [place[value] for value in values]}


def _rounded(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short == int(short) else short


# --- the table beside -----------------------------------------------------------------------------


def values_grid(name: str, title: str, chart: Chart, anchors: set[str]) -> Grid | None:
    """Return what the chart shows as a table, each point with a link to its row among `anchors`.

    None for more than MOST_ROWS places.
    """
    rows = [row for panel in chart.panels for row in _rows(panel, chart, anchors)]
    if not rows or len(rows) > MOST_ROWS:
        return None
    kept = [at for at in range(len(rows[0])) if any(row[at] is not None for row in rows)]
    headings = ["panel", "series", "point", "across", "value", chart.bars]
    headings += [chart.open, ORIGIN, "runs"]
    shown = [[row[at] for at in kept] for row in rows]
    return texts(f"{name}-values", f"Values of {title}", [headings[at] for at in kept], shown)


def _rows(panel: Panel, chart: Chart, anchors: set[str]) -> list[list[Any]]:
    labels = {one.id: one.label for one in chart.series}
    letter = f"{panel.letter}: " if panel.letter else ""
    aside = panel.kind in (BARS, SLOTS)
    main, ends = "energy" if panel.kind == BARS else "x" if aside else "y", "x" if aside else "y"
    total = " (the total)" if panel.kind == BARS else ""
    unit = panel.x.title if aside else panel.y.title
    found = []
    for row in panel.places.to_dict("records"):
        link = row["target"] if row["target"] in anchors else ""
        part = row.get("part")
        found.append(
            [
                f"{letter}{panel.title or unit}",
                labels.get(row["series"], row["series"]) + (f", {part}" if part else ""),
                Cell(row["name"], link=f"#{link}" if link else ""),
                None if aside else _number(row["x"]),
                _number(row[main]),
                _ends(row, f"{ends}_", total),
                _ends(row, f"{ends}_open_", total),
                None if row["origin"] == DEFINED else _known(row["origin"]),
                _known(row["runs"]),
            ]
        )
    return found


def _number(value: Any) -> Cell | None:
    return None if pd.isna(value) else Cell(number(float(value)), float(value))


def _known(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value


def _ends(row: Mapping[Any, Any], of: str, more: str = "") -> str | None:
    low, high = _known(row.get(f"{of}low")), _known(row.get(f"{of}high"))
    return None if low is None or high is None else f"{number(low, 3)} to {number(high, 3)}{more}"
