"""Figure `breakdown`: where the energy of each configuration goes, by device kind and stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, style
from scalewatt.figures.axes import ROUND, quantity
from scalewatt.results.text.captions import caption
from scalewatt.results.text.number_format import number

KINDS = dict(zip(("gpu", "cpu", "ram", "node"), (*style.COLOURS[:3], "#7fa8d8"), strict=True))
"""Colour of each device kind, in the order of the bars."""
KIND_WORDS = {"gpu": "GPU", "cpu": "CPU", "ram": "memory", "node": "node"}
OTHER = "other stages"
STAGES = {
    "train": "train",
    "evaluate_train": "evaluate train",
    "validate": "validate",
    "stage_data": "stage data",
    **dict.fromkeys(("checkpoint", "startup", "shutdown", "unattributed"), OTHER),
}
"""Stages in the order of the bars, each with the label of its shade: more shades would look alike."""
SLOT_MM = (2.3, 3.5)
"""Least and greatest height of one line: a series' heading, or one bar."""
_LABELS = list(dict.fromkeys(STAGES.values()))
SHADES = dict(zip(_LABELS, np.linspace(0, 0.82, len(_LABELS)).tolist(), strict=True))
"""Share of white in the shade of each label."""
BAR, IDLE_BAR, LOST_BAR = 0.78, 0.26, 0.16
"""Heights of a bar, and of the idle baseline and the discarded energy in it, in slots."""
LONGEST = 1.4
"""How far error bars may lengthen the axis, in parts of the longest bar."""
TEXT_ROOM = 1.22
"""Length of the axis for what is drawn and the numbers after it."""
_IDLE: Any = {"facecolor": "#ffffffb0", "edgecolor": style.INK, "linewidth": 0.3}


