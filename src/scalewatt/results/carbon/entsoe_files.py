"""ENTSO-E's actual generation per production type, as its transparency platform exports it.

wide      `MTU` and a column for each type, `Solar  - Actual Aggregated [MW]`; the older form
long      `MTU (UTC)` or `MTU (CET/CEST)`, `Production Type`, `Generation (MW)`; the newer form
library   `DateTime(UTC)`, `ResolutionCode`, `ProductionType`, `ActualGenerationOutput[MW]`: the file
          library's, with tabs; of one area alone

An MTU is a time range, `01.01.2020 00:00 - 01.01.2020 00:15 (UTC)`. The zone stands behind it or in the
heading; in the hours around a change of clocks the newer form marks both times as (CET) or (CEST).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.recordings.series import Floats
from scalewatt.recordings.text_times import as_numbers, dates, unix_seconds
from scalewatt.results.carbon.file_checks import check_times, check_values, column_key
from scalewatt.results.carbon.generation_mix import FACTORS, UNKNOWN, mix_intensity
from scalewatt.results.carbon.intensity import CarbonIntensity, of_intervals

_WIDE = " - actual aggregated [mw]"
_MTU = re.compile(r"mtu(?: \((?P<zone>[a-z/]+)\))?")
_LIBRARY_TIME = re.compile(r"datetime ?\(utc\)")
_LIBRARY_MW = re.compile(r"actualgenerationoutput ?[\[(]mw[\])]")
_LONG_MW = re.compile(r"generation [\[(]mw[\])]")
_AREAS = ("area", "areacode", "areatypecode")
_DATE = r"\d\d[./]\d\d[./]\d{4} \d\d:\d\d(?::\d\d)?"
_RANGE = rf"(?P<start>{_DATE})(?: \((?P<mark>\w+)\))? - (?P<end>{_DATE})(?: \((?P<zone>[\w/]+)\))?"
_RESOLUTION = re.compile(r"PT(\d+)M")
_MOST_MW = 100_000_000
"""Ten times what all power plants of the world can generate together."""
_AHEAD_S = {"UTC": 0.0, "CET": 3600.0, "CEST": 7200.0}
_LOCAL = ("CET", "CET/CEST")
_CENTRAL_EUROPE = ZoneInfo("Europe/Brussels")
_NOT_KNOWN = ("-", "n/a", "N/A", "")
_NOT_THERE = ("n/e", "N/E")


@dataclass(frozen=True, eq=False)
class _Rows:
    """Time ranges in unix s, (n,) each, and what each type generated in MW, (n, types)."""

    start_s: Floats
    end_s: Floats
    generation_mw: pd.DataFrame
    lines: pd.Index
    """Where the ranges stand in the file, (n,)."""


def is_entsoe(keys: Mapping[str, str]) -> bool:
    """Return True if the columns, by `column_key`, are those of a form of ENTSO-E's."""
    return any(key.endswith(_WIDE) for key in keys) or _long_columns(keys) is not None


def check_columns(path: Path, keys: Mapping[str, str]) -> None:
    """Raise InputError if a form of ENTSO-E's has no time ranges, or a type that is not known."""
    if _long_columns(keys) is not None:
        return
    if not any(map(_MTU.fullmatch, keys)):
        raise InputError(f"{path}: has no column MTU; expected ENTSO-E's time ranges in it")
    _check_types(path, [key.removesuffix(_WIDE) for key in keys if key.endswith(_WIDE)])


