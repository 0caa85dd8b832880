"""The points of Figure 5: one device's power over the first minutes of training.

The rule that picks the device: the first GPU of the first node of a configuration's first run, by
node name and device index, in the first segment that trained; where no GPU has a power, the first CPU, and
where no part of a node has, the first node by its own meter. A power is taken as the device's energy
is: between two samples lies the trapezoid, but where the trace says that a sample is the mean since the
one before. Times between known samples count up to the length that the energy account bridges. Means
over the run are those of the energy account.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.energies.integrate import EnergyCurve, cumulate
from scalewatt.energies.stages import UNATTRIBUTED
from scalewatt.energies.tables import DEVICES_SCHEMA
from scalewatt.energies.traces import TRACES_SCHEMA, read_samples
from scalewatt.recordings.block import sampling_period
from scalewatt.recordings.terms import MEAN, NODE, Floats, bridge_s
from scalewatt.results.figures.breakdown_table import counted_repeats
from scalewatt.results.figures.figure_schema import POWER, panel_letter
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.read_table import opened_parquet, read_checked
from scalewatt.results.tables.run_row import RunFiles

Row = dict[str, Any]

POWER_TRACE_S = 300.0
"""Length of Figure 5's power traces."""
LEAST_COVERED = 0.5
"""Share of a window that must be known for its mean to be stated."""
_COPIED = ("device", "device_name", "gpus", "local_batch_size", "global_batch_size")
_DEVICE = ["segment", "node", "device_index"]
_POWERS = ("power_w", "mean_power_w", "mean_power_all_w", "energy_origin", "quantity")


def power(definition: dict[str, Any], configurations: pd.DataFrame, results: Path) -> pd.DataFrame:
    """Figure 5: power over the first 300 s of training, and its means over the run.

    With `options.power_window_s` in the definition, means over windows of that length instead of
    samples. A point that names a configuration again has no panel of its own. A run without any
    power has one row without, and a run that never trained one without time as well.
    """
    by_id = {row["configuration"]: row for row in records(configurations)}
    repeats = counted_repeats(definition)
    window_s = definition.get("options", {}).get("power_window_s")
    labels = {point["configuration"]: point["label"] for point in reversed(definition["points"])}
    rows: list[Row] = []
    for letter, id_ in panels(definition).items():
        if id_ in by_id:
            head = {"figure": "figure5", "panel": letter, "label": labels[id_]}
            head |= {"configuration": id_, **{name: by_id[id_][name] for name in _COPIED}}
            kind = "cpu" if by_id[id_]["torch_device"] == "cpu" else "gpu"
            points = _points(RunFiles(results, id_, min(repeats[id_])), window_s, kind)
            rows += [head | point for point in points]
    return frame_of(rows, POWER)


def panels(definition: dict[str, Any]) -> dict[str, str]:
    """Name the configuration of each panel, with or without a run, by the panel's letter."""
    ids = dict.fromkeys(point["configuration"] for point in definition["points"])
    return {panel_letter(index): id_ for index, id_ in enumerate(ids)}


def _points(files: RunFiles, window_s: float | None, expected_kind: str) -> list[Row]:
    """Read the points of a run: its device's samples, or a row without power that says what is known."""
    devices: pd.DataFrame = read_checked(files.devices, DEVICES_SCHEMA).to_pandas()
    has_power = set(devices["device_kind"][devices["covered_s"] > 0])
    kind = next((kind for kind in ("gpu", "cpu", NODE) if kind in has_power), None)
    unknown: Row = {"device_kind": kind or expected_kind, **dict.fromkeys(_POWERS)}
    if kind is None:
        return [unknown | {"time_s": 0.0}]
    devices = devices[devices["device_kind"] == kind]
    # A recording without stages counts as training throughout.
    trains = (devices["stage"] == "train") | bool((devices["stage"] == UNATTRIBUTED).all())
    in_segment = devices["segment"].isin(devices["segment"][trains])
    known = devices.assign(before=~trains)[in_segment & (devices["covered_s"] > 0)]
    if known.empty:
        return [unknown | {"time_s": 0.0 if trains.any() else None}]
    chosen = known.sort_values(["before", *_DEVICE], kind="stable")[_DEVICE].iloc[0]
    samples = _samples(files.traces, kind, *chosen)
    is_chosen = (devices[_DEVICE[1:]] == chosen[1:]).all(axis=1)
    first = records(samples[["device_kind", "energy_origin", "quantity"]].head(1))[0]
    first |= {"mean_power_w": _mean_w(devices[is_chosen]), "mean_power_all_w": _mean_w(devices)}
    in_training = samples["time_s"][samples["stage"] == "train"]
    start_s = in_training.iloc[0] if len(in_training) else samples["time_s"].iloc[0]
    times, watts = _shown(samples, start_s, window_s, first["quantity"] == MEAN)
    return [first | {"time_s": t, "power_w": w} for t, w in zip(times, watts, strict=True)]


