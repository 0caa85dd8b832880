"""Figure `variants`: cost and quality of variants of one training."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, prose, style
from scalewatt.results.figures.figure_schema import panel_letter
from scalewatt.results.tables.frames import records

Row = dict[str, Any]

SLOT_MM, NARROW_SLOT_MM = 3.9, 4.8
"""Height of one line of a panel; at column width long ones are broken into two."""
NARROW_CHARACTERS = 20
PANEL_EXTRA_MM = 15.0
COLUMNS = style.PAGE.columns
PANELS = 6
"""Of one block."""
NO_ERROR = "synthetic"
COLOURS = {
    "Baseline": 0,
    "Protocol": 1,
    "Loader": 2,
    "Precision": 3,
    "Layout and compilation": 5,
    "Several": 6,
}
"""Of the table's groups, each with a marker of its own; any other is grey."""
_GREY = 4
LONGEST_OPEN = 2.0
"""How far intervals of estimates may lengthen an axis, in parts of what else is on it."""
_SHORT_H, _SMALL_KWH = 0.5, 0.5
"""Below these, time is shown in s and energy in Wh."""


@dataclass(frozen=True)
class Shown:
    """One panel: the table's column, the axis label, and by what its values are multiplied."""

    column: str
    label: str
    factor: float = 1.0


@dataclass(frozen=True)
class Slot:
    """One line of the y axis: a group's heading, or one of its variants."""

    y: float
    text: str
    row: Row | None
    colour: int


def draw(frame: pd.DataFrame) -> Figure:
    """Draw a block of six panels per model and phase: a dot and its interval for each variant."""
    width = data.options(frame).width_mm
    preset = style.preset(width)
    columns = preset.columns
    blocks = [(own, list(slots_of(records(own)))) for own in data.blocks_of(frame)]
    deep = PANELS // columns
    slot_mm = NARROW_SLOT_MM if preset.narrow else SLOT_MM
    heights = [len(slots) * slot_mm + PANEL_EXTRA_MM for _, slots in blocks for _ in range(deep)]
    sentences = _note_sentences(frame)
    lines = len(style.note_lines(sentences, width)) + 1
    with style.applied(width):
        height = sum(heights or [40.0]) + style.lines_mm(lines, preset.note_size)
        figure = style.new_figure(height, width)
        if blocks:
            grid = figure.subplots(
                len(heights), columns, squeeze=False, gridspec_kw={"height_ratios": heights}
            )
            for index, (own, slots) in enumerate(blocks):
                axes = grid[deep * index : deep * (index + 1)].ravel().tolist()
                letters = letters_of(index, len(axes))
                _draw_block(axes, own, slots, letters, data.gpu_word(frame), columns)
        else:
            sentence = prose.nothing_sentence(data.stored(frame), "these variants")
            style.say_instead(figure.subplots(), sentence)
        style.notes(figure, sentences)
    return figure


def letters_of(block: int, count: int) -> list[str]:
    """Return the letters of the `count` panels of a block; every block before it has as many."""
    return [panel_letter(block * count + place) for place in range(count)]


def panels_of(points: pd.DataFrame) -> list[Shown]:
    """Return the six panels of one block, in units that suit its numbers."""
    on_gpus = points["mean_gpu_power_w_mean"].notna().any()
    power = "mean_gpu_power_w" if on_gpus else "mean_cpu_socket_power_w"
    of = "GPU" if on_gpus else "CPU socket"
    short = max(points["runtime_h_mean"].dropna(), default=0.0) < _SHORT_H
    small = max(points["energy_kwh_mean"].dropna(), default=0.0) < _SMALL_KWH
    return [
        Shown("runtime_h", "Run time (s)", 3600.0) if short else Shown("runtime_h", "Run time (h)"),
        Shown("energy_kwh", "Energy (Wh)", 1e3) if small else Shown("energy_kwh", "Energy (kWh)"),
        Shown("energy_per_sample_j", "Energy per sample (J)"),
        Shown(power, f"Power per {of} (W)"),
        Shown("step_data_share", "Waiting for data (%)", 100.0),
        Shown("metric_last", prose.metric_words(points)),
    ]


