"""Charts of points: Pareto fronts, cost per sample, operating points, and predictions."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import Any

import pandas as pd

from scalewatt.campaign.operating_points import label_of
from scalewatt.figures import figure_data as data
from scalewatt.figures import prose
from scalewatt.figures.cost.cost_points import (
    ENERGY,
    RATE,
    asked_of,
    batches_between,
    ordered_lines,
    worded,
)
from scalewatt.report.charts.chart_types import (
    CURVES,
    POINTS,
    Chart,
    Panel,
    configuration_target,
    ends_of,
    fitted,
    series_of,
)
from scalewatt.report.charts.curve_charts import OF_BARS, bar_words, point_names, training_of
from scalewatt.report.summary_section import model_words
from scalewatt.results.figures.figure_schema import panel_letter
from scalewatt.results.figures.operating_points_table import TRAINING
from scalewatt.scaling.model.scores import NOMINAL

_FOUND = {"runtime_h": "run time", "energy_kwh": "energy"}


def pareto_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the metric against energy and run time, Pareto-optimal points joined; None without any."""
    points = data.points_of(frame, "xy")
    panels: list[Panel] = []
    for letter, rows in data.groups(points[points["valued"]], "panel"):
        first = rows.iloc[0]
        cost = prose.quantity(first["x_name"], data.gpu_word(frame), first["model"])
        cost = cost.fitting(rows["x"].to_list())
        of_energy = first["x_name"] == "energy_kwh"
        kinds = rows["energy_origin"].map(str) + ", " + rows["energy_scope"].map(str)
        front = (kinds if of_energy else pd.Series("all", rows.index)).astype(object)
        places = _places(rows).assign(
            x=rows["x"] * cost.factor,
            y=rows["y"],
            front=front.where(rows["non_dominated"].eq(True), None),
            **{f"x_{end}": rows[f"x_bar_{end}"] * cost.factor for end in OF_BARS},
            **{f"y_{end}": rows[f"y_bar_{end}"] for end in OF_BARS},
            **{f"x_open_{end}": rows[f"x_estimate_{end}"] * cost.factor for end in OF_BARS},
        )
        axes = (
            fitted(cost.label, "log", ends_of(places, "x")),
            fitted(prose.metric_words(rows), "linear", ends_of(places, "y")),
        )
        against = "energy" if of_energy else "run time"
        title = f"{training_of(rows)}: {axes[1].title} against {against}"
        panels.append(Panel(letter, *axes, places, POINTS, title))
    looks = series_of(data.series_labels(points), data.series_places(points))
    return Chart(looks, tuple(panels), bar_words(frame)) if panels else None


def _places(rows: pd.DataFrame) -> pd.DataFrame:
    origin = rows["drawn_origin"] if "drawn_origin" in rows else rows["energy_origin"]
    return pd.DataFrame(
        {
            "series": rows["series"],
            "name": point_names(rows),
            "origin": origin,
            "runs": rows["n_repeats"],
            "target": configuration_target(rows["configuration"]),
        },
        rows.index,
    )


def cost_chart(frame: pd.DataFrame) -> Chart | None:
    """Return energy per sample against throughput and batch size, by model; None without any point."""
    points = worded(data.drawable(frame))
    points = points[points[f"{ENERGY}_mean"].notna() & points[f"{RATE}_mean"].notna()]
    points = points.assign(series=points["setting"])
    absent = data.not_drawn(frame, points)
    labels = {str(one): str(one) or "default" for one in points["setting"].unique()}
    panels: list[Panel] = []
    for model, rows in data.groups(points, "model"):
        line = pd.Series(_stretches(rows, absent), dtype=object).reindex(rows.index)
        places = _with_ends(_places(rows).assign(line=line), rows, "y", ENERGY, 1.0)
        by_rate = _with_ends(places, rows, "x", RATE, 1.0)
        best = rows["pareto_optimal"].eq(True)
        by_rate["front"] = rows["phase"].astype(object).where(best, None)
        by_batch = places.assign(x=rows["local_batch_size"].astype(float))
        for own, title, scale, kind in (
            (by_rate, "Samples per second", "log", POINTS),
            (by_batch.sort_values("x", kind="stable"), "Local batch size", "log2", CURVES),
        ):
            x = fitted(title, scale, ends_of(own, "x"))
            y = fitted("Energy per sample (J)", "log", ends_of(own, "y"))
            heading = f"{model}: energy per sample (J) against {title.lower()}"
            panels.append(Panel(panel_letter(len(panels)), x, y, own, kind, heading))
    return Chart(series_of(labels), tuple(panels)) if panels else None


