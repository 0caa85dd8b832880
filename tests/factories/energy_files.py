"""Recordings for tests: files in perun's layout, journals, run folders, and the real ones."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import write_json, write_table
from scalewatt.energies.account import Run, account
from scalewatt.energies.tables import Accounts, EnergyTotals, records
from scalewatt.energies.traces import SAMPLES_SCHEMA, read_samples, write_traces
from scalewatt.recordings import journal
from scalewatt.recordings.block import Block, sensor_frame
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.telemetry import QUANTITIES
from scalewatt.recordings.terms import index_in_name

T0 = 1_795_000_000.0

# sensor -> (kind, unit, magnitude, valid_max raw, dtype)
SENSORS = {
    "CUDA:0_POWER": ("gpu", "W", 1e-3, 400_000, "uint32"),
    "CUDA:1_POWER": ("gpu", "W", 1e-3, 400_000, "uint32"),
    "CUDA:2_POWER": ("gpu", "W", 1e-3, 400_000, "uint32"),
    "CUDA:0_MEM": ("gpu", "B", 1.0, 42_949_672_960, "uint64"),
    "CUDA:0_UTIL": ("gpu", "%", 1.0, 100, "float32"),
    "cpu_0_package-0": ("cpu", "J", 1e-6, 262_143_328_850, "uint64"),
    "ram_0_dram": ("ram", "J", 1e-6, 65_712_999_613, "uint64"),
    "CPU_USAGE": ("cpu", "%", 1.0, 100, "float32"),
    "CPU_USAGE_0": ("cpu", "%", 1.0, 100, "float32"),
    "CPU_USAGE_1": ("cpu", "%", 1.0, 100, "float32"),
    "CPU_BUSY": ("cpu", "%", 1.0, 100, "float32"),
    "RAM_USAGE": ("ram", "%", 1.0, 1, "float32"),
}

Hosts = dict[str, dict[str, Any]]
NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
"""Rated powers of which nothing is estimated."""


def recordings() -> Path:
    """The folder of recorded files; skip the test where there is none."""
    folder = os.environ.get("SCALEWATT_RECORDINGS")
    if not folder:
        pytest.skip("SCALEWATT_RECORDINGS does not name the folder of recorded perun files")
    return Path(folder)


def write_perun(
    path: Path,
    hosts: Hosts,
    *,
    time_s: Any = None,
    run_id: str = "run",
    round_id: str = "0",
    execution_dt: str = "2026-11-18T12:00:00",
    rapl_as_watts: bool = False,
) -> None:
    """Add one round to a file in perun's layout; values are raw, as the sensor gives them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "a") as handle:
        run = handle.require_group(f"app/nodes/{run_id}")
        run.attrs["execution_dt"] = execution_dt
        run.attrs["monitor.sampling_period"] = "1"
        for host, sensors in hosts.items():
            run.require_group(f"nodes/{round_id}/nodes/{host}/nodes")
            for sensor, values in sensors.items():
                kind, unit, mag, top, dtype = SENSORS[sensor]
                raw = run.create_group(
                    f"nodes/{round_id}/nodes/{host}/nodes/{kind}/nodes/{sensor}/raw_data"
                )
                times = np.arange(len(values)) if time_s is None else time_s
                raw.create_dataset("timesteps", data=np.asarray(times, dtype="float32"))
                name = "alt_values" if unit == "J" and rapl_as_watts else "values"
                data = raw.create_dataset(name, data=np.asarray(values, dtype=dtype))
                data.attrs.update({"unit": unit, "mag": mag, "valid_max": top, "fill": -1.0})
                if name == "alt_values":
                    data = raw.create_dataset(
                        "values", data=np.full(len(values), 1e5, dtype="float32")
                    )
                    data.attrs.update({"unit": "W", "mag": 1.0, "valid_max": 3.4e38})


def write_journal(
    path: Path,
    host: str,
    sensors: dict[str, Any],
    *,
    start: float = T0,
    facts: dict[str, Any] | None = None,
    limits: bool = True,
    **about: Any,
) -> Path:
    """Write one sample a second; NaN is a missing value. Returns `path`.

    `facts` is what the file beside it says of the sensors, else what SENSORS does, without the limits of
    powers and the ranges of counters where not `limits`.
    """
    if facts is None:
        facts = {}
        for number, name in enumerate(sensors):
            kind, unit, mag, top, _ = SENSORS[name]
            index = index_in_name(name, kind)
            index = number if index is None else index
            facts[name] = {"kind": kind, "index": index, "unit": unit, "mag": mag}
            facts[name] |= {"valid_max": top} if limits else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    about = {"host": host, "sampling_period_s": 1.0, "sensors": facts, "telemetry": {}, **about}
    columns = {name: np.asarray(values, np.float64) for name, values in sensors.items()}
    seconds = np.arange(len(next(iter(columns.values()))), dtype=np.float64)
    journal.write_journal(path, about, start + seconds, 100.0 + seconds, columns)
    return path


