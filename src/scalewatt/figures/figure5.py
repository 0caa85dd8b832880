"""Figure 5: power of one device against time, at the start of training."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose, style, traces
from scalewatt.recordings.terms import NODE, SIMULATED
from scalewatt.results.figures.figure_schema import panel_letter
from scalewatt.results.tables.frames import records

MEANS = ["mean_power_w", "mean_power_all_w"]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw one panel per run: power in W against s, with dashed lines for its means."""
    samples = data.drawable(frame)
    width_mm = data.options(frame).width_mm
    preset = style.preset(width_mm)
    panels = _panels(samples)
    columns = 1 if preset.narrow else min(len(panels), 2)
    n_rows = -(-len(panels) // columns)
    with style.applied(width_mm):
        height = n_rows * (42.0 if preset.narrow else 56.0) + style.notes_mm(preset)
        figure = style.new_figure(height, width_mm)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel().tolist()
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        for (letter, configuration), axes in zip(panels.items(), grid, strict=False):
            style.panel_letter(axes, letter, above=3.4 * preset.text_size)
            rows = samples[samples["panel"] == letter]
            if instead := _why_empty(rows, configuration):
                style.say_instead(axes, instead)
            else:
                _draw_panel(axes, rows)
        _share_axes([axes for axes in grid if axes.axison], samples)
        style.notes(figure, _note_sentences(samples))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the samples that are drawn: those with a power."""
    return frame[frame["power_w"].notna()]


def _panels(samples: pd.DataFrame) -> dict[str, str]:
    """Name the configuration of each panel, those without a run among them."""
    drawn = dict(zip(samples["panel"], samples["configuration"], strict=True))
    named: dict[str, str] = samples.attrs.get("panels") or drawn
    return named or {panel_letter(0): ""}


def _why_empty(rows: pd.DataFrame, configuration: str) -> str:
    """Say why a panel has no power; nothing where it has."""
    if rows.empty:
        return _no_run(rows, configuration)
    if rows["time_s"].isna().all():
        return f"{_setting(rows)}. This run never began training."
    if rows["power_w"].notna().any():
        return ""
    window_s = data.options(rows).power_window_s
    if window_s is None or rows["mean_power_w"].isna().all():
        kind = prose.KIND_WORDS[rows["device_kind"].iloc[0]]
        return f"{_setting(rows)}. No {kind} power was measured or estimated on this device."
    seconds = style.plain_number(window_s)
    return (
        f"{_setting(rows)}. The recorded samples cover no window of {seconds} s; choose a shorter "
        "power_window_s."
    )


def _no_run(rows: pd.DataFrame, configuration: str) -> str:
    table = data.stored(rows)
    left_out = [e for e in table.get("excluded", []) if e["configuration"] == configuration]
    missing = [id_ for id_ in table.get("missing", []) if id_ == configuration]
    sentence = prose.nothing_sentence({"excluded": left_out, "missing": missing}, "this panel")
    return f"{configuration}:\n{sentence}" if configuration else sentence


def _setting(rows: pd.DataFrame) -> str:
    first = next(data.each(rows))
    return (
        f"{first.device}: {prose.counted(first.gpus, data.gpu_word(rows))}, "
        f"LBS {first.local_batch_size}, GBS {first.global_batch_size}"
    )


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
    rows = rows.sort_values("time_s", kind="stable")
    first = next(data.each(rows))
    # NaN, where a sample is missing, breaks the line; a sample between two lost ones shows as a marker.
    look: Any = {"color": style.COLOURS[5], "linewidth": 0.8, "marker": ".", "markersize": 1.2}
    look |= {"label": _setting(rows), "gid": f"points-{first.panel}"}
    axes.plot(rows["time_s"], rows["power_w"], **look)
    kind = prose.KIND_WORDS[first.device_kind]
    every = f"mean of all {kind}s of the run" if kind != "memory" else "mean of all memory"
    means = [(first.mean_power_all_w, every, 6, (2, 2))]
    if first.mean_power_w != first.mean_power_all_w:  # else the run has a single device
        means.insert(0, (first.mean_power_w, f"mean of this {kind} over the run", 1, (5, 2)))
    for watts, words, colour, dashes in means:
        look = {"color": style.COLOURS[colour], "linestyle": (0, dashes), "linewidth": 1.1}
        axes.axhline(watts, **look, label=f"{words}: {watts:.0f} W")
    axes.set_ylabel(f"{kind} power (W)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), labelspacing=0.25, borderaxespad=0.2)


def _share_axes(grid: list[Axes], samples: pd.DataFrame) -> None:
    """Give all panels the same axes, so that heights can be compared."""
    known = samples[samples["power_w"].notna()]
    # A run made elsewhere may not record when training began.
    unknown = known["configuration"].isin(samples.attrs.get("no_stages", [])).any()
    for axes in grid:
        traces.power_axis(axes, known[["power_w", *MEANS]].to_numpy().ravel())
        end_s = math.ceil(known["time_s"].max() / 10) * 10
        traces.time_axis(axes, end_s, "the recording began" if unknown else "training began")


def _note_sentences(samples: pd.DataFrame) -> list[str]:
    runs = samples.drop_duplicates("panel")
    known = samples[samples["power_w"].notna()]
    named = "; ".join(f"{row.panel}:\u00a0{row.configuration}" for row in data.each(runs))
    facts = [f"Runs: {named}."] if named else []
    return [
        *(_device_sentences(known, runs) if len(known) else []),
        *facts,
        *prose.table_notes(samples),
    ]


def _device_sentences(known: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    """Say where powers are from, of which device, and what a point is."""
    scope = next((kind for kind in ("gpu", "cpu") if kind in set(known["device_kind"])), NODE)
    power = "; ".join(
        "Power simulated" if origin == SIMULATED else f"Power {prose.origin_phrase(origin, scope)}"
        for origin in known["energy_origin"].unique()
    )
    window_s = data.options(known).power_window_s
    points = "samples as recorded"
    if window_s is not None:
        points = f"means over equal windows of {style.plain_number(window_s)} s"
    sensors = known[["device_name", "device_kind", "energy_origin", "quantity"]].drop_duplicates()
    said = dict.fromkeys(prose.sensor_sentence(*row.values()) for row in records(sensors))
    return [
        f"{power}; scope: {scope}. n counts {data.gpu_word(known)}.",
        # By which rule it is picked: results/figures/power_trace.py.
        "Shown: the first device of the first node (by name) in the configuration's first run; means over "
        f"time, of the whole run. {prose.device_sentence(runs)}",
        " ".join([f"Points: {points}.", *filter(None, said)]),
    ]
