"""Figure `breakdown`: where the energy of each configuration goes, by device kind and stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
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
HATCH = "////"
LONGEST, LONGEST_OPEN = 1.4, 2.0
"""How far error bars, and intervals of estimates, may lengthen the axis, in parts of the longest bar."""
OPEN: Any = {"facecolors": "#e4e4e4", "edgecolors": style.GREY, "linewidths": 0.4, "zorder": 1.5}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a bar for each configuration, in energy (A) and in shares of its energy (B)."""
    parts = data.drawable(frame)
    chosen = data.options(frame)
    preset = style.preset(chosen.width_mm)
    bars, headings = bars_of(parts, chosen.error_bars)
    whites = shades(parts)
    handles = _handles(parts, whites)
    columns = layout.legend_columns(handles, preset.legend_characters)
    small = style.notes_mm(preset) + 16.0
    small += style.lines_mm(-(-len(handles) // columns), 1.3 * preset.text_size)
    lines = max(len(bars) + len(headings), 6)
    slot_mm = max(SLOT_MM[0], min(SLOT_MM[1], (layout.TALLEST_MM - small) / lines))
    with style.applied(chosen.width_mm):
        figure = style.new_figure(lines * slot_mm + small, chosen.width_mm)
        if parts.empty:
            style.say_instead(figure.subplots(), prose.nothing_sentence(data.stored(frame)))
        else:
            grid = figure.subplots(1, 2, sharey=True)
            _draw_panels(grid, bars, headings, pieces(parts, bars), whites)
            size = max(6.0, min(preset.text_size, 2.0 * slot_mm + 0.6))
            for axes in grid:
                axes.tick_params(axis="y", labelsize=size)
            layout.legend_above(figure, handles, columns, 1.6)
        style.notes(figure, note_sentences(parts, bars, chosen.error_bars))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the parts that are drawn: those with an energy."""
    return frame[frame["energy_kwh"].notna()]


def bars_of(parts: pd.DataFrame, kind: str) -> tuple[pd.DataFrame, dict[float, str]]:
    """Return a row for each bar, and the headings of series by their place on the y axis.

    Bars are indexed by configuration: place `y` (0 is the top line, the next one is -1), label, total
    and discarded energy in kWh (NaN where a part of it is unknown), and the ends of the error bar.
    """
    firsts = parts.drop_duplicates("configuration").set_index("configuration")
    energies = parts.groupby("configuration")[["energy_kwh", "discarded_energy_kwh"]]
    sums = energies.sum(skipna=False).reindex(firsts.index)
    several = parts.loc[parts["energy_kwh"].notna(), "energy_origin"].nunique() > 1
    places, headings, y = {}, {}, 0.0
    for series, label in data.series_labels(parts).items():
        headings[y] = label
        y -= 1
        for name in firsts.index[firsts["series"] == series]:
            places[name] = y
            y -= 1
    labels = [
        f"n = {row.gpus}, LBS {row.local_batch_size}" + (f", {row.energy_origin}" * several)
        for row in data.each(firsts)
    ]
    ends = data.error_bars(firsts.assign(total_kwh=sums["energy_kwh"]), kind, "total_kwh")
    bars = firsts.assign(
        y=pd.Series(places),
        text=labels,
        total_kwh=sums["energy_kwh"],
        discarded_kwh=sums["discarded_energy_kwh"],
        **ends.add_prefix("bar_"),
    )
    return bars, headings


def pieces(parts: pd.DataFrame, bars: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of all bars from left to right, kind by kind, in each stage by stage.

    Column `start` is where each begins in kWh, `idle_end` where the idle baseline of its kind ends,
    `first` is True for the first part of a kind. Bars whose total is unknown have no parts.
    """
    kinds = parts["device_kind"].map({kind: place for place, kind in enumerate(KINDS)})
    stages = parts["stage"].map({stage: place for place, stage in enumerate(STAGES)})
    known = parts["configuration"].map(bars["total_kwh"]).notna() & (parts["energy_kwh"] > 0)
    by_kind = ["configuration", "device_kind"]
    idle = parts.groupby(by_kind)["idle_energy_kwh"].transform("sum", skipna=False)
    found = parts.assign(kind_place=kinds, stage_place=stages, idle=idle)[known]
    found = found.sort_values(["kind_place", "stage_place"], kind="stable")
    found["start"] = found.groupby("configuration")["energy_kwh"].cumsum() - found["energy_kwh"]
    kind_start = found.groupby(by_kind)["start"].transform("first")
    return found.assign(
        first=found["start"] == kind_start,
        idle_end=kind_start + found["idle"].fillna(0.0),
        y=found["configuration"].map(bars["y"]),
        total_kwh=found["configuration"].map(bars["total_kwh"]),
    )


def shades(parts: pd.DataFrame) -> dict[str, float]:
    """Return how much white each shade of the stages in `parts` has, evenly from none to PALEST."""
    there = set(parts.loc[parts["energy_kwh"] > 0, "stage"].map(STAGES))
    labels = [name for name in dict.fromkeys(STAGES.values()) if name in there]
    last = max(len(labels) - 1, 1)
    return {name: PALEST * place / last for place, name in enumerate(labels)}


def colour(kind: str, stage: str, whites: dict[str, float]) -> str:
    """Return the colour of a stage of a device kind: the kind's colour in the stage's shade."""
    return style.paler(KINDS[kind], whites[STAGES[stage]])


def _draw_panels(
    grid: Sequence[Axes],
    bars: pd.DataFrame,
    headings: dict[float, str],
    found: pd.DataFrame,
    whites: dict[str, float],
) -> None:
    """Draw both panels."""
    totals = bars["total_kwh"].dropna()
    energy = prose.quantity("energy_kwh", "GPUs", None).fitting(totals.to_list())
    share = prose.Quantity("Share of energy (%)", factor=100.0)
    for axes, letter, shown in ((grid[0], "A", energy), (grid[1], "B", share)):
        style.panel_letter(axes, letter)
        axes.set_xlabel(shown.label)
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 100 if letter == "B" else shown.factor * axis_end(bars))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: style.plain_number(value)))
        axes.tick_params(axis="y", length=0)
        everywhere = pd.Series(energy.factor, bars.index)
        units = everywhere if letter == "A" else 100.0 / bars["total_kwh"]
        _draw_bars(axes, bars, found, units, whites)
    _draw_open(grid[0], bars, energy)
    _draw_spreads(grid[0], bars, energy)
    lines = [*headings, *bars["y"]]
    grid[0].set_ylim(min(lines) - 0.7, max(lines) + 0.7)
    grid[0].set_yticks([*bars["y"]], [*bars["text"]])
    # Long headings reach over the second panel.
    grid[0].set_zorder(1)
    grid[0].patch.set_visible(False)
    for y, text in headings.items():
        layout.write_beside(grid[0], 0.0, y, text, weight="bold")