def write_telemetry(
    journal_path: Path, host: str, values: dict[str, Any], seconds: Any, start: float = T0
) -> None:
    """Write telemetry beside a journal: of each quantity the readings (n,) of device 0, or (devices, n)."""
    columns, sensors = {}, {}
    for quantity, rows in values.items():
        for index, row in enumerate(np.atleast_2d(rows)):
            name = f"{quantity}:{index}"
            columns[name] = np.broadcast_to(np.asarray(row, np.float64), np.shape(seconds))
            kind, unit = QUANTITIES[quantity]
            sensors[name] = {"quantity": quantity, "kind": kind, "index": index, "unit": unit}
    described = journal.beside(journal_path, ".sensors.json")
    about = {"host": host, "sampling_period_s": 1.0, "sensors": {}, "telemetry": {}}
    about |= json.loads(described.read_text()) if described.exists() else {}
    about["telemetry"] = sensors
    path = journal.beside(journal_path, journal.TELEMETRY)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    times = np.asarray(seconds, np.float64)
    journal.write_journal(path, about, start + times, times, columns)


def gpu(n: int, watts: float = 100.0) -> np.ndarray:
    """`n` constant raw samples of an NVML sensor."""
    return np.full(n, 1000 * watts)


def counter(n: int, watts: float, start_j: float = 1000.0) -> np.ndarray:
    """`n` raw samples of a RAPL counter, one a second."""
    return (1e6 * (start_j + watts * np.arange(n))).astype(np.uint64)


def record(
    run: Path,
    hosts: dict[str, dict[str, Any]],
    number: int = 0,
    *,
    start: float = T0,
    hdf5: bool = False,
) -> None:
    """Write the journals of a segment's hosts, and perun's file of them all if `hdf5`."""
    stem = run / "perun" / f"segment-{number:03d}"
    for host, sensors in hosts.items():
        write_journal(stem.with_name(f"{stem.name}.{host}.csv"), host, sensors, start=start)
    if hdf5:
        write_perun(stem.with_suffix(".hdf5"), hosts)


def make_run(
    folder: Path,
    *,
    stages: list[tuple[int, str, float, float]],
    hostnames: tuple[str, ...] = ("n1",),
    **provenance: Any,
) -> Path:
    """Write events (segment, stage, start and end from T0) and provenance of a run."""
    write_json(folder / "provenance.json", {"hostnames": list(hostnames)} | provenance)
    rows = [
        {"segment": s, "stage": name, "epoch": None, "start_s": T0 + a, "end_s": T0 + b}
        for s, name, a, b in stages
    ]
    write_table(pa.Table.from_pylist(rows, EVENTS_SCHEMA), folder / "events.parquet")
    return folder


def telemetry_block(
    quantity: str, time_s: Any, values: Any, index: int = 0, kind: str = "gpu"
) -> Block:
    """Telemetry of one quantity of a device of node n1."""
    row = {"name": f"{quantity}:{index}", "kind": kind, "index": index, "quantity": quantity}
    numbers = np.asarray(values, dtype=np.float64)[:, None]
    return Block("n1", np.asarray(time_s), numbers, sensor_frame([row]))


def codes(flags: Any) -> set[str]:
    """Codes of flags: of an account's frame, a list, or its JSON."""
    if isinstance(flags, pd.DataFrame):
        return set(flags["code"])
    rows = json.loads(flags) if isinstance(flags, str) else flags
    return {row["code"] for row in rows}


@dataclass(frozen=True, eq=False)
class Accounted:
    """Samples and tables of a run."""

    traces: pa.Table
    tables: Accounts

    @property
    def totals(self) -> EnergyTotals:
        return EnergyTotals(self.tables.energy, with_staging=True)

    def flags(self, code: str) -> list[dict[str, Any]]:
        """The rows of all flags of a code."""
        return [row for row in records(self.tables.flags) if row["code"] == code]

    def codes(self, **match: Any) -> set[str]:
        """The codes of all flags that concern a segment, node, device kind or stage."""
        return {
            row["code"]
            for row in records(self.tables.flags)
            if all(row[key] in (value, None) for key, value in match.items())
        }


def accounted(run: Path, spec: RunSpec, powers: dict[str, Any] = NO_POWERS) -> Accounted:
    """Account for a run folder."""
    path = run / "made-traces.parquet"
    with write_traces(path, configuration=spec.configuration, repeat=spec.repeat) as traces:
        tables = account(Run.of(run, powers, spec.as_json()), traces)
    return Accounted(read_traces(path), tables)


def read_traces(path: Path) -> pa.Table:
    """A row for each sensor and time of a file of traces."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        parts = [pa.Table.from_pandas(part, SAMPLES_SCHEMA) for part in read_samples(file)]
    return pa.concat_tables([SAMPLES_SCHEMA.empty_table(), *parts])
