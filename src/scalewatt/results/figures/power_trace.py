"""The points of Figure 5: one device's power over the first minutes of training.

The rule that picks the device: the first GPU of the first node of a configuration's first run, by
node name and device index, in the first segment that trained; where no GPU has a power, the first
CPU. A power is taken as the device's energy is: between two samples lies the trapezoid, but where the
trace says that a sample is the mean since the one before. Times between known samples count up to the
length that the energy account bridges. Means over the run are those of the energy account.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from scalewatt.energy.accounting.energy_schema import DEVICES_SCHEMA
from scalewatt.energy.integration.sample_checks import (
    EnergyCurve,
    bridge_s,
    cumulate,
    sampling_period,
)
from scalewatt.recordings.series import MEAN, Floats
from scalewatt.results.figures.figure_schema import POWER, panel_letter
from scalewatt.results.tables.frames import records, to_frame
from scalewatt.results.tables.read_table import read_checked, read_columns
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.tables.table_schema import table

Row = dict[str, Any]

NO_STAGE = "unattributed"
POWER_TRACE_S = 300.0
"""Length of Figure 5's power traces."""
LEAST_COVERED = 0.5
"""Share of a window that must be known for its mean to be stated."""
_COLUMNS = (
    "segment",
    "time",
    "node",
    "device_kind",
    "device_index",
    "power_w",
    "quantity",
    "energy_origin",
    "stage",
)


def power(definition: dict[str, Any], configurations: pd.DataFrame, results: Path) -> pd.DataFrame:
    """Figure 5: power over the first 300 s of training, and its means over the run.

    With `options.power_window_s` in the definition, means over windows of that length instead of
    samples. A point that names a configuration again has no panel of its own. A run without any
    power has one row without, and a run that never trained one without time as well.
    """
    by_id = {row["configuration"]: row for row in records(configurations)}
    runs = _first_runs(definition)
    window_s = definition.get("options", {}).get("power_window_s")
    labels = {point["configuration"]: point["label"] for point in reversed(definition["points"])}
    tables = [
        _panel(letter, labels[id_], by_id[id_], RunFiles(results, id_, runs[id_]), window_s)
        for letter, id_ in panels(definition).items()
        if id_ in by_id
    ]
    return to_frame(pa.concat_tables(tables) if tables else POWER.empty_table())


def panels(definition: dict[str, Any]) -> dict[str, str]:
    """The letter of each panel, whether there is a run for it or not, and its configuration."""
    ids = dict.fromkeys(point["configuration"] for point in definition["points"])
    return {panel_letter(place): id_ for place, id_ in enumerate(ids)}


def _first_runs(definition: dict[str, Any]) -> dict[str, int]:
    """The first repeat of each configuration that is not excluded."""
    out = {(one["configuration"], one["repeat"]) for one in definition.get("excluded", [])}
    first: dict[str, int] = {}
    for configuration, repeat in definition["runs"]:
        if (configuration, repeat) not in out:
            first[configuration] = min(repeat, first.get(configuration, repeat))
    return first


def _panel(letter: str, label: str, row: Row, files: RunFiles, window_s: float | None) -> pa.Table:
    copied = ("device", "device_name", "gpus", "local_batch_size", "global_batch_size")
    fixed = {
        "figure": "figure5",
        "panel": letter,
        "label": label,
        "configuration": row["configuration"],
        **{name: row[name] for name in copied},
    }
    traces = _of_kind(read_columns(files.traces, _COLUMNS))
    unknown: Row = {"power_w": None, "mean_power_w": None, "mean_power_all_w": None}
    unknown |= {"energy_origin": None, "quantity": None}
    if traces is None:
        kind = "cpu" if row["torch_device"] == "cpu" else "gpu"
        return table([fixed | unknown | {"time_s": 0.0, "device_kind": kind}], POWER)
    kind = traces["device_kind"][0].as_py()
    begun = _begun(traces)
    own = _own(traces, begun)
    if own is None:
        time_s = 0.0 if len(begun) else None
        return table([fixed | unknown | {"time_s": time_s, "device_kind": kind}], POWER)
    start_s = _start_s(own)
    fixed |= {
        **_means(own, kind, read_checked(files.devices, DEVICES_SCHEMA).to_pylist()),
        "device_kind": kind,
        "energy_origin": own["energy_origin"][0].as_py(),
        "quantity": own["quantity"][0].as_py(),
    }
    times, watts = _shown(own, start_s, window_s)
    return table(
        [fixed | {"time_s": t, "power_w": w} for t, w in zip(times, watts, strict=True)], POWER
    )


