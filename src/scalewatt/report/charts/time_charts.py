"""Charts of lines in time: learning curves, and power."""

from __future__ import annotations

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose
from scalewatt.report.charts.chart_types import LINES, Chart, Panel, fitted, run_target, series_of
from scalewatt.report.charts.curve_charts import OF_BARS, point_names, training_of
from scalewatt.results.figures.figure_schema import panel_letter

COSTS = {"energy_kwh": "energy_kwh", "time_h": "runtime_h"}
_PALEST = 0.45
"""The opacity of a series' smallest n; its largest is opaque."""
MOST_SAMPLES = 1500
"""Samples of a line of power; of more, equal stretches are shown by their means."""


def learning_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the metric after each epoch of each run, against energy and time; None without any."""
    points = data.drawable(frame)
    points = points.assign(opacity=_opacity(points))
    panels: list[Panel] = []
    for own in data.blocks_of(points):
        for cost, quantity in COSTS.items():
            rows = own[own[cost].notna() & own["metric"].notna()]
            if rows.empty:
                continue
            shown = prose.quantity(quantity, data.gpu_word(frame), None).fitting(
                rows[cost].to_list()
            )
            places = pd.DataFrame(
                {
                    "series": rows["series"],
                    "name": [
                        f"{name}, run {row.repeat}, epoch {row.epoch}"
                        for name, row in zip(point_names(rows), data.each(rows), strict=True)
                    ],
                    "x": rows[cost] * shown.factor,
                    "y": rows["metric"],
                    "origin": rows["energy_origin"],
                    "runs": None,
                    "target": [run_target(r.configuration, r.repeat) for r in data.each(rows)],
                    "line": rows["configuration"] + "/" + rows["repeat"].astype(str),
                    "opacity": rows["opacity"],
                    **_open_at_the_end(rows, cost, shown.factor),
                }
            )
            metric = prose.metric_words(rows)
            words = "energy" if cost == "energy_kwh" else "time"
            panels.append(
                Panel(
                    panel_letter(len(panels)),
                    fitted(shown.label, "log", places["x"]),
                    fitted(metric, "linear", places["y"]),
                    places,
                    LINES,
                    f"{training_of(rows)}: {metric} against {words}",
                )
            )
    looks = series_of(data.series_labels(points), data.series_places(points))
    return Chart(looks, tuple(panels)) if panels else None


def _open_at_the_end(rows: pd.DataFrame, cost: str, factor: float) -> dict[str, pd.Series]:
    """Return what an estimate leaves open of a run's last epoch, as the figure draws it."""
    last = rows["epoch"] == rows.groupby(["configuration", "repeat"])["epoch"].transform("max")
    columns = {f"x_open_{end}": f"{cost}_estimate_{end}" for end in OF_BARS}
    return {n: (rows[c] * factor).where(last) for n, c in columns.items() if c in rows}


def _opacity(points: pd.DataFrame) -> pd.Series:
    """Return how opaque a line is: the more, the larger its n among those of its series."""
    rank = points.groupby("series")["gpus"].rank(method="dense")
    most = rank.groupby(points["series"]).transform("max")
    share = ((rank - 1) / (most - 1)).where(most > 1, 1.0)
    return (_PALEST + (1 - _PALEST) * share).round(2)


def power_chart(frame: pd.DataFrame) -> Chart | None:
    """Return the power of devices against time, all in one panel; None without any sample."""
    samples = data.drawable(frame)
    gaps = samples["power_w"].isna().groupby(samples["panel"]).cumsum()
    samples = samples.assign(stretch=samples["panel"] + gaps.astype(str))
    samples = samples[samples["power_w"].notna() & samples["time_s"].notna()]
    if samples.empty:
        return None
    lines, labels = [], {}
    for letter, rows in data.groups(samples, "panel"):
        first = rows.iloc[0]
        kind = prose.KIND_WORDS.get(first["device_kind"], first["device_kind"])
        labels[letter] = (
            f"{letter}: {kind} of {first['device']}, n = {first['gpus']}, LBS {first['local_batch_size']}"
        )
        thinned = _thinned(rows)
        lines.append(
            pd.DataFrame(
                {
                    "series": letter,
                    "name": str(first["label"] or first["configuration"]),
                    "x": thinned["time_s"],
                    "y": thinned["power_w"],
                    "origin": first["energy_origin"],
                    "runs": None,
                    "target": f"configuration-{first['configuration']}",
                    "line": thinned["stretch"],
                    "opacity": 0.9,
                }
            )
        )
    places = pd.concat(lines, ignore_index=True)
    x = fitted("Time (s)", "linear", places["x"])
    y = fitted("Power (W)", "linear", places["y"], from_zero=True)
    whole = len(places) == len(samples)
    title = (
        "Power (W) against time" if whole else "Power (W) against time, means over equal stretches"
    )
    return Chart(series_of(labels), (Panel("", x, y, places, LINES, title),))


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the samples of a line, or the means over stretches of equally many, none across a gap."""
    own = rows[["time_s", "power_w", "stretch"]].reset_index(drop=True)
    own = own.astype({"time_s": float, "power_w": float})
    size = -(-len(own) // MOST_SAMPLES)
    if size == 1:
        return own
    return own.groupby([own.index // size, "stretch"], sort=False).mean().reset_index("stretch")
