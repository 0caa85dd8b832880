"""Figure 5: power of one device against time, at the start of training."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalewatt.figures import style
from scalewatt.figures.points import Row, gpu_word, metadata
from scalewatt.figures.words import counted, device_sentence, missing_sentence, origin_phrase

PANEL_HEIGHT_MM = 58.0
NOTES_HEIGHT_MM = 18.0
KIND_WORDS = {"gpu": "GPU", "cpu": "CPU", "ram": "memory"}


def draw(table: pa.Table) -> Figure:
    """Up to four panels, one run each: power in W against s, with dashed lines for its means."""
    rows = table.to_pylist()
    letters = sorted({row["panel"] for row in rows}, key=lambda p: (len(p), p)) or ["A"]
    n_rows = -(-len(letters) // 2)
    with style.applied():
        figure = style.new_figure(n_rows * PANEL_HEIGHT_MM + NOTES_HEIGHT_MM)
        grid = figure.subplots(n_rows, min(len(letters), 2), squeeze=False).ravel().tolist()
        for letter, axes in zip(letters, grid[: len(letters)], strict=True):
            style.panel_letter(axes, letter, above=24)
            own = [r for r in rows if r["panel"] == letter]
            _draw_panel(axes, own, gpu_word(table), _time_label(table, own))
        for axes in grid[len(letters) :]:
            axes.set_axis_off()
        _share_limits(grid, rows)
        style.notes(figure, _note_sentences(table, rows))
    return figure


def _time_label(table: pa.Table, rows: Sequence[Row]) -> str:
    """What time counts from: a run made elsewhere may not say when training began."""
    unknown = metadata(table).get("no_stages", [])
    began = "the recording" if any(row["configuration"] in unknown for row in rows) else "training"
    return f"Time since {began} began (s)"


def _draw_panel(axes: Axes, rows: Sequence[Row], word: str, time_label: str) -> None:
    ordered = sorted(rows, key=lambda row: row["time_s"])
    if not ordered:
        style.say_instead(axes, "No run of this figure has finished.")
        return
    first = ordered[0]
    kind = KIND_WORDS[first["device_kind"]]
    if all(row["power_w"] is None for row in ordered):
        style.say_instead(axes, f"No {kind} power was measured or estimated on this device.")
        return
    setting = (
        f"{counted(first['gpus'], word)}, "
        f"LBS {first['local_batch_size']}, GBS {first['global_batch_size']}"
    )
    (line,) = axes.plot(
        [row["time_s"] for row in ordered],
        # NaN breaks the line where a sample is missing.
        [float("nan") if row["power_w"] is None else row["power_w"] for row in ordered],
        color=style.COLOURS[0],
        linewidth=0.8,
        label=f"{first['device']}: {setting}",
    )
    line.set_gid(f"points-{first['panel']}")
    _draw_mean(axes, first["mean_power_w"], f"mean of this {kind} over the run", 1, (0, (5, 2)))
    every = f"mean of all {kind}s of the run" if kind != "memory" else "mean of all memory"
    _draw_mean(axes, first["mean_power_all_w"], every, 4, (0, (2, 2)))
    axes.set(xlabel=time_label, ylabel=f"{kind} power (W)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), fontsize=6.5, labelspacing=0.3)


def _draw_mean(
    axes: Axes, value: float | None, label: str, colour: int, dashes: tuple[int, tuple[int, int]]
) -> None:
    if value is not None:
        axes.axhline(
            value,
            color=style.COLOURS[colour],
            linestyle=dashes,
            linewidth=1.0,
            label=f"{label}: {value:.0f} W",
        )


def _share_limits(grid: Sequence[Axes], rows: Sequence[Row]) -> None:
    """The same axes everywhere, so that heights can be compared between panels."""
    powers = [
        row[name]
        for row in rows
        for name in ("power_w", "mean_power_w", "mean_power_all_w")
        if row[name] is not None
    ]
    for axes in grid:
        if axes.axison and powers:
            style.linear_axis(axes, powers, from_zero=True)
            axes.set_xlim(0, math.ceil(max(row["time_s"] for row in rows) / 10) * 10 or 1)


def _note_sentences(table: pa.Table, rows: Sequence[Row]) -> list[str]:
    stored = metadata(table)
    kinds = {row["device_kind"] for row in rows}
    origins = list(dict.fromkeys(row["energy_origin"] for row in rows))
    scope = "gpu" if "gpu" in kinds else "cpu"
    power = "; ".join(f"Power {origin_phrase(origin, scope)}" for origin in origins)
    instead = "No GPU power is known here: these panels show CPU power." if kinds == {"cpu"} else ""
    runs = [
        f"{row['panel']}:\u00a0{row['configuration']}"
        for row in {row["panel"]: row for row in rows}.values()
    ]
    counts = f"n counts {gpu_word(table)}."
    return [
        " ".join(filter(None, [f"{power}; scope: {scope}." if power else "", instead, counts])),
        device_sentence(rows),
        f"Runs: {'; '.join(sorted(runs))}." if runs else "",
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]