def _stretches(rows: pd.DataFrame, absent: Sequence[str]) -> dict[Any, str]:
    """Return by index what is joined over batch sizes: no line passes one that is missing."""
    found: dict[Any, str] = {}
    for _, own in rows.groupby("setting", sort=False):
        gaps = sorted(batches_between(own, absent))
        found |= {at: str(bisect(gaps, batch)) for at, batch in own["local_batch_size"].items()}
    return found


def _with_ends(
    places: pd.DataFrame, rows: pd.DataFrame, axis: str, column: str, factor: float
) -> pd.DataFrame:
    """Add the mean of a quantity, its interval, and that of its estimate, along an axis."""
    named = {
        axis: f"{column}_mean",
        f"{axis}_low": f"{column}_low",
        f"{axis}_high": f"{column}_high",
    }
    named |= {f"{axis}_open_{end}": f"{column}_estimate_{end}" for end in OF_BARS}
    there = {name: source for name, source in named.items() if source in rows}
    return places.assign(**{n: rows[source].astype(float) * factor for n, source in there.items()})


def operating_chart(frame: pd.DataFrame) -> Chart | None:
    """Return energy against time over clocks and power limits, by model; None without any point."""
    points = data.drawable(frame)
    points = points[points["energy_j_mean"].notna() & points["time_s_mean"].notna()]
    points = points.assign(series=points["line"])
    labels = {one: one for one in ordered_lines(points)}
    panels: list[Panel] = []
    for (model, phase, basis), rows in points.groupby(["model", "phase", "basis"], sort=False):
        per = "training" if basis == TRAINING else "sample"
        time, energy = _units(rows)
        ordered = rows.sort_values("time_s_mean", kind="stable")
        places = _places(ordered).assign(name=_levers(ordered), line="")
        places["front"] = (
            ordered["energy_origin"].astype(object).where(ordered["pareto_optimal"].eq(True), None)
        )
        places = _with_ends(places, ordered, "x", "time_s", time[1])
        places = _with_ends(places, ordered, "y", "energy_j", energy[1])
        x = fitted(f"Time per {per} ({time[0]})", "linear", ends_of(places, "x"))
        y = fitted(f"Energy per {per} ({energy[0]})", "linear", ends_of(places, "y"))
        heading = f"{model_words({'model': model, 'phase': phase})}: {y.title} against time"
        panels.append(Panel(panel_letter(len(panels)), x, y, places, POINTS, heading))
    return Chart(series_of(labels), tuple(panels)) if panels else None


def _units(rows: pd.DataFrame) -> tuple[tuple[str, float], tuple[str, float]]:
    longest, most = float(rows["time_s_mean"].max()), float(rows["energy_j_mean"].max())
    time = ("h", 1 / 3600) if longest > 7200 else ("s", 1.0) if longest > 1 else ("ms", 1000.0)
    energy = ("kWh", 1 / 3.6e6) if most > 1e5 else ("J", 1.0) if most > 0.1 else ("mJ", 1000.0)
    return time, energy


def _levers(rows: pd.DataFrame) -> list[str]:
    return [label_of(asked_of(row)) or "default" for row in data.each(rows)]


def prediction_chart(frame: pd.DataFrame) -> Chart | None:
    """Return what was found relative to the predictions; None without any point."""
    rows = data.drawable(frame)
    rows = rows[rows["found"].notna() & (rows["predicted"].fillna(0) != 0)]
    phase = rows["phase"].map(lambda one: "" if one == "train" else f" {one}")
    kinds = (rows["model"] + phase + " on " + rows["device"]).astype(object)
    rows = rows.assign(series=kinds, label=kinds)
    rows = rows.assign(drawn_origin=data.drawn_origins(rows))
    panels: list[Panel] = []
    for name, words in _FOUND.items():
        own = rows[rows["quantity"] == name]
        if own.empty:
            continue
        shown = prose.quantity(name, data.gpu_word(frame), None).fitting(own["predicted"].to_list())
        ends: dict[str, Any] = {
            f"y_open_{end}": own[f"predicted_{end}"] / own["predicted"] for end in OF_BARS
        }
        places = _places(own).assign(
            x=own["predicted"] * shown.factor, y=own["found"] / own["predicted"], **ends
        )
        x = fitted(f"Predicted {shown.label[:1].lower()}{shown.label[1:]}", "log", places["x"])
        y = fitted(f"Found ÷ predicted {words}", "linear", [*ends_of(places, "y"), 1.0])
        panels.append(Panel(panel_letter(len(panels)), x, y, places, POINTS, line_at=1.0))
    labels = {str(one): str(one) for one in rows["series"].unique()}
    words = f"{NOMINAL} interval of the prediction"
    return Chart(series_of(labels), tuple(panels), open=words) if panels else None
