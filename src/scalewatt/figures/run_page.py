"""One page for each run: the power of every device against time, with its stages shaded."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import prose, style
from scalewatt.figures.output.save_figure import save
from scalewatt.recordings.terms import NODE, SIMULATED
from scalewatt.results.figures.footnotes import ASSUMED
from scalewatt.results.figures.run_page_table import (
    BINS,
    Band,
    RunPage,
    Segment,
    Span,
    Trace,
)
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
TINT = 0.82
MOST_FLAGS = 8
PAGE_FORMATS = ("svg",)
"""What a page is drawn as unless others are asked for; there may be hundreds of pages."""
_POWER, _CLOCK = "\npower (W)", "\nGPU clock (MHz)"
TITLE_SIZE = 7.5
# Where a run's page has its small words: its panels are lower than those of other figures.
_SMALL = 6.0


def save_pages(
    pages: Iterable[RunPage], results: Path, formats: Sequence[str] = PAGE_FORMATS
) -> list[Path]:
    """Write figures/runs/<configuration>/<repeat> below `results` for each page, in each of `formats`."""
    folder = results / "figures" / "runs"
    return [
        path
        for page in pages
        for path in save(
            draw(page), folder / page.row["configuration"] / str(page.row["repeat"]), formats
        )
    ]


def draw(page: RunPage) -> Figure:
    """Draw a strip of stages, and a panel for each node and device kind, or of many nodes for each kind."""
    panels = _panels(page)
    heights = [4.0, *([max(17.0, min(38.0, 190.0 / max(len(panels), 1)))] * max(len(panels), 1))]
    sentences = note_sentences(page)
    with style.applied():
        small = style.lines_mm(len(style.note_lines(sentences, style.PAGE)), style.PAGE.note_size)
        small += style.lines_mm(title(page).count("\n") - 1, 1.5 * TITLE_SIZE)
        figure = style.new_figure(sum(heights) + small + 34)
        grid = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
        figure.suptitle(title(page), x=0.012, ha="left", fontsize=TITLE_SIZE, linespacing=1.5)
        _draw_strip(grid[0], page)
        if not panels:
            style.say_instead(grid[1], "No power of any device was recorded.")
        for axes, (words, lines) in zip(grid[1:], panels, strict=False):
            _draw_panel(axes, words, lines, page)
            if words.endswith(_CLOCK):
                asked = {"color": style.INK, "linewidth": 0.7, "linestyle": (0, (4, 2))}
                axes.axhline(page.row["gpu_clock_mhz"], gid="asked", **asked)
        _time_axis(grid, page)
        place: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1.1), "borderaxespad": 0}
        grid[0].legend(handles=_handles(page), ncols=6, handlelength=1.6, **place)
        style.notes(figure, sentences, most=None)
    return figure


def title(page: RunPage) -> str:
    """Return two or three lines: which run, its totals with their origin and scope, why it is excluded."""
    row = page.row
    nodes = f"{len(page.nodes)} node{'s' if len(page.nodes) != 1 else ''}"
    ranks = prose.counted(row["gpus"], "processes" if counts_processes(row) else "GPUs")
    lines = [
        f"{row['configuration']}, repeat {row['repeat']}: {ranks} on {nodes},"
        f" {row['device_name'] or row['device']}",
        f"{energy_words(row)}; run time {with_unit(row['runtime_s'] / 3600, 'h', 3)}",
    ]
    if row["excluded"] is not None:
        lines.append(f"Excluded from tables and figures: {row['excluded']}")
    return "\n".join(part for line in lines for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    """Return the lines of a title that is as wide as the page at most; configurations stay whole."""
    characters = int(style.PAGE.note_characters * style.PAGE.note_size / TITLE_SIZE)
    return textwrap.wrap(line, characters, break_on_hyphens=False)


def energy_words(row: Mapping[str, Any]) -> str:
    """Return energy with origin, interval, scope and coverage, or what was recorded where
    the energy is unknown."""
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
    """Return notes: what is shown, waiting between segments, discarded energy, and quality flags."""
    sentences = [_shown_sentence(page)]
    waited = sum(one.waited_s for one in page.segments)
    if len(page.segments) > 1:
        sentences.append(
            f"{len(page.segments)} segments, one after another; the waiting between them"
            f" ({with_unit(waited / 3600, 'h', 3)}) is left out."
        )
    if page.clocks is not None:
        sentences.append("Dashed: the clock that was asked for.")
    lost = page.row["discarded_energy_kwh"]
    if lost:
        sentences.append(f"{with_unit(lost, 'kWh')} of it were lost work, which was repeated.")
    if page.row["energy_origin"] == SIMULATED:
        sentences.append(ASSUMED)
    flags = read_flags(page.row["flags"])
    found = _flag_sentences(one for one in flags if one["code"] != "absent")
    sentences += found[:MOST_FLAGS]
    if len(found) > MOST_FLAGS:
        sentences.append(
            f"… and {len(found) - MOST_FLAGS} more kinds of flags, in the energy table."
        )
    if absent := absent_kinds(page.row):
        sentences.append(f"Neither a sensor nor an estimate: {', '.join(absent)}.")
    return sentences if flags else [*sentences, "No flags."]


def _shown_sentence(page: RunPage) -> str:
    """Return what lines and bands stand for, and what they cannot show."""
    if page.place_s is None:
        return "Every sample; gaps are gaps."
    unseen = f"Gaps shorter than {with_unit(page.place_s / 3600, 'h', 3)} are not seen."
    if page.bands:
        return f"Band: least to greatest power of a device; line: mean of the devices. {unseen}"
    return f"Strokes reach from the least to the greatest sample of their place. {unseen}"


def _flag_sentences(flags: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a sentence for each flag of a kind once, and how many more of the kind there are."""
    by_code: dict[str, list[Mapping[str, str]]] = {}
    for one in flags:
        by_code.setdefault(one["code"], []).append(one)
    return [
        _flag_sentence(own[0]) + (f" (and {len(own) - 1} more of this kind)" if own[1:] else "")
        for own in by_code.values()
    ]


