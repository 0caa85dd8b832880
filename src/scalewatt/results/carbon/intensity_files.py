"""Read a file of carbon intensity: our own columns, or those of ElectricityMaps or ENTSO-E.

Which it is, its first line tells. Times of our own form name their zone or are unix seconds; those of the
others are in the zone that their columns name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import Cluster
from scalewatt.campaign.cluster import carbon_file
from scalewatt.common.errors import InputError
from scalewatt.common.tabular_files import Cells, csv_cells
from scalewatt.common.untrusted_text import unreadable
from scalewatt.recordings.series import Floats
from scalewatt.recordings.text_times import as_numbers, parse_times, unread
from scalewatt.results.carbon.entsoe_files import check_columns, is_entsoe, read_entsoe
from scalewatt.results.carbon.file_checks import (
    check_intensities,
    check_rows,
    check_times,
    column_key,
    text_table,
)
from scalewatt.results.carbon.intensity import CarbonIntensity, of_times

_TIME, _VALUE = "time", "g_per_kwh"
_UTC = re.compile(r"datetime \(utc\)")
_LIFE_CYCLE = re.compile(r"carbon intensity gco2eq/kwh \((?:lca|life[ -]?cycle)\)")
_FORMS = (
    "the columns time and g_per_kwh; ElectricityMaps' 'Datetime (UTC)' and 'Carbon intensity gCO₂eq/kWh "
    "(Life cycle)' or '(LCA)'; ENTSO-E's actual generation per production type"
)


def intensity_of(cluster: Cluster) -> CarbonIntensity | None:
    """Return what a cluster's file of carbon intensity says, in g CO₂e/kWh; None without a file.

    InputError as `read_intensity`.
    """
    file = carbon_file(cluster)
    return None if file is None else read_intensity(file)


def read_intensity(path: Path) -> CarbonIntensity:
    """Return the carbon intensity in g CO₂e/kWh that a file has.

    InputError, with the line, if it cannot be read or has no known columns, a row has more or fewer cells
    than there are columns, a time has no zone, is none or is not later than the one before, or a value is
    no number or beyond what one value in a cluster file may be; and if all look like kg/kWh.
    """
    cells = _cells(path)
    keys = _keys(path, cells)
    columns = _columns(path, keys)
    table = text_table(path, cells)
    check_rows(path, table)
    if columns is None:
        return _known(path, read_entsoe(path, table, keys))
    times, values = table[columns.time], table[columns.value]
    time_s = _utc_times(path, times) if columns.utc else _own_times(path, times)
    g_per_kwh = as_numbers(values)
    check_intensities(path, values, g_per_kwh)
    check_times(path, time_s, table.index)
    return _known(path, of_times(time_s, g_per_kwh, path.name, columns.form))


def _cells(path: Path) -> Cells:
    """Return the cells of a CSV file, whatever of `,`, `;` and tabs is between them."""
    if (why := unreadable(path)) is not None:
        raise InputError(f"{path}: {why}; expected a CSV file of carbon intensity: {_FORMS}")
    return csv_cells(path, ",;\t")


def _keys(path: Path, cells: Cells) -> dict[str, str]:
    """Return the names of the columns by their `column_key`; InputError if one stands there twice."""
    named = [name for name in cells.names if name]
    keys = {column_key(name): name for name in named}
    if len(keys) < len(named):
        twice = next(
            name for name in named if keys[column_key(name)] != name or named.count(name) > 1
        )
        raise InputError(f"{path}: the column '{twice[:60]}' stands there twice; allowed: once")
    return keys


@dataclass(frozen=True)
class _Columns:
    """Which columns have the times and the values, of which form."""

    time: str
    value: str
    form: str
    utc: bool
    """True if times without a zone are UTC."""


def _columns(path: Path, keys: dict[str, str]) -> _Columns | None:
    """Return the columns of our own form or of ElectricityMaps'; None of ENTSO-E's. InputError of others."""
    if {_TIME, _VALUE} <= set(keys):
        return _Columns(keys[_TIME], keys[_VALUE], f"{_TIME}, {_VALUE}", utc=False)
    if is_entsoe(keys):
        check_columns(path, keys)
        return None
    time, value = _column(keys, _UTC), _column(keys, _LIFE_CYCLE)
    if time is not None and value is not None:
        return _Columns(time, value, "ElectricityMaps", utc=True)
    raise InputError(f"{path}: has the columns {_named(keys.values())}; allowed: {_FORMS}")


def _column(keys: dict[str, str], wanted: re.Pattern[str]) -> str | None:
    return next((name for key, name in keys.items() if wanted.fullmatch(key)), None)


def _named(columns: Iterable[str]) -> str:
    names = list(columns)
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")


def _own_times(path: Path, texts: pd.Series) -> Floats:
    stamps = parse_times(texts)
    if stamps is None or stamps.local:
        raise InputError(
            f"{path}: line {texts.index[0]}: time '{texts.iloc[0][:40]}'; allowed: unix seconds, or dates "
            "with a zone such as 2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00"
        )
    _check_read(path, texts, stamps.seconds)
    return stamps.seconds


def _utc_times(path: Path, texts: pd.Series) -> Floats:
    stamps = parse_times(texts)  # without a zone of its own it is that of the heading, UTC
    seconds = np.full(len(texts), np.nan) if stamps is None else stamps.seconds
    _check_read(path, texts, seconds)
    return seconds


def _check_read(path: Path, texts: pd.Series, seconds: Floats) -> None:
    if not np.isfinite(seconds).all():
        line = texts.index[np.flatnonzero(~np.isfinite(seconds))[0]]
        raise InputError(
            f"{path}: line {line}: a time cannot be read{unread(texts, seconds)}; allowed: all in the form "
            "of the first, with a zone"
        )


def _known(path: Path, found: CarbonIntensity) -> CarbonIntensity:
    """Return the intensity without its unknown ends; InputError if nothing of it is known."""
    known = np.flatnonzero(np.isfinite(found.g_per_kwh))
    if not known.size:
        raise InputError(f"{path}: has no value; expected g CO2e per kWh against time")
    first, last = known[0], known[-1] + 1
    return replace(
        found,
        edges_s=found.edges_s[first : last + 1],
        g_per_kwh=found.g_per_kwh[first:last],
    )
