"""The points of figures of panels: one tidy table, a row for each line, configuration and panel."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.campaign.operating_points import LEVERS, value_in_id, without_point
from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.common.errors import InputError
from scalewatt.energies.tables import ENERGY_SCHEMA, one_origin
from scalewatt.results.columns import SEVERAL
from scalewatt.results.figures.figure_schema import (
    PANEL_FIGURES,
    POINTS,
    SWEPT,
    Panel,
    panel_letter,
)
from scalewatt.results.tables.derived_quantities import is_estimated
from scalewatt.results.tables.frames import (
    FLOAT,
    PUBLISHED,
    RUN_KEY,
    column_of,
    read_checked,
    to_frame,
    to_table,
)
from scalewatt.results.tables.published import is_overlaid, published_lines
from scalewatt.results.tables.repeat_statistics import inverse, wide_statistics
from scalewatt.results.tables.run_row import mean_over_updates, read_energies
from scalewatt.results.tables.scaling import TRAINING, points_of, speedups
from scalewatt.results.tables.table_schema import SUMMARY
from scalewatt.training.history import (
    HISTORY_SCHEMA,
    PHASE_COLUMNS,
    PHASE_STATISTICS,
    PHASES,
    phase_column,
)

LARGER_IS_BETTER = "throughput_samples_per_s"
PER_TRAINING = {"time_per_sample_s": "runtime_h", "energy_per_sample_j": "energy_kwh"}
"""What is compared where trainings end at a target: they may take other samples to get there."""


def panel_points(
    definition: dict[str, Any], configurations: pd.DataFrame, runs: pd.DataFrame
) -> pd.DataFrame:
    """Points of a figure of panels. Where a planned configuration has no run, x or y is null.

    `runs` are those that count. With the option `overlay: published` also those that the paper published of
    the same trainings, as far as it gives both coordinates.
    """
    name = definition["figure"]
    figure = PANEL_FIGURES[name]
    lines = planned_lines(definition["series"], configurations)
    if is_overlaid(definition):
        published = published_lines(points_of(definition["series"]))
        lines = pd.concat([lines, published], ignore_index=True)
        lines = lines.sort_values("place", kind="stable", ignore_index=True)
    lines = lines.assign(published=(lines["energy_origin"] == PUBLISHED).fillna(False))
    if figure.lines != "series":
        lines = lines.drop_duplicates(["configuration", "published"], ignore_index=True)
    if figure.lines == "batches":
        lines = training_costs(lines, runs)
    if any(panel.y_name in PHASE_COLUMNS for panel in figure.panels):
        lines = with_phase_times(lines, runs)
    if figure.lines == "levers":
        lines = _with_levers(lines)
    if figure.lines in LINE_IDS:
        lines = join_settings(lines, LINE_IDS[figure.lines])
    bars = definition.get("options", {}).get("error_bars", "interval")
    return rows_of_panels(name, with_speedups(lines), bars)


def planned_lines(series: list[dict[str, Any]], configurations: pd.DataFrame) -> pd.DataFrame:
    """Planned configurations along each series, with their means; null where there is no run."""
    planned = points_of(series)
    lines = planned[["place", "series", "label", "configuration"]].merge(
        configurations, on="configuration", how="left"
    )
    return lines.assign(**{name: lines[name].fillna(planned[name]) for name in TRAINING})


def with_speedups(lines: pd.DataFrame) -> pd.DataFrame:
    """Add the speed-ups from each line's smallest n with runs, whose times count for published runs, too.

    Null in a line of one n: there it would be n₀ by definition alone.
    """
    timed = lines[lines["n_repeats"].notna()]
    timed = timed[~timed["published"] | timed["runtime_h_mean"].notna()]
    gain, _ = speedups(timed)
    counts = timed["gpus"].where(gain["mean"].notna()).groupby(timed["place"])
    several = counts.transform("nunique") > 1
    gain = gain[several.fillna(False)].reindex(lines.index)
    return lines.assign(**{f"speedup_{part}": gain[part] for part in SUMMARY})


def _with_levers(lines: pd.DataFrame) -> pd.DataFrame:
    """Add the time of a sample in s, and to configurations without runs clocks and limits by their ids."""
    rate = lines[[f"samples_per_gpuh_{part}" for part in SUMMARY]].set_axis(list(SUMMARY), axis=1)
    time = inverse(rate.mul(lines["gpus"], axis=0), pd.Series(3600.0, lines.index))
    columns = {f"time_per_sample_s_{part}": time[part] for part in SUMMARY}
    for lever in LEVERS:
        planned = (value_in_id(id_, lever) for id_ in lines["configuration"])
        columns[lever] = lines[lever].fillna(column_of(planned, pa.float64(), lines.index))
    return lines.assign(**columns)


# --- lines over settings --------------------------------------------------------------------------

_BATCH = re.compile(r"-(lbs\d+|full|s\d{7,}|epochs\d+)(?=-|$)")
LINE_IDS: dict[str, Callable[[str], str]] = {
    "batches": lambda configuration: _BATCH.sub("", configuration),
    "levers": without_point,
}
"""Id of the line of a configuration: the configuration's without what varies along the line."""
_SPELLED = ((r"^n0*(\d+)$", r"n = \1"), (r"^(precision|loader|compile|channels_last)", r"\1 "))
"""Parts of ids, and how labels spell them."""


