"""Tables of `nvidia-smi --query-gpu=… --format=csv[,noheader][,nounits] -l …`: any columns, in any order.

A row is one GPU at one time; its stamp is local, without a zone. A heading names each field with its
unit, "power.draw [W]"; a file that was appended to has several. Where the driver knows no value it says
so in brackets. What the fields mean: `nvidia-smi --help-query-gpu`, nvidia-smi(1). Of `power.draw` it
depends on the GPU what a sample stands for; `.average` is over one second, `.instant` is at its time.
`module.power.draw` is of a whole module, also its CPU, and is not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.formats.format import Format, Head, Options, node_of
from scalewatt.recordings.formats.text_columns import (
    MOST_COLUMNS,
    MOST_DEVICES,
    NEVER_WRAPS_J,
    as_numbers,
    cells_of,
    described,
    groups,
    in_si,
    numbered,
    read_lines,
    unix_times,
    with_values,
)
from scalewatt.recordings.series import (
    INSTANTANEOUS,
    MOVING_MEAN,
    Floats,
    Recording,
    SensorSeries,
    by_node,
    flag,
    gpu_quantity,
)
from scalewatt.recordings.text_times import unread

TIME = "timestamp"
_ALIASES = {"gpu_uuid": "uuid", "gpu_name": "name", "gpu_bus_id": "pci.bus_id"}
_IDENTITIES = ("index", "uuid", "pci.bus_id")
_SENSORS = {
    "total_energy_consumption": "mJ",
    "power.draw": "W",
    "power.draw.average": "W",
    "power.draw.instant": "W",
    "utilization.gpu": "%",
}
"""The fields that are read, with their units where neither heading nor values say one."""
_QUANTITIES = {"mJ": "counter", "W": "power", "%": "utilisation"}
_LIMITS = ("enforced.power.limit", "power.limit")
ONE_GPU_ASSUMED = "assumed"
"""Flag of rows that name no GPU: they are taken as those of one."""
_MEASURED = {*_SENSORS, *_LIMITS}
_READ = {TIME, "name", *_IDENTITIES, *_MEASURED}
_HEADING = re.compile(r"\s*([a-z_][\w.]*)\s*(?:\[(.*)\])?\s*")
_STAMPED = re.compile(r"(?:.*,)?\s*\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}\s*(?:,.*)?")
_MARK = re.compile(r"timestamp|power\.draw|total_energy|utilization\.gpu")
# Of rows of one GPU at a time no quarter of the steps is below a fifth of the long ones.
_SHORT, _MOST_SHORT = 0.2, 0.25
_MOST_PARTS = 1000


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a file in its order, by field: texts, and in W, J or as a share what was measured."""

    cells: pd.DataFrame
    damaged: int


def read_nvidia_smi(path: Path, options: Options) -> Recording:
    """Read one node's table: power, energy and load of each GPU.

    Raises InputError if it has no time stamps or no field of a GPU's work, if its rows cannot be told
    apart, and if it has no heading and `options.columns` gives none either.
    """
    text = read_lines(path)
    rows = _rows(path, text.lines, _stated_header(options))
    if TIME not in rows.cells:
        raise InputError(
            f"{path}: has no times; record it with the field 'timestamp' "
            "(nvidia-smi --query-gpu=timestamp,index,…)"
        )
    if not set(_SENSORS) & set(rows.cells):
        raise InputError(
            f"{path}: has no field that is read; expected one of {', '.join(_SENSORS)}"
        )
    timed = unix_times(rows.cells[TIME], options, path)
    if timed is None:
        such = unread(rows.cells[TIME][:1], [np.nan])
        raise InputError(
            f"{path}: its timestamps are no times{such}; expected 2024/05/31 10:39:13.123"
        )
    time_s, flags = timed
    index = _indices(path, rows.cells, time_s)
    if not set(_IDENTITIES) & set(rows.cells):
        detail = f"{path.name}: its rows name no GPU and are taken as those of one; record the field 'index'"
        flags = [*flags, flag(ONE_GPU_ASSUMED, None, detail)]
    good = np.isfinite(time_s) & (index >= 0)
    if not good.any():
        such = unread(rows.cells[TIME], time_s)
        raise InputError(f"{path}: holds no row with a time{such} and a GPU")
    cells = rows.cells[good].reset_index(drop=True)
    series = _series(node_of(path, options), cells, time_s[good], index[good])
    return Recording(
        nodes=by_node(series),
        t0_known=True,
        sampling_period_s=None,
        source=str(path),
        problems=(*flags, *text.damage(rows.damaged + int((~good).sum()))),
    )