def draw(parts: pd.DataFrame) -> style.Drawing:
    """Draw a bar for each configuration, in energy (A) and in shares of its energy (B)."""
    error_bars, width_mm = data.option(parts, "error_bars", "interval"), data.width_mm(parts)
    bars = bars_of(parts, error_bars)
    drawn = pieces(parts, bars)
    with layout.styled(parts):
        if parts.empty:
            figure = layout.nothing(parts)
        else:
            figure = style.new_figure(width_mm)
            legend_mm = style.add_legend(figure, _handles(drawn), 1.6)
            lines = max(1 - int(bars["y"].min()), 6)
            slot_mm = style.fit_rows(figure, lines, legend_mm + 16, *SLOT_MM)
            left, right = figure.subplots(1, 2, sharey=True)
            _draw_energies(left, bars, drawn)
            _draw_bars(right, bars, drawn, 100.0 / bars["total_kwh"])
            _value_axis(right, "Share of energy (%)", 100.0)
            _label_bars(left, bars, data.series_labels(parts))
            size = max(6.0, min(style.preset_at(figure).text_size, 2.0 * slot_mm + 0.6))
            for letter, axes in (("A", left), ("B", right)):
                style.panel_letter(axes, letter)
                axes.grid(visible=False, axis="y")
                axes.tick_params(axis="y", labelsize=size, length=0)
        style.notes(figure, caption(parts, "breakdown", **_facts(parts, error_bars)))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the parts that are drawn: those with an energy."""
    return frame[frame["energy_kwh"].notna()]


# --- bars -----------------------------------------------------------------------------------------


def bars_of(parts: pd.DataFrame, error_bars: str) -> pd.DataFrame:
    """Make a row for each bar, by configuration.

    `y` is its line (0 is the top one, for the heading of the first series), `text` its label, `total_kwh` and
    `discarded_kwh` its energies (NaN where a part is unknown), `bar_low` and `bar_high` the ends of its
    error bar.
    """
    bars = parts.drop_duplicates("configuration").set_index("configuration")
    order, _ = pd.factorize(bars["series"])
    bars = bars.iloc[np.argsort(order, kind="stable")]
    sums = parts.groupby("configuration")[["energy_kwh", "discarded_energy_kwh"]].sum(skipna=False)
    total = sums["energy_kwh"].reindex(bars.index)
    if error_bars == "interval":
        low, high = bars["total_kwh_low"], bars["total_kwh_high"]
    else:
        half = bars.get(f"total_kwh_{error_bars}", np.nan)
        low, high = total - half, total + half
    has_bar = (bars["n_repeats"] > 1) & total.notna()
    several = parts.loc[parts["energy_kwh"].notna(), "energy_origin"].nunique() > 1
    return bars.assign(
        y=-(np.arange(len(bars)) + np.sort(order) + 1.0),  # with a line for each heading
        text=[
            f"n = {row.gpus}, LBS {row.local_batch_size}" + f", {row.energy_origin}" * several
            for row in bars.itertuples()
        ],
        total_kwh=total,
        discarded_kwh=sums["discarded_energy_kwh"],
        bar_low=low.where(has_bar),
        bar_high=high.where(has_bar),
    )


def pieces(parts: pd.DataFrame, bars: pd.DataFrame) -> pd.DataFrame:
    """Lay the parts of all bars from left to right, kind by kind, in each stage by stage.

    Columns in kWh: `start`, where each begins, and `idle`, the idle baseline of its kind. `first` is True for
    the first part of a kind; `colour` is the kind's in the shade of the stage. Bars whose total is unknown
    have no parts.
    """
    order = [*KINDS, *STAGES]
    by_kind = ["configuration", "device_kind"]
    of_kind = parts.groupby(by_kind)[["idle_energy_kwh", "energy_kwh"]]
    idle = of_kind.transform("sum", skipna=False).min(axis=1, skipna=False)
    drawn = parts.assign(idle=idle).join(bars[["y", "total_kwh"]], on="configuration")
    drawn = drawn[drawn["total_kwh"].notna() & (drawn["energy_kwh"] > 0)]
    drawn = drawn.sort_values(
        ["device_kind", "stage"], key=lambda names: names.map(order.index), kind="stable"
    )
    start = drawn.groupby("configuration")["energy_kwh"].cumsum() - drawn["energy_kwh"]
    kinds = zip(drawn["device_kind"], drawn["stage"], strict=True)
    colours = [style.paler(KINDS[kind], SHADES[STAGES[stage]]) for kind, stage in kinds]
    return drawn.assign(start=start, first=~drawn.duplicated(by_kind), colour=colours)


# --- drawing --------------------------------------------------------------------------------------


def _draw_energies(axes: Axes, bars: pd.DataFrame, drawn: pd.DataFrame) -> None:
    """Draw bars in energy with their error bars and totals."""
    shown = quantity("energy_kwh", values=bars["total_kwh"])
    _draw_bars(axes, bars, drawn, pd.Series(shown.factor, bars.index))
    ends = bars[["total_kwh", "bar_low", "bar_high"]] * shown.factor
    longest = ends["total_kwh"].max()
    reach = np.nanmax([longest, min(ends["bar_high"].max(), LONGEST * longest), 0.0]) or 1.0
    barred = ends[ends["bar_low"].notna()]
    around = abs(barred[["bar_low", "bar_high"]].sub(barred["total_kwh"], axis=0)).to_numpy().T
    look: Any = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 1.6, "zorder": 3}
    spreads = axes.errorbar(barred["total_kwh"], bars["y"][barred.index], xerr=around, **look)
    spreads.lines[2][0].set_gid("spreads")
    ends = ends.assign(right=ends.max(axis=1).clip(upper=reach), y=bars["y"])
    for total, right, y in ends.loc[bars["total_kwh"] > 0, ["total_kwh", "right", "y"]].to_numpy():
        layout.write_beside(axes, right, y, number(total, 3))
    _value_axis(axes, shown.label, TEXT_ROOM * reach)


def _value_axis(axes: Axes, label: str, end: float) -> None:
    axes.set(xlabel=label, xlim=(0, end))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=ROUND))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: style.plain_number(value)))


def _draw_bars(axes: Axes, bars: pd.DataFrame, drawn: pd.DataFrame, units: pd.Series) -> None:
    """Draw all bars of a panel; `units` multiply the kWh of each."""
    unit = drawn["configuration"].map(units)
    boxes = drawn.assign(left=drawn["start"] * unit, width=drawn["energy_kwh"] * unit)
    colours = {"facecolors": boxes["colour"].tolist(), "linewidth": 0}
    _draw_boxes(axes, boxes, BAR, gid="pieces", **colours)
    borders = boxes[boxes["first"] & (boxes["left"] > 0)]
    ends = borders["y"] - 0.5, borders["y"] + 0.5
    axes.vlines(borders["left"], *ends, colors=style.INK, linewidths=0.7)
    idle = boxes.assign(width=boxes["idle"] * unit)[boxes["first"] & (boxes["idle"] > 0)]
    _draw_boxes(axes, idle, IDLE_BAR, gid="idle", **_IDLE)
    # Discarded energy lies along the lower edge of its bar.
    lost = bars[bars["discarded_kwh"] > 0].assign(left=0.0)
    lost = lost.assign(width=lost["discarded_kwh"] * units, y=lost["y"] + (LOST_BAR - BAR) / 2)
    _draw_boxes(axes, lost, LOST_BAR, facecolor="black", linewidth=0)
    for total, y in bars.loc[~(bars["total_kwh"] > 0), ["total_kwh", "y"]].to_numpy():
        text = "0" if total == 0 else "energy not known"
        layout.write_beside(axes, 0.0, y, text, color=style.GREY)


def _draw_boxes(axes: Axes, boxes: pd.DataFrame, height: float, **look: Any) -> None:
    """Draw boxes (columns left, width, y) of a height around their y as one artist."""
    left, right = boxes["left"], boxes["left"] + boxes["width"]
    low, high = boxes["y"] - height / 2, boxes["y"] + height / 2
    corners = np.array([[left, low], [left, high], [right, high], [right, low]], dtype=float)
    axes.add_collection(PolyCollection([*corners.transpose(2, 0, 1)], **look), autolim=False)


def _label_bars(axes: Axes, bars: pd.DataFrame, labels: dict[str, str]) -> None:
    axes.set_ylim(bars["y"].min() - 0.7, 0.7)
    axes.set_yticks(bars["y"].to_list(), bars["text"].to_list())
    # Long headings reach over the second panel.
    axes.set_zorder(1)
    axes.patch.set_visible(False)
    for series, y in bars.groupby("series")["y"].max().items():
        layout.write_beside(axes, 0.0, y + 1, labels[str(series)], weight="bold")


# --- words ----------------------------------------------------------------------------------------


def _handles(drawn: pd.DataFrame) -> list[Artist]:
    """Legend entries of device kinds, stages, idle and discarded energy, as far as they are drawn."""
    kinds = set(drawn["device_kind"])
    colours = {KIND_WORDS[kind]: colour for kind, colour in KINDS.items() if kind in kinds}
    stages = set(drawn["stage"].map(STAGES))
    colours |= {
        label: style.paler("#404040", white) for label, white in SHADES.items() if label in stages
    }
    handles: list[Artist] = [
        Patch(facecolor=colour, edgecolor=style.GREY, linewidth=0.3, label=label)
        for label, colour in colours.items()
    ]
    if (drawn["idle"] > 0).any():
        handles.append(Patch(label="idle baseline", **_IDLE))
    if (drawn["discarded_energy_kwh"] > 0).any():
        handles.append(Line2D([], [], color="black", linewidth=1.8, label="discarded"))
    return handles


def _facts(parts: pd.DataFrame, error_bars: str) -> dict[str, Any]:
    idle = plotted(parts)["idle_energy_kwh"].notna()
    return {
        "error_bars": error_bars if len(idle) else "",
        "idle": "none" if not idle.any() else "all" if idle.all() else "some",
        "has_discarded": bool((parts["discarded_energy_kwh"] > 0).any()),
        "has_short": bool(parts["short_stages"].notna().any()),
    }
