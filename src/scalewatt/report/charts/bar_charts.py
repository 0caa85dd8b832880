"""Charts beside words: where the energy went."""

from __future__ import annotations

import pandas as pd

from scalewatt.figures import breakdown, prose
from scalewatt.figures import figure_data as data
from scalewatt.report.charts.chart_types import (
    BARS,
    Axis,
    Chart,
    Panel,
    Series,
    configuration_target,
)
from scalewatt.report.charts.curve_charts import OF_BARS, bar_words, point_names
from scalewatt.results.figures.figure_schema import panel_letter

_DARK_KINDS = {"gpu": "#a9c8f7", "cpu": "#f58a72", "ram": "#52d0b7", "node": "#7fa8d8"}
_PALE = 0.8
"""How far shades go towards the page, which may be dark, where those of the figure go to white."""


def breakdown_chart(frame: pd.DataFrame) -> Chart | None:
    """Return a bar for each configuration, by device kind and stage; None where no energy is known."""
    parts = data.drawable(frame)
    parts = parts[parts["energy_kwh"].fillna(0) > 0]
    if parts.empty:
        return None
    there = [kind for kind in breakdown.KINDS if kind in set(parts["device_kind"])]
    series = tuple(
        Series(kind, prose.KIND_WORDS[kind], breakdown.KINDS[kind], _DARK_KINDS[kind])
        for kind in there
    )
    whites = breakdown.shades(parts)
    shown = prose.quantity("energy_kwh", "GPUs", None).fitting(_totals(parts).to_list())
    totals, _ = breakdown.bars_of(parts, data.options(frame).error_bars)
    panels: list[Panel] = []
    for name, label in data.series_labels(parts).items():
        rows = _ordered(parts[parts["series"] == name])
        places = _bars(rows, shown.factor, whites).assign(**_ends(rows, totals, shown.factor))
        longest = places["x_end"].max()
        reach = places[["x_high", "x_open_high"]].max().max()
        # As in the figure, an interval lengthens the axis only so far.
        end = 1.05 * max(longest, min(reach, 2.5 * longest) if reach == reach else longest)
        axes = Axis(shown.label, "linear", (0.0, end)), Axis("")
        panels.append(Panel(panel_letter(len(panels)), *axes, places, BARS, label))
    return Chart(series, tuple(panels), bar_words(frame))


def _ends(rows: pd.DataFrame, totals: pd.DataFrame, factor: float) -> dict[str, pd.Series]:
    """Return from where to where each bar's total goes; `last` is its last part, where that is drawn."""
    of = rows["configuration"].map
    ends = {f"x_{end}": of(totals[f"bar_{end}"]) * factor for end in OF_BARS}
    open_ = {
        f"x_open_{end}": of(totals[f"total_kwh_estimate_{end}"].astype(float)) * factor
        for end in OF_BARS
    }
    return {**ends, **open_, "last": ~rows["configuration"].duplicated(keep="last")}


def _totals(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby("configuration")["energy_kwh"].transform("sum")


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    kinds, stages = list(breakdown.KINDS), list(breakdown.STAGES)
    order = rows["device_kind"].map(kinds.index), rows["stage"].map(stages.index)
    return rows.assign(kind_at=order[0], stage_at=order[1]).sort_values(
        ["gpus", "configuration", "kind_at", "stage_at"], kind="stable"
    )


def _bars(rows: pd.DataFrame, factor: float, whites: dict[str, float]) -> pd.DataFrame:
    """Return the parts of bars: from x to x_end each goes, and what it is."""
    energy = rows["energy_kwh"] * factor
    end = energy.groupby(rows["configuration"]).cumsum()
    names = pd.Series(point_names(rows), rows.index)
    # A bar each: those of one n and batch size that differ in something else have their whole name.
    shared = rows["configuration"].groupby(names).transform("nunique") > 1
    return pd.DataFrame(
        {
            "series": rows["device_kind"],
            "name": names.where(~shared, rows["configuration"]),
            "x": end - energy,
            "x_end": end,
            "energy": energy,
            "y": None,
            "part": rows["stage"],
            "share": (energy / (factor * _totals(rows))).round(4),
            "opacity": [
                round(1 - _PALE * whites[breakdown.STAGES[stage]], 2) for stage in rows["stage"]
            ],
            "origin": rows["energy_origin"],
            "runs": rows["n_repeats"],
            "target": configuration_target(rows["configuration"]),
        }
    )