def axis_end(bars: pd.DataFrame) -> float:
    """Return where the axis of energies ends, in kWh: error bars and intervals that are long are cut."""
    longest = bars["total_kwh"].max() if len(bars) else 1.0
    longest = 1.0 if longest != longest else longest
    ends = (("bar_high", LONGEST), ("total_kwh_estimate_high", LONGEST_OPEN))
    return 1.22 * max(
        min(max([longest, *bars[high].dropna()]), most * longest) for high, most in ends
    )


def _draw_bars(
    axes: Axes, bars: pd.DataFrame, found: pd.DataFrame, units: pd.Series, whites: dict[str, float]
) -> None:
    """Draw all bars of a panel, by few artists; `units` multiply the kWh of each bar."""
    for bar in data.each(bars[~(bars["total_kwh"] > 0)]):
        text = "0" if bar.total_kwh == 0 else "energy not known"
        layout.write_beside(axes, 0.0, bar.y, text, color=style.GREY)
    unit = found["configuration"].map(units)
    left = found["start"] * unit
    right = (found["start"] + found["energy_kwh"]) * unit
    colours = [
        colour(kind, stage, whites)
        for kind, stage in zip(found["device_kind"], found["stage"], strict=True)
    ]
    boxes = layout.boxes(left, right, found["y"], BAR)
    axes.add_collection(PolyCollection(boxes, facecolors=colours, linewidths=0))
    idle = pd.concat([right, found["idle_end"] * unit], axis=1).min(axis=1)
    pale = pd.Series([style.luma(one) > 0.6 for one in colours], found.index, dtype=bool)
    for edge, mine in (("white", ~pale), (style.GREY, pale)):
        hatched = mine & (idle > left)
        look: Any = {"facecolors": "none", "edgecolors": edge, "linewidths": 0, "hatch": HATCH}
        boxes = layout.boxes(left[hatched], idle[hatched], found.loc[hatched, "y"], BAR)
        axes.add_collection(PolyCollection(boxes, **look, gid=f"idle-{edge}"))
    lost = bars[bars["discarded_kwh"] > 0]
    lost_right = lost["discarded_kwh"] * units[lost.index]
    black: Any = {"facecolors": "black", "edgecolors": "white", "linewidths": 0.4}
    boxes = layout.boxes(0.0 * lost_right, lost_right, lost["y"] - BAR / 2 + 0.125, height=0.25)
    axes.add_collection(PolyCollection(boxes, **black))
    border = found["first"] & (found["start"] > 0)
    axes.vlines(
        left[border],
        found.loc[border, "y"] - 0.5,
        found.loc[border, "y"] + 0.5,
        colors=style.INK,
        linewidths=0.7,
    )


