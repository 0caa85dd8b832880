"""Figure `cost_per_sample`: what a sample costs by the settings of its training, one block for each model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.figures.cost.cost_points import (
    ENERGY,
    POWER,
    RATE,
    batches_between,
    lines_of,
    note_sentences,
    of_usual_batch,
    worded,
)
from scalewatt.figures.cost.panel_rows import Block, Looks, Part, draw_blocks
from scalewatt.results.figures.figure_schema import COST_PHASES

WIDE_MM, PANEL_MM, BAR_MM = 58.0, 46.0, 3.4
"""Heights of the first panel and of the others, and of one bar."""
FRONT: Any = {"color": style.INK, "linewidth": 0.8, "linestyle": (0, (4, 2)), "zorder": 2}
PHASE_WORDS = {
    "data": "waiting for data",
    "copy": "copying, decoding",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimiser",
}
_PER_SAMPLE = "Energy per sample (J)"


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a block of panels for each model: cost against speed, batch sizes, phases."""
    points = worded(data.drawable(frame))
    width = data.options(frame).width_mm
    known = plotted(points)
    absent = data.not_drawn(points, known)
    looks = _looks(known, width)
    blocks = [_block(own, looks, absent) for _, own in known.groupby("model", sort=False)]
    nothing = prose.nothing_sentence(data.stored(frame))
    return draw_blocks(blocks, note_sentences(points, known), width, nothing)


