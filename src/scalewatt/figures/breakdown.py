"""Figure `breakdown`: where the energy of each configuration goes, by device kind and stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.energies.stages import LEAST_PERIODS
from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style

KINDS = dict(zip(("gpu", "cpu", "ram", "node"), (*style.COLOURS[:3], "#7fa8d8"), strict=True))
"""Colour of each device kind, in the order of the bars."""
OTHER = "other stages"
STAGES = {
    "train": "train",
    "evaluate_train": "evaluate train",
    "validate": "validate",
    "stage_data": "stage data",
    "checkpoint": OTHER,
    "startup": OTHER,
    "shutdown": OTHER,
    "unattributed": OTHER,
}
"""Stages in the order of the bars, each with the label of its shade: more shades would look alike."""
SLOT_MM = (2.3, 3.5)
"""Least and greatest height of one line: a series' heading, or one bar."""
PALEST = 0.82
"""How much white is in the last shade; the first has none."""
BAR = 0.78
"""Height of a bar, in slots."""
LONGEST = 1.4
"""How far error bars may lengthen the axis, in parts of the longest bar."""
TEXT_ROOM = 1.22
"""Length of the axis for what is drawn and the numbers after it."""
_IDLE: Any = {"hatch": "////", "linewidth": 0}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a bar for each configuration, in energy (A) and in shares of its energy (B)."""
    parts = data.drawable(frame)
    chosen = data.options(frame)
    preset = style.preset(chosen.width_mm)
    bars, headings = bars_of(parts, chosen.error_bars)
    drawn = pieces(parts, bars)
    handles = _handles(drawn)
    columns = layout.legend_columns(handles, preset.legend_characters)
    around_mm = style.notes_mm(preset) + 16.0
    around_mm += style.lines_mm(-(-len(handles) // columns), 1.3 * preset.text_size)
    lines = max(len(bars) + len(headings), 6)
    slot_mm = float(np.clip((layout.TALLEST_MM - around_mm) / lines, *SLOT_MM))
    with style.applied(chosen.width_mm):
        figure = style.new_figure(lines * slot_mm + around_mm, chosen.width_mm)
        if parts.empty:
            style.say_instead(figure.subplots(), prose.nothing_sentence(data.stored(frame)))
        else:
            grid = figure.subplots(1, 2, sharey=True)
            _draw_energies(grid[0], bars, drawn)
            _draw_shares(grid[1], bars, drawn)
            _label_bars(grid[0], bars, headings)
            size = max(6.0, min(preset.text_size, 2.0 * slot_mm + 0.6))
            for letter, axes in zip("AB", grid, strict=True):
                style.panel_letter(axes, letter)
                axes.grid(visible=False, axis="y")
                axes.tick_params(axis="y", labelsize=size, length=0)
            layout.legend_above(figure, handles, columns, 1.6)
        style.notes(figure, note_sentences(parts, bars, chosen.error_bars))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the parts that are drawn: those with an energy."""
    return frame[frame["energy_kwh"].notna()]


def bars_of(parts: pd.DataFrame, kind: str) -> tuple[pd.DataFrame, dict[float, str]]:
    """Make a row for each bar, and the headings of series by their place on the y axis.

    Bars are indexed by configuration: place `y` (0 is the top line, the next one is -1), label, total
    and discarded energy in kWh (NaN where a part of it is unknown), and the ends of the error bar.
    """
    bars = parts.drop_duplicates("configuration").set_index("configuration")
    labels = data.series_labels(parts)
    order = {series: place for place, series in enumerate(labels)}
    bars = bars.sort_values("series", key=lambda names: names.map(order), kind="stable")
    sums = parts.groupby("configuration")[["energy_kwh", "discarded_energy_kwh"]].sum(skipna=False)
    several = parts.loc[parts["energy_kwh"].notna(), "energy_origin"].nunique() > 1
    bars = bars.assign(
        # A heading's line stands before the bars of each series.
        y=-(np.arange(len(bars)) + bars["series"].map(order).astype(float) + 1),
        text=[
            f"n = {row.gpus}, LBS {row.local_batch_size}" + f", {row.energy_origin}" * several
            for row in data.each(bars)
        ],
        total_kwh=sums["energy_kwh"],
        discarded_kwh=sums["discarded_energy_kwh"],
    )
    bars = bars.join(data.error_bars(bars, kind, "total_kwh").add_prefix("bar_"))
    tops = bars.groupby("series", sort=False)["y"].max() + 1
    return bars, {float(y): labels[str(series)] for series, y in tops.items()}


