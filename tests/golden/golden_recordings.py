"""Energies and samples of recordings: the tests' own, and real ones where variables name folders of them.

Power logs of MLPerf are read as examples/mlperf/convert.py writes them.
"""

from __future__ import annotations

import os
import runpy
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import yaml
from golden_project import PROJECT
from golden_tables import Golden

from scalewatt import InputError
from scalewatt.energies.read import Account, Reading, read_account
from scalewatt.energies.traces import write_traces
from scalewatt.notebooks import _samples

VARIABLES = {
    "perun": "SCALEWATT_RECORDINGS",
    "others": "SCALEWATT_OTHERS",
    "mlperf": "SCALEWATT_MLPERF",
    "field": "SCALEWATT_FIELD",
}
"""What names the folders of recordings that are not in this repository."""
FOLDERS = {"tests": PROJECT / "tests" / "unit" / "recordings"} | {
    name: Path(os.environ[variable])
    for name, variable in VARIABLES.items()
    if os.environ.get(variable)
}
WANTED = {"mlperf": ("*/results/*/*/power/result_0/*.txt",)}
"""Of the many only some: the first run of each benchmark."""
ALL = ("*.hdf5", "*.csv", "*.json", "*.jsonl", "*.txt")
NOT_RECORDED = ("truth.json", "truth", "workflow", "expected.csv")
SENSOR = ("segment", "node", "device_kind", "device_index", "uuid", "quantity", "energy_origin")
FILE = ("file", "columns")


def energies(name: str) -> Golden:
    """The golden of the energies of a folder's recordings."""
    return Golden(f"recordings/{name}-energies.csv", (*FILE, "device_kind"))


def samples(name: str) -> Golden:
    """The golden of what their readers read, one row a sensor."""
    return Golden(f"recordings/{name}-samples.csv", (*FILE, *SENSOR))


def made(_: Path | None = None) -> dict[Golden, pd.DataFrame]:
    """The goldens of today's code, of the folders that are there."""
    for name, variable in VARIABLES.items():
        if name not in FOLDERS:
            print(f"recordings of {name}: left as they are, as {variable} names no folder")
    return {
        golden(name): table
        for name in FOLDERS
        for golden, table in zip((energies, samples), tables_of(name), strict=True)
    }


@contextmanager
def _in_utc() -> Iterator[None]:
    """Read local times, such as perun notes its start in, as UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        os.environ |= {} if before is None else {"TZ": before}
        time.tzset()


@cache
def tables_of(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Energies and samples of all recordings of a folder, each of which is read once."""
    energies: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for known, path, columns in _recordings(name):
        of_none = {**known, **dict.fromkeys(SENSOR), "node": "refused"}
        try:
            account, table, has_totals = _read(path, columns)
        except InputError:
            energies.append({**known, "device_kind": "refused"})
            samples.append(of_none)
            continue
        energies += [{**known, **row} for row in _kinds(account)]
        energies.append({**known, "device_kind": "all", **_whole(account)})
        # Totals alone have no samples: `read_recording` refuses them.
        rows = [{**known, **row} for row in _sensors(table)]
        samples += rows or [of_none] * has_totals
    return pd.DataFrame(energies), pd.DataFrame(samples)


def _sensors(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """How many samples each sensor has, from when to when, and their sum."""
    for key, part in table.groupby(list(SENSOR), dropna=False, observed=True):
        seconds = part.time.to_numpy(dtype="datetime64[ns]").astype("int64") / 1e9
        power = part.power_w.astype("float64")
        yield {
            **{n: "" if pd.isna(v) else str(v) for n, v in zip(SENSOR, key, strict=True)},
            "samples": len(part),
            "unknown": int(power.isna().sum()),
            "first_s": float(seconds[0]),
            "last_s": float(seconds[-1]),
            "sum_w": float(power.sum()),
            "most_w": float(power.max()),
        }


def _recordings(name: str) -> Iterator[tuple[dict[str, str], Path, Path | None]]:
    """Each recording of a folder, without and with each description of columns beside it."""
    root = FOLDERS[name]
    files = {path for wanted in WANTED.get(name, ALL) for path in root.rglob(wanted)}
    folders = {path.parent for path in files} - {root}  # several nodes, or damage of one
    for path in sorted(files | folders):
        if set(path.relative_to(root).parts) & set(NOT_RECORDED):
            continue
        for columns in (None, *sorted(path.parent.glob("*.yaml"))):
            known = {
                "file": str(path.relative_to(root)),
                "columns": "" if columns is None else columns.name,
            }
            yield known, *_readable(path, columns, name)


def _readable(path: Path, columns: Path | None, name: str) -> tuple[Path, Path | None]:
    """A recording and what names its columns: those of MLPerf's logs as the converter writes them."""
    if name != "mlperf":
        return path, columns
    converter, folder = _converter(), Path(tempfile.mkdtemp(dir=_scratch().name))
    for log in [path] if path.is_file() else sorted(path.glob("*.txt")):
        readings = converter.power_log(log, converter.read_log(log))
        converter.write_power(readings, folder / f"{log.stem}.csv", as_dc=False)
    columns = folder.with_suffix(".yaml")
    columns.write_text(yaml.safe_dump(converter.columns_of(None)))
    return (folder if path.is_dir() else folder / f"{path.stem}.csv"), columns


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def _converter() -> Any:
    return SimpleNamespace(**runpy.run_path(str(PROJECT / "examples" / "mlperf" / "convert.py")))


def _read(path: Path, columns: Path | None) -> tuple[Account, pd.DataFrame, bool]:
    """Account and samples of a recording; true if it has totals."""
    node = None if path.is_dir() else "node"  # files of a folder may be of several
    reading = Reading(columns=columns, time_zone="UTC", node=node)
    written = Path(_scratch().name) / "traces.parquet"
    with _in_utc(), write_traces(written) as traces:
        account = read_account(path, reading, traces)
    samples = _samples(written, "not totals")
    return account, samples, samples.empty and not _samples(written).empty


def _kinds(account: Account) -> Iterator[dict[str, Any]]:
    scope = (account.scope or "").split("+")
    parts = account.stages[
        account.stages.device_kind.isin([*scope, *account.devices.device_kind.unique()])
    ]
    joules = ["energy_j", "energy_low_j", "energy_high_j", "recorded_j"]
    for kind, part in parts.groupby("device_kind"):
        devices = account.devices[account.devices.device_kind == kind]
        flags = account.flags
        of_kind = flags.device_kind.isna() | (flags.device_kind == kind)
        of_sensor = flags.sensor.isna() | flags.sensor.isin(devices.sensor) | devices.empty
        yield {
            "device_kind": kind,
            **part[joules].astype("float64").sum(skipna=False).to_dict(),
            "origin": _joined(part.energy_origin.dropna()),
            "time_s": float(part.duration_s.max()),
            "covered_s": float(devices.covered_s.sum()),
            "flags": _joined(flags[of_kind & of_sensor].code),
        }


def _joined(words: Iterable[str]) -> str:
    return "+".join(sorted({word.strip() for word in words} - {""}))


def _whole(account: Account) -> dict[str, Any]:
    """What is said of the whole recording."""
    names = ("energy_j", "energy_low_j", "energy_high_j", "recorded_j")
    return {
        **{name: account.joules(column=name) for name in names},
        "origin": account.origin,
        "time_s": account.runtime_s,
        "coverage": account.coverage,
        "flags": _joined(account.flags.code),
    }
