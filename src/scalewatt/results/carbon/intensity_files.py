"""Read a file of carbon intensity: our own columns, or those of ElectricityMaps or ENTSO-E.

Which it is, its first line tells. Times of our own form name their zone or are unix seconds; those of the
others are in the zone that their columns name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.recordings.series import Floats
from scalewatt.recordings.text_times import as_numbers, parse_times, unread
from scalewatt.results.carbon.entsoe_files import is_entsoe, read_entsoe
from scalewatt.results.carbon.file_checks import check_times, check_values, column_key
from scalewatt.results.carbon.intensity import CarbonIntensity, of_times

_TIME, _VALUE = "time", "g_per_kwh"
_UTC = re.compile(r"datetime \(utc\)")
_LIFE_CYCLE = re.compile(r"carbon intensity gco2eq/kwh \((?:lca|life[ -]?cycle)\)")
_FORMS = (
    "the columns time and g_per_kwh; ElectricityMaps' 'Datetime (UTC)' and 'Carbon intensity gCO₂eq/kWh "
    "(Life cycle)' or '(LCA)'; ENTSO-E's actual generation per production type"
)


def read_intensity(path: Path) -> CarbonIntensity:
    """Return the carbon intensity in g CO₂e/kWh that a file has.

    InputError, with the line, if it does not exist or has no known columns, a time has no zone, is none or
    is not later than the one before, or a value is below 0 or no number.
    """
    table = _table(path)
    keys = {column_key(name): name for name in map(str, table)}
    if {_TIME, _VALUE} <= set(keys):
        time_s = _own_times(path, table[keys[_TIME]])
        form, values = f"{_TIME}, {_VALUE}", table[keys[_VALUE]]
    elif is_entsoe(keys):
        return _known(path, read_entsoe(path, table, keys))
    elif any(map(_UTC.fullmatch, keys)):
        time_s = _utc_times(path, table[_column(path, keys, _UTC)])
        form, values = "ElectricityMaps", table[_column(path, keys, _LIFE_CYCLE)]
    else:
        raise InputError(f"{path}: has the columns {_named(keys.values())}; allowed: {_FORMS}")
    g_per_kwh = as_numbers(values)
    check_values(path, values, g_per_kwh)
    check_times(path, time_s)
    return _known(path, of_times(time_s, g_per_kwh, path.name, form))


def _table(path: Path) -> pd.DataFrame:
    """Return the cells of a CSV file as stripped texts, whatever of `,`, `;` and tabs is between them."""
    if not path.is_file():
        raise InputError(
            f"{path}: does not exist; expected a CSV file of carbon intensity: {_FORMS}"
        )
    try:
        with open(path, encoding="utf-8-sig") as handle:
            first = handle.readline()
        table = pd.read_csv(
            path,
            sep=max(",;\t", key=first.count),
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
            skipinitialspace=True,
            index_col=False,
        )
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise InputError(f"{path}: is no readable CSV file ({said})") from error
    if len(table) < 2:
        raise InputError(f"{path}: has {len(table)} rows; expected two or more, in order of time")
    return table.fillna("").apply(lambda column: column.str.strip())


def _column(path: Path, keys: dict[str, str], wanted: re.Pattern[str]) -> str:
    found = next((name for key, name in keys.items() if wanted.fullmatch(key)), None)
    if found is None:
        raise InputError(f"{path}: has the columns {_named(keys.values())}; allowed: {_FORMS}")
    return found


def _named(columns: Iterable[str]) -> str:
    names = list(columns)
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")


def _own_times(path: Path, texts: pd.Series) -> Floats:
    stamps = parse_times(texts)
    if stamps is None or stamps.local:
        raise InputError(
            f"{path}: line 2: time '{texts.iloc[0][:40]}'; allowed: unix seconds, or dates with a zone such "
            "as 2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00"
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
        line = int(np.flatnonzero(~np.isfinite(seconds))[0]) + 2
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
