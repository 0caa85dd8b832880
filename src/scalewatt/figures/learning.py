"""Figure `learning`: the quality metric after each epoch, against energy and against time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.figures.output.seaborn_import import seaborn
from scalewatt.results.figures.figure_schema import panel_letter

COSTS = {"energy_kwh": "energy_kwh", "time_h": "runtime_h"}
"""The table's columns on the horizontal axes, and the quantities that they are."""
MOST_STRONG = 12
"""Of a block with more curves only each series' smallest and largest n are in its colour."""
PALEST = 0.35
"""How much white is in the colour of a series' smallest n; its largest has none."""
BETWEEN: Any = {"color": "#b8b8b8", "linewidth": 0.5}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a row of two panels for each model and phase: against energy, and against time."""
    points = data.drawable(frame)
    points = points.assign(drawn_origin=data.drawn_origins(points))
    width = data.options(frame).width_mm
    word = data.gpu_word(frame)
    blocks = data.blocks_of(points)
    bases = layout.looks_of(points, width)
    looks = {name: look for own in blocks for name, look in _looks(own, bases).items()}

    def draw_panel(block: layout.Block, index: int, axes: Axes, panels: layout.Panels) -> None:
        style.panel_letter(axes, panel_letter(index))
        cost = list(COSTS)[index % len(COSTS)]
        _draw_panel(axes, block.points, cost, looks, word, panels)

    with style.applied(width):
        figure = layout.draw_blocks(
            [layout.Block(own, _handles(own, width, looks, bases)) for own in blocks],
            width,
            draw_panel,
            prose.nothing_sentence(data.stored(frame)),
        )
        style.notes(figure, _note_sentences(points))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the epochs that are drawn: with a metric, and a place in energy or in time."""
    return frame[frame["metric"].notna() & (frame["energy_kwh"].notna() | frame["time_h"].notna())]


def curves(points: pd.DataFrame, cost: str) -> pd.DataFrame:
    """Return the places x, y of one panel's curves, and the interval of each x (x_estimate_low, …_high;
    NaN without one): a row for each epoch of each run."""
    open_ = {
        f"x_estimate_{end}": points.get(f"{cost}_estimate_{end}", np.nan) for end in ("low", "high")
    }
    placed = points.assign(x=points[cost], y=points["metric"], **open_)
    return placed[placed["x"].notna() & placed["y"].notna()]


def means(places: pd.DataFrame) -> pd.DataFrame:
    """Return mean x and y over the runs of each configuration, epoch by epoch; a mean curve ends where
    one of the runs lacks a value."""
    runs = places.groupby("configuration")["repeat"].nunique()
    kept = ["series", "gpus", "drawn_origin"]
    by_epoch = places.groupby(["configuration", "epoch"], as_index=False)
    found = by_epoch.agg(
        x=("x", "mean"),
        y=("y", "mean"),
        known=("x", "size"),
        **{name: (name, "first") for name in kept},
    )
    complete = found["known"] == found["configuration"].map(runs)
    found = found[complete.groupby(found["configuration"]).cummin()]
    order = {name: place for place, name in enumerate(places["configuration"].unique())}
    place = found["configuration"].map(order)
    return found.assign(place=place).sort_values(["place", "epoch"]).drop(columns="place")


def with_intervals(ends: pd.DataFrame, places: pd.DataFrame) -> pd.DataFrame:
    """Add x_estimate_low and x_estimate_high, means over the runs, to the last points of mean curves.

    NaN where nothing is estimated, or a run's interval is not known.
    """
    keys, columns = ["configuration", "epoch"], ["x_estimate_low", "x_estimate_high"]
    found = places.groupby(keys)[columns].mean(skipna=False)
    return ends.join(found, on=keys)


def _looks(points: pd.DataFrame, bases: layout.Looks) -> dict[str, dict[str, Any] | None]:
    """Return by configuration of a block the series' marker and line, and its colour, paler the smaller n.

    None for those between a series' smallest and largest n where there are many curves.
    """
    crowded = points["configuration"].nunique() > MOST_STRONG
    looks: dict[str, dict[str, Any] | None] = {}
    for series in data.series_labels(points):
        base = bases[series]
        own = points.loc[points["series"] == series, ["gpus", "configuration"]].drop_duplicates()
        last = len(own) - 1
        for place, name in enumerate(own.sort_values(["gpus", "configuration"])["configuration"]):
            white = PALEST * (1 - place / last) if last else 0.0
            between = crowded and 0 < place < last
            looks[name] = None if between else base | {"color": style.paler(base["color"], white)}
    return looks