def _stated_header(options: Options) -> str | None:
    header = described(options).get("header")
    return ",".join(header) if header else None


def _header(line: str) -> list[tuple[str, str | None]] | None:
    """Return the fields of a heading, with their units; None for any other line."""
    if _MARK.search(line) is None:
        return None
    found = [_HEADING.fullmatch(cell) for cell in line.split(",")]
    fields = [(_ALIASES.get(one[1], one[1]), one[2]) if one else ("", None) for one in found]
    known = {name for name, _ in fields} & _READ
    return fields if known and all(found) else None


_Fields = list[tuple[str, str | None]]


def _rows(path: Path, lines: Sequence[str], stated: str | None) -> _Rows:
    """Take the lines apart, each by the heading above it, with its units."""
    damaged, parts = 0, []
    for fields, own in _parts(path, lines, stated):
        whole = [line for line in own if line.count(",") == len(fields) - 1]
        damaged += len(own) - len(whole)
        # Of a field queried twice the first counts.
        wanted = {name: at for at, (name, _) in reversed(list(enumerate(fields))) if name in _READ}
        if whole:
            part = cells_of(whole, len(fields), sorted(wanted.values()), ",")
            part = part.rename(columns={at: name for name, at in wanted.items()})
            for name in _MEASURED & set(part):
                unit, default = fields[wanted[name]][1], _SENSORS.get(name, "W")
                part[name] = in_si(part[name], unit, default, f"{path}: {name}")
            parts.append(part)
    if not parts:
        raise InputError(f"{path}: holds no row that fits its heading")
    table = pd.concat(parts, ignore_index=True)
    # A field that only some of the headings have is missing, not empty, in the other rows.
    texts = [name for name in table if name not in _MEASURED]
    return _Rows(table.fillna(dict.fromkeys(texts, "")), damaged)


def _parts(path: Path, lines: Sequence[str], stated: str | None) -> list[tuple[_Fields, list[str]]]:
    """Return the lines below each heading; what is appended under the same one again is one part."""
    found: list[tuple[_Fields, list[str]]] = []
    if stated is not None:
        if (fields := _header(stated)) is None:
            allowed = ", ".join(sorted(_READ))
            raise InputError(
                f"{path}: the header given has no field that is read; allowed: {allowed}"
            )
        found.append((fields, []))
    for line in lines:
        if (fields := _header(line)) is not None:
            if not found or found[-1][0] != fields:
                found.append((fields, []))
        elif found:
            found[-1][1].append(line)
    if not found:
        raise InputError(
            f"{path}: has no heading; name the fields that were queried in the YAML file of the columns "
            "(header: [timestamp, index, power.draw])"
        )
    if len(found) > _MOST_PARTS or max(len(fields) for fields, _ in found) > MOST_COLUMNS:
        raise InputError(
            f"{path}: allowed are at most {_MOST_PARTS} changes of the heading, of {MOST_COLUMNS} columns"
        )
    return found


