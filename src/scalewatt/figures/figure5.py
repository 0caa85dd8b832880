"""Figure 5: power of one device against time, at the start of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import style
from scalewatt.figures.figure_data import Row, gpu_word, metadata, options
from scalewatt.figures.footnote_text import (
    KIND_WORDS,
    counted,
    device_sentence,
    excluded_sentence,
    missing_sentence,
    nothing_sentence,
    origin_phrase,
    sensor_sentence,
)
from scalewatt.recordings.series import SIMULATED
from scalewatt.results.figures.figure_schema import panel_letter


def draw(table: pa.Table) -> Figure:
    """One panel per run: power in W against s, with dashed lines for its means."""
    rows = table.to_pylist()
    chosen = options(table)
    preset = style.preset(chosen.width_mm)
    panels = _panels(table, rows)
    columns = 1 if preset.narrow else min(len(panels), 2)
    n_rows = -(-len(panels) // columns)
    sentences = _note_sentences(table, rows)
    panel_mm = 42.0 if preset.narrow else 56.0
    lines = len(style.note_lines(sentences, chosen.width_mm)) + 1
    with style.applied(chosen.width_mm):
        height = n_rows * panel_mm + style.lines_mm(lines, preset.note_size)
        figure = style.new_figure(height, chosen.width_mm)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel().tolist()
        for (letter, configuration), axes in zip(panels.items(), grid, strict=False):
            style.panel_letter(axes, letter, above=3.4 * preset.text_size)
            own = [r for r in rows if r["panel"] == letter]
            if own:
                _draw_panel(
                    axes, own, gpu_word(table), _time_label(table, own), chosen.power_window_s
                )
            else:
                style.say_instead(axes, _nothing(metadata(table), configuration))
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        _share_limits(grid, rows)
        style.notes(figure, sentences)
    return figure


def _panels(table: pa.Table, rows: Sequence[Row]) -> dict[str, str]:
    """Letter and configuration of each panel, those without a run among them."""
    drawn = {row["panel"]: row["configuration"] for row in rows}
    panels: dict[str, str] = metadata(table).get("panels") or drawn
    return panels or {panel_letter(0): ""}


def _nothing(stored: Mapping[str, Any], configuration: str) -> str:
    """Why a panel has no run."""
    left_out = [e for e in stored.get("excluded", []) if e["configuration"] == configuration]
    missing = [c for c in stored.get("missing", []) if c == configuration]
    sentence = nothing_sentence({"excluded": left_out, "missing": missing}, "this panel")
    return f"{configuration}:\n{sentence}" if configuration else sentence


def _time_label(table: pa.Table, rows: Sequence[Row]) -> str:
    """What time counts from: a run made elsewhere may not say when training began."""
    unknown = metadata(table).get("no_stages", [])
    began = "the recording" if any(row["configuration"] in unknown for row in rows) else "training"
    return f"Time since {began} began (s)"


def _draw_panel(
    axes: Axes, rows: Sequence[Row], word: str, time_label: str, window_s: float | None
) -> None:
    first = rows[0]
    kind = KIND_WORDS[first["device_kind"]]
    setting = (
        f"{first['device']}: {counted(first['gpus'], word)}, "
        f"LBS {first['local_batch_size']}, GBS {first['global_batch_size']}"
    )
    if first["time_s"] is None:
        style.say_instead(axes, f"{setting}. This run never came to training.")
        return
    if all(row["power_w"] is None for row in rows):
        sentence = f"No {kind} power was measured or estimated on this device."
        if window_s is not None and first["mean_power_w"] is not None:
            seconds = style.plain_number(window_s)
            sentence = (
                f"No window of {seconds} s is covered by what was recorded; choose a shorter "
                "power_window_s."
            )
        style.say_instead(axes, f"{setting}. {sentence}")
        return
    ordered = sorted(rows, key=lambda row: row["time_s"])
    (line,) = axes.plot(
        [row["time_s"] for row in ordered],
        # NaN breaks the line where a sample is missing.
        [float("nan") if row["power_w"] is None else row["power_w"] for row in ordered],
        color=style.COLOURS[5],
        linewidth=0.8,
        # A sample between two lost ones would be invisible in a line.
        marker=".",
        markersize=1.2,
        label=setting,
    )
    line.set_gid(f"points-{first['panel']}")
    own_w, all_w = first["mean_power_w"], first["mean_power_all_w"]
    if own_w != all_w:  # of the only device the two are one
        _draw_mean(axes, own_w, f"mean of this {kind} over the run", 1, (0, (5, 2)))
    every = f"mean of all {kind}s of the run" if kind != "memory" else "mean of all memory"
    _draw_mean(axes, all_w, every, 6, (0, (2, 2)))
    axes.set(xlabel=time_label, ylabel=f"{kind} power (W)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), labelspacing=0.25, borderaxespad=0.2)


def _draw_mean(
    axes: Axes, value: float | None, label: str, colour: int, dashes: tuple[int, tuple[int, int]]
) -> None:
    if value is not None:
        axes.axhline(
            value,
            color=style.COLOURS[colour],
            linestyle=dashes,
            linewidth=1.1,
            label=f"{label}: {value:.0f} W",
        )


def _share_limits(grid: Sequence[Axes], rows: Sequence[Row]) -> None:
    """The same axes everywhere, so that heights can be compared between panels."""
    powers = [
        row[name]
        for row in rows
        for name in ("power_w", "mean_power_w", "mean_power_all_w")
        if row["power_w"] is not None and row[name] is not None
    ]
    times = [row["time_s"] for row in rows if row["power_w"] is not None]
    for axes in grid:
        if axes.axison and powers:
            style.linear_axis(axes, powers, from_zero=True)
            axes.set_xlim(0, math.ceil(max(times) / 10) * 10 or 1)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=style.ROUND))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: style.plain_number(v)))


def _note_sentences(table: pa.Table, rows: Sequence[Row]) -> list[str]:
    stored = metadata(table)
    known = [row for row in rows if row["power_w"] is not None]
    kinds = {row["device_kind"] for row in known}
    origins = list(dict.fromkeys(row["energy_origin"] for row in known))
    scope = "gpu" if "gpu" in kinds else "cpu"
    power = "; ".join(
        "Power simulated" if origin == SIMULATED else f"Power {origin_phrase(origin, scope)}"
        for origin in origins
    )
    instead = "No GPU power is known here: these panels show CPU power." if kinds == {"cpu"} else ""
    runs = {row["panel"]: row["configuration"] for row in rows}
    said = [f"{panel}:\u00a0{configuration}" for panel, configuration in runs.items()]
    counts = f"n counts {gpu_word(table)}."
    return [
        " ".join(filter(None, [f"{power}; scope: {scope}." if power else "", instead, counts])),
        f"{_device_sentence(known)} {device_sentence(rows)}".strip(),
        " ".join(_sensor_sentences(known)),
        _window_sentence(options(table).power_window_s, known) if known else "",
        f"Runs: {'; '.join(said)}." if runs else "",
        missing_sentence(stored.get("missing", [])),
        excluded_sentence(stored.get("excluded", [])),
        *stored.get("notes", []),
    ]


def _device_sentence(rows: Sequence[Row]) -> str:
    """By which rule the shown device was picked (results/figures/power_trace.py)."""
    shown = dict.fromkeys(
        # An estimate is of all sockets together.
        "all CPUs" if (row["device_kind"], row["energy_origin"]) == ("cpu", "estimated")
        else f"the first {KIND_WORDS[row['device_kind']]}"
        for row in rows
    )  # fmt: skip
    return (
        f"Shown: {' or '.join(shown)} of the first node (by name) in the configuration's first "
        "run. Means are over time, of the whole run."
        if shown
        else ""
    )


def _sensor_sentences(rows: Sequence[Row]) -> list[str]:
    names = dict.fromkeys(
        (r["device_name"], r["device_kind"], r["energy_origin"], r["quantity"]) for r in rows
    )
    return list(dict.fromkeys(filter(None, (sensor_sentence(*name) for name in names))))


def _window_sentence(window_s: float | None, rows: Sequence[Row]) -> str:
    if window_s is not None:
        return f"Points: means over equal windows of {style.plain_number(window_s)} s."
    if len(_sensor_sentences(rows)) > 1:
        return (
            "Points: samples as recorded, by sensors that differ; over equal windows "
            "(power_window_s) they would compare."
        )
    return "Points: samples as recorded."


def plotted(table: pa.Table) -> pa.Table:
    """The samples that are drawn: those with a power."""
    return table.filter(pc.is_valid(table["power_w"]))
