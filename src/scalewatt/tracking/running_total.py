"""The energy of a journal so far: the sampler's running total, or else all that the journal holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.energies.checks import gpu_loads
from scalewatt.energies.node import (
    KindEnergy,
    NodeFacts,
    node_kinds,
    node_window,
    sensors_of,
)
from scalewatt.energies.run_inputs import Run
from scalewatt.energies.stages import Window
from scalewatt.monitoring.running_total import TOTAL_EVERY_S, read_total
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import last_stamps, read_journal
from scalewatt.recordings.telemetry import read_telemetry, telemetry_of
from scalewatt.recordings.terms import DEVICE_KINDS, MEASURED, PLAUSIBLE_W

COLUMNS = ["kind", "joules", "covered_s", "device_s", "origin", "low_j", "high_j"]
"""Of each device kind: recorded J, device seconds with a known power and of which it should be known, and
the interval of what was used, by what estimates and uncovered time leave open."""
MOST_BEHIND = 0.01
"""Share of a journal's time that its total may lack; what was used then is in the interval."""
_SUMS = ["joules", "covered_s", "power_w"]


@dataclass(frozen=True, eq=False)
class JournalSum:
    """The energy in the journal of a node."""

    host: str
    last_s: float
    """Unix time of the last sample that is counted."""
    seconds: float
    """Seconds that it was recorded."""
    kinds: pd.DataFrame
    """COLUMNS, a row a device kind in scope."""
    watts: float | None
    """Mean power of the last TOTAL_EVERY_S; None if a device's is unknown."""


def read_so_far(path: Path, run: Run) -> JournalSum | None:
    """Count the journal at `path` of a segment of `run`; None without a readable sample.

    `run` gives the GPUs held and the rated powers. The whole journal is read if there is no total, if that
    lacks more than MOST_BEHIND of the time or was not written when due, and if a part is to be estimated.
    """
    total, last = read_total(path), last_stamps(path)
    if total is None or last is None:
        return _of_samples(path, run)
    behind_s = last[1] - total["mono"]  # by the clock that nobody sets
    due_s = min(TOTAL_EVERY_S + total["period_s"], MOST_BEHIND * total["seconds"])
    if not 0 <= behind_s <= due_s:
        return _of_samples(path, run)
    sensors = pd.DataFrame(total["sensors"], columns=["kind", "index", "uuid", *_SUMS])
    rated = {kind for kind in DEVICE_KINDS if run.powers.get(kind)}
    if not rated <= set(sensors["kind"]) or sensors.duplicated(["kind", "index"]).any():
        return _of_samples(path, run)
    return _of_total(total, sensors, run, behind_s)


def _of_total(
    total: dict[str, Any], sensors: pd.DataFrame, run: Run, behind_s: float
) -> JournalSum:
    """Sums of a total; the time since it was written, `behind_s`, is uncovered."""
    gpus = sensors[["index", "uuid"]].itertuples(index=False)
    held = run.used_gpus(total["host"], gpus)
    if held is not None:
        sensors = sensors[(sensors["kind"] != "gpu") | sensors["index"].isin(held)]
    kinds = sensors.groupby("kind")[["joules", "covered_s"]].sum()
    devices = sensors.groupby("kind").size()
    expected = (run.spec.ranks_per_node if held is None else len(held)) or 0
    if held or "gpu" in kinds.index:  # what the run held exists, with or without a sensor
        kinds = kinds.reindex(kinds.index.union(["gpu"]), fill_value=0.0)
        devices["gpu"] = max(devices.get("gpu", 0), expected)
    # The first and the last step of a counter may be open.
    inner_s = max(total["seconds"] - 2 * total["period_s"], 0.0)
    kinds["device_s"] = devices * (inner_s + behind_s)
    uncovered_s = (kinds["device_s"] - kinds["covered_s"]).clip(lower=0)
    kinds["origin"], kinds["low_j"] = MEASURED, kinds["joules"]
    kinds["high_j"] = kinds["joules"] + uncovered_s * kinds.index.map(PLAUSIBLE_W)
    is_known = len(sensors) and sensors["power_w"].notna().all()
    watts = float(sensors["power_w"].sum()) if is_known else None
    kinds = kinds.reset_index()[COLUMNS]
    return JournalSum(total["host"], total["last_s"], total["seconds"], kinds, watts)


def _of_samples(path: Path, run: Run) -> JournalSum | None:
    """Account for all samples of a host, as the energy of a finished run is accounted for."""
    try:
        recording = read_journal(path)
        ((host, blocks),) = recording.nodes.items()
    except InputError:
        return None
    if (window := node_window(blocks)) is None:
        return None
    sensors = sensors_of(blocks)
    held = run.used_gpus(host, ((each.row.index, each.row.uuid) for each in sensors))
    loads: list[Block] = []
    if run.powers.get("gpu") and not any(each.row.kind == "gpu" for each in sensors):
        loads = gpu_loads(read_telemetry(telemetry_of(path))[0])
    facts = NodeFacts(
        host,
        window,
        recording.period_s or run.spec.sampling_period_s,
        run.powers,
        used_gpus=held,
        expected_gpus=run.spec.ranks_per_node if held is None else len(held),
    )
    kinds = node_kinds(facts, [*blocks, *loads])
    kinds = [k for k in kinds if k.device_kind in DEVICE_KINDS and k.coverage is not None]
    last = max(window[0], window[1] - TOTAL_EVERY_S), window[1]
    known = kinds and last[1] > last[0] and all(kind.known for kind in kinds)
    joules = sum(kind.recorded_j(last) for kind in kinds)
    watts = joules / (last[1] - last[0]) if known else None
    frame = pd.DataFrame([_row(kind, window) for kind in kinds], columns=COLUMNS)
    return JournalSum(host, window[1], window[1] - window[0], frame, watts)


def _row(kind: KindEnergy, window: Window) -> list[Any]:
    # Devices that nothing was recorded of have been there for the whole window.
    device_s = kind.device_s if kind.devices else window[1] - window[0]
    sums = kind.recorded_j(window), (kind.coverage or 0.0) * device_s, device_s
    return [kind.device_kind, *sums, kind.origin, *kind.bounds_j(window)]
