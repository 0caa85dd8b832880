"""The energy of a journal so far, added up by the sampler while it samples: for status and budget.

`segment-000.<host>.total.json`, at most TOTAL_EVERY_S behind the journal: `host`, `period_s`, `seconds` since
the first sample, `last_s` (unix s), `mono` (monotonic s), and of each sensor of power or energy (`sensors`)
{name, kind, index, uuid, joules, covered_s, power_w (mean since the total before)}. The energy tables have
the last word.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.energies.integrate import validate
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import beside, described_sensors
from scalewatt.recordings.terms import Floats, bridge_s

TOTAL_EVERY_S = 10.0
# Sampling periods that a sensor's next known power is waited for, and the steps that tell what is usual.
WAIT_PERIODS, USUAL_STEPS = 3600, 4


class RunningTotal:
    """Adds up the samples of a node, and writes the total every TOTAL_EVERY_S.

    Each time the last samples are validated as those of a finished run are. What is further back than a
    gap that is bridged, up to the last sample of known power, cannot change any more: it is settled, and
    its samples are dropped. What a counter does not show for WAIT_PERIODS is uncovered.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path, self._host, self._period_s = path, about["host"], about["sampling_period_s"]
        sensors, factors = described_sensors(about)
        is_energy = (sensors["quantity"] != "utilisation").to_numpy()
        self._sensors = sensors[is_energy].reset_index(drop=True)
        self._factors = np.array(factors)[is_energy]
        names = [*about["sensors"]]
        self._columns = [names.index(name) for name in self._sensors["name"]]
        self._samples: list[list[float]] = []
        self._settled = np.zeros((len(self._sensors), 2))
        self._settled_s = np.full(len(self._sensors), np.nan)
        self._first_s = self._written_s = np.nan

    def add(self, t: float, mono: float, values: Sequence[Any]) -> None:
        """Count a sample of all columns of the journal."""
        self._samples.append([mono, *(_number(values[column]) for column in self._columns)])
        if np.isnan(self._first_s):
            self._first_s = self._written_s = mono
            self._settled_s[:] = mono
        elif mono < self._written_s + TOTAL_EVERY_S:
            return
        self._write(t, mono)

    def _write(self, t: float, mono: float) -> None:
        """Replace the file at once; it is not synced, as that may hold up sampling."""
        time_s, values = np.hsplit(np.array(self._samples), [1])
        block = Block(self._host, time_s[:, 0], values * self._factors, self._sensors)
        checked = [validate(block, k, self._period_s) for k in range(len(self._sensors))]
        curves = [each.curve for each in checked]

        def used(start_s: ArrayLike, end_s: ArrayLike) -> Floats:
            """Energy in J and covered time in s of each sensor, (k, 2)."""
            ends = np.broadcast_arrays(start_s, end_s, self._settled_s)[:2]
            pairs = [(c.between(*e), c.covered_s(*e)) for c, *e in zip(curves, *ends, strict=True)]
            return np.array(pairs, dtype=np.float64).reshape(-1, 2)

        joules, covered_s = (self._settled + used(self._settled_s, mono)).T
        since_j, since_s = used(self._written_s, mono).T
        bridged_s = bridge_s(self._period_s)
        is_old = time_s[:, 0] <= mono - bridged_s
        known_s = [time_s[is_old & np.isfinite(v.power_w)].max(initial=-np.inf) for v in checked]
        waited_s = mono - bridged_s - WAIT_PERIODS * self._period_s
        settled_s = np.maximum(np.maximum(known_s, waited_s), self._settled_s)
        self._settled += used(self._settled_s, settled_s)
        self._settled_s, self._written_s = settled_s, mono
        kept_s = [mono - 2 * bridged_s, *settled_s - bridged_s]
        for curve, end_s in zip(curves, settled_s, strict=True):
            kept_s.extend(curve.time_s[curve.time_s < end_s][-USUAL_STEPS:])
        first_s = max(min(kept_s), waited_s - bridged_s)
        self._samples = [row for row in self._samples if row[0] >= first_s]

        power_w = np.divide(since_j, since_s, out=np.full(since_s.size, np.nan), where=since_s > 0)
        rows = self._sensors[["name", "kind", "index", "uuid"]].assign(
            joules=joules, covered_s=covered_s, power_w=power_w
        )
        about = {"host": self._host, "period_s": self._period_s, "seconds": mono - self._first_s}
        about |= {
            "last_s": t,
            "mono": mono,
            "sensors": rows.replace({np.nan: None}).to_dict("records"),
        }
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        temporary.write_text(json.dumps(about))
        os.replace(temporary, self._path)


def _number(raw: Any) -> float:
    return float(raw) if isinstance(raw, int | float | np.number) else np.nan


def read_total(journal: Path) -> dict[str, Any] | None:
    """Read the total of the journal at a path; None without one."""
    keys = ("host", "period_s", "seconds", "last_s", "mono", "sensors")
    try:
        return read_json_object(beside(journal, ".total.json"), *keys)
    except (OSError, InputError):
        return None
