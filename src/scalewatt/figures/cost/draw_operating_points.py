"""Figure `operating_points`: energy against time over clocks and power limits, one block for each model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from scalewatt.campaign.operating_points import LEVERS, value_in_id, without_point
from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.figures.cost.cost_points import (
    asked_of,
    ordered_lines,
)
from scalewatt.figures.cost.panel_rows import Block, Looks, Part, draw_blocks
from scalewatt.results.figures.operating_points_table import TRAINING
from scalewatt.results.text.number_format import count

WIDE_MM, PANEL_MM = 76.0, 52.0
LOG_FROM = 6.0
"""The factor between the points of a block from which on an axis is logarithmic."""
MOST_OF_BARS = 1.0
"""How far bars widen an axis beyond its points, over the span of these."""
MOST_LABELLED = 60
"""Points of a block whose levers are written beside them; of more, those of the Pareto-optimal ones."""
_TOLD = re.compile(r"(n|lbs|s|e)\d+|full")
_BLOCK = ["model", "phase", "basis"]
FRONT: Any = {"color": style.INK, "linewidth": 6.0, "alpha": 0.25, "zorder": 1}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a block for each model and phase: energy against time, and both against each lever."""
    points = data.drawable(frame)
    known = plotted(points)
    width = data.options(frame).width_mm
    word = data.gpu_word(frame)
    absent = data.not_drawn(points, known)
    looks = {line: style.series_style(at, width) for at, line in enumerate(ordered_lines(known))}
    blocks = [_block(own, looks, word, absent) for _, own in known.groupby(_BLOCK, sort=False)]
    nothing = (
        "No configuration has both a time and an energy."
        if len(points)
        else prose.nothing_sentence(data.stored(frame))
    )
    return draw_blocks(blocks, _note_sentences(points, known), width, nothing)


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations that are drawn: those with an energy and a time."""
    return frame[frame["energy_j_mean"].notna() & frame["time_s_mean"].notna()]


def _block(own: pd.DataFrame, looks: Looks, word: str, absent: Sequence[str]) -> Block:
    looks = {line: looks[line] for line in ordered_lines(own)}
    units = _Units.of(own)
    parts = [Part(partial(_draw_plane, units=units), WIDE_MM, wide=True)]
    for lever in LEVERS:
        if own[lever].nunique() > 1:
            against = partial(_draw_lever, lever=lever, units=units, absent=absent)
            parts += [Part(partial(against, name=name), PANEL_MM) for name in ("energy", "time")]
    title = layout.Block(own, ()).title
    return Block(own, parts, looks, _handles(own, looks, word), title)


class _Units:
    """The units of a block's axes: seconds or hours, J or kWh."""

    def __init__(self, time: tuple[str, float], energy: tuple[str, float], per: str) -> None:
        self.time, self.energy, self.per = time, energy, per

    @classmethod
    def of(cls, points: pd.DataFrame) -> _Units:
        """Return the units that fit the largest values of a block."""
        longest = float(points["time_s_mean"].max())
        most = float(points["energy_j_mean"].max())
        time = ("h", 1 / 3600) if longest > 7200 else ("s", 1.0) if longest > 1 else ("ms", 1000.0)
        energy = ("kWh", 1 / 3.6e6) if most > 1e5 else ("J", 1.0) if most > 0.1 else ("mJ", 1000.0)
        return cls(time, energy, "training" if points["basis"].iloc[0] == TRAINING else "sample")

    def label(self, name: str) -> str:
        """Return the label of an axis."""
        unit = (self.time if name == "time" else self.energy)[0]
        return f"{name.capitalize()} per {self.per} ({unit})"

    def scaled(self, points: pd.DataFrame, name: str, part: str = "mean") -> pd.Series:
        """Return a column in the axis' unit."""
        column, factor = (
            ("time_s", self.time[1]) if name == "time" else ("energy_j", self.energy[1])
        )
        return points[f"{column}_{part}"].astype(float) * factor


# --- panels ---------------------------------------------------------------------------------------


