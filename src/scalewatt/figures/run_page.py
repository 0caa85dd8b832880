"""One page for each run: the power of every device against time, with its stages shaded."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose, style, traces
from scalewatt.figures.save_figure import save
from scalewatt.recordings.terms import NODE, SIMULATED
from scalewatt.results.figures.footnotes import ASSUMED
from scalewatt.results.figures.run_page_table import KINDS, MOST_NODES, RunPage
from scalewatt.results.text.flag_labels import (
    FLAG_WORDS,
    absent_kinds,
    counts_processes,
    read_flags,
)
from scalewatt.results.text.number_format import percent, with_unit

PANEL_WORDS = prose.KIND_WORDS | {
    "ram": "Memory",
    "unused_gpu": "GPUs not held",
    "node": "Whole node",
}
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
MOST_FLAGS = 8
TITLE_SIZE = 7.5
_SMALL = 6.0
"""Size of small words: the panels of a page are lower than those of other figures."""


def save_pages(pages: Iterable[RunPage], results: Path) -> list[Path]:
    """Write figures/runs/<configuration>/<repeat>.svg below `results` for each page."""
    folder = results / "figures" / "runs"
    return [
        path
        for page in pages
        for path in save(
            draw(page), folder / page.row["configuration"] / str(page.row["repeat"]), ["svg"]
        )
    ]


def draw(page: RunPage) -> Figure:
    """Draw a strip of stages, and a panel for each node and device kind, or of many nodes for each kind."""
    order = {kind: place for place, kind in enumerate(KINDS)}
    bands = page.bands.assign(place=page.bands["device_kind"].map(order))
    panels = [rows for _, rows in bands.groupby(["node", "place"])]
    count = max(len(panels), 1)
    heights = [4.0, *[max(17.0, min(38.0, 190.0 / count))] * count]
    sentences = note_sentences(page)
    with style.applied():
        words_mm = style.lines_mm(
            len(style.note_lines(sentences, style.PAGE)), style.PAGE.note_size
        )
        words_mm += style.lines_mm(title(page).count("\n") - 1, 1.5 * TITLE_SIZE)
        figure = style.new_figure(sum(heights) + words_mm + 34)
        grid = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        figure.suptitle(title(page), x=0.012, ha="left", fontsize=TITLE_SIZE, linespacing=1.5)
        _draw_strip(grid[0], page)
        if not panels:
            style.say_instead(grid[1], "No power of any device was recorded.")
        for axes, rows in zip(grid[1:], panels, strict=False):
            _draw_panel(axes, rows, page)
        traces.time_axis(grid[-1], page.length_s, "the run began", 10)
        if len(page.segments) > 1:
            _name_segments(grid[1], page)
        place: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1.1), "borderaxespad": 0}
        grid[0].legend(handles=_handles(page), ncols=6, handlelength=1.6, **place)
        style.notes(figure, sentences, most=None)
    return figure


# --- words ----------------------------------------------------------------------------------------


def title(page: RunPage) -> str:
    """Say in two or three lines which run it is, its totals with origin and scope, why it is excluded."""
    row = page.row
    nodes = f"{page.nodes} node{'s' if page.nodes != 1 else ''}"
    ranks = prose.counted(row["gpus"], "processes" if counts_processes(row) else "GPUs")
    lines = [
        f"{row['configuration']}, repeat {row['repeat']}: {ranks} on {nodes},"
        f" {row['device_name'] or row['device']}",
        f"{energy_words(row)}; run time {with_unit(row['runtime_s'] / 3600, 'h', 3)}",
    ]
    if row["excluded"] is not None:
        lines.append(f"Excluded from tables and figures: {row['excluded']}")
    characters = int(style.PAGE.note_characters * style.PAGE.note_size / TITLE_SIZE)
    # Configurations stay whole.
    wrapped = (textwrap.wrap(line, characters, break_on_hyphens=False) for line in lines)
    return "\n".join(part for line in wrapped for part in line)


def energy_words(row: Mapping[str, Any]) -> str:
    """State the energy with origin, interval, scope and coverage, or what was recorded of an unknown one."""
    scope, coverage = row["energy_scope"], row["coverage"]
    covered = "" if coverage is None else f", coverage {percent(coverage)}"
    if scope is None:
        return "No device has a sensor or an estimate, so no energy"
    if row["energy_kwh"] is None:
        recorded = with_unit(row["recorded_energy_kwh"] or 0.0, "kWh")
        return f"Energy not known ({recorded} recorded of {scope}{covered})"
    phrase = prose.origin_phrase(row["energy_origin"], scope)
    ends = row["energy_low_kwh"], row["energy_high_kwh"]
    if lies := prose.open_interval(row["energy_origin"], *ends):
        phrase += f" ({lies})"
    return f"Energy {with_unit(row['energy_kwh'], 'kWh')} {phrase}, scope {scope}{covered}"


def note_sentences(page: RunPage) -> list[str]:
    """Make the notes: what is shown, waiting between segments, discarded energy, and quality flags."""
    shown = "the devices" if page.nodes > MOST_NODES else "a device's samples"
    sentences = [
        f"Band: least to greatest power; line: mean of {shown}. Gaps shorter than "
        f"{with_unit(page.place_s / 3600, 'h', 3)} are not seen."
    ]
    if len(page.segments) > 1:
        waited = with_unit(page.segments["waited_s"].sum() / 3600, "h", 3)
        sentences.append(
            f"{len(page.segments)} segments, one after another; the waiting between them"
            f" ({waited}) is left out."
        )
    if lost := page.row["discarded_energy_kwh"]:
        sentences.append(f"{with_unit(lost, 'kWh')} of it were lost work, which was repeated.")
    if page.row["energy_origin"] == SIMULATED:
        sentences.append(ASSUMED)
    flags = pd.DataFrame(read_flags(page.row["flags"]), columns=["code", "device", "detail"])
    kinds = [rows for _, rows in flags[flags["code"] != "absent"].groupby("code", sort=False)]
    sentences += map(_flag_sentence, kinds[:MOST_FLAGS])
    if len(kinds) > MOST_FLAGS:
        sentences.append(
            f"… and {len(kinds) - MOST_FLAGS} more kinds of flags, in the energy table."
        )
    if absent := absent_kinds(page.row):
        sentences.append(f"Neither a sensor nor an estimate: {', '.join(absent)}.")
    return [*sentences, *(["No flags."] if flags.empty else [])]


def _flag_sentence(flags: pd.DataFrame) -> str:
    """State the first flag of a kind, and how many more of the kind there are."""
    code, device, detail = flags[["code", "device", "detail"]].iloc[0]
    words = FLAG_WORDS.get(code, code.replace("_", " "))
    more = f" (and {len(flags) - 1} more of this kind)" if len(flags) > 1 else ""
    return f"{words[:1].upper()}{words[1:]}{f' ({device})' if device else ''}: {detail}{more}"


# --- drawing --------------------------------------------------------------------------------------


def _draw_strip(axes: Axes, page: RunPage) -> None:
    """Draw the stages in full colour, labelled where there is room."""
    for stage, (colour, hatch) in STAGES.items():
        look: Any = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.broken_barh(_ranges(page, stage), (0, 1), **look)
    box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.5}
    place: Any = {"ha": "center", "va": "center_baseline", "fontsize": _SMALL, "bbox": box}
    for span in data.each(page.spans):
        words = span.stage.replace("_", " ")
        if span.end_s - span.start_s > 0.0125 * len(words) * page.length_s:
            middle = (span.start_s + span.end_s) / 2
            axes.text(middle, 0.5, words, **place).set_in_layout(False)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    if page.spans.empty:
        axes.text(0, 0.5, "no stages were recorded", color=style.GREY, fontsize=_SMALL, va="center")


def _ranges(page: RunPage, stage: str) -> list[tuple[float, float]]:
    spans = page.spans[page.spans["stage"] == stage]
    return list(zip(spans["start_s"], spans["end_s"] - spans["start_s"], strict=True))


def _draw_panel(axes: Axes, bands: pd.DataFrame, page: RunPage) -> None:
    """Draw the devices of a kind of a node, or of all nodes, over the tints of the stages."""
    axes.set_ylabel(_label(bands, page), fontsize=_SMALL + 0.5)
    tinted: Any = {"transform": axes.get_xaxis_transform(), "linewidth": 0, "zorder": 0}
    for stage, (colour, _) in STAGES.items():
        tint = style.paler(colour, TINT)
        axes.broken_barh(_ranges(page, stage), (0, 1), facecolor=tint, **tinted)
    for index in sorted(bands["device_index"].unique()):
        band, colour = bands[bands["device_index"] == index], _colour(index)
        ends = band["time_s"], band["low_w"], band["high_w"]
        axes.fill_between(*ends, color=colour, alpha=BAND_ALPHA, linewidth=0)
        axes.plot(band["time_s"], band["mean_w"], color=colour, linewidth=0.7, alpha=0.9)
    traces.power_axis(axes, pd.concat([bands["low_w"], bands["high_w"]]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=style.ROUND))
    for start_s in page.segments["start_s"].iloc[1:]:
        axes.axvline(start_s, color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))


def _label(bands: pd.DataFrame, page: RunPage) -> str:
    """Name the device kind, and the node or how many nodes and devices."""
    node, kind = bands[["node", "device_kind"]].iloc[0]
    devices = int((page.devices["device_kind"] == kind).sum())
    nodes = f"({page.nodes} nodes)" if kind == NODE else f"({devices} on {page.nodes} nodes)"
    where = node or nodes
    return "\n".join([PANEL_WORDS[kind], *([where] if page.nodes > 1 else []), "power (W)"])


def _name_segments(axes: Axes, page: RunPage) -> None:
    for segment in data.each(page.segments):
        text = f"segment {segment.Index}"
        if segment.end_s - segment.start_s < 0.0095 * len(text) * page.length_s:
            text = f"{segment.Index}"
        axes.annotate(
            text,
            (segment.start_s, 1),
            (2, -1),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            va="top",
            fontsize=_SMALL,
            bbox={"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.3},
        ).set_in_layout(False)


def _handles(page: RunPage) -> list[Any]:
    """Legend entries of the stages that occur, and of the devices' colours."""
    stages = set(page.spans["stage"])
    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0, label=_words(stage))
        for stage, (colour, hatch) in STAGES.items()
        if stage in stages
    ]
    indices = sorted(page.bands["device_index"].unique())
    if len(indices) > 1:
        handles += [
            Line2D([], [], color=_colour(index), label=f"device {index}") for index in indices
        ]
    return handles


def _colour(device_index: int) -> str:
    return style.COLOURS[max(device_index, 0) % len(style.COLOURS)]


def _words(stage: str) -> str:
    return stage.replace("_", " ")
