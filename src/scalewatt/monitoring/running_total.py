"""The energy of a journal so far, added up by the sampler while it samples: for status and budget.

`segment-000.<host>.total.json`, at most TOTAL_EVERY_S behind the journal: `host`, `period_s`, `seconds` since
the first sample, `last_s` (unix s), `mono` (monotonic s), and of each sensor of power or energy (`sensors`)
{name, kind, index, uuid, joules, covered_s, power_w (mean since the total before)}. The energy tables have
the last word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from scalewatt.common.files import read_content, replace_json
from scalewatt.energies.integrate import EnergyCurve, validate
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import beside, described_sensors
from scalewatt.recordings.terms import Floats

TOTAL_EVERY_S = 10.0
# What is further back, in s and in sampling periods, does not change any more.
SETTLED_S, SETTLED_PERIODS = 300.0, 30


class RunningTotal:
    """Adds up the samples of a node, and writes the total every TOTAL_EVERY_S.

    Each time the last samples are validated as those of a finished run are. What has settled is added to a
    sum, and samples twice as old are dropped.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self._path, self._host, self._period_s = path, about["host"], about["sampling_period_s"]
        sensors, factors = described_sensors(about)
        is_energy = (sensors["quantity"] != "utilisation").to_numpy()
        self._sensors = sensors[is_energy].reset_index(drop=True)
        self._factors = np.array(factors)[is_energy]
        self._columns = [[*about["sensors"]].index(name) for name in self._sensors["name"]]
        self._samples: list[list[float]] = []
        self._settled = np.zeros((len(self._sensors), 2))  # J and covered s
        self._first_s = self._settled_s = self._written_s = np.nan

    def add(self, t: float, mono: float, values: Sequence[Any]) -> None:
        """Count a sample of all columns of the journal."""
        self._samples.append([mono, *(_number(values[column]) for column in self._columns)])
        if np.isnan(self._first_s):
            self._first_s = self._settled_s = self._written_s = mono
        elif mono < self._written_s + TOTAL_EVERY_S:
            return
        self._write(t, mono)

    def _write(self, t: float, mono: float) -> None:
        """Replace the file; it is not synced, as that may hold up sampling."""
        time_s, values = np.hsplit(np.array(self._samples), [1])
        block = Block(self._host, time_s[:, 0], values * self._factors, self._sensors)
        curves = [validate(block, k, self._period_s).curve for k in range(len(self._sensors))]
        joules, covered_s = (self._settled + _used(curves, self._settled_s, mono)).T
        last_j, last_s = _used(curves, self._written_s, mono).T
        power_w = np.divide(last_j, last_s, out=np.full(last_s.size, np.nan), where=last_s > 0)

        lag_s = max(SETTLED_S, SETTLED_PERIODS * self._period_s)
        settled_s = max(self._settled_s, mono - lag_s)
        self._settled += _used(curves, self._settled_s, settled_s)
        self._settled_s, self._written_s = settled_s, mono
        self._samples = [row for row in self._samples if row[0] >= mono - 2 * lag_s]

        rows = self._sensors[["name", "kind", "index", "uuid"]].assign(
            joules=joules, covered_s=covered_s, power_w=power_w
        )
        about = {
            **{"host": self._host, "period_s": self._period_s, "seconds": mono - self._first_s},
            **{"last_s": t, "mono": mono},
            "sensors": rows.replace({np.nan: None}).to_dict("records"),
        }
        replace_json(self._path, about)


def _used(curves: Sequence[EnergyCurve], start_s: float, end_s: float) -> Floats:
    """Energy in J and covered time in s of each sensor between two times, (k, 2)."""
    pairs = [(c.between(start_s, end_s), c.covered_s(start_s, end_s)) for c in curves]
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)


def _number(raw: Any) -> float:
    return float(raw) if isinstance(raw, int | float | np.number) else np.nan


def read_total(journal: Path) -> dict[str, Any] | None:
    """Read the total of the journal at a path; None without one."""
    return cast(dict[str, Any] | None, read_content(beside(journal, ".total.json")))
