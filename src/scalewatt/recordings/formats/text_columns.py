"""What readers of text share: lines, rows of cells, numbers with units, and series of what they say."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, schema, shown
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.formats.format import TORN_END, Options, decoded
from scalewatt.recordings.series import Flag, Floats, SensorSeries, flag
from scalewatt.recordings.text_times import (
    as_numbers,
    parse_times,
    unix_seconds,
    zone_flags,
    zone_named,
)

MOST_COLUMNS = 10_000
MOST_DEVICES = 4096
"""Of one node: an index beyond is none."""

NEVER_WRAPS_J = 2.0**64 / 1e3
"""Range of NVML's counters, 64 bits of mJ: they are reset, but never wrap."""
_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
UNITS: dict[str, tuple[str, float]] = {
    **{f"{prefix}W": ("power", factor) for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}J": ("counter", factor) for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}Wh": ("counter", 3600.0 * factor) for prefix, factor in _PREFIXES.items()},
    "%": ("utilisation", 0.01),
    "1": ("utilisation", 1.0),
}
"""What a value of each unit measures, and its factor to W, J or a share."""
DELIMITERS = (",", ";", "\t")
_NAMED = {"tab": "\t", "space": r"\s+"}
_WITH_UNIT = re.compile(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*([A-Za-zµ%]*)\s*")


@dataclass(frozen=True)
class TextFile:
    """The lines of a file that are whole, and what is to be known of it."""

    path: Path
    lines: list[str]
    torn: bool
    """True if the last line has no end: it may be cut off, within a number too, and is left out."""

    def damage(self, rows: int) -> list[Flag]:
        """Return the flags of lines that are left out: `rows` without a meaning, and a torn end."""
        found = []
        if rows:
            detail = (
                f"{self.path.name}: {rows} lines hold no sample that can be read, and are left out"
            )
            found.append(flag("damaged", None, detail))
        if self.torn:
            detail = f"{self.path.name}: ends within a line, which is left out"
            found.append(flag(TORN_END, None, detail))
        return found


def read_text(path: Path) -> str:
    """Read a whole text. Raises InputError where that cannot be done."""
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def read_lines(path: Path, skip: int = 0) -> TextFile:
    """Read a text's lines, as `lines_of` says."""
    return lines_of(path, read_text(path), skip)


def lines_of(path: Path, content: str, skip: int = 0) -> TextFile:
    """Return a text's lines below the first `skip`, without those that are empty.

    Raises InputError if there is none.
    """
    lines = content.split("\n")
    torn = bool(lines.pop().strip())
    whole = [line.rstrip("\r") for line in lines[skip:] if line and not line.isspace()]
    if not whole:
        found = f"holds no row below its line {skip}" if skip else "is empty"
        raise InputError(f"{path}: {found}; expected a recording")
    return TextFile(path, whole, torn)


def described(options: Options) -> dict[str, Any]:
    """Return what the user's YAML says of a text's columns; nothing where there is none.

    Raises InputError for a file that its schema does not allow.
    """
    if options.columns is None:
        return {}
    content = read_yaml(options.columns)
    rules = schema("columns")
    check(content, rules, str(options.columns), rules)
    return content


def delimiter_of(first: str, given: str | None = None) -> str:
    """Return what stands between the cells: what is given, by its name too, else the first line's most."""
    if given is not None:
        return str(_NAMED.get(given, given))
    found = max(DELIMITERS, key=first.count)
    return found if found in first else ","


def split_cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line, quoted ones too, without blanks around."""
    if delimiter == _NAMED["space"]:
        return line.split()
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return [name.strip() for name in line.split(delimiter)]


def is_whole(line: str, columns: int, delimiter: str) -> bool:
    """Return True for a row with a cell for each column; one with a NUL was written over."""
    if "\0" in line:
        return False
    quoted = '"' in line or len(delimiter) > 1
    return (len(split_cells(line, delimiter)) if quoted else line.count(delimiter) + 1) == columns


def cells_of(
    lines: Sequence[str], columns: int, wanted: Sequence[int], delimiter: str
) -> pd.DataFrame:
    """Return the wanted cells of lines that have `columns` cells each, as texts without blanks around."""
    table = pd.read_csv(
        io.StringIO("\n".join(lines)),
        sep=delimiter,
        header=None,
        names=range(columns),
        usecols=list(wanted),
        dtype=str,
        keep_default_na=False,
        na_filter=False,
        quoting=csv.QUOTE_NONE,
        index_col=False,
        skip_blank_lines=False,
    )
    return table.apply(lambda column: column.str.strip())


def in_si(texts: pd.Series, unit: str | None, default: str, where: str) -> Floats:
    """Return numbers with or without units in W, J or as a share, (n,), NaN where there is none.

    A unit behind a number counts before `unit`, that of the heading, and that before `default`. Raises
    InputError for a heading's unit that does not fit `default`, and if no number has one that does.
    """
    quantity = UNITS[default][0]
    units = {name: factor for name, (what, factor) in UNITS.items() if what == quantity}
    wrong = unit if unit and unit not in units else None
    factors = {**units, "": units.get(unit or default, np.nan)}
    values, rest = np.full(texts.size, np.nan), texts.reset_index(drop=True)
    while wrong is None and (found := _first_unit(rest)) is not None:
        numbers = as_numbers(rest.str.removesuffix(found).str.strip())
        known = np.isfinite(numbers)
        if found in factors:
            values[rest.index[known]] = numbers[known] * factors[found]
        elif not np.isfinite(values).any():
            wrong = found
        rest = rest[~known]
        rest = rest[~rest.str.contains(rf"[\d.\s]{found}$")]
    if wrong is not None:
        raise InputError(f"{where}: has the unit '{wrong[:30]}'; allowed: {', '.join(units)}")
    return values


def _first_unit(texts: pd.Series) -> str | None:
    """Return what stands behind the first number, "" where it has no unit; None without a number."""
    return next((one[1] for text in texts if (one := _WITH_UNIT.fullmatch(text))), None)


def unix_times(texts: pd.Series, options: Options, path: Path) -> tuple[Floats, list[Flag]] | None:
    """Return unix seconds of stamps in a file's order, (n,), NaN for none, with flags.

    None if they are no times. Raises InputError for an unknown zone.
    """
    stamps = parse_times(texts)
    if stamps is None:
        return None
    if not stamps.local:
        return stamps.seconds, []
    zone = zone_named(options.time_zone, f"{path}: time zone")
    known = np.isfinite(stamps.seconds)
    unix = np.full(known.size, np.nan)
    unix[known], unsure = unix_seconds(stamps.seconds[known], zone)
    return unix, zone_flags(path, options.time_zone, unsure)


def row_times(
    time: Mapping[str, Any], options: Options, path: Path
) -> tuple[float | None, list[Flag]]:
    """Return from when rows without times count, `since` of the user's YAML: unix seconds, or None.

    Raises InputError if that is no time.
    """
    since = time.get("since", "begin")
    if since == "begin":
        return None, []
    where = f"{options.columns}: time.since"
    zone = replace(options, time_zone=time.get("zone") or options.time_zone)
    timed = unix_times(pd.Series([since]), zone, path)
    if timed is None or not np.isfinite(timed[0][0]):
        raise InputError(
            f'{where}: {shown(since)} is no time; allowed: begin, or a time such as "2024-05-31 10:39:13"'
        )
    return float(timed[0][0]), timed[1]


def period_flag(path: Path, period_s: float) -> Flag:
    """Return the flag of rows without times."""
    detail = f"{path.name}: its rows have no times; they are taken to be {period_s:g} s apart"
    return flag("time_assumed", None, detail)


def groups(keys: np.ndarray) -> Iterable[tuple[int, np.ndarray]]:
    """Yield each of the keys, (n,) whole numbers, with its places in order."""
    order = np.argsort(keys, kind="stable")
    found, begin = np.unique(keys[order], return_index=True)
    for key, places in zip(found, np.split(order, begin[1:]), strict=True):
        yield int(key), places


def with_values(series: Sequence[SensorSeries]) -> list[SensorSeries]:
    """Leave out sensors of a device that never said anything, where another sensor did.

    Else the first of its power and energy stays, so that it is known to be without values.
    """
    said = [one for one in series if np.isfinite(one.values).any()]
    energetic = [one for one in series if one.quantity != "utilisation"]
    if energetic and not any(one.quantity != "utilisation" for one in said):
        said.append(energetic[0])
    return said


def numbered(names: Iterable[str]) -> Mapping[str, int]:
    """Return a number for each name, by the order in which they come first."""
    return {name: place for place, name in enumerate(dict.fromkeys(names))}