def join_settings(lines: pd.DataFrame, line_id: Callable[[str], str]) -> pd.DataFrame:
    """Set `series` and `label` to the training that a point is of, whatever varies along its line.

    A label has the parts of the line's id that not all lines of a model share.
    """
    series = lines["configuration"].map(line_id).astype(object)
    labels: dict[str, str] = {}
    runs = lines.assign(series=series)[lines["n_repeats"].notna()]
    for _, block in runs.groupby("model", sort=False):
        ids = {id_: id_.split("-") for id_ in block["series"].unique()}
        common = set.intersection(*map(set, ids.values()))
        for id_, parts in ids.items():
            words = [part for part in parts if part not in common]
            for pattern, spelled in _SPELLED:
                words = [re.sub(pattern, spelled, word) for word in words]
            labels[id_] = ", ".join(words) or block["device"].iloc[0]
    return lines.assign(series=series, label=series.map(labels).astype(object))


# --- rows -----------------------------------------------------------------------------------------


def rows_of_panels(name: str, lines: pd.DataFrame, bars: str = "interval") -> pd.DataFrame:
    """Make a row for each line's point in each panel; letters run on from block to block."""
    figure = PANEL_FIGURES[name]
    rows: list[pd.DataFrame] = []
    blocks = lines.groupby(figure.blocks, sort=False) if figure.blocks else [("", lines)]
    for _, block in blocks:
        block = block.assign(figure=name, point_label=_labels(block, figure.labels))
        for panel in figure.panels:
            points = _panel_rows(panel, block, bars)
            if len(points):
                letter = panel_letter(len(rows)) if figure.blocks else panel.letter
                rows.append(points.assign(panel=letter))
    if not rows:
        return to_frame(POINTS.empty_table())
    return to_frame(to_table(pd.concat(rows, ignore_index=True), POINTS))


def _panel_rows(panel: Panel, block: pd.DataFrame, bars: str) -> pd.DataFrame:
    to_target = (block["protocol"].dropna() == TARGET_PROTOCOL).all()
    x_name, y_name = (
        PER_TRAINING.get(name, name) if to_target else name for name in (panel.x_name, panel.y_name)
    )
    # Along an axis whose points are joined, error bars would hide the lines.
    across = bars if panel.has_front else "none"
    rows = block.assign(**_axis("x", x_name, block, across), **_axis("y", y_name, block, bars))
    if y_name == "metric_last" and block["model"].nunique() > 1 < block["metric_name"].nunique():
        rows["y"] = rows["y"].mask(rows["y"].notna())  # models without a metric in common
    valued = rows["x"].notna() & rows["y"].notna()
    rows = rows[~rows["published"] | valued]
    if panel.x_name in SWEPT:
        several = rows["x"].where(valued).groupby(rows["series"]).transform("nunique") > 1
        rows = rows[several.fillna(False)]
    return rows.assign(pareto_optimal=pareto_front(rows) if panel.has_front else None)


def _axis(axis: str, name: str, lines: pd.DataFrame, bars: str) -> dict[str, Any]:
    """Columns of one coordinate: its value, and the ends of its error bar."""
    low = high = unknown = column_of([None] * len(lines), pa.float64(), lines.index)
    column = f"{name}_mean" if f"{name}_mean" in lines else name
    if column not in lines:
        raise InputError(
            f"figures.csv: {name} is no column of configurations, nor of figures' points"
        )
    value = lines[column].astype(FLOAT)
    if bars == "interval":
        low, high = (lines.get(f"{name}_{end}", unknown) for end in ("low", "high"))
    elif f"{name}_{bars}" in lines:
        half = lines[f"{name}_{bars}"]
        low, high = value - half, value + half
    return {f"{axis}_name": name, axis: value, f"{axis}_low": low, f"{axis}_high": high}


def _labels(block: pd.DataFrame, names: list[str]) -> list[Any]:
    """What is written at a point: columns, or the clocks and limits that are set."""
    if names == ["levers"]:
        levers = block[list(LEVERS)].astype(object).itertuples(index=False)
        return [", ".join(f"{v:g}" for v in row if not pd.isna(v)) or "default" for row in levers]
    if not names:
        return [None] * len(block)
    return [", ".join(map(str, row)) for row in block[names].itertuples(index=False)]


# --- the Pareto front -----------------------------------------------------------------------------