def _draw_plane(axes: Axes, points: pd.DataFrame, looks: Looks, units: _Units) -> None:
    """Draw energy against time; points are labelled with their levers."""
    place = points.assign(x=units.scaled(points, "time"), y=units.scaled(points, "energy"))
    for line, own in place.groupby("line", sort=False):
        ordered = own.sort_values("x", kind="stable")
        _draw_points(axes, ordered, looks[str(line)])
        _draw_bars(axes, ordered, looks[str(line)], units, across=True)
    fronts = []
    for _, own in place.groupby(["energy_origin", "energy_scope"], sort=False, dropna=False):
        front = own[own["pareto_optimal"] == True].sort_values("x", kind="stable")  # noqa: E712
        if len(front) > 1:
            axes.plot(front["x"], front["y"], **FRONT, gid="front")
            fronts.append(front[["x", "y"]])
    axes.set_xlabel(units.label("time"))
    axes.set_ylabel(units.label("energy"))
    _scaled_axis(axes, "x", units, place, "time")
    _scaled_axis(axes, "y", units, place, "energy")
    if len(place) > MOST_LABELLED:
        place = place[place["pareto_optimal"].eq(True)]
    labels = [
        layout.Label(row.x, row.y, _short(row), style.legible(looks[row.line]["color"]))
        for row in data.each(place)
    ]
    width = style.preset_of(axes.get_figure(root=True)).width_mm  # type: ignore[arg-type]
    xy = place[["x", "y"]]
    layout.write_labels(axes, labels, xy, fronts, (width - 22, WIDE_MM - 14))


def _draw_lever(
    axes: Axes,
    points: pd.DataFrame,
    looks: Looks,
    lever: str,
    name: str,
    units: _Units,
    absent: Sequence[str],
) -> None:
    """Draw energy or time against a lever; a line breaks where one of its configurations is `absent`."""
    shown = points[points[lever].notna()]
    place = shown.assign(x=shown[lever].astype(float), y=units.scaled(shown, name))
    for line, own in place.groupby("line", sort=False):
        ordered = own.sort_values("x", kind="stable")
        gaps = [value_in_id(one, lever) for one in absent if without_point(one) == line]
        _draw_points(axes, ordered, looks[str(line)], [x for x in gaps if x is not None])
        _draw_bars(axes, ordered, looks[str(line)], units, across=False, name=name)
    axes.set_xlabel(f"{LEVERS[lever].words} ({LEVERS[lever].unit})")
    axes.set_ylabel(units.label(name))
    _scaled_axis(axes, "y", units, place, name)


def _draw_points(
    axes: Axes, points: pd.DataFrame, look: dict[str, Any], gaps: Sequence[float] = ()
) -> None:
    for origin, own in points.groupby("energy_origin", sort=False):
        looks = style.of_origin(look, str(origin))
        xy = data.with_gaps(own, gaps)
        axes.plot(xy["x"], xy["y"], **looks, zorder=3, gid=f"points-{own['line'].iloc[0]}")


def _draw_bars(
    axes: Axes,
    points: pd.DataFrame,
    look: dict[str, Any],
    units: _Units,
    across: bool,
    name: str = "energy",
) -> None:
    """Draw intervals over repeats, along both axes if `across`, and pale bars of estimates."""
    thin: Any = {"colors": look["color"], "linewidth": 0.9, "zorder": 2.5}
    low, high = (units.scaled(points, name, end) for end in ("low", "high"))
    axes.vlines(points["x"], low.clip(lower=0), high, **thin)
    if across:
        low, high = (units.scaled(points, "time", end) for end in ("low", "high"))
        axes.hlines(points["y"], low.clip(lower=0), high, **thin)
    if name == "energy":
        low, high = (units.scaled(points, name, f"estimate_{end}") for end in ("low", "high"))
        axes.vlines(
            points["x"], low, high, colors=look["color"], linewidth=layout.ESTIMATE_WIDTH,
            alpha=layout.ESTIMATE_ALPHA, zorder=1.5,
        )  # fmt: skip


