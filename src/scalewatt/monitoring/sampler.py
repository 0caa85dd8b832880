"""perun's live callback: every sample on disk as it is taken, and telemetry.

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
from scalewatt.recordings.concurrent_samplers import ConcurrentSamplers, note_samplers
from scalewatt.recordings.journal import JOURNAL_VERSION
from scalewatt.recordings.record_file import Field, RecordWriter, is_packable
from scalewatt.recordings.series import DEVICE_KINDS, NO_INDEX, QUANTITIES, index_in_name
from scalewatt.recordings.telemetry import TelemetryWriter
from scalewatt.recordings.telemetry_sources import working_sources


def describe_sensors(backends: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return what perun's backends say of their sensors, by perun's sensor id.

    {"device_kind", "device_index", "unit"} and, of those of power, energy or utilisation, "dtype"
    and where stated "mag", "valid_max" (raw), "uuid", "device_name". A sensor that cannot be
    described is left out. To be called before perun starts its sampler.
    """
    described: dict[str, dict[str, Any]] = {}
    for backend in backends:
        try:
            available = dict(backend.availableSensors())
        except Exception:  # a broken backend: perun has none of its sensors either
            continue
        for name, (_, kind, unit, *_) in available.items():
            try:
                described[name] = {
                    "device_kind": str(kind.value),
                    "device_index": _index(name),
                    "unit": str(unit.value),
                }
                if _is_of_use(described[name]):
                    (sensor,) = backend.getSensors({name})
                    described[name] |= _stated(sensor)
            except Exception:  # one bad sensor: its name tells what it is
                described.pop(name, None)
    return described


def _index(name: str) -> int:
    index = index_in_name(name)
    return NO_INDEX if index is None else index


def _is_of_use(facts: dict[str, Any]) -> bool:
    if facts["device_kind"] not in DEVICE_KINDS or facts["unit"] not in QUANTITIES:
        return False
    return not (facts["device_kind"] == "ram" and facts["unit"] == "%")


def _stated(sensor: Any) -> dict[str, Any]:
    kind = sensor.dataType
    dtype = np.dtype(kind.dtype)
    top = np.asarray(kind.max).item()
    open_end = np.iinfo(dtype).max if dtype.kind in "iu" else float(np.finfo(np.float32).max)
    facts = {
        "dtype": dtype.newbyteorder("<").str,
        "mag": float(kind.mag.value),
        "valid_max": top if 0 < top < open_end else None,
        "uuid": sensor.metadata.get("uuid"),
        "device_name": sensor.metadata.get("name") or sensor.metadata.get("brand_raw"),
    }
    return {key: value for key, value in facts.items() if value is not None}


class JournalWriter:
    """Makes perun's live callback; `stem` names the files, `run` the run.

    Writes `<stem>.<host>.journal`, `.telemetry` and, once another sampler is seen on the node,
    `.samplers.jsonl`. It ends the sampler when the training has died.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        period_s: float,
        training_pid: int,
        sensors: dict[str, dict[str, Any]],
        run: str,
    ) -> None:
        self.folder, self.stem = folder, stem
        self.period_s, self.training_pid = period_s, training_pid
        self.sensors, self.run = sensors, run

    def __call__(self) -> Callable[[dict[str, Any]], None]:
        """Return what is called with every sample; to be called once in the sampler."""
        ignore_stop_signals()
        die_with(self.training_pid)
        return self.callback(socket.gethostname())

    def callback(self, host: str) -> Callable[[dict[str, Any]], None]:
        """Return what records the samples of a host, given as {"<host>_<sensor>": raw value}."""
        return _Callback(self, host)


class _Callback:
    def __init__(self, order: JournalWriter, host: str) -> None:
        self._order, self._host = order, host
        self._stem = f"{order.stem}.{host}"
        self._header = {
            "host": host,
            "sampling_period_s": order.period_s,
        }
        self._journal: RecordWriter | None = None
        self._keys: list[str] = []
        self._reported: set[str] = set()
        self._samplers = ConcurrentSamplers(order.run, host)
        self._met: set[tuple[str, int]] = set()
        self._telemetry = TelemetryWriter(
            order.folder, self._stem, self._header, working_sources(self._count_others)
        )

    def __call__(self, values: dict[str, Any]) -> None:
        if os.getppid() != self._order.training_pid:
            os._exit(0)
        try:
            self._record(values, time.time(), time.monotonic())
        except Exception as error:  # it would end perun's sampler; a lost sample shows as a gap
            self._report("a sample", error)

    def _report(self, what: str, error: Exception | None) -> None:
        """Report the first trouble of a kind; the files show how long it lasts."""
        if error is not None and what not in self._reported:
            self._reported.add(what)
            text = f"scalewatt: {self._host}: {what} could not be recorded: {error!r}"
            with suppress(OSError, ValueError):
                print(text, file=sys.stderr, flush=True)

    def _record(self, values: dict[str, Any], t: float, mono: float) -> None:
        if self._journal is None:
            self._journal = self._start(values)
        if not self._journal.append(t, mono, [values.get(key) for key in self._keys]):
            self._report("a sample", self._journal.error)
        if not self._telemetry.sample():
            self._report("telemetry", self._telemetry.error)

    def _start(self, values: dict[str, Any]) -> RecordWriter:
        sensors, fields, keys = {}, [], []
        for key in sorted(values):
            name = key.removeprefix(f"{self._host}_")
            facts = dict(self._order.sensors.get(name, {}))
            if facts and not _is_of_use(facts):
                continue
            dtype = facts.pop("dtype", None) or _type_of(values[key])
            if dtype is None or not is_packable(dtype):
                continue
            fields.append(Field(name, dtype))
            keys.append(key)
            if facts:
                sensors[name] = facts
        self._keys = keys
        header = {"journal": JOURNAL_VERSION, **self._header, "sensors": sensors}
        return RecordWriter(self._order.folder, self._stem, "journal", header, fields)

    def _count_others(self) -> float | None:
        """Count the other samplers of this node, and note those not met before; None if unseen."""
        others = self._samplers.others()
        if others is None:
            return None
        new = [one for one in others if (one["run"], one["pid"]) not in self._met]
        if new:
            try:
                note_samplers(self._order.folder / f"{self._stem}.samplers.jsonl", new)
                self._met |= {(one["run"], one["pid"]) for one in new}
            except OSError as error:  # they are counted nevertheless, and noted next time
                self._report("the other samplers of this node", error)
        return float(len(others))


def _type_of(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return None
    return np.asarray(value).dtype.newbyteorder("<").str