def _flag_sentence(one: Mapping[str, str]) -> str:
    words = FLAG_WORDS.get(one["code"], one["code"].replace("_", " "))
    device = f" ({one['device']})" if one["device"] else ""
    return f"{words[:1].upper()}{words[1:]}{device}: {one['detail']}"


def visible_spans(spans: Sequence[Span], length_s: float) -> list[Span]:
    """Return the stages in at most BINS parts of the time: each part shows the stage that fills most of it.

    Short runs keep their stages as they are.
    """
    if not spans or len(spans) < 40 or length_s <= 0:
        return list(spans)
    width = length_s / BINS
    names = sorted({span.stage for span in spans})
    filled = np.zeros((len(names), BINS))
    for span in spans:
        edges = np.arange(BINS + 1) * width
        first = min(int(span.start_s / width), BINS - 1)
        last = min(int(span.end_s / width), BINS - 1)
        low = np.maximum(edges[first : last + 1], span.start_s)
        high = np.minimum(edges[first + 1 : last + 2], span.end_s)
        filled[names.index(span.stage), first : last + 1] += np.maximum(high - low, 0.0)
    winners = np.where(filled.max(axis=0) > 0, filled.argmax(axis=0), -1)
    cuts = [0, *(np.flatnonzero(np.diff(winners)) + 1).tolist(), BINS]
    return [
        Span(names[winners[start]], start * width, end * width)
        for start, end in pairwise(cuts)
        if winners[start] >= 0
    ]


Lines = Sequence[Trace] | Band


def _panels(page: RunPage) -> list[tuple[str, Lines]]:
    """Return the label of each panel, and what it shows; a clock that was asked for comes last."""
    if page.bands:
        nodes = len(page.nodes)
        apart = {NODE: f"\n({nodes} nodes)"}
        found: list[tuple[str, Lines]] = [
            (
                PANEL_WORDS[one.device_kind]
                + apart.get(one.device_kind, f"\n({one.devices} on {nodes} nodes)")
                + _POWER,
                one,
            )
            for one in page.bands
        ]
    else:
        found = [
            (words + _POWER, own)
            for (_, kind), own in _by_node(page.traces)
            for words in [PANEL_WORDS[kind] + _on_node(own, page)]
        ]
    if isinstance(page.clocks, Band):
        found.append((_CLOCK, page.clocks))
    elif page.clocks is not None:
        found += [(_on_node(own, page).strip() + _CLOCK, own) for _, own in _by_node(page.clocks)]
    return found


def _by_node(traces: Iterable[Trace]) -> Iterable[tuple[tuple[str, str], list[Trace]]]:
    """Return the traces of each node and device kind."""
    groups: dict[tuple[str, str], list[Trace]] = {}
    for trace in traces:
        groups.setdefault(trace.device[:2], []).append(trace)
    return groups.items()


