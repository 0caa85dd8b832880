"""One page for each run: the power of every device against time, with its stages shaded.

Times are those of a page: seconds since the run's start, with the waiting between segments left out. However
long a run was and however many nodes it had, a page has at most BINS bins along the time, and holds the
extremes of each.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path as Shape
from matplotlib.ticker import MaxNLocator

from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.traces import TRACES_SCHEMA, read_devices, read_nodes
from scalewatt.figures import style
from scalewatt.figures.axes import ROUND, power_axis, time_axis
from scalewatt.figures.save_figure import save
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.terms import ALL_KINDS, NODE
from scalewatt.results.tables.frames import opened_parquet, read_checked, records
from scalewatt.results.tables.run_row import read_runs
from scalewatt.results.text.captions import ORIGIN_WORDS, interval_words
from scalewatt.results.text.flag_labels import counts_processes
from scalewatt.results.text.number_format import percent, with_unit

BINS = 800
MOST_NODES = 3
"""Of more nodes a page shows the devices of a kind together."""
KINDS = (*ALL_KINDS, UNUSED_GPU)
DEVICE = ["node", "device_kind", "device_index"]
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
_INTERVAL = ("energy_origin", "energy_low_kwh", "energy_high_kwh")


@dataclass(frozen=True, eq=False)
class RunPage:
    """One run."""

    row: dict[str, Any]
    """Its row of the runs table."""
    devices: pd.DataFrame
    """Columns DEVICE: its sensors."""
    segments: pd.DataFrame
    """By number: `start_s` and `end_s`, `waited_s` since the end of the one before, `clock_s`, the Unix time
    of its start."""
    spans: pd.DataFrame
    """Columns stage, start_s, end_s."""
    bands: pd.DataFrame
    """Columns DEVICE, and as of `power_by_bin`; node is "" and device_index -1 of all devices."""
    bin_s: float
    """Length of the bins that samples were put together in."""
    length_s: float
    """Length of the run without waiting."""

    @property
    def nodes(self) -> int:
        """Number of nodes with a sensor."""
        return int(self.devices["node"].nunique())


def save_pages(
    results: Path, configuration: str, repeats: Iterable[int], excluded: Mapping[str, str]
) -> None:
    """Write figures/runs/<configuration>/<repeat>.svg below `results` for each repeat.

    `excluded`: why repeats (as text) are left out elsewhere.
    """
    for page in read_pages(results, configuration, repeats, excluded):
        folder = results / "figures" / "runs" / configuration
        save(draw(page), folder / str(page.row["repeat"]), ["svg"])


# --- what a page shows ----------------------------------------------------------------------------


def read_pages(
    results: Path, configuration: str, repeats: Iterable[int], excluded: Mapping[str, str]
) -> Iterator[RunPage]:
    """Read the pages of a configuration's runs."""
    runs = [(configuration, repeat) for repeat in repeats]
    why = {(configuration, int(repeat)): reason for repeat, reason in excluded.items()}
    for row in records(read_runs(results, runs, results.name, excluded=why)):
        yield _read_page(row)


def _read_page(row: dict[str, Any]) -> RunPage:
    files = row["files"]
    events = read_checked(files.folder / "events.parquet", EVENTS_SCHEMA).to_pandas()
    with opened_parquet(files.traces, TRACES_SCHEMA.names) as file:
        times = file.read(columns=["segment", "time", "node", "block"]).to_pandas()
        devices = read_devices(file)[DEVICE].drop_duplicates()
        times["time_s"] = times["time"].astype("int64") / 1e6
        segments = _place_segments(times, events)
        steps = times.groupby(["segment", "node", "block"], observed=True)["time_s"].diff()
        length_s = float(segments["end_s"].max()) if len(segments) else 0.0
        # Twice the period: a bin without a sample is a gap.
        bin_s = max(length_s / BINS, 2 * steps.median() if steps.notna().any() else 0.0) or 1.0
        shifts = segments["start_s"] - segments["clock_s"]
        powers = _powers(file, shifts, devices["node"].nunique() > MOST_NODES)
        bands = power_by_bin(powers, bin_s, max(1, math.ceil(length_s / bin_s)))
    shift = events["segment"].map(shifts)
    spans = events[["stage"]].assign(
        start_s=events["start_s"] + shift, end_s=events["end_s"] + shift
    )
    return RunPage(row, devices, segments, spans, bands, bin_s, length_s)