def _of_kind(traces: pa.Table) -> pa.Table | None:
    """The samples of GPUs, or of CPUs where no GPU has a power, in order; None where none has."""
    kinds = traces["device_kind"].cast(pa.string())
    for kind in ("gpu", "cpu"):
        chosen = traces.filter(pc.equal(kinds, kind))
        if chosen["power_w"].null_count < len(chosen):
            for name in ("device_kind", "node", "quantity", "energy_origin", "stage"):
                at = chosen.column_names.index(name)
                chosen = chosen.set_column(at, name, chosen[name].cast(pa.string()))
            return chosen
    return None


def _begun(traces: pa.Table) -> pa.Table:
    """The samples from training, none where a run never trained; all of a recording without stages."""
    training = traces.filter(pc.equal(traces["stage"], "train"))
    if not len(training) and not pc.any(pc.not_equal(traces["stage"], NO_STAGE)).as_py():
        return traces
    return training


def _own(traces: pa.Table, begun: pa.Table) -> pa.Table | None:
    """The shown device's samples of the first segment that trained; None where no power is known."""
    trained = traces.filter(pc.is_in(traces["segment"], pc.unique(begun["segment"])))
    for samples in (begun, trained):
        known = samples.filter(pc.is_valid(samples["power_w"]))
        if len(known):
            break
    else:
        return None
    own = trained
    for name in ("segment", "node", "device_index"):
        first = pc.min(known[name])
        known = known.filter(pc.equal(known[name], first))
        own = own.filter(pc.equal(own[name], first))
    return own.sort_by("time")


def _start_s(own: pa.Table) -> float:
    """When training began, or the recording where that is not known (Unix time in s)."""
    begun = _begun(own)
    return float(_seconds(begun if len(begun) else own)[0])


def _seconds(traces: pa.Table) -> Floats:
    microseconds = traces["time"].cast(pa.timestamp("us")).cast(pa.int64())
    return np.asarray(microseconds.to_numpy(), dtype=np.float64) / 1e6


def _watts(traces: pa.Table) -> Floats:
    """Power in W, NaN where unknown."""
    return np.asarray(traces["power_w"].to_numpy(), dtype=np.float64)


def _shown(
    own: pa.Table, start_s: float, window_s: float | None
) -> tuple[list[float], list[float | None]]:
    """Times since `start_s` in s and powers in W of what is drawn; None is a gap."""
    time_s, power_w = _seconds(own) - start_s, _watts(own)
    if window_s is None:
        shown = (time_s >= 0) & (time_s <= POWER_TRACE_S)
        time_s, power_w = time_s[shown], power_w[shown]
    else:
        known = np.isfinite(power_w)
        longest_s = bridge_s(sampling_period(time_s))
        mean = own["quantity"][0].as_py() == MEAN
        curve = power_curve(time_s[known], power_w[known], longest_s, mean)
        time_s, power_w = windows(curve, window_s, min(POWER_TRACE_S, float(time_s[-1])))
    return time_s.tolist(), [None if np.isnan(w) else float(w) for w in power_w]


def power_curve(time_s: Floats, power_w: Floats, longest_s: float, mean: bool) -> EnergyCurve:
    """Energy cumulated over known samples of one device; steps over `longest_s` are not covered.

    `mean`: a sample is the mean since the one before, not a power at its time.
    """
    step = np.diff(time_s)
    known = (step > 0) & (step <= longest_s)
    height = power_w[1:] if mean else 0.5 * (power_w[1:] + power_w[:-1])
    return cumulate(time_s, np.where(known, height * step, 0.0), np.where(known, step, 0.0))


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


def _means(own: pa.Table, kind: str, devices: list[Row]) -> Row:
    """Mean power in W over the run of the shown device, and of all of its kind, over their known time."""
    place = own["node"][0].as_py(), own["device_index"][0].as_py()
    of_kind = [row for row in devices if row["device_kind"] == kind]
    shown = [row for row in of_kind if (row["node"], row["device_index"]) == place]
    return {"mean_power_w": _mean_w(shown), "mean_power_all_w": _mean_w(of_kind)}


def _mean_w(devices: list[Row]) -> float | None:
    covered_s = sum(row["covered_s"] for row in devices)
    return sum(row["recorded_j"] for row in devices) / covered_s if covered_s > 0 else None