def slots_of(rows: Sequence[Row]) -> Iterator[Slot]:
    """Return the lines of the y axis from the top (y = 0) down; a group with variants has a heading."""
    y = 0.0
    several_n = len({row["gpus"] for row in rows}) > 1
    for group in dict.fromkeys(row["group"] for row in rows):
        colour = COLOURS.get(group, _GREY)
        own = [row for row in rows if row["group"] == group]
        if not all(_is_baseline(row) for row in own):
            yield Slot(y, group, None, colour)
            y -= 1
        for row in own:
            n = f", n = {row['gpus']}" if several_n else ""
            yield Slot(y, _words(row) + n, row, colour)
            y -= 1


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points that are drawn, one row each, in the table's units."""
    found = []
    for index, own in enumerate(data.blocks_of(frame)):
        panels = panels_of(own)
        for letter, shown in zip(letters_of(index, len(panels)), panels, strict=True):
            ends = {f"{shown.column}_{end}": end for end in ENDS}
            points = own[own[f"{shown.column}_mean"].notna()].rename(columns=ends)
            points = points.assign(panel=letter, quantity=shown.column)
            found.append(points.reindex(columns=PLOTTED.names))
    return pd.concat(found) if found else frame.reindex(columns=PLOTTED.names)


ENDS = ("mean", "low", "high", "estimate_low", "estimate_high")
PLOTTED = pa.schema(
    [
        *(
            (name, pa.string())
            for name in ("panel", "model", "phase", "configuration", "series", "group", "differs")
        ),
        ("quantity", pa.string()),
        *((name, pa.float64()) for name in ENDS),
        ("n_repeats", pa.int32()),
        ("energy_origin", pa.string()),
        ("energy_scope", pa.string()),
    ]
)
"""The columns of the plotted points, which are not those of the table."""


def _draw_block(
    grid: Sequence[Axes],
    points: pd.DataFrame,
    slots: Sequence[Slot],
    letters: Sequence[str],
    word: str,
    columns: int,
) -> None:
    for place, (axes, shown, letter) in enumerate(
        zip(grid, panels_of(points), letters, strict=True)
    ):
        style.panel_letter(axes, letter)
        if place == 0:
            _draw_title(axes, _broken(_title(points, word), columns))
        axes.set_ylim(slots[-1].y - 0.7, slots[0].y + 0.7)
        axes.grid(visible=False, axis="y")
        if points[f"{shown.column}_mean"].notna().any():
            _draw_panel(axes, shown, slots, letter)
        else:
            axes.set_xticks([])
            axes.set_xlabel(shown.label)
            _say_inside(axes, 0.5, (slots[0].y + slots[-1].y) / 2, "none of these runs has a value")
        _label_slots(axes, slots, place % columns == 0, columns)


def _draw_title(axes: Axes, title: str) -> None:
    """Write the title left of the panel's letter, over the names of the variants."""
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(title, (0, 1), xytext=(-20, 4), ha="right", fontweight="bold", **place)


def _draw_panel(axes: Axes, shown: Shown, slots: Sequence[Slot], letter: str) -> None:
    drawn = [slot for slot in slots if slot.row is not None]
    extent: list[float] = []
    open_: list[float] = []
    for slot in drawn:
        row = slot.row or {}
        mean, low, high, least, most = (
            None if (v := row.get(f"{shown.column}_{end}")) is None else v * shown.factor
            for end in ENDS
        )
        if mean is None:
            random = shown.column == "metric_last" and row["loader"] == NO_ERROR
            _say_inside(axes, 0.03, slot.y, "none: random data" if random else "no value", "left")
            continue
        # What is never negative has no axis below zero; an interval that reaches there is cut.
        extent += [max(v, min(mean, 0.0)) for v in (mean, low, high) if v is not None]
        if _is_baseline(row):
            _draw_baseline(axes, mean, low, high)
        look = style.series_style(slot.colour) | {"linestyle": "none", "markersize": 4.5}
        look |= style.origin_style(row["energy_origin"])
        (dot,) = axes.plot([mean], [slot.y], **look, zorder=3)
        dot.set_gid(f"points-{letter}-{row['configuration']}")
        if low is not None and high is not None:
            axes.plot([low, high], [slot.y] * 2, color=look["color"], linewidth=0.9, zorder=2)
        if least is not None and most is not None:
            bar = axes.hlines(slot.y, least, most, **_OPEN, color=look["color"])
            bar.set_gid(f"estimates-{letter}")
            open_ += [least, most]
    limit = LONGEST_OPEN * max(extent)
    _scale(axes, [*extent, *(min(end, limit) for end in open_)])
    axes.set_xlabel(shown.label)


_OPEN: Any = {"linewidth": layout.ESTIMATE_WIDTH, "alpha": layout.ESTIMATE_ALPHA, "zorder": 1.5}