def _on_node(traces: Sequence[Trace], page: RunPage) -> str:
    return f"\n{traces[0].device[0]}" if len(page.nodes) > 1 else ""


def _length(page: RunPage) -> float:
    return page.segments[-1].end_s if page.segments else 0.0


def _draw_strip(axes: Axes, page: RunPage) -> None:
    """Draw the stages in full colour, labelled where there is room."""
    length = _length(page)
    shown = visible_spans(page.spans, length)
    for stage, (colour, hatch) in STAGES.items():
        ranges = [(one.start_s, one.end_s - one.start_s) for one in shown if one.stage == stage]
        if ranges:
            axes.broken_barh(
                ranges, (0, 1), facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0
            )
    for one in shown:
        words = one.stage.replace("_", " ")
        if one.end_s - one.start_s > 0.0125 * len(words) * length:
            middle = (one.start_s + one.end_s) / 2
            box = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.5}
            place: Any = {"ha": "center", "va": "center_baseline", "fontsize": _SMALL, "bbox": box}
            axes.text(middle, 0.5, words, **place).set_in_layout(False)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    if not page.spans:
        axes.text(0, 0.5, "no stages were recorded", color=style.GREY, fontsize=_SMALL, va="center")


def _draw_panel(axes: Axes, words: str, lines: Lines, page: RunPage) -> None:
    axes.set_ylabel(words, fontsize=_SMALL + 0.5)
    shown = visible_spans(page.spans, _length(page))
    for stage, (colour, _) in STAGES.items():
        ranges = [(one.start_s, one.end_s - one.start_s) for one in shown if one.stage == stage]
        if ranges:
            axes.broken_barh(
                ranges,
                (0, 1),
                transform=axes.get_xaxis_transform(),
                facecolor=style.paler(colour, TINT),
                linewidth=0,
                zorder=0,
            )
    if isinstance(lines, Band):
        colour = style.COLOURS[0]
        axes.fill_between(
            lines.time_s, lines.low_w, lines.high_w, color=style.paler(colour, 0.55), linewidth=0
        )
        axes.plot(lines.time_s, lines.mean_w, color=colour, linewidth=0.7)
        values = np.concatenate([lines.low_w, lines.high_w])
    else:
        for place, trace in enumerate(lines):
            look: Any = {"color": style.COLOURS[place % len(style.COLOURS)], "linewidth": 0.6}
            axes.plot(trace.time_s, trace.power_w, **look, alpha=0.9)
        values = np.concatenate([trace.power_w for trace in lines])
    known = values[np.isfinite(values)]
    if len(known):
        style.linear_axis(axes, [float(known.min()), float(known.max())], from_zero=True)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=style.ROUND))
    for segment in page.segments[1:]:
        axes.axvline(segment.start_s, color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))


def _time_axis(grid: Sequence[Axes], page: RunPage) -> None:
    """Set the same time on all axes, in a unit that suits it; label segments over the first panel."""
    length = _length(page) or 1.0
    unit, words = next(
        (unit, words)
        for unit, words, least in ((3600.0, "h", 7200.0), (60.0, "min", 180.0), (1.0, "s", 0.0))
        if length >= least
    )
    last = grid[-1]
    last.set_xlim(0, length)
    last.set_xlabel(f"Time since the start ({words})")
    steps = MaxNLocator(nbins=10, steps=style.ROUND).tick_values(0, length / unit)
    last.set_xticks([step * unit for step in steps if 0 <= step * unit <= length])
    last.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: style.plain_number(round(value / unit, 6)))
    )
    if len(page.segments) > 1:
        for segment in page.segments:
            _name_segment(grid[1], segment, length)


def _name_segment(axes: Axes, segment: Segment, length: float) -> None:
    text = f"segment {segment.number}"
    if segment.end_s - segment.start_s < 0.0095 * len(text) * length:
        text = f"{segment.number}"
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
    """Return legend entries of the stages that occur, and of the devices' colours."""
    there = {span.stage for span in page.spans}
    handles: list[Any] = [
        Patch(facecolor=colour, hatch=hatch, edgecolor="white", linewidth=0, label=_words(stage))
        for stage, (colour, hatch) in STAGES.items()
        if stage in there
    ]
    indices = sorted({trace.device[2] for trace in page.traces})
    if len(indices) > 1:
        for place, index in enumerate(indices):
            colour = style.COLOURS[place % len(style.COLOURS)]
            handles.append(Line2D([], [], color=colour, label=f"device {index}"))
    return handles


def _words(stage: str) -> str:
    return stage.replace("_", " ")