def _block(own: pd.DataFrame, looks: Looks, absent: Sequence[str]) -> Block:
    looks = {setting: looks[setting] for setting in own["setting"].unique()}
    model = own["model"].iloc[0]
    title = layout.MODEL_WORDS.get(model, model)
    return Block(own, parts_of(own, absent), looks, _handles(own, looks), title)


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations that are drawn: those with an energy and a throughput."""
    return frame[frame[f"{ENERGY}_mean"].notna() & frame[f"{RATE}_mean"].notna()]


# --- panels of a block ----------------------------------------------------------------------------


def parts_of(points: pd.DataFrame, absent: Sequence[str] = ()) -> list[Part]:
    """Return the panels of a block: those for which there is something to show.

    Lines over batch sizes break where one of their configurations is `absent`.
    """
    parts = [Part(_draw_cost, WIDE_MM, wide=True)]
    if lines_of(points):
        drawings = (_draw_energy_of_batch, _draw_power_of_batch)
        parts += [Part(partial(draw, absent=absent), PANEL_MM) for draw in drawings]
    if bars := len(of_usual_batch(points)):
        parts.append(Part(_draw_phases, 20 + BAR_MM * max(4, bars), wide=True))
    return parts


def _looks(points: pd.DataFrame, width_mm: float) -> Looks:
    settings = dict.fromkeys(points["setting"])
    return {setting: style.series_style(index, width_mm) for index, setting in enumerate(settings)}


def _handles(points: pd.DataFrame, looks: Looks) -> list[Line2D]:
    handles = [
        layout.entry(
            setting, **(style.of_origin(look, _origin(points, setting)) | {"linestyle": "none"})
        )
        for setting, look in looks.items()
    ]
    if _front(points) is not None:
        handles.append(layout.entry("Pareto-optimal", **FRONT))
    return handles


def _origin(points: pd.DataFrame, setting: str) -> str | None:
    found = points.loc[points["setting"] == setting, "energy_origin"].iloc[0]
    return None if found is None else str(found)


# --- panels ---------------------------------------------------------------------------------------


def _draw_cost(axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
    """Draw energy per sample against throughput; points are labelled with their batch size."""
    for setting, own in points.groupby("setting", sort=False):
        _draw_points(axes, own, looks[str(setting)], RATE, joined=False)
    axes.set_xlabel("Samples per second")
    _log_axes(axes, points, RATE, 10)
    front = _front(points)
    lines = []
    if front is not None:
        axes.plot(front[f"{RATE}_mean"], front[f"{ENERGY}_mean"], **FRONT, gid="front")
        lines.append(_xy(front))
    labels = [
        layout.Label(x, y, str(batch), style.legible(looks[setting]["color"]))
        for setting, batch, x, y in zip(
            points["setting"], points["local_batch_size"], *_xy(points).T.to_numpy(), strict=True
        )
    ]
    width = style.preset_of(axes.get_figure(root=True)).width_mm  # type: ignore[arg-type]
    layout.write_labels(axes, labels, _xy(points), lines, (width - 22, WIDE_MM - 14))


def _xy(points: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {"x": points[f"{RATE}_mean"].astype(float), "y": points[f"{ENERGY}_mean"].astype(float)}
    )


def _front(points: pd.DataFrame) -> pd.DataFrame | None:
    """Return the Pareto-optimal points, by throughput; None for fewer than two, or of several phases."""
    best = points[points["pareto_optimal"] == True].sort_values(f"{RATE}_mean", kind="stable")  # noqa: E712
    if best["phase"].nunique() > 1:
        best = best[best["phase"] == best["phase"].iloc[-1]]
    return best if len(best) > 1 else None


def _draw_energy_of_batch(
    axes: Axes, points: pd.DataFrame, looks: Looks, absent: Sequence[str]
) -> None:
    lines = lines_of(points)
    for setting, own in lines:
        gaps = batches_between(own, absent)
        _draw_points(axes, own, looks[setting], "local_batch_size", joined=True, gaps=gaps)
    axes.set_xlabel("Local batch size")
    _log_axes(axes, pd.concat([own for _, own in lines]), "local_batch_size", 2)


def _draw_power_of_batch(
    axes: Axes, points: pd.DataFrame, looks: Looks, absent: Sequence[str]
) -> None:
    lines = lines_of(points)
    shown = pd.concat([own for _, own in lines])
    for setting, own in lines:
        gaps = batches_between(own, absent)
        _draw_points(axes, own, looks[setting], "local_batch_size", True, POWER, gaps)
    values = shown[f"{POWER}_mean"].dropna().tolist()
    if not values:
        style.say_instead(axes, "No power is known.")
        return
    axes.set_xlabel("Local batch size")
    _batch_axis(axes, shown)
    style.linear_axis(axes, values, from_zero=True)
    kind = prose.KIND_WORDS[points["energy_scope"].iloc[0]]
    axes.set_ylabel(f"Power per {kind}{' socket' * (kind == 'CPU')} (W)")


def _draw_phases(axes: Axes, points: pd.DataFrame, looks: Looks) -> None:
    """Draw a bar for each setting, the energy of a sample by the phase of its update."""
    shown = of_usual_batch(points)
    left = np.zeros(len(shown))
    y = np.arange(len(shown))[::-1]
    colours = [style.paler(style.COLOURS[0], white) for white in (0.88, 0.7, 0.5, 0.25, 0.0)]
    for phase, colour in zip(COST_PHASES, colours, strict=True):
        widths = shown[f"{phase}_per_sample_j"].astype(float).to_numpy()
        axes.barh(y, widths, 0.72, left, color=colour, edgecolor="white", linewidth=0.3, gid=phase)
        left = left + widths
    several = shown["phase"].nunique() > 1
    axes.set_yticks(
        y,
        [f"{row.setting}{f' ({row.local_batch_size})' * several}" for row in data.each(shown)],
        fontsize=style.preset_of(axes.get_figure(root=True)).note_size,  # type: ignore[arg-type]
    )
    axes.grid(visible=False, axis="y")
    batch = "" if several else f", LBS {shown['local_batch_size'].iloc[0]}"
    axes.set_xlabel(f"{_PER_SAMPLE}{batch}")
    axes.set_ylim(-0.6, len(shown) - 0.4)
    handles = [
        Patch(color=colour, label=PHASE_WORDS[phase])
        for phase, colour in zip(COST_PHASES, colours, strict=True)
    ]
    preset = style.preset_of(axes.get_figure(root=True))  # type: ignore[arg-type]
    place: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    if preset.narrow:
        place = {"loc": "upper center", "bbox_to_anchor": (0.4, -0.3), "ncols": 3}
    axes.legend(handles=handles, handlelength=1.2, **place)


def _draw_points(
    axes: Axes,
    points: pd.DataFrame,
    look: dict[str, Any],
    across: str,
    joined: bool,
    name: str = ENERGY,
    gaps: Sequence[float] = (),
) -> None:
    """Draw points with their interval over repeats, and pale bars of estimates; a line breaks at `gaps`."""
    x = points[across if across in points else f"{across}_mean"].astype(float)
    y = points[f"{name}_mean"].astype(float)
    xy = pd.DataFrame({"x": x, "y": y})
    for origin, own in points.groupby("energy_origin", sort=False):
        style_ = style.of_origin(look, str(origin))
        style_ |= {} if joined else {"linestyle": "none"}
        line = data.with_gaps(xy.loc[own.index], gaps)
        axes.plot(line["x"], line["y"], **style_, zorder=3, gid=f"points-{own['setting'].iloc[0]}")
    low, high = (points[f"{name}_{end}"].astype(float) for end in ("low", "high"))
    axes.vlines(x, low.clip(lower=0), high, colors=look["color"], linewidth=0.9, zorder=2.5)
    open_low, open_high = (
        points[f"{name}_estimate_{end}"].astype(float) for end in ("low", "high")
    )
    axes.vlines(
        x, open_low, open_high, colors=look["color"], linewidth=layout.ESTIMATE_WIDTH,
        alpha=layout.ESTIMATE_ALPHA, zorder=1.5,
    )  # fmt: skip


def _log_axes(axes: Axes, points: pd.DataFrame, across: str, base: int) -> None:
    if base == 2:
        _batch_axis(axes, points)
    else:
        style.log_axis(axes, "x", points[f"{across}_mean"].astype(float).tolist(), base, True)
    ends = points[[f"{ENERGY}_mean", f"{ENERGY}_estimate_low", f"{ENERGY}_estimate_high"]]
    values = ends.astype(float).to_numpy().ravel()
    axes.set_ylabel(_PER_SAMPLE)
    style.log_axis(axes, "y", values[np.isfinite(values)].tolist(), 10, True)


def _batch_axis(axes: Axes, points: pd.DataFrame) -> None:
    style.log_axis(axes, "x", points["local_batch_size"].astype(float).tolist(), 2, True)
