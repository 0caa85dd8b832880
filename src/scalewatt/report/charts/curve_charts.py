"""Charts of figures 1 to 4, 6 and 7: a line for each series over n, hours or samples."""

from __future__ import annotations

import pandas as pd

from scalewatt.figures import curves, prose
from scalewatt.figures import figure_data as data
from scalewatt.report.charts.chart_types import (
    CURVES,
    DEFINED,
    Chart,
    Panel,
    configuration_target,
    ends_of,
    fitted,
    series_of,
)
from scalewatt.report.summary_section import model_words
from scalewatt.results.figures.figure_schema import PANELS, panel_letter
from scalewatt.results.figures.figure_schema import Panel as Quantities

_PROCEDURES = {
    "local_batch_size": "Local batch size",
    "global_batch_size": "Global batch size",
    "dataset_samples": "Training samples",
    "samples_per_gpu": "Samples per GPU",
    "updates": "Updates",
}
"""What figure 1 tells of each n."""
OF_BARS = ("low", "high")


def point_names(rows: pd.DataFrame) -> list[str]:
    """Return what points are: n and local batch size."""
    return [f"n = {row.gpus}, LBS {row.local_batch_size}" for row in data.each(rows)]


def training_of(rows: pd.DataFrame) -> str:
    """Return the model and phase of rows that have these in common."""
    first = rows.iloc[0]
    return model_words({"model": first["model"], "phase": first["phase"]})


def scaling_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the chart of a figure of curves; None without any point."""
    points = data.points_of(frame)
    if points.empty:
        return None
    lone, unlike = data.lone_speedups(points), data.unlike_metrics(points)
    points = points[~lone & ~unlike].sort_values(["gpus", "x"], kind="stable")
    shown = [one for one in PANELS[frame["figure"].iloc[0]] if _rows(points, one).shape[0]]
    everything = data.drawable(frame)
    looks = series_of(data.series_labels(everything), data.series_places(everything))
    panels = tuple(_panel(one, points, frame) for one in shown)
    return Chart(looks, panels, bar_words(frame)) if panels else None


def bar_words(frame: pd.DataFrame) -> str:
    """Return what the error bars of a figure are, in a few words."""
    words = prose.BAR_WORDS.get(data.options(frame).error_bars, "")
    return words.partition(" over")[0].partition(" of the")[0] or "95 % interval"


def _rows(points: pd.DataFrame, panel: Quantities) -> pd.DataFrame:
    return points[(points["panel"] == panel.letter) & points["valued"]]


def _panel(panel: Quantities, points: pd.DataFrame, frame: pd.DataFrame) -> Panel:
    rows = _rows(points, panel)
    models = points["model"].unique()
    model = models[0] if len(models) == 1 else None
    word, metric = data.gpu_word(frame), frame.attrs.get("metric_name")
    everywhere = points.loc[points["valued"] & (points["x_name"] == panel.x_name), "x"]
    x = prose.quantity(panel.x_name, word, model, metric).fitting(everywhere.to_list())
    y = prose.quantity(panel.y_name, word, model, metric).fitting(rows["y"].to_list())
    places = pd.DataFrame(
        {
            "series": rows["series"],
            "name": point_names(rows),
            "x": rows["x"] * x.factor,
            "y": rows["y"] * y.factor,
            "origin": rows["drawn_origin"],
            "runs": rows["n_repeats"],
            "target": configuration_target(rows["configuration"]),
            "line": _stretches(points, panel).reindex(rows.index),
            **{f"y_{end}": rows[f"y_bar_{end}"] * y.factor for end in OF_BARS},
            **{f"y_open_{end}": rows[f"y_estimate_{end}"] * y.factor for end in OF_BARS},
        }
    )
    is_speedup = panel.y_name == "speedup"
    ends = ends_of(places, "y") + (places["x"].to_list() if is_speedup else [])
    return Panel(
        panel.letter,
        fitted(x.label, x.scale, everywhere * x.factor),
        fitted(y.label, y.scale, ends, y.from_zero),
        places,
        CURVES,
        ideal=is_speedup,
    )


def _stretches(points: pd.DataFrame, panel: Quantities) -> pd.Series:
    """Return what is joined by a line: points of one series and origin, as the figure joins them."""
    rows = points[points["panel"] == panel.letter]
    rows = curves.with_stretches(rows, curves.planned_gpus(points))
    # Published points are not joined.
    own = rows["drawn_origin"].fillna("") + rows["stretch"].astype(str)
    return own.where(~rows["published"], "published" + rows["configuration"])


def procedures_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the chart of figure 1: batch sizes, samples and updates over n; None without any series."""
    rows = data.drawable(frame).sort_values("gpus", kind="stable")
    word = data.gpu_word(frame)
    x = prose.quantity("gpus", word, None)
    panels: list[Panel] = []
    for name, words in _PROCEDURES.items():
        own = rows[rows[name].notna()]
        if own.empty:
            continue
        places = pd.DataFrame(
            {
                "series": own["series"],
                "name": point_names(own),
                "x": own["gpus"].astype(float),
                "y": own[name].astype(float),
                "origin": DEFINED,
                "runs": None,
                "target": None,
                "line": "",
            }
        )
        title = words.replace("GPU", prose.singular(word))
        x_axis, y_axis = fitted(x.label, x.scale, places["x"]), fitted(title, "log", places["y"])
        panels.append(Panel(panel_letter(len(panels)), x_axis, y_axis, places))
    looks = series_of(data.series_labels(rows), data.series_places(rows))
    return Chart(looks, tuple(panels)) if panels else None
