"""One page for each run: the power of every device against time, with its stages shaded."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from scalewatt.figures import style
from scalewatt.figures.axes import ROUND, power_axis, time_axis
from scalewatt.figures.save_figure import save
from scalewatt.recordings.terms import NODE, SIMULATED
from scalewatt.results.figures.footnotes import ASSUMED
from scalewatt.results.figures.run_page_table import KINDS, MOST_NODES, RunPage
from scalewatt.results.text.captions import ORIGIN_WORDS, interval_words
from scalewatt.results.text.flag_labels import FLAG_WORDS, counts_processes, read_flags
from scalewatt.results.text.number_format import percent, with_unit

PANEL_WORDS = dict(zip(KINDS, ("GPU", "CPU", "Memory", "Whole node", "GPUs not held"), strict=True))
STAGES: dict[str, tuple[str, str]] = {
    "startup": ("#b0b0b0", ""),
    "stage_data": ("#8a1f4e", "xxx"),
    "train": ("#4a7fc4", ""),
    "evaluate_train": ("#35b199", "..."),
    "validate": ("#e2aa1c", "///"),
    "checkpoint": ("#404040", ""),
    "shutdown": ("#b0b0b0", "\\\\\\"),
}
"""Colour and hatch of each stage in the strip; panels are shaded in a paler tint."""
TINT, BAND_ALPHA = 0.82, 0.3
TITLE_SIZE, SMALL_SIZE = 7.5, 6.0
ENERGY_INTERVAL = ("energy_origin", "energy_low_kwh", "energy_high_kwh")


def save_pages(pages: Iterable[RunPage], results: Path) -> None:
    """Write figures/runs/<configuration>/<repeat>.svg below `results` for each page."""
    for page in pages:
        folder = results / "figures" / "runs" / page.row["configuration"]
        save(draw(page), folder / str(page.row["repeat"]), ["svg"])


def draw(page: RunPage) -> style.Drawing:
    """Draw a strip of stages, and a panel for each node and device kind, or of many nodes for each kind."""
    order = {kind: index for index, kind in enumerate(KINDS)}
    bands = page.bands.assign(order=page.bands["device_kind"].map(order))
    panels = [rows for _, rows in bands.groupby(["node", "order"])]
    count = max(len(panels), 1)
    heights = [4.0, *[max(17.0, min(38.0, 190.0 / count))] * count]
    sentences, title = note_sentences(page), title_lines(page)
    with style.applied():
        n_lines = len(style.note_lines(sentences, style.PAGE.width_mm))
        words_mm = style.lines_mm(n_lines, style.NOTE_SIZE)
        words_mm += style.lines_mm(len(title), 1.5 * TITLE_SIZE)
        figure = style.new_figure(style.PAGE.width_mm, sum(heights) + words_mm + 30)
        grid = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        look: Any = {"fontsize": TITLE_SIZE, "linespacing": 1.5}
        figure.suptitle("\n".join(title), x=0.012, ha="left", **look)
        _draw_strip(grid[0], page)
        if not panels:
            style.say_instead(grid[1], "No power of any device was recorded.")
        for axes, rows in zip(grid[1:], panels, strict=False):
            _draw_panel(axes, rows, page)
        time_axis(grid[-1], page.length_s, "the run began", 10)
        corner: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1.1), "borderaxespad": 0}
        grid[0].legend(handles=_handles(page), ncols=6, handlelength=1.6, **corner)
        style.notes(figure, sentences, whole=True)
    return figure


# --- words ----------------------------------------------------------------------------------------


def title_lines(page: RunPage) -> list[str]:
    """Name the run in lines, with its energy and time, and why it is excluded."""
    row = page.row
    ranks = "processes" if counts_processes(row) else "GPUs"
    energy = "Energy not known"
    if row["energy_kwh"] is not None:
        words = ORIGIN_WORDS[row["energy_origin"]], f"scope {row['energy_scope']}"
        interval = interval_words(*(row[name] for name in ENERGY_INTERVAL))
        energy = f"Energy {with_unit(row['energy_kwh'], 'kWh')} " + ", ".join(
            filter(None, [*words, interval, f"coverage {percent(row['coverage'])}"])
        )
    sentences = [
        f"{row['configuration']}, repeat {row['repeat']}: {ranks} {row['gpus']}, nodes {page.nodes}, "
        f"{row['device_name'] or row['device']}",
        f"{energy}; run time {with_unit(row['runtime_s'] / 3600, 'h', 3)}",
    ]
    if row["excluded"] is not None:
        sentences.append(f"Excluded from tables and figures: {row['excluded']}")
    # Ids of configurations stay whole.
    return [line for text in sentences for line in textwrap.wrap(text, 118, break_on_hyphens=False)]


def note_sentences(page: RunPage) -> list[str]:
    """Sentences on what is shown, waiting between segments, discarded energy, and quality flags."""
    shown = "the devices" if page.nodes > MOST_NODES else "a device's samples"
    sentences = [
        f"Band: least to greatest power; line: mean of {shown}. Gaps shorter than "
        f"{with_unit(page.bin_s / 3600, 'h', 3)} are not seen."
    ]
    if len(page.segments) > 1:
        waited = with_unit(page.segments["waited_s"].sum() / 3600, "h", 3)
        sentences.append(f"Segments: {len(page.segments)}; {waited} between them are left out.")
    if lost := page.row["discarded_energy_kwh"]:
        sentences.append(f"Lost work, which was repeated, used {with_unit(lost, 'kWh')} of it.")
    if page.row["energy_origin"] == SIMULATED:
        sentences.append(ASSUMED)
    codes = dict.fromkeys(flag["code"] for flag in read_flags(page.row["flags"]))
    if codes:
        sentences.append(
            f"Flags (details in the report): {'; '.join(FLAG_WORDS[code] for code in codes)}."
        )
    return sentences


# --- drawing --------------------------------------------------------------------------------------


def _draw_strip(axes: Axes, page: RunPage) -> None:
    """Draw the stages in full colour, with a number where a segment begins."""
    for stage, (colour, hatch) in STAGES.items():
        look: Any = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.broken_barh(_ranges(page, stage), (0, 1), **look)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    small: Any = {"fontsize": SMALL_SIZE}
    if page.spans.empty:
        axes.text(0, 0.5, "no stages were recorded", color=style.GREY, va="center", **small)
    for number, start_s in page.segments["start_s"].iloc[1:].items():
        text = axes.text(start_s, 1, f"segment {number}", va="bottom", ha="center", **small)
        text.set_in_layout(False)


def _ranges(page: RunPage, stage: str) -> list[tuple[float, float]]:
    spans = page.spans[page.spans["stage"] == stage]
    return list(zip(spans["start_s"], spans["end_s"] - spans["start_s"], strict=True))


def _draw_panel(axes: Axes, bands: pd.DataFrame, page: RunPage) -> None:
    """Draw the devices of a kind of a node, or of all nodes, over the tints of the stages."""
    axes.set_ylabel(_label(bands, page), fontsize=SMALL_SIZE + 0.5)
    tinted: Any = {"transform": axes.get_xaxis_transform(), "linewidth": 0, "zorder": 0}
    for stage, (colour, _) in STAGES.items():
        tint = style.paler(colour, TINT)
        axes.broken_barh(_ranges(page, stage), (0, 1), facecolor=tint, **tinted)
    for index, band in bands.groupby("device_index"):
        colour = _colour(index)
        ends = band["time_s"], band["low_w"], band["high_w"]
        axes.fill_between(*ends, color=colour, alpha=BAND_ALPHA, linewidth=0)
        axes.plot(band["time_s"], band["mean_w"], color=colour, linewidth=0.7, alpha=0.9)
    power_axis(axes, pd.concat([bands["low_w"], bands["high_w"]]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=ROUND))
    for start_s in page.segments["start_s"].iloc[1:]:
        axes.axvline(start_s, color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))


def _label(bands: pd.DataFrame, page: RunPage) -> str:
    """Name the device kind, and the node or how many nodes and devices."""
    node, kind = bands[["node", "device_kind"]].iloc[0]
    devices = int((page.devices["device_kind"] == kind).sum())
    nodes = f"({page.nodes} nodes)" if kind == NODE else f"({devices} on {page.nodes} nodes)"
    where = [node or nodes] if page.nodes > 1 else []
    return "\n".join([PANEL_WORDS[kind], *where, "power (W)"])


def _handles(page: RunPage) -> list[Any]:
    """Legend entries of the stages that occur, and of the devices' colours."""
    stages = set(page.spans["stage"])
    look: Any = {"edgecolor": "white", "linewidth": 0}
    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, label=stage.replace("_", " "), **look)
        for stage, (colour, hatch) in STAGES.items()
        if stage in stages
    ]
    indices = sorted(page.bands["device_index"].unique())
    if len(indices) > 1:
        handles += [Line2D([], [], color=_colour(i), label=f"device {i}") for i in indices]
    return handles


def _colour(device_index: Any) -> str:
    return style.COLOURS[max(int(device_index), 0) % len(style.COLOURS)]