def _draw_baseline(axes: Axes, mean: float, low: float | None, high: float | None) -> None:
    axes.axvline(mean, color=style.GREY, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    if low is not None and high is not None:
        axes.axvspan(low, high, color=style.GREY, alpha=0.12, linewidth=0, zorder=0)


def _scale(axes: Axes, extent: Sequence[float]) -> None:
    """Set a linear axis around the dots, from zero where that takes less than half of the width."""
    low, high = min(extent), max(extent)
    start = 0.0 if 0 <= low <= 0.5 * high else low
    room = 0.06 * (high - start) or 0.06 * abs(high) or 1.0
    axes.set_xlim(start if start == 0 and low > room else start - room, high + room)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=style.ROUND))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: style.plain_number(value)))


def _label_slots(axes: Axes, slots: Sequence[Slot], labelled: bool, columns: int) -> None:
    texts = [_broken(slot.text, columns) for slot in slots]
    axes.set_yticks([slot.y for slot in slots], texts)
    size = 6.5 if columns == COLUMNS else 6.0
    axes.tick_params(axis="y", length=0, labelleft=labelled, labelsize=size)
    if columns < COLUMNS:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=3, steps=style.ROUND))
    if labelled:
        for slot, label in zip(slots, axes.get_yticklabels(), strict=True):
            label.set_linespacing(0.95)
            if slot.row is None:
                label.set_fontweight("bold")


def _broken(text: str, columns: int) -> str:
    """Return text broken into two lines where the figure is as wide as a column."""
    return text if columns == COLUMNS else textwrap.fill(text, NARROW_CHARACTERS)


def _say_inside(axes: Axes, x: float, y: float, words: str, align: str = "center") -> None:
    """Write a small grey text at a line of the y axis, `x` as a share of the width."""
    style_: dict[str, Any] = {"ha": align, "va": "center", "fontsize": 6, "color": style.GREY}
    axes.text(x, y, words, transform=axes.get_yaxis_transform(), **style_)


def _words(row: Row) -> str:
    if _is_baseline(row):
        return "baseline"
    used, precision = row["precision_used"], row["precision"]
    computed = "precision" in row["differs"] and used not in (None, precision)
    return row["differs"] + (f" (in {_spoken(used)})" if computed else "")


def _spoken(precision: str | None) -> str:
    return (precision or "unknown precision").replace("_", " ")


def _is_baseline(row: Row) -> bool:
    return bool(row["configuration"] == row["baseline"])


def _title(points: pd.DataFrame, word: str) -> str:
    first = points.iloc[0]
    phase = "" if first["phase"] == "train" else f" {first['phase']}"
    n = f", {prose.counted(first['gpus'], word)}" if points["gpus"].nunique() == 1 else ""
    one_size = points["local_batch_size"].nunique() == 1
    return f"{first['model']}{phase}{n}" + (f", LBS {first['local_batch_size']}" * one_size)


def _note_sentences(frame: pd.DataFrame) -> list[str]:
    rows = records(frame)
    baselines = [
        f"{row['model']}: {row['differs']} (in {_spoken(row['precision_used'])})"
        for row in rows
        if _is_baseline(row)
    ]
    return [
        f"{prose.origin_sentence(frame)} {prose.device_sentence(frame)}",
        f"Baselines (dashed lines): {'; '.join(baselines)}." if baselines else "",
        f"{_interval_sentence(rows)} Power: mean over the run. Waiting for data: share of a "
        "step in which the GPU (on CPUs the process) has nothing to compute."
        if rows
        else "",
        _open_sentence(frame),
        "Loader synthetic computes on random data that is on the device from the start: it has no "
        "error, and shows the cost without loading."
        if any(row["loader"] == NO_ERROR for row in rows)
        else "",
        prose.goal_sentence(frame),
        prose.no_energy_sentence(frame),
        *prose.table_notes(frame),
    ]


def _open_sentence(frame: pd.DataFrame) -> str:
    """Return what the pale bars are, and the panels whose axis cuts them."""
    points = plotted(frame)
    sentence = prose.estimate_sentence(points.add_prefix("x_"), "x")
    if not sentence:
        return ""
    ends = points.groupby("panel", sort=False)[list(ENDS)].max().astype(float)
    cut = list(
        ends.index[ends["estimate_high"] > LONGEST_OPEN * ends[["mean", "high"]].max(axis=1)]
    )
    return sentence + (f" Some reach beyond the axis in {', '.join(cut)}." if cut else "")


def _interval_sentence(rows: Sequence[Row]) -> str:
    repeats = {row["n_repeats"] for row in rows}
    if repeats == {1}:
        return "Each dot is a single run."
    counts = f"{min(repeats)} to {max(repeats)}" if len(repeats) > 1 else str(min(repeats))
    return f"Lines and bands: 95 % t interval of the mean over {counts} runs."