def _place_segments(times: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Put segments one after another, each as long as its recording and its stages together."""
    stages = events.rename(columns={"start_s": "first", "end_s": "last"})
    recorded = times.assign(first=times["time_s"], last=times["time_s"])
    both = pd.concat([rows[["segment", "first", "last"]] for rows in (recorded, stages)])
    clock = both.groupby("segment").agg(first=("first", "min"), last=("last", "max"))
    length = clock["last"] - clock["first"]
    end = length.cumsum()
    waited = (clock["first"] - clock["last"].shift()).clip(lower=0.0).fillna(0.0)
    return pd.DataFrame(
        {"start_s": end - length, "end_s": end, "waited_s": waited, "clock_s": clock["first"]}
    )


def _powers(file: Any, shifts: pd.Series, together: bool) -> Iterator[pd.DataFrame]:
    """Yield the powers of the devices of a node, by their time on the page, as `power_by_bin` takes them.

    `together`: as of one device of a kind.
    """
    for rows, devices in read_nodes(file):
        time_s = rows["time"].astype("int64") / 1e6 + rows["segment"].map(shifts)
        shown = devices.assign(node="", device_index=-1) if together else devices
        powers = rows[list(devices["column"])].astype(float)
        yield powers.set_axis(pd.MultiIndex.from_frame(shown[DEVICE]), axis=1).set_axis(time_s)


def power_by_bin(batches: Iterable[pd.DataFrame], bin_s: float, count: int) -> pd.DataFrame:
    """Least, mean and greatest power of each device in `count` equal bins of the time.

    A batch has a row for each time on the page in s, and columns by DEVICE, which may come again. Columns of
    the result are DEVICE, the middle `time_s` of the bin, and low_w, mean_w, high_w, NaN if not known.
    """
    ways = {"min": "min", "max": "max", "sum": "sum", "count": "sum"}
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in ways}
    for powers in batches:
        bins = (powers.index.to_numpy() / bin_s).astype(int).clip(0, count - 1)
        for name in ways:
            parts[name].append(powers.groupby(bins).agg(name).T)
    if not parts["min"]:
        return pd.DataFrame(columns=[*DEVICE, "time_s", "low_w", "mean_w", "high_w"])
    tables = {
        name: pd.concat(parts[name]).groupby(level=DEVICE).agg(way).reindex(columns=range(count))
        for name, way in ways.items()
    }
    sums = pd.DataFrame({name: table.stack(future_stack=True) for name, table in tables.items()})
    sums = sums.rename_axis([*DEVICE, "bin"]).reset_index()
    return sums[DEVICE].assign(
        time_s=(sums["bin"] + 0.5) * bin_s,
        low_w=sums["min"],
        mean_w=sums["sum"] / sums["count"].where(sums["count"] > 0),
        high_w=sums["max"],
    )


# --- drawing --------------------------------------------------------------------------------------


def draw(page: RunPage) -> style.Drawing:
    """Draw a strip of stages, and a panel for each node and device kind, or of many nodes for each kind."""
    kinds = pd.Categorical(page.bands["device_kind"], KINDS)  # in this order
    panels = [rows for _, rows in page.bands.groupby(["node", kinds], observed=True)]
    count = max(len(panels), 1)
    heights = [4.0, *[max(17.0, min(38.0, 190.0 / count))] * count]
    title = title_lines(page)
    with style.applied():
        words_mm = style.lines_mm(style.NOTE_LINES, style.NOTE_SIZE)
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
        style.notes(figure, [note_sentence(page)])
    return figure


def title_lines(page: RunPage) -> list[str]:
    """Name the run in lines, with its energy and time, and why it is excluded."""
    row = page.row
    ranks = "processes" if counts_processes(row) else "GPUs"
    energy = "Energy not known"
    if row["energy_kwh"] is not None:
        words = ORIGIN_WORDS[row["energy_origin"]], f"scope {row['energy_scope']}"
        interval = interval_words(*(row[name] for name in _INTERVAL))
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


def note_sentence(page: RunPage) -> str:
    """Say what bands and lines are, and what is not seen; flags and lost work are in the report."""
    devices = "the devices" if page.nodes > MOST_NODES else "a device's samples"
    gap, waited = (
        with_unit(seconds / 3600, "h", 3)
        for seconds in (page.bin_s, page.segments["waited_s"].sum())
    )
    left_out = (
        f" Waiting between segments ({waited}) is left out." if len(page.segments) > 1 else ""
    )
    return (
        f"Band: least to greatest power; line: mean of {devices}. Gaps shorter than {gap} are not seen."
        f"{left_out}"
    )


def _draw_strip(axes: Axes, page: RunPage) -> None:
    """Draw the stages in full colour, with a number where a segment begins."""
    for stage, (colour, hatch) in STAGES.items():
        look: Any = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        _fill_spans(axes, page, stage, **look)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    small: Any = {"fontsize": SMALL_SIZE}
    if page.spans.empty:
        axes.text(0, 0.5, "no stages were recorded", color=style.GREY, va="center", **small)
    for number, start_s in page.segments["start_s"].iloc[1:].items():
        text = axes.text(start_s, 1, f"segment {number}", va="bottom", ha="center", **small)
        text.set_in_layout(False)


def _fill_spans(axes: Axes, page: RunPage, stage: str, **look: Any) -> None:
    """Fill all times of a stage as one shape: a shape for each would make a page of many epochs large."""
    spans = page.spans.loc[page.spans["stage"] == stage, ["start_s", "end_s"]].to_numpy(float)
    if len(spans):
        x = spans[:, [0, 0, 1, 1]]
        corners = np.stack([x, np.broadcast_to([0.0, 1.0, 1.0, 0.0], x.shape)], axis=-1)
        axes.add_artist(PathPatch(Shape.make_compound_path_from_polys(corners), **look))


def _draw_panel(axes: Axes, bands: pd.DataFrame, page: RunPage) -> None:
    """Draw the devices of a kind of a node, or of all nodes, over the tints of the stages."""
    axes.set_ylabel(_label(bands, page), fontsize=SMALL_SIZE + 0.5)
    tinted: Any = {"transform": axes.get_xaxis_transform(), "linewidth": 0, "zorder": 0}
    for stage, (colour, _) in STAGES.items():
        tint = style.paler(colour, TINT)
        _fill_spans(axes, page, stage, facecolor=tint, **tinted)
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
