"""perun's live callback: every sample on disk as it is taken, telemetry, and the energy so far.

It runs inside perun's sampler, one per node, and never raises into perun's loop.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

from scalewatt.common.files import read_content, replace_json, write_json
from scalewatt.common.processes import die_with, ignore_stop_signals
from scalewatt.common.termination import say
from scalewatt.energies.integrate import EnergyCurve, validate
from scalewatt.recordings.block import Block
from scalewatt.recordings.journal import SENSORS, LineWriter, beside, described_sensors, is_of_use
from scalewatt.recordings.telemetry import (
    TelemetryWriter,
    announce_sampler,
    count_samplers,
    working_sources,
)
from scalewatt.recordings.terms import Floats, index_in_name, number_devices

Sensors = dict[str, dict[str, Any]]
TOTAL_EVERY_S = 10.0
# What is further back, in s and in sampling periods, does not change any more.
SETTLED_S, SETTLED_PERIODS = 300.0, 30


def describe_sensors(backends: Iterable[Any]) -> Sensors:
    """Describe the sensors of power, energy and load of perun's backends, by perun's sensor id.

    {"kind", "index", "unit", "mag"} and, where stated, "valid_max" (raw), "uuid" and "device_name", in the
    order of kinds and devices. A sensor that cannot be described is left out. To be called before perun
    starts its sampler.
    """
    sensors: Sensors = {}
    for backend in backends:
        try:
            available = dict(backend.availableSensors())
        except Exception:  # a broken backend: perun has none of its sensors either
            continue
        for name, (_, kind, unit, *_) in available.items():
            facts: dict[str, Any] = {"kind": str(kind.value), "unit": str(unit.value)}
            facts["index"] = index_in_name(name, facts["kind"])
            with suppress(Exception):  # one bad sensor, as a lost GPU's
                if is_of_use(facts):
                    (sensor,) = backend.getSensors({name})
                    sensors[name] = facts | _stated(sensor)
    for of_kind in {facts["kind"] for facts in sensors.values()}:
        indices = {n: facts["index"] for n, facts in sensors.items() if facts["kind"] == of_kind}
        for name, index in number_devices(indices).items():
            sensors[name]["index"] = index
    return dict(sorted(sensors.items(), key=lambda item: (item[1]["kind"], item[1]["index"])))


def _stated(sensor: Any) -> dict[str, Any]:
    """Facts that a sensor of perun's states about its raw numbers and its device."""
    kind, metadata = sensor.dataType, sensor.metadata
    dtype = np.dtype(kind.dtype)
    top = np.asarray(kind.max).item()
    open_end = np.iinfo(dtype).max if dtype.kind in "iu" else float(np.finfo(np.float32).max)
    facts = {
        "mag": float(kind.mag.value),
        "valid_max": top if 0 < top < open_end else None,
        "uuid": metadata.get("uuid"),
        "device_name": metadata.get("name") or metadata.get("brand_raw"),
    }
    return {key: value for key, value in facts.items() if value is not None}


class JournalWriter:
    """Makes perun's live callback.

    Writes the files of `scalewatt.recordings.journal` and `<stem>.<host>.total.json`. It ends the sampler
    when the training has died.
    """

    def __init__(
        self, folder: Path, stem: str, period_s: float, training_pid: int, sensors: Sensors
    ) -> None:
        self._folder, self._stem, self._period_s = folder, stem, period_s
        self._training_pid, self._sensors = training_pid, sensors
        self._reported: set[str] = set()
        self._keys: list[str] | None = None

    def __call__(self) -> Callable[[dict[str, Any]], None]:
        """Give what is called with every sample; to be called once in the sampler."""
        ignore_stop_signals()
        die_with(self._training_pid)
        return self.callback(socket.gethostname())

    def callback(self, host: str) -> Callable[[dict[str, Any]], None]:
        """Give what records the samples of a host, which come as {"<host>_<sensor>": raw value}."""
        self._host, self._path = host, self._folder / f"{self._stem}.{host}.csv"
        mark = announce_sampler(host)

        def count_others() -> float | None:
            count = count_samplers(host)
            return None if count is None or mark is None else count - 1

        self._telemetry = TelemetryWriter(self._path, working_sources(count_others))
        return self._sample

    def _sample(self, values: dict[str, Any]) -> None:
        if os.getppid() != self._training_pid:
            os._exit(0)
        self._guarded("a sample", self._record, values, time.time(), time.monotonic())
        if self._keys is not None:
            self._guarded("telemetry", self._telemetry.sample)

    def _guarded(self, what: str, record: Callable[..., None], *args: Any) -> None:
        """Report the first trouble of a kind; the files show how long it lasts."""
        try:
            record(*args)
        except Exception as error:  # it would end perun's sampler; a lost sample shows as a gap
            if what not in self._reported:
                self._reported.add(what)
                say(f"scalewatt: {self._host}: {what} could not be recorded: {error!r}")

    def _record(self, values: dict[str, Any], t: float, mono: float) -> None:
        if self._keys is None:
            self._start(values)
        row = [values.get(key) for key in self._keys or ()]
        self._journal.append(t, mono, row)
        self._guarded("the energy so far", self._total.add, t, mono, row)

    def _start(self, values: dict[str, Any]) -> None:
        """Describe the sensors that perun reads, and begin their journal."""
        if self._path.exists():  # another sampler's, which stays as it is
            raise FileExistsError(f"{self._path} exists")
        keys = {name: f"{self._host}_{name}" for name in self._sensors}
        sensors = {n: facts for n, facts in self._sensors.items() if keys[n] in values}
        about = {
            "host": self._host,
            "sampling_period_s": self._period_s,
            "sensors": sensors,
            "telemetry": self._telemetry.sensors,
        }
        write_json(beside(self._path, SENSORS), about)
        self._journal = LineWriter(self._path, sensors)
        self._total = RunningTotal(beside(self._path, ".total.json"), about)
        self._keys = [keys[name] for name in sensors]


# --- the energy so far ----------------------------------------------------------------------------
# `segment-000.<host>.total.json`, at most TOTAL_EVERY_S behind the journal, for status and budget; the energy
# tables have the last word. It has `host`, `period_s`, `seconds` since the first sample, `last_s` (unix s),
# `mono` (monotonic s), and of each sensor of power or energy (`sensors`) {name, kind, index, uuid, joules,
# covered_s, power_w (mean since the total before)}.


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
        numbers = (values[column] for column in self._columns)
        known = (x if isinstance(x, int | float | np.number) else np.nan for x in numbers)
        self._samples.append([mono, *map(float, known)])
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


def read_total(journal: Path) -> dict[str, Any] | None:
    """Read the total of the journal at a path; None without one."""
    return cast(dict[str, Any] | None, read_content(beside(journal, ".total.json")))
