"""Figure 5: power of one device against time, at the start of training."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from scalewatt.figures import figure_data as data
from scalewatt.figures import layout, style
from scalewatt.figures.axes import power_axis, time_axis
from scalewatt.figures.breakdown import KIND_WORDS
from scalewatt.recordings.terms import INSTANTANEOUS, MEAN, MEASURED, MOVING_MEAN, SIMULATED
from scalewatt.results.text.captions import caption

MEANS = {
    "mean_power_w": ("mean of this device over the run", style.COLOURS[1], (5, 2)),
    "mean_power_all_w": ("mean of all such devices", style.COLOURS[6], (2, 2)),
}
"""Words, colour and dashes of the means over the run."""
SAMPLES = {
    INSTANTANEOUS: "an instantaneous power",
    MEAN: "the mean since the sample before",
    MOVING_MEAN: "the mean over the second before",
    None: "an instantaneous power or a mean, which is not known",
}


def draw(samples: pd.DataFrame) -> style.Drawing:
    """Draw one panel per run: power in W against s, with dashed lines for its means."""
    width_mm, panels = data.width_mm(samples), samples.attrs.get("panels")
    panels = panels or dict(zip(samples["panel"], samples["configuration"], strict=True))
    known, grid = plotted(samples), list[Axes]()
    with layout.styled(samples):
        if not panels:
            figure = layout.nothing(samples)
        else:
            columns = 1 if width_mm < style.PAGE.width_mm else 2
            figure, grid = layout.panel_grid([len(panels)], columns, [], width_mm)
        above = 3.4 * style.preset_at(figure).text_size
        for (letter, id_), axes in zip(panels.items(), grid, strict=True):
            style.panel_letter(axes, letter, above)
            rows = samples[samples["panel"] == letter].sort_values("time_s", kind="stable")
            if rows["power_w"].isna().all():
                style.say_instead(axes, f"{id_}: {_why_empty(rows)}")
                continue
            _draw_panel(axes, rows)
            # The same axes in all panels, so that heights can be compared.
            power_axis(axes, known[["power_w", *MEANS]].to_numpy().ravel())
            # A run made elsewhere may not record when training began.
            unknown = known["configuration"].isin(samples.attrs.get("no_stages", [])).any()
            begin = "the recording began" if unknown else "training began"
            time_axis(axes, math.ceil(known["time_s"].max() / 10) * 10, begin)
        style.notes(figure, caption(_drawn(samples), "figure5", **_facts(samples, panels)))
    return figure


def plotted(frame: pd.DataFrame) -> pd.DataFrame:
    """Choose the samples that are drawn: those with a power."""
    return frame[frame["power_w"].notna()]


def _why_empty(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "no run of it has finished, or all are excluded."
    if rows["time_s"].isna().all():
        return "this run never began training."
    if rows["mean_power_w"].isna().all():
        return "no power of this device was measured or estimated."
    return "the samples cover no window; choose a shorter power_window_s."


def _draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
    first = rows.iloc[0]
    setting = f"{first.device}: n = {first.gpus}, LBS {first.local_batch_size}"
    # NaN, where a sample is missing, breaks the line; a sample between two lost ones shows as a marker.
    look: Any = {"color": style.COLOURS[5], "linewidth": 0.8, "marker": ".", "markersize": 1.2}
    look |= {"label": f"{setting}, GBS {first.global_batch_size}", "gid": f"points-{first.panel}"}
    axes.plot(rows["time_s"], rows["power_w"], **look)
    for name, watts in first[list(MEANS)].drop_duplicates(keep="last").items():
        words, colour, dashes = MEANS[str(name)]
        line: Any = {"color": colour, "linestyle": (0, dashes), "linewidth": 1.1}
        axes.axhline(watts, **line, label=f"{words}: {watts:.0f} W")
    axes.set_ylabel(f"{KIND_WORDS[first.device_kind]} power (W)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), labelspacing=0.25, borderaxespad=0.2)


def _drawn(samples: pd.DataFrame) -> pd.DataFrame:
    """First sample of each panel with a power, whose scope is that of its device."""
    first = plotted(samples).drop_duplicates("panel")
    return first.assign(energy_scope=first["device_kind"])


def _facts(samples: pd.DataFrame, panels: dict[str, str]) -> dict[str, Any]:
    sensors = {}
    for row in _drawn(samples).to_dict("records"):
        if row["energy_origin"] in (MEASURED, SIMULATED):
            known = row["device_name"] if row["device_kind"] == "gpu" else None
            sensors[known or f"the {KIND_WORDS[row['device_kind']]}"] = SAMPLES[row["quantity"]]
    return {
        "panels": panels,
        "sensors": sensors,
        "window_s": data.option(samples, "power_window_s"),
    }