def pareto_front(rows: pd.DataFrame) -> pd.Series:
    """Mark points of a panel that no comparable one beats on both axes as True.

    Points of one phase and, of energies, of one origin and scope are comparable. Null without a value, of
    published points, and of estimated energies.
    """
    is_energy = "energy" in "".join(rows["x_name"].iloc[:1] + rows["y_name"].iloc[:1])
    compared = rows[rows["x"].notna() & rows["y"].notna() & ~rows["published"]]
    compared = compared[~(is_energy & is_estimated(compared))]
    x, y, is_metric = compared["x"], compared["y"], compared["y_name"] == "metric_last"
    x = x.where(compared["x_name"] != LARGER_IS_BETTER, -x)
    y = y.where(~is_metric | compared["metric_goal"].ne("max").fillna(True), -y)
    keys = [compared["phase"], compared["metric_goal"].where(is_metric, "")]
    keys += [compared[name] for name in ("energy_origin", "energy_scope") if is_energy]
    front = pd.Series(index=rows.index, dtype="boolean[pyarrow]")
    for _, group in x.groupby(keys, dropna=False, sort=False):
        ours, theirs = (values[group.index].to_numpy(dtype=np.float64) for values in (x, y))
        as_good = (ours[:, None] <= ours) & (theirs[:, None] <= theirs)
        better = (ours[:, None] < ours) | (theirs[:, None] < theirs)
        front[group.index] = ~(as_good & better).any(axis=0)
    return front


# --- what a sample costs in training alone --------------------------------------------------------


MOST_SHORT = 0.05
"""Share of training's time in segments that are too short to be resolved, up to which its energy counts."""
QUANTITIES = {"train_energy_per_sample_j": "samples", "train_power_w": "device_s"}
"""Means over repeats, and what their energy is divided by."""


def training_costs(lines: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add means of QUANTITIES over the `runs` that count, and their origin and scope.

    They are of the GPUs, or on a CPU of the sockets, in the stage `train` alone: start-up, with the choice of
    kernels and compiling, evaluation and checkpoints are left out. Null where repeats are of unlike origin,
    or ran on different kinds of devices.
    """
    alike = lines["torch_device"].ne(SEVERAL).fillna(False)
    costs = run_costs(runs[runs["configuration"].isin(lines.loc[alike, "configuration"])])
    origins = (
        costs["energy_origin"].where(costs["energy_j"].notna()).groupby(costs["configuration"])
    )
    origin = origins.first().where(origins.nunique() == 1)
    energy_j = costs["energy_j"].where(costs["configuration"].map(origin).notna())
    per = {name: energy_j / costs[count] for name, count in QUANTITIES.items()}
    scope = costs.groupby("configuration")["kind"].first()
    means = wide_statistics(costs.assign(**per), list(QUANTITIES))
    means = means.assign(energy_origin=origin, energy_scope=scope)
    return lines.drop(columns=["energy_origin", "energy_scope"]).join(means, on="configuration")


def run_costs(runs: pd.DataFrame) -> pd.DataFrame:
    """Samples, energy in J and device seconds of runs' trainings; null if not known.

    Work that was lost trained on no sample that counts, so neither its energy nor its time does.
    """
    kinds = runs["torch_device"].map(lambda device: "gpu" if device == "cuda" else "cpu")
    whole = runs["gpu_energy_kwh"].where(kinds == "gpu", runs["cpu_energy_kwh"])
    facts = runs[[*RUN_KEY, "samples"]].assign(kind=kinds, is_known=whole.notna())
    rows = read_energies(runs, "energy", ENERGY_SCHEMA).merge(facts, on=RUN_KEY)
    rows = rows[(rows["device_kind"] == rows["kind"]) & (rows["stage"] == "train")]
    kept = 1 - (rows["discarded_j"] / rows["energy_j"].where(rows["energy_j"] > 0)).fillna(0.0)
    rows = rows.assign(energy_j=rows["energy_j"] * kept, seconds=rows["duration_s"] * kept)
    rows["short_s"] = rows["seconds"].where(rows["short"], 0.0)
    rows["device_s"] = rows["seconds"] * rows["devices"].fillna(0)
    groups = rows.groupby(RUN_KEY)
    sums = groups[["seconds", "short_s", "device_s"]].sum()
    sums["energy_j"] = groups["energy_j"].sum(skipna=False)
    sums["energy_origin"] = groups["energy_origin"].agg(one_origin)
    costs = facts.join(sums, on=RUN_KEY)
    is_known = costs["is_known"] & (costs["short_s"] <= MOST_SHORT * costs["seconds"])
    return costs.assign(energy_j=costs["energy_j"].where(is_known))


# --- times of a training step's phases -------------------------------------------------------------


def with_phase_times(lines: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add for each phase the median step in s, its ends the quartiles, and the mean of the slowest rank.

    Each is a mean over a run's epochs by their updates, and then over those of the `runs`, which count, that
    timed their steps.
    """
    histories = (read_checked(run.history, HISTORY_SCHEMA).to_pylist() for run in runs["files"])
    means = [{name: mean_over_updates(h, name) for name in PHASE_COLUMNS} for h in histories]
    times = pd.DataFrame(means, runs.index, PHASE_COLUMNS, dtype=float)
    known = times.groupby(runs["configuration"]).mean()
    columns: dict[str, pd.Series] = {}
    for phase in PHASES:
        q25, median, q75, slowest = (phase_column(phase, name) for name in PHASE_STATISTICS[1:])
        columns |= {f"{median}_low": known[q25], f"{median}_mean": known[median]}
        columns |= {f"{median}_high": known[q75], f"{slowest}_mean": known[slowest]}
    return lines.join(pd.DataFrame(columns), on="configuration")
