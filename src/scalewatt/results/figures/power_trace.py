"""The points of Figure 5: one device's power over the first minutes of training.

The rule that picks the device: the first GPU of the first node of a configuration's first run, by
node name and device index, in the first segment that trained; where no GPU has a power, the first CPU, and
where no part of a node has, the first node by its own meter. Means over the run are those of the energy
account.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.energies.stages import UNATTRIBUTED
from scalewatt.energies.tables import DEVICES_SCHEMA
from scalewatt.energies.traces import TRACES_SCHEMA, read_samples
from scalewatt.recordings.block import sampling_period
from scalewatt.recordings.terms import NODE
from scalewatt.results.figures.figure_schema import POWER, panel_letter
from scalewatt.results.tables.frames import frame_of, opened_parquet, read_checked, records
from scalewatt.results.tables.run_row import RunFiles

Row = dict[str, Any]

POWER_TRACE_S = 300.0
"""Length of Figure 5's power traces."""
LEAST_COVERED = 0.5
"""Share of a window that must have samples for its mean to be stated."""
_COPIED = (
    *("configuration", "device", "device_name"),
    *("gpus", "local_batch_size", "global_batch_size"),
)
_DEVICE = ["segment", "node", "device_index"]
_OF_SENSOR = ["device_kind", "energy_origin", "quantity"]
_POWERS = ("power_w", "mean_power_w", "mean_power_all_w", "energy_origin", "quantity")


def power(
    definition: dict[str, Any], configurations: pd.DataFrame, runs: pd.DataFrame
) -> pd.DataFrame:
    """Figure 5: power over the first 300 s of training, and its means over the first run that counts.

    With `options.power_window_s` in the definition, means of the samples in windows of that length. A point
    that names a configuration again has no panel of its own. A run without any power has one row without,
    and a run that never trained one without time as well.
    """
    by_id = {row["configuration"]: row for row in records(configurations)}
    first = runs.sort_values("repeat").drop_duplicates("configuration")
    files = dict(zip(first["configuration"], first["files"], strict=True))
    window_s = definition.get("options", {}).get("power_window_s")
    labels = {point["configuration"]: point["label"] for point in reversed(definition["points"])}
    rows: list[Row] = []
    for letter, id_ in panels(definition).items():
        if id_ in by_id:
            head = {name: by_id[id_][name] for name in _COPIED}
            head |= {"figure": "figure5", "panel": letter, "label": labels[id_]}
            kind = "cpu" if by_id[id_]["torch_device"] == "cpu" else "gpu"
            points = _points(files[id_], window_s, kind)
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

    # The first device with a power in a segment that trained, if possible while it trained.
    devices = devices[devices["device_kind"] == kind]
    # A recording without stages counts as training throughout.
    trains = (devices["stage"] == "train") | bool((devices["stage"] == UNATTRIBUTED).all())
    in_segment = devices["segment"].isin(devices["segment"][trains])
    known = devices.assign(before=~trains)[in_segment & (devices["covered_s"] > 0)]
    if known.empty:
        return [unknown | {"time_s": 0.0 if trains.any() else None}]
    segment, *device = known.sort_values(["before", *_DEVICE], kind="stable")[_DEVICE].iloc[0]

    samples = _samples(files.traces, kind, segment, *device)
    in_training = samples["time_s"][samples["stage"] == "train"]
    begin_s = in_training.iloc[0] if len(in_training) else samples["time_s"].iloc[0]
    shown = samples.assign(time_s=samples["time_s"] - begin_s)[["time_s", "power_w"]]
    shown = shown[shown["time_s"].between(0, POWER_TRACE_S)]
    if window_s is not None:
        shown = _window_means(shown, window_s, sampling_period(samples["time_s"].to_numpy()))
    is_chosen = (devices[_DEVICE[1:]] == device).all(axis=1)
    first = records(samples[_OF_SENSOR].head(1))[0]
    first |= {"mean_power_w": _mean_w(devices[is_chosen]), "mean_power_all_w": _mean_w(devices)}
    return [first | row for row in records(shown)]


def _samples(traces: Path, kind: str, segment: int, node: str, index: int) -> pd.DataFrame:
    """Read a device's samples in order; `time_s` is Unix time in s, and an unknown power is NaN."""
    device = f"device_kind == {kind!r} and segment == {segment} and node == {node!r}"
    with opened_parquet(traces, TRACES_SCHEMA.names) as file:
        rows = pd.concat(read_samples(file, f"{device} and device_index == {index}"))
    time_s, power_w = rows["time"].astype("int64") / 1e6, rows["power_w"].astype(float)
    return rows.assign(time_s=time_s, power_w=power_w).sort_values("time_s", kind="stable")


def _window_means(samples: pd.DataFrame, window_s: float, period_s: float) -> pd.DataFrame:
    """Means of the samples in equal windows, at their middles; null where LEAST_COVERED of one is unknown."""
    samples = samples[samples["time_s"] < POWER_TRACE_S]
    number = (samples["time_s"] // window_s).astype(int)
    powers = samples["power_w"].groupby(number)
    enough = powers.count() * period_s >= LEAST_COVERED * window_s * (1 - 1e-9)
    mean = powers.mean().where(enough).reindex(range(number.max() + 1))
    return pd.DataFrame({"time_s": (mean.index + 0.5) * window_s, "power_w": mean})


def _mean_w(devices: pd.DataFrame) -> float | None:
    """Mean power over the run, in W over the known time of devices."""
    covered_s = devices["covered_s"].sum()
    return float(devices["recorded_j"].sum() / covered_s) if covered_s > 0 else None