def _scaled_axis(axes: Axes, which: str, units: _Units, points: pd.DataFrame, name: str) -> None:
    """Bound an axis by its points and their bars, logarithmic where they differ by a large factor."""
    means = units.scaled(points, name)
    low, high = _bounds(
        means, units.scaled(points, name, "low"), units.scaled(points, name, "high")
    )
    if means.max() > LOG_FROM * means.min() > 0:
        style.log_axis(axes, which, [low, high], 10, dense=False)
        return
    if which == "y":
        style.linear_axis(axes, [low, high], from_zero=False)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    (axes.set_xlim if which == "x" else axes.set_ylim)(max(low - room, 0.0), high + room)


def _bounds(means: pd.Series, lows: pd.Series, highs: pd.Series) -> tuple[float, float]:
    """Return the ends of an axis with its bars, but for those that would squeeze the points."""
    least, most = float(means.min()), float(means.max())
    span = MOST_OF_BARS * ((most - least) or most)
    return (
        max(float(lows.fillna(means).min()), least - span, min(least, 0.02 * most)),
        min(float(highs.fillna(means).max()), most + span),
    )


def _short(row: Any) -> str:
    """Return a point's levers with their units left out where there is only one."""
    asked = asked_of(row)
    if len(asked) == 1:
        return f"{next(iter(asked.values())):g}"
    return (
        ", ".join(f"{value:g} {LEVERS[lever].unit}" for lever, value in asked.items()) or "default"
    )


def _handles(points: pd.DataFrame, looks: Looks, word: str) -> list[Line2D]:
    first = points.drop_duplicates("line").set_index("line", drop=False).loc[list(looks)]
    handles = [
        layout.entry(
            _line_words(row, points, word), **style.of_origin(looks[row.line], row.energy_origin)
        )
        for row in data.each(first)
    ]
    if (points["pareto_optimal"] == True).sum() > 1:  # noqa: E712
        handles.append(layout.entry("Pareto-optimal", **FRONT))
    return handles


def _line_words(row: Any, points: pd.DataFrame, word: str) -> str:
    """Return what tells a line apart: device, n, LBS and precision, as far as they differ in the block.

    Lines that differ in nothing else have the parts of their ids that not all lines share, such as `adam`.
    """
    told = {
        "device": str(row.device),
        "gpus": prose.counted(row.gpus, word),
        "local_batch_size": f"LBS {row.local_batch_size}",
        "precision": str(row.precision),
        "protocol": str(row.protocol),
        "epochs": count(row.epochs, "epoch"),
        "dataset_samples": f"{row.dataset_samples} samples",
    }
    words = [text for name, text in told.items() if points[name].nunique(dropna=False) > 1]
    lines = points["line"].nunique()
    if points.drop_duplicates("line").groupby(list(told), dropna=False).ngroups < lines:
        words += own_parts(row.line, set(points["line"]), row.device)
    return ", ".join(words) or told["device"]


def own_parts(line: str, lines: set[str], device: str) -> list[str]:
    """Return the parts of a line's id that not all lines have, but for device, n, LBS, samples, epochs."""
    shared = set.intersection(*(set(one.split("-")) for one in lines))
    return [
        part
        for part in line.split("-")
        if part not in shared and part != device and not _TOLD.fullmatch(part)
    ]


# --- notes ----------------------------------------------------------------------------------------


def _note_sentences(points: pd.DataFrame, known: pd.DataFrame) -> list[str]:
    """Return the notes below the panels; `known` are the points that are drawn."""
    timeless = list(points.loc[points["time_s_mean"].isna(), "configuration"])
    numbers = [
        f"{LEVERS[lever].words} ({LEVERS[lever].unit})"
        for lever in LEVERS
        if known[lever].notna().any()
    ]
    sentences = [
        prose.opening(points),
        "Whole runs: start-up and evaluation are in time and energy."
        + (f" Numbers at points: {', '.join(numbers)}." if numbers else ""),
        "Pareto-optimal by means, within one origin and scope.",
        prose.bar_sentence("interval", data.is_single(known)),
        prose.estimate_sentence(known, "energy_j"),
        prose.no_energy_sentence(points),
        f"No time: {prose.named(timeless)}." if timeless else "",
    ]
    return [*(sentences if len(points) else []), *prose.table_notes(points)]