def _draw_spreads(axes: Axes, bars: pd.DataFrame, energy: prose.Quantity) -> None:
    """Draw an error bar at the end of each bar whose spread is known, and write the total beside it."""
    lines: list[list[tuple[float, float]]] = []
    for bar in data.each(bars[bars["total_kwh"] > 0]):
        right = bar.total_kwh * energy.factor
        if bar.bar_low == bar.bar_low:
            low, high = bar.bar_low * energy.factor, bar.bar_high * energy.factor
            lines.append([(low, bar.y), (high, bar.y)])
            lines += [[(end, bar.y - 0.2), (end, bar.y + 0.2)] for end in (low, high)]
            right = min(max(right, high), axes.get_xlim()[1] / 1.22)
        is_open = bar.total_kwh_estimate_high == bar.total_kwh_estimate_high
        total = style.three_digits(bar.total_kwh * energy.factor)
        layout.write_beside(axes, right, bar.y, total, on_white=is_open)
    axes.add_collection(
        LineCollection(lines, colors="black", linewidths=0.8, zorder=3, gid="spreads")
    )


def _draw_open(axes: Axes, bars: pd.DataFrame, energy: prose.Quantity) -> None:
    """Draw a pale bar over the interval of each total that is estimated, along the middle of its bar."""
    known = bars[bars["total_kwh_estimate_low"].notna()]
    if known.empty:
        return
    low, high = (known[f"total_kwh_estimate_{end}"] * energy.factor for end in ("low", "high"))
    boxes = layout.boxes(low, high, known["y"], 0.3 * BAR)
    axes.add_collection(PolyCollection(boxes, **OPEN, gid="estimates"))


def _handles(parts: pd.DataFrame, whites: dict[str, float]) -> list[Artist]:
    """Return legend entries of what is there: device kinds, stages, idle and discarded energy."""
    drawn = parts[parts["energy_kwh"] > 0]
    kinds = set(drawn["device_kind"])
    handles: list[Artist] = [
        Patch(facecolor=own, label=prose.KIND_WORDS[kind])
        for kind, own in KINDS.items()
        if kind in kinds
    ]
    edge: Any = {"edgecolor": style.GREY, "linewidth": 0.3}
    handles += [
        Patch(facecolor=style.paler("#404040", white), label=label, **edge)
        for label, white in whites.items()
    ]
    if (drawn["idle_energy_kwh"] > 0).any():
        idle: Any = {"facecolor": style.GREY, "edgecolor": "white", "hatch": HATCH, "linewidth": 0}
        handles.append(Patch(label="idle baseline", **idle))
    if (drawn["discarded_energy_kwh"] > 0).any():
        handles.append(Line2D([], [], color="black", linewidth=1.8, label="discarded"))
    return handles


# --- notes ----------------------------------------------------------------------------------------


def note_sentences(parts: pd.DataFrame, bars: pd.DataFrame, kind: str) -> list[str]:
    """Return the notes of the figure; `kind` is that of its error bars."""
    known = bars[bars["total_kwh"].notna()]
    sentences = [
        f"{prose.origin_sentences(parts)} n counts {data.gpu_word(parts)}. {prose.device_sentence(parts)}",
        prose.bar_sentence(kind, data.is_single(known)),
        f"Colour: device kind; shade: stage. {_others(parts)}Means over repeats; numbers: totals.",
        prose.estimate_sentence(bars, "total_kwh"),
        _idle_sentence(data.stored(parts), parts),
        "Discarded: energy used by killed segments after their last checkpoint, part of the total."
        if (parts["discarded_energy_kwh"] > 0).any()
        else "",
        prose.no_energy_sentence(parts),
    ]
    return [*(sentences if len(parts) else []), *prose.table_notes(parts)]


def _idle_sentence(table: Mapping[str, Any], parts: pd.DataFrame) -> str:
    """Return what is hatched, and whether an idle baseline is not known; the table's notes say why."""
    idle = parts.loc[parts["energy_kwh"].notna(), "idle_energy_kwh"]
    if idle.notna().any():
        unknown = " Bars without hatching: not known." if idle.isna().any() else ""
        return f"Hatched: what the devices would have used idle over the same time.{unknown}"
    if idle.empty or table.get("no_idle"):
        return ""
    return "The idle baseline is not known: the campaign has no usable probe of these devices."


def _others(parts: pd.DataFrame) -> str:
    """Return which stages have the shade of the others, and which were too short to have one."""
    there = set(parts.loc[parts["energy_kwh"] > 0, "stage"])
    others = [stage for stage, label in STAGES.items() if label == OTHER and stage in there]
    short = {stage for text in parts["short_stages"].dropna() for stage in text.split(", ")}
    inside = [stage for stage in STAGES if stage in short]
    sentence = f"Other stages: {', '.join(others)}. " if others else ""
    if inside:
        sentence += (
            f"Unattributed includes stages shorter than {LEAST_PERIODS} sampling periods, "
            f"which cannot be told from those around them: {', '.join(inside)}. "
        )
    return sentence