def read_entsoe(path: Path, table: pd.DataFrame, keys: Mapping[str, str]) -> CarbonIntensity:
    """Return the carbon intensity of the mix in g CO2e/kWh; `table` has the file's texts, by their lines.

    `keys` are its columns, by `column_key`, which were checked.
    InputError, with the line, if a time cannot be read or has no zone, the areas are several, a type is
    not known, or a power is below 0, beyond any, or no number.
    """
    _check_area(path, table, keys)
    long = _long_columns(keys)
    rows = _wide(path, table, keys) if long is None else _long(path, table, *long)
    # Of an hour that the clocks skip there is a row, without values.
    there = rows.generation_mw.notna().any(axis="columns").to_numpy()
    start_s, end_s = rows.start_s[there], rows.end_s[there]
    check_times(path, start_s, rows.lines[there])
    g_per_kwh = mix_intensity(rows.generation_mw[there]).to_numpy(dtype=np.float64)
    if not start_s.size:
        raise InputError(f"{path}: has no generation; expected MW of at least one type")
    form = "ENTSO-E's generation per type, with the IPCC's life-cycle emissions"
    return of_intervals(start_s, end_s, g_per_kwh, path.name, form)


def _long_columns(keys: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return the columns of time, type and MW of a long form; None of another."""
    times = [n for key, n in keys.items() if _MTU.fullmatch(key) or _LIBRARY_TIME.fullmatch(key)]
    types = [n for key, n in keys.items() if key in ("production type", "productiontype")]
    powers = [n for k, n in keys.items() if _LONG_MW.fullmatch(k) or _LIBRARY_MW.fullmatch(k)]
    return (times[0], types[0], powers[0]) if times and types and powers else None


def _check_area(path: Path, table: pd.DataFrame, keys: Mapping[str, str]) -> None:
    for key in _AREAS:
        areas = list(table[keys[key]].unique()) if key in keys else []
        if len(areas) > 1:
            raise InputError(
                f"{path}: has several areas ({', '.join(areas[:3])} …, column {keys[key]}); allowed: one"
            )


# --- the forms ------------------------------------------------------------------------------------


def _wide(path: Path, table: pd.DataFrame, keys: Mapping[str, str]) -> _Rows:
    mtu = next(name for key, name in keys.items() if _MTU.fullmatch(key))
    types = {name: key.removesuffix(_WIDE) for key, name in keys.items() if key.endswith(_WIDE)}
    powers = {type_: _powers(path, table[name]) for name, type_ in types.items()}
    times = _ranges(path, table[mtu], mtu)
    return _Rows(*times, pd.DataFrame(powers), table.index)


def _long(path: Path, table: pd.DataFrame, time: str, type_: str, power: str) -> _Rows:
    known = {name: column_key(name) for name in table[type_].unique()}
    _check_types(path, list(known.values()))
    types = table[type_].map(known)
    facts = pd.DataFrame({"time": table[time], "type": types, "mw": _powers(path, table[power])})
    twice = facts.duplicated(["time", "type"])
    if twice.any():
        raise InputError(f"{path}: line {twice.idxmax()}: a type stands there twice for one time")
    first = facts.drop_duplicates("time")
    wide = facts.pivot(index="time", columns="type", values="mw").loc[first["time"]]
    lines = first.index
    if _LIBRARY_TIME.fullmatch(column_key(time)):
        times = _library_times(path, table.loc[first.index], time)
    else:
        times = _ranges(path, first["time"], time)
    order = np.argsort(times[0], kind="stable")  # areas' files are sorted by type
    wide = wide.iloc[order].reset_index(drop=True)
    return _Rows(times[0][order], times[1][order], wide, lines[order])


def _check_types(path: Path, types: list[str]) -> None:
    odd = [name for name in types if name not in FACTORS and name not in UNKNOWN]
    if odd:
        raise InputError(
            f"{path}: production type '{odd[0]}' is not known; allowed: {', '.join([*FACTORS, *UNKNOWN])}"
        )


def _powers(path: Path, texts: pd.Series) -> Floats:
    """Return MW, (n,); NaN where a value is not known, or the type does not exist in any row."""
    absent = texts.isin(_NOT_THERE)
    said = texts.where(~(absent | texts.isin(_NOT_KNOWN)), "")
    values = as_numbers(said)
    check_values(path, said, values, "MW", (0, _MOST_MW))
    return values if np.isnan(values).all() else np.where(absent, 0.0, values)


# --- times ----------------------------------------------------------------------------------------


def _library_times(path: Path, rows: pd.DataFrame, time: str) -> tuple[Floats, Floats]:
    start_s = dates(rows[time], "ISO8601", False)
    code = next((name for name in map(str, rows) if column_key(name) == "resolutioncode"), None)
    minutes = np.full(len(rows), np.nan)
    if code is not None:
        minutes = as_numbers(rows[code].str.extract(_RESOLUTION, expand=False))
    _check_known(path, rows.index, start_s + minutes, "a time or ResolutionCode")
    return start_s, start_s + 60 * minutes


def _ranges(path: Path, texts: pd.Series, column: str) -> tuple[Floats, Floats]:
    """Return begin and end of time ranges in unix s, (n,) each."""
    parts = texts.str.extract(rf"^{_RANGE}$")
    heading = _MTU.fullmatch(column_key(column))
    default = (heading["zone"] or "").upper() if heading else ""
    start, end = (_local(parts[name]) for name in ("start", "end"))
    _check_known(path, texts.index, start + end, "a time range")
    zone = parts["zone"].fillna(default).str.upper()
    marked = parts["mark"].notna()
    if (wrong := ~marked & ~zone.isin([*_LOCAL, "UTC"])).any():
        line = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{path}: line {texts.index[line]}: '{texts.iloc[line][:60]}' has no known zone; allowed: "
            "(UTC), (CET) or (CET/CEST) behind it or in the heading"
        )
    local = zone.isin(_LOCAL).to_numpy()
    start_s = np.array(start)
    start_s[local] = _unix_seconds(start[local])
    ahead = parts["mark"].str.upper().map(_AHEAD_S).to_numpy(dtype=np.float64)
    start_s = np.where(marked, start - ahead, start_s)
    _check_known(path, texts.index, start_s, "the zone of a time")
    return start_s, start_s + _length(parts, start, end)


def _unix_seconds(local_s: Floats) -> Floats:
    """Return unix seconds of what clocks of Central Europe showed, (n,), in the order of the file."""
    found, _ = unix_seconds(local_s, _CENTRAL_EUROPE)
    # By the hour, clocks that are set back do not go back from row to row: they show an hour twice.
    for place in np.flatnonzero(np.diff(found) == 0) + 1:
        same, later = (
            datetime.fromtimestamp(float(found[place]) + s, _CENTRAL_EUROPE) for s in (0, 3600)
        )
        if same.replace(tzinfo=None) == later.replace(tzinfo=None):
            found[place] += 3600
    return found


def _length(parts: pd.DataFrame, start: Floats, end: Floats) -> Floats:
    """Return the lengths of ranges in s; across a change of clocks the zones of both times tell."""
    begun, ended = (parts[n].str.upper().map(_AHEAD_S).to_numpy(float) for n in ("mark", "zone"))
    shift = np.where(np.isfinite(begun) & np.isfinite(ended), begun - ended, 0.0)
    return np.asarray(end - start + shift)


def _local(texts: pd.Series) -> Floats:
    """Return what clocks show as seconds since they showed 1970; NaN where it is no date."""
    plain = texts.fillna("").str.replace("/", ".", regex=False)
    plain = plain.where(plain.str.count(":") != 1, plain + ":00")
    return dates(plain, "%d.%m.%Y %H:%M:%S", False)


def _check_known(path: Path, lines: pd.Index, values: Floats, what: str) -> None:
    if not np.isfinite(values).all():
        line = lines[np.flatnonzero(~np.isfinite(values))[0]]
        raise InputError(
            f"{path}: line {line}: {what} cannot be read; allowed: as ENTSO-E writes it, such as "
            "01.01.2026 00:00 - 01.01.2026 00:15 (UTC)"
        )