def _samples(traces: Path, kind: str, segment: int, node: str, index: int) -> pd.DataFrame:
    """Read a device's samples in order; `time_s` is Unix time in s, and an unknown power is NaN."""
    device = f"device_kind == {kind!r} and segment == {segment} and node == {node!r}"
    with opened_parquet(traces, TRACES_SCHEMA.names) as file:
        rows = pd.concat(read_samples(file, f"{device} and device_index == {index}"))
    time_s, power_w = rows["time"].astype("int64") / 1e6, rows["power_w"].astype(float)
    return rows.assign(time_s=time_s, power_w=power_w).sort_values("time_s", kind="stable")


def _shown(
    samples: pd.DataFrame, start_s: float, window_s: float | None, mean: bool
) -> tuple[list[float], list[float | None]]:
    """Times since `start_s` in s and powers in W of what is drawn; None is a gap.

    `mean`: a sample is the mean since the one before.
    """
    time_s, power_w = samples["time_s"].to_numpy() - start_s, samples["power_w"].to_numpy()
    if window_s is None:
        shown = (time_s >= 0) & (time_s <= POWER_TRACE_S)
        time_s, power_w = time_s[shown], power_w[shown]
    else:
        known = np.isfinite(power_w)
        longest_s = bridge_s(sampling_period(time_s))
        curve = power_curve(time_s[known], power_w[known], longest_s, mean)
        time_s, power_w = windows(curve, window_s, min(POWER_TRACE_S, float(time_s[-1])))
    return time_s.tolist(), [None if np.isnan(w) else float(w) for w in power_w]


def power_curve(time_s: Floats, power_w: Floats, longest_s: float, mean: bool) -> EnergyCurve:
    """Energy in J cumulated over known samples of power of a device.

    Steps over `longest_s` are not covered. `mean`: a sample is the mean since the one before, not a power
    at its time.
    """
    step = np.diff(time_s)
    known = (step > 0) & (step <= longest_s)
    height = power_w[1:] if mean else 0.5 * (power_w[1:] + power_w[:-1])
    return cumulate(time_s, height * step, known)


def windows(curve: EnergyCurve, window_s: float, until_s: float) -> tuple[Floats, Floats]:
    """Middle in s and mean power in W of the windows from 0 to `until_s`, (w,) each.

    The mean is over what is known of a window; NaN where that is less than half of it.
    """
    edges = window_s * np.arange(max(1, int(np.ceil(until_s / window_s - 1e-9))) + 1)
    covered = curve.covered_s(edges[:-1], edges[1:])
    energy = curve.between(edges[:-1], edges[1:])
    enough = covered >= LEAST_COVERED * window_s * (1 - 1e-9)
    mean = np.divide(energy, covered, out=np.full(covered.shape, np.nan), where=enough)
    return 0.5 * (edges[:-1] + edges[1:]), mean


def _mean_w(devices: pd.DataFrame) -> float | None:
    """Mean power over the run, in W over the known time of devices."""
    covered_s = devices["covered_s"].sum()
    return float(devices["recorded_j"].sum() / covered_s) if covered_s > 0 else None