def _indices(path: Path, cells: pd.DataFrame, time_s: Floats) -> np.ndarray:
    """Return each row's GPU, (n,) whole numbers, -1 where it is unknown."""
    if "index" in cells:
        _refuse_several(path, cells)
        numbers = as_numbers(cells["index"])
        known = (numbers >= 0) & (numbers < MOST_DEVICES) & (numbers == np.floor(numbers))
        return np.where(known, numbers, -1).astype(np.int64)
    for name in _IDENTITIES[1:]:
        if name in cells:
            texts = cells[name].where(~cells[name].str.startswith("["), "")
            numbers_of = {text: place for text, place in numbered(t for t in texts if t).items()}
            if len(numbers_of) > MOST_DEVICES:
                raise InputError(
                    f"{path}: names {len(numbers_of)} GPUs; allowed: at most {MOST_DEVICES}"
                )
            return texts.map(numbers_of).fillna(-1).to_numpy(dtype=np.int64)
    steps = np.diff(time_s[np.isfinite(time_s)])
    steps = steps[steps >= 0]
    usual = float(np.quantile(steps, 0.9)) if steps.size else 0.0
    if steps.size and float(np.mean(steps < _SHORT * usual)) > _MOST_SHORT:
        raise InputError(
            f"{path}: holds rows of several GPUs, and nothing tells whose; record it with the field 'index'"
        )
    return np.zeros(time_s.size, dtype=np.int64)


def _refuse_several(path: Path, cells: pd.DataFrame) -> None:
    """Refuse rows of several nodes, in which one index is several GPUs."""
    if "uuid" not in cells:
        return
    rows = cells[cells["uuid"].str.startswith("GPU-")].value_counts(["index", "uuid"])
    pairs = rows[rows > 1].reset_index()  # of a damaged text there is one row
    for index, uuids in pairs.groupby("index")["uuid"]:
        if len(uuids) > 1:
            some = printable(", ".join(sorted(uuids)[:2])[:90])
            raise InputError(
                f"{path}: index {printable(str(index))[:20]} is {len(uuids)} GPUs ({some}): rows of "
                "several nodes; expected one file for each node"
            )


def _series(
    node: str, cells: pd.DataFrame, time_s: Floats, index: np.ndarray
) -> list[SensorSeries]:
    values = {name: cells[name].to_numpy(dtype=np.float64) for name in _MEASURED & set(cells)}
    found: list[SensorSeries] = []
    for gpu, places in groups(index):
        limit_w = _limit([values[name][places] for name in _LIMITS if name in values])
        own = []
        for name, default in _SENSORS.items():
            if name in values:
                one = SensorSeries(
                    node=node,
                    sensor=f"GPU:{gpu} {name}",
                    device_kind="gpu",
                    device_index=gpu,
                    quantity=_QUANTITIES[default],
                    time_s=time_s[places],
                    values=values[name][places],
                    valid_max=NEVER_WRAPS_J if default == "mJ" else None,
                    limit_w=limit_w,
                    uuid=_first(cells, "uuid", places, "GPU-"),
                    samples=_samples(name, _first(cells, "name", places)),
                )
                own.append(one)
        found += with_values(own)
    return found


def _limit(limits: Sequence[Floats]) -> float | None:
    """Return the highest of the first of the limits that says anything."""
    for limit in limits:
        if np.isfinite(limit).any() and np.nanmax(limit) > 0:
            return float(np.nanmax(limit))
    return None


def _first(cells: pd.DataFrame, name: str, places: np.ndarray, begin: str = "") -> str | None:
    """Return the first text of a field in some rows that is none in brackets."""
    if name not in cells:
        return None
    texts = cells[name].iloc[places].unique()
    return next((t for t in texts if t and not t.startswith("[") and t.startswith(begin)), None)


def _samples(sensor: str, device_name: str | None) -> str | None:
    """Return what a sample of a field stands for."""
    if sensor == "power.draw":
        return gpu_quantity(device_name or "")
    return {"power.draw.average": MOVING_MEAN, "power.draw.instant": INSTANTANEOUS}.get(sensor)


def _recognises(head: Head) -> bool:
    lines = [line for line in head.lines[:50] if "," in line and len(line) < 1 << 14]
    return any(_is_heading(line) or _STAMPED.fullmatch(line) for line in lines)


def _is_heading(line: str) -> bool:
    """Return True for a heading with a field of nvidia-smi's alone: other tables have timestamps too."""
    fields = _header(line) or []
    return any(name in _MEASURED or "." in name or unit for name, unit in fields)


FORMAT = Format("nvidia-smi", _recognises, read_nvidia_smi)