def _draw_panel(
    axes: Axes,
    points: pd.DataFrame,
    cost: str,
    looks: dict[str, dict[str, Any] | None],
    word: str,
    panels: layout.Panels,
) -> None:
    places = curves(points, cost)
    if places.empty:
        style.say_instead(axes, _why_empty(points, cost))
        return
    shown = prose.quantity(COSTS[cost], word, None).fitting(places["x"].to_list())
    across = ("x", "x_estimate_low", "x_estimate_high")
    places = places.assign(**{name: places[name] * shown.factor for name in across})
    extent = places["x"].to_list() + _draw_curves(axes, places, looks)
    axes.set(xlabel=shown.label, ylabel=prose.metric_words(points))
    if positive := [value for value in extent if value > 0]:
        style.log_axis(axes, "x", positive, 10, panels.dense)
    style.linear_axis(axes, places["y"].to_list(), False)
    panels.wrap_labels(axes)
    strong = {name: look for name, look in looks.items() if look is not None}
    mean = means(places)
    _label_ends(axes, mean[mean["configuration"].isin(strong)], strong, panels.size_mm)


def _draw_curves(
    axes: Axes, places: pd.DataFrame, looks: dict[str, dict[str, Any] | None]
) -> list[float]:
    """Draw mean curves with their ends marked, and repeats as thin lines; one among many is a grey mean.

    Return the ends of the intervals of estimates that are drawn.
    """
    strong = {name: look for name, look in looks.items() if look is not None}
    mean = means(places)
    is_strong = mean["configuration"].isin(strong)
    _draw_lines(axes, mean[~is_strong], **BETWEEN)
    runs = places.groupby("configuration")["repeat"].transform("nunique")
    repeated = places[places["configuration"].isin(strong) & (runs > 1)]
    colours = {name: look["color"] for name, look in strong.items()}
    _draw_lines(axes, repeated, colours, units="repeat", linewidth=0.4, alpha=0.6)
    dashes = {name: style.dashes(look) for name, look in strong.items()}
    _draw_lines(axes, mean[is_strong], colours, style="configuration", dashes=dashes, zorder=3)
    ends = mean[is_strong].groupby("configuration", sort=False).tail(1)
    layout.draw_series(axes, ends, strong, by="configuration", joined=False)
    ends = with_intervals(ends, places)
    layout.draw_estimates(axes, ends.assign(series=ends["configuration"]), strong, "x")
    return ends[["x_estimate_low", "x_estimate_high"]].dropna().to_numpy().ravel().tolist()


def _draw_lines(
    axes: Axes, places: pd.DataFrame, colours: dict[str, str] | None = None, **look: Any
) -> None:
    """Draw a line for each configuration (and each of its units) in the order of the rows."""
    if places.empty:
        return
    more: Any = {"units": "configuration"} | look
    if colours is not None:
        own_colours = {name: colours[name] for name in places["configuration"].unique()}
        more = {"units": None, "hue": "configuration", "palette": own_colours} | look
        if "dashes" in more:
            more["dashes"] = {name: more["dashes"][name] for name in own_colours}
    seaborn().lineplot(
        places, x="x", y="y", estimator=None, sort=False, legend=False, ax=axes, **more
    )


def _label_ends(
    axes: Axes, mean: pd.DataFrame, looks: layout.Looks, size_mm: tuple[float, float]
) -> None:
    """Label the ends of curves with n, in their colour, where there is room."""
    by_configuration = mean.groupby("configuration", sort=False)
    ends = by_configuration.tail(1)
    labels = [
        layout.Label(end.x, end.y, f"{end.gpus}", style.legible(looks[end.configuration]["color"]))
        for end in data.each(ends)
    ]
    lines = [own for _, own in by_configuration if len(own) > 1]
    layout.write_labels(axes, labels, ends, lines, size_mm)


def _why_empty(points: pd.DataFrame, cost: str) -> str:
    if points["metric"].isna().all():
        return "None of these runs has a metric."
    if cost == "energy_kwh":
        return "No energy of these runs' epochs is known."
    return "When the epochs of these runs ended is not known."


def _handles(
    points: pd.DataFrame,
    width: float,
    looks: dict[str, dict[str, Any] | None],
    bases: layout.Looks,
) -> list[Line2D]:
    """Return the series of a block, with the marker of their energies' origin."""
    found = layout.series_entries(points, bases)
    if any(looks[name] is None for name in points["configuration"].unique()):
        found.append(layout.entry("n in between", **BETWEEN))
    return found + layout.origin_entries(points, width)


# --- notes ----------------------------------------------------------------------------------------


def _note_sentences(points: pd.DataFrame) -> list[str]:
    ends = prose.table_notes(points)
    if points.empty:
        return ends
    return [
        prose.opening(points),
        "Ends are labelled with n; the darker, the larger n."
        + (
            " Thick: mean over repeats; thin: each repeat."
            if (points["n_repeats"] > 1).any()
            else " All are single runs."
        ),
        "Energy and time count from the start of the run, with work lost by killed segments.",
        prose.estimate_sentence(points, "energy_kwh"),
        prose.no_energy_sentence(points),
        prose.goal_sentence(points),
        *ends,
    ]