def pieces(parts: pd.DataFrame, bars: pd.DataFrame) -> pd.DataFrame:
    """Lay the parts of all bars from left to right, kind by kind, in each stage by stage.

    Columns in kWh: `start`, where each begins; `idle_end`, where the idle baseline of its kind ends;
    `total_kwh` of its bar. `first` is True for the first part of a kind; `colour` is the kind's in the
    shade of the stage. Bars whose total is unknown have no parts.
    """
    order = [*KINDS, *STAGES]
    by_kind = ["configuration", "device_kind"]
    idle = parts.groupby(by_kind)["idle_energy_kwh"].transform("sum", skipna=False)
    laid = parts.assign(idle=idle).join(bars[["y", "total_kwh"]], on="configuration")
    laid = laid[laid["total_kwh"].notna() & (laid["energy_kwh"] > 0)]
    laid = laid.sort_values(
        ["device_kind", "stage"], key=lambda names: names.map(order.index), kind="stable"
    )
    start = laid.groupby("configuration")["energy_kwh"].cumsum() - laid["energy_kwh"]
    kind_start = start.groupby([laid[key] for key in by_kind]).transform("first")
    whites = shades(laid)
    return laid.assign(
        start=start,
        first=start == kind_start,
        idle_end=kind_start + laid["idle"].fillna(0.0),
        colour=[
            style.paler(KINDS[row.device_kind], whites[STAGES[row.stage]])
            for row in data.each(laid)
        ],
    )


def shades(drawn: pd.DataFrame) -> dict[str, float]:
    """Share of white in the shade of each label of the stages that are drawn, from none to PALEST."""
    labels = set(drawn["stage"].map(STAGES))
    ordered = [label for label in dict.fromkeys(STAGES.values()) if label in labels]
    return dict(zip(ordered, np.linspace(0, PALEST, len(ordered)).tolist(), strict=True))


def _draw_energies(axes: Axes, bars: pd.DataFrame, drawn: pd.DataFrame) -> None:
    """Draw bars in energy with their error bars and totals."""
    totals = bars["total_kwh"]
    shown = prose.quantity("energy_kwh", "GPUs", None).fitting(totals.dropna().to_list())
    _draw_bars(axes, bars, drawn, pd.Series(shown.factor, bars.index))
    ends = bars[["total_kwh", "bar_low", "bar_high"]] * shown.factor
    longest = ends["total_kwh"].max() or 1.0
    reach = np.nanmax([longest, min(ends["bar_high"].max(), LONGEST * longest)])
    if not reach > 0:
        reach = 1.0
    barred = ends[ends["bar_low"].notna()]
    around = abs(barred[["bar_low", "bar_high"]].sub(barred["total_kwh"], axis=0)).to_numpy().T
    place: Any = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 1.6, "zorder": 3}
    spreads = axes.errorbar(barred["total_kwh"], bars["y"][barred.index], xerr=around, **place)
    spreads.lines[2][0].set_gid("spreads")
    for bar in data.each(ends.assign(y=bars["y"])[totals > 0]):
        right = min(np.nanmax([bar.total_kwh, bar.bar_high]), reach)
        layout.write_beside(axes, right, bar.y, style.three_digits(bar.total_kwh))
    _value_axis(axes, shown.label, TEXT_ROOM * reach)


def _draw_shares(axes: Axes, bars: pd.DataFrame, drawn: pd.DataFrame) -> None:
    _draw_bars(axes, bars, drawn, 100.0 / bars["total_kwh"])
    _value_axis(axes, "Share of energy (%)", 100.0)


def _value_axis(axes: Axes, label: str, end: float) -> None:
    axes.set(xlabel=label, xlim=(0, end))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: style.plain_number(value)))


def _draw_bars(axes: Axes, bars: pd.DataFrame, drawn: pd.DataFrame, units: pd.Series) -> None:
    """Draw all bars of a panel, by few artists; `units` multiply the kWh of each bar."""
    unit = drawn["configuration"].map(units)
    left, right = drawn["start"] * unit, (drawn["start"] + drawn["energy_kwh"]) * unit
    _boxes(axes, left, right, drawn["y"], facecolors=drawn["colour"], linewidths=0, gid="pieces")
    idle = right.clip(upper=drawn["idle_end"] * unit)
    pale = drawn["colour"].map(style.luma) > 0.6
    for edge, rows in (("white", ~pale), (style.GREY, pale)):
        rows &= idle > left
        look = {**_IDLE, "facecolors": "none", "edgecolors": edge, "gid": f"idle-{edge}"}
        _boxes(axes, left[rows], idle[rows], drawn["y"][rows], **look)
    border = drawn["first"] & (drawn["start"] > 0)
    ends = (drawn["y"][border] - 0.5, drawn["y"][border] + 0.5)
    axes.vlines(left[border], *ends, colors=style.INK, linewidths=0.7)
    lost = bars[bars["discarded_kwh"] > 0]
    lost_end = lost["discarded_kwh"] * units[lost.index]
    black: Any = {"facecolors": "black", "edgecolors": "white", "linewidths": 0.4, "height": 0.25}
    _boxes(axes, 0.0 * lost_end, lost_end, lost["y"] - BAR / 2 + 0.125, **black)
    for bar in data.each(bars[~(bars["total_kwh"] > 0)]):
        text = "0" if bar.total_kwh == 0 else "energy not known"
        layout.write_beside(axes, 0.0, bar.y, text, color=style.GREY)


