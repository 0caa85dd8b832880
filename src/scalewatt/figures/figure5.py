"""Figure 5: power of one device against time, at the start of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose, style
from scalewatt.recordings.terms import NODE, SIMULATED
from scalewatt.results.figures.figure_schema import panel_letter
from scalewatt.results.tables.frames import records


def draw(frame: pd.DataFrame) -> Figure:
    """Draw one panel per run: power in W against s, with dashed lines for its means."""
    samples = data.drawable(frame)
    chosen = data.options(frame)
    preset = style.preset(chosen.width_mm)
    panels = _panels(samples)
    columns = 1 if preset.narrow else min(len(panels), 2)
    n_rows = -(-len(panels) // columns)
    sentences = _note_sentences(samples)
    panel_mm = 42.0 if preset.narrow else 56.0
    with style.applied(chosen.width_mm):
        height = n_rows * panel_mm + style.notes_mm(preset)
        figure = style.new_figure(height, chosen.width_mm)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel().tolist()
        for (letter, configuration), axes in zip(panels.items(), grid, strict=False):
            style.panel_letter(axes, letter, above=3.4 * preset.text_size)
            own = samples[samples["panel"] == letter]
            if own.empty:
                style.say_instead(axes, _nothing(data.stored(frame), configuration))
            else:
                _draw_panel(
                    axes, own, data.gpu_word(frame), _time_label(own), chosen.power_window_s
                )
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        _share_limits(grid, samples)
        style.notes(figure, sentences)
    return figure


def _panels(samples: pd.DataFrame) -> dict[str, str]:
    """Return letter and configuration of each panel, those without a run among them."""
    drawn = samples.drop_duplicates("panel")
    panels: dict[str, str] = samples.attrs.get("panels") or dict(
        zip(drawn["panel"], drawn["configuration"], strict=True)
    )
    return panels or {panel_letter(0): ""}


def _nothing(table: Mapping[str, Any], configuration: str) -> str:
    """Return why a panel has no run."""
    left_out = [e for e in table.get("excluded", []) if e["configuration"] == configuration]
    missing = [c for c in table.get("missing", []) if c == configuration]
    sentence = prose.nothing_sentence({"excluded": left_out, "missing": missing}, "this panel")
    return f"{configuration}:\n{sentence}" if configuration else sentence


def _time_label(samples: pd.DataFrame) -> str:
    """Return what time counts from: a run made elsewhere may not record when training began."""
    unknown = samples["configuration"].isin(samples.attrs.get("no_stages", [])).any()
    return f"Time since {'the recording' if unknown else 'training'} began (s)"


def _draw_panel(
    axes: Axes, samples: pd.DataFrame, word: str, time_label: str, window_s: float | None
) -> None:
    first = records(samples.head(1))[0]
    kind = prose.KIND_WORDS[first["device_kind"]]
    setting = (
        f"{first['device']}: {prose.counted(first['gpus'], word)}, "
        f"LBS {first['local_batch_size']}, GBS {first['global_batch_size']}"
    )
    if first["time_s"] is None:
        style.say_instead(axes, f"{setting}. This run never began training.")
        return
    if samples["power_w"].isna().all():
        sentence = f"No {kind} power was measured or estimated on this device."
        if window_s is not None and first["mean_power_w"] is not None:
            seconds = style.plain_number(window_s)
            sentence = (
                f"The recorded samples cover no window of {seconds} s; choose a shorter "
                "power_window_s."
            )
        style.say_instead(axes, f"{setting}. {sentence}")
        return
    ordered = samples.sort_values("time_s", kind="stable")
    # NaN, where a sample is missing, breaks the line.
    (line,) = axes.plot(
        ordered["time_s"],
        ordered["power_w"],
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


def _share_limits(grid: Sequence[Axes], samples: pd.DataFrame) -> None:
    """Give all panels the same axes, so that heights can be compared."""
    known = samples[samples["power_w"].notna()]
    columns = ["power_w", "mean_power_w", "mean_power_all_w"]
    powers = [power for power in known[columns].to_numpy().ravel().tolist() if power == power]
    for axes in grid:
        if axes.axison and powers:
            style.linear_axis(axes, powers, from_zero=True)
            axes.set_xlim(0, math.ceil(known["time_s"].max() / 10) * 10 or 1)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=style.ROUND))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: style.plain_number(v)))


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the samples that are drawn: those with a power."""
    return frame[frame["power_w"].notna()]


# --- notes ----------------------------------------------------------------------------------------


def _note_sentences(samples: pd.DataFrame) -> list[str]:
    runs = samples.drop_duplicates("panel")
    known = samples[samples["power_w"].notna()]
    keys = ["device", "device_name", "device_kind", "energy_origin", "quantity"]
    devices = records(known[keys].drop_duplicates())
    scope = next((kind for kind in ("gpu", "cpu") if kind in set(known["device_kind"])), NODE)
    power = "; ".join(
        "Power simulated" if origin == SIMULATED else f"Power {prose.origin_phrase(origin, scope)}"
        for origin in dict.fromkeys(row["energy_origin"] for row in devices)
    )
    window_s = data.options(samples).power_window_s
    points = (
        "samples as recorded"
        if window_s is None
        else f"means over equal windows of {style.plain_number(window_s)} s"
    )
    named = [f"{row.panel}:\u00a0{row.configuration}" for row in data.each(runs)]
    return [
        f"{power}; scope: {scope}. n counts {data.gpu_word(samples)}." if power else "",
        # By which rule it is picked: results/figures/power_trace.py.
        "Shown: the first device of the first node (by name) in the configuration's first run; means over "
        f"time, of the whole run. {prose.device_sentence(runs)}"
        if devices
        else "",
        " ".join([f"Points: {points}.", *_sensor_sentences(devices)]) if devices else "",
        f"Runs: {'; '.join(named)}." if named else "",
        *prose.table_notes(samples),
    ]


def _sensor_sentences(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    names = ("device_name", "device_kind", "energy_origin", "quantity")
    sentences = (prose.sensor_sentence(*(row[name] for name in names)) for row in devices)
    return list(dict.fromkeys(filter(None, sentences)))
