"""Have perun sample this node for a moment, in a process of its own, and say what came of it.

`python -m scalewatt.doctor.sampling_child FOLDER SECONDS POWERS` leaves FOLDER/sampled.json:
{"sensors": [{"sensor", "device_kind", "quantity", "samples", "mean", "unit"}], "kinds": {device
kind: {"origin", "devices", "sensors", "flags"}}}. `mean` is null where a sensor delivered nothing;
an origin is what this project's own accounting gives a run with these sensors and rated powers.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.files import write_json
from scalewatt.doctor.perun_checks import RESULT
from scalewatt.energy.accounting.node_energy import KindEnergy, node_kinds
from scalewatt.monitoring.perun_session import monitored
from scalewatt.recordings.journal import read_journal
from scalewatt.recordings.series import SensorSeries

PERIOD_S = 0.2
_UNITS = {"power": "W", "mean_power": "W", "counter": "W", "utilisation": "%"}


def _wait(seconds: float) -> bool:
    time.sleep(seconds)
    return True


def mean_of(series: SensorSeries) -> float | None:
    """Mean power in W, or percent; None where the sensor delivered nothing that can be true."""
    good = np.isfinite(series.values)
    values, time_s = series.values[good], series.time_s[good]
    if not values.size:
        return None
    if series.quantity == "utilisation":
        return 100 * float(values.mean())
    if series.quantity != "counter":
        mean = float(values.mean())
        return mean if mean > 0 else None
    if values.size < 2 or not (spent := values[-1] - values[0]) or time_s[-1] <= time_s[0]:
        return None
    if spent < 0:
        spent += series.valid_max or 0.0
    return float(spent / (time_s[-1] - time_s[0]))


def describe(series: tuple[SensorSeries, ...], powers: dict[str, Any]) -> dict[str, Any]:
    """What was sampled, and the origin that it gives each device kind's energy."""
    sensors = [
        {
            "sensor": one.sensor,
            "device_kind": one.device_kind,
            "quantity": one.quantity,
            "samples": int(one.values.size),
            "mean": mean_of(one),
            "unit": _UNITS[one.quantity],
        }
        for one in series
    ]
    silent = {one["sensor"] for one in sensors if one["mean"] is None}
    delivered = [one for one in series if one.sensor not in silent]
    node = series[0].node if series else ""
    kinds = node_kinds(node, delivered, powers=powers, period_s=PERIOD_S)
    return {"sensors": sensors, "kinds": {one.device_kind: _kind(one) for one in kinds}}


def _kind(kind: KindEnergy) -> dict[str, Any]:
    return {
        "origin": kind.origin,
        "devices": kind.devices,
        "sensors": [one.sensor for one in kind.series],
        "flags": sorted({one["code"] for one in kind.flags}),
    }


def main(argv: list[str]) -> None:
    """Sample and describe; raises where perun left no journal."""
    folder, seconds, powers = Path(argv[0]), float(argv[1]), json.loads(argv[2])
    monitored(_wait, (seconds,), folder, "doctor", PERIOD_S, "scalewatt doctor")
    recording = read_journal(sorted(folder.glob("*.journal")))
    write_json(folder / RESULT, describe(tuple(recording.series), powers))


if __name__ == "__main__":
    main(sys.argv[1:])
