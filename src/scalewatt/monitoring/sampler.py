"""perun's live callback: every sample on disk as it is taken, telemetry, and the energy so far.

It runs inside perun's sampler, one per node, and never raises into perun's loop.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.processes import die_with, ignore_stop_signals
from scalewatt.monitoring.running_total import RunningTotal
from scalewatt.recordings.concurrent_samplers import announce_sampler, count_samplers
from scalewatt.recordings.journal import LineWriter, beside, is_of_use, write_sensors
from scalewatt.recordings.telemetry import TelemetryWriter, working_sources
from scalewatt.recordings.terms import index_in_name, number_devices

Sensors = dict[str, dict[str, Any]]


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
    """What a sensor of perun's states of its raw numbers and its device."""
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
        self._mark = announce_sampler(host)
        self._telemetry = TelemetryWriter(self._path, working_sources(self._count_others))
        return self._sample

    def _sample(self, values: dict[str, Any]) -> None:
        if os.getppid() != self._training_pid:
            os._exit(0)
        stamps = time.time(), time.monotonic()
        self._guarded("a sample", lambda: self._record(values, *stamps))
        if self._keys is not None:
            self._guarded("telemetry", self._telemetry.sample)

    def _guarded(self, what: str, record: Callable[[], None]) -> None:
        """Report the first trouble of a kind; the files show how long it lasts."""
        try:
            record()
        except Exception as error:  # it would end perun's sampler; a lost sample shows as a gap
            if what not in self._reported:
                self._reported.add(what)
                text = f"scalewatt: {self._host}: {what} could not be recorded: {error!r}"
                with suppress(OSError, ValueError):
                    print(text, file=sys.stderr, flush=True)

    def _record(self, values: dict[str, Any], t: float, mono: float) -> None:
        if self._keys is None:
            self._start(values)
        row = [values.get(key) for key in self._keys or ()]
        self._journal.append(t, mono, row)
        self._guarded("the energy so far", lambda: self._total.add(t, mono, row))

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
        write_sensors(self._path, about)
        self._journal = LineWriter(self._path, sensors)
        self._total = RunningTotal(beside(self._path, ".total.json"), about)
        self._keys = [keys[name] for name in sensors]

    def _count_others(self) -> float | None:
        """Count the other samplers of this node; None if they are not seen."""
        count = count_samplers(self._host)
        return None if count is None or self._mark is None else count - 1