def _boxes(
    axes: Axes, left: pd.Series, right: pd.Series, y: pd.Series, height: float = BAR, **look: Any
) -> None:
    """Draw boxes around `y` from `left` to `right`."""
    low, high = y - height / 2, y + height / 2
    corners = np.array([[left, low], [right, low], [right, high], [left, high]], dtype=float)
    axes.add_collection(PolyCollection(list(corners.transpose(2, 0, 1)), **look))


def _label_bars(axes: Axes, bars: pd.DataFrame, headings: dict[float, str]) -> None:
    lines = [*headings, *bars["y"]]
    axes.set_ylim(min(lines) - 0.7, max(lines) + 0.7)
    axes.set_yticks(bars["y"].to_list(), bars["text"].to_list())
    # Long headings reach over the second panel.
    axes.set_zorder(1)
    axes.patch.set_visible(False)
    for y, text in headings.items():
        layout.write_beside(axes, 0.0, y, text, weight="bold")


def _handles(drawn: pd.DataFrame) -> list[Artist]:
    """Legend entries of device kinds, stages, idle and discarded energy, as far as they are drawn."""
    kinds = set(drawn["device_kind"])
    handles: list[Artist] = [
        Patch(facecolor=KINDS[kind], label=prose.KIND_WORDS[kind])
        for kind in KINDS
        if kind in kinds
    ]
    edge: Any = {"edgecolor": style.GREY, "linewidth": 0.3}
    handles += [
        Patch(facecolor=style.paler("#404040", white), label=label, **edge)
        for label, white in shades(drawn).items()
    ]
    if (drawn["idle_energy_kwh"] > 0).any():
        handles.append(
            Patch(facecolor=style.GREY, edgecolor="white", label="idle baseline", **_IDLE)
        )
    if (drawn["discarded_energy_kwh"] > 0).any():
        handles.append(Line2D([], [], color="black", linewidth=1.8, label="discarded"))
    return handles


def note_sentences(parts: pd.DataFrame, bars: pd.DataFrame, kind: str) -> list[str]:
    """Make the notes of the figure; `kind` is that of its error bars."""
    if parts.empty:
        return prose.table_notes(parts)
    return [
        f"{prose.origin_sentences(parts)} n counts {data.gpu_word(parts)}. {prose.device_sentence(parts)}",
        prose.bar_sentence(kind, data.is_single(bars[bars["total_kwh"].notna()])),
        f"Colour: device kind; shade: stage. {_other_stages(parts)}Means over repeats; numbers: totals.",
        _idle_sentence(parts),
        "Discarded: energy used by killed segments after their last checkpoint, part of the total."
        if (parts["discarded_energy_kwh"] > 0).any()
        else "",
        prose.no_energy_sentence(parts),
        *prose.table_notes(parts),
    ]


def _idle_sentence(parts: pd.DataFrame) -> str:
    """Say what is hatched, and whether an idle baseline is not known; the table's notes say why."""
    idle = parts.loc[parts["energy_kwh"].notna(), "idle_energy_kwh"]
    if idle.notna().any():
        unknown = " Bars without hatching: not known." if idle.isna().any() else ""
        return f"Hatched: what the devices would have used idle over the same time.{unknown}"
    if idle.empty or parts.attrs.get("no_idle"):
        return ""
    return "The idle baseline is not known: the campaign has no usable probe of these devices."


def _other_stages(parts: pd.DataFrame) -> str:
    """Name the stages that have the shade of the others, and those too short to have a shade."""
    used = set(parts.loc[parts["energy_kwh"] > 0, "stage"])
    others = [stage for stage, label in STAGES.items() if label == OTHER and stage in used]
    short = {stage for text in parts["short_stages"].dropna() for stage in text.split(", ")}
    sentence = f"Other stages: {', '.join(others)}. " if others else ""
    if short:
        sentence += (
            f"Unattributed includes stages shorter than {LEAST_PERIODS} sampling periods, "
            f"which cannot be told from those around them: {', '.join(sorted(short, key=[*STAGES].index))}. "
        )
    return sentence
