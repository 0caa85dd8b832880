"""Any table of samples in text, by a short YAML that names its columns (schema `columns`).

One row a time with a column for each device, or one row a sample with columns that tell device and node.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import one_of, shown
from scalewatt.recordings.formats.format import Format, Options, node_of
from scalewatt.recordings.formats.text_columns import (
    MOST_COLUMNS,
    MOST_DEVICES,
    NEVER_WRAPS_J,
    UNITS,
    TextFile,
    as_numbers,
    delimiter_of,
    described,
    groups,
    is_whole,
    numbered,
    period_flag,
    read_lines,
    row_times,
    split_cells,
)
from scalewatt.recordings.series import LATEST_S, Flag, Floats, Recording, SensorSeries, by_node
from scalewatt.recordings.text_times import (
    Stamps,
    dates,
    parse_times,
    unix_seconds,
    unread,
    within,
    zone_flags,
    zone_named,
)

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EXCEL_1970 = 25569.0  # days of spreadsheets count from the end of 1899
_NO_NAMES = ("", "n/a", "[n/a]", "na", "nan", "null", "none")
_MOST_CONTRADICTING = 0.1
_EARLIEST_S = 1e8
"""Unix times are later, in 1973: smaller numbers count from something else."""


def describes(options: Options) -> bool:
    """Return True if the user's YAML names the columns of a table. Raises InputError for a wrong one."""
    return "sensors" in described(options)


def read_generic_csv(path: Path, options: Options) -> Recording:
    """Read a table by `options.columns`.

    Raises InputError if that is missing, or names what the table has not.
    """
    rules = described(options)
    if not rules.get("sensors") or not rules.get("time"):
        raise InputError(
            f"{options.columns or path}: expected a YAML file with 'time' and 'sensors' that names the "
            "table's columns"
        )
    text = read_lines(path, rules.get("skip_lines", 0))
    table, damaged = _table(text, rules)
    reader = _Reader(path, options, rules, table)
    series: list[SensorSeries] = []
    for rule in rules["sensors"]:
        series += reader.series(rule)
    _refuse_doubles(series, options)
    if not any(one.time_s.size for one in series):
        raise InputError(f"{path}: holds no row with a time that can be read{reader.unread()}")
    flags = (*reader.flags(), *text.damage(damaged + reader.lost))
    return Recording(
        nodes=by_node(series),
        t0_known=reader.t0_known,
        sampling_period_s=None,
        source=str(path),
        problems=flags,
    )


def _table(text: TextFile, rules: Mapping[str, Any]) -> tuple[pd.DataFrame, int]:
    """Return the cells of the columns that are named, as texts, and how many lines have no row."""
    lines = text.lines
    header = rules.get("header")
    delimiter = delimiter_of(lines[0], rules.get("delimiter"))
    if header is None:
        header, lines = split_cells(lines[0], delimiter), lines[1:]
    if len(header) > MOST_COLUMNS:
        raise InputError(f"{text.path}: has {len(header)} columns; allowed: at most {MOST_COLUMNS}")
    if not lines:
        raise InputError(f"{text.path}: holds no row below its heading")
    wanted = sorted({_place(text.path, header, name) for name in _named_columns(rules)})
    whole = [line for line in lines if is_whole(line, len(header), delimiter)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pd.errors.ParserWarning)
            table = pd.read_csv(
                io.StringIO("\n".join(whole)),
                sep=delimiter,
                header=None,
                names=range(len(header)),
                usecols=wanted,
                dtype=str,
                keep_default_na=False,
                na_filter=False,
                index_col=False,
                on_bad_lines="skip",
            )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        reason = " ".join(str(error).split())[:100]
        raise InputError(f"{text.path}: is no table ({reason})") from error
    table.columns = pd.Index([header[place] for place in wanted])
    return table.fillna("").apply(lambda column: column.str.strip()), len(lines) - len(table)


def _named_columns(rules: Mapping[str, Any]) -> Iterator[str]:
    if "column" in rules["time"]:
        yield rules["time"]["column"]
    for rule in rules["sensors"]:
        yield rule["column"]
        yield from rule.get("where", {})
        yield from (rule[key] for key in ("index_column", "node_column") if key in rule)


def _place(path: Path, header: list[str], name: str) -> int:
    found = [place for place, other in enumerate(header) if other == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"{path}: has {len(found)} columns '{name}'; expected one")
    some = (
        one_of(name, header[:30]) if all(map(str.isprintable, header[:30])) else "see its heading"
    )
    raise InputError(f"{path}: has no column {shown(name)}; {some[:500]}")


class _Reader:
    """The rows of one table, with their times, from which each sensor takes its own."""

    def __init__(
        self, path: Path, options: Options, rules: Mapping[str, Any], table: pd.DataFrame
    ) -> None:
        self.path, self.options, self.table = path, options, table
        self.time = time = rules["time"]
        self.decimal = rules.get("decimal", ".")
        self.where = f"{options.columns}: time"
        self.zone_name = time.get("zone") or options.time_zone
        self.zone = zone_named(self.zone_name, f"{self.where}.zone")
        self.unsure = False
        self.unnamed = np.zeros(len(table), dtype=np.bool_)
        """Rows whose device or node is left empty."""
        since = time.get("since", "unix" if "column" in time else "begin")
        self.t0_known = since != "begin"
        unix = since == "unix" and "column" in time
        start, self.from_flags = (
            (None, []) if unix else row_times({**time, "since": since}, options, path)
        )
        self.from_s = start or 0.0
        self.stamps = self._stamps() if "column" in time else None
        if self.stamps is None and "period_s" not in time:
            raise InputError(
                f"{self.where}: missing key 'column'; allowed: the column of times, or period_s"
            )

    @property
    def lost(self) -> int:
        """Return how many rows have no time, or no name of their device or node."""
        untimed = False if self.stamps is None else ~np.isfinite(self.stamps.seconds)
        return int(np.count_nonzero(self.unnamed | untimed))

    def unread(self) -> str:
        """Return the first text that is no time, for a message."""
        if self.stamps is None:
            return ""
        return unread(self.table[self.time["column"]], self.stamps.seconds)

    def flags(self) -> list[Flag]:
        """Return what is to be known of the times."""
        if self.stamps is None:
            return [period_flag(self.path, self.time["period_s"]), *self.from_flags]
        if not self.stamps.local:
            return self.from_flags
        return zone_flags(self.path, self.zone_name, self.unsure)

    def series(self, rule: Mapping[str, Any]) -> Iterator[SensorSeries]:
        """Yield the sensors of one rule: one for each device and node in its rows."""
        rows = np.ones(len(self.table), dtype=np.bool_)
        for column, text in rule.get("where", {}).items():
            rows &= (self.table[column] == str(text)).to_numpy()
        if not rows.any():
            raise InputError(f"{self.path}: no row has {shown(rule['where'])}")
        for which in ("index_column", "node_column"):
            if which in rule:
                unnamed = rows & self.table[rule[which]].str.lower().isin(_NO_NAMES).to_numpy()
                self.unnamed |= unnamed
                rows &= ~unnamed
        places = np.flatnonzero(rows)
        nodes = numbered(self._texts(rule, "node_column", places))
        if len(nodes) > MOST_DEVICES:
            raise InputError(
                f"{self.path}: names {len(nodes)} nodes; allowed: at most {MOST_DEVICES}"
            )
        for number, own in groups(self._keys(rule, "node_column", places, nodes)):
            node = list(nodes)[number] or rule.get("node") or node_of(self.path, self.options)
            devices = _device_numbers(self._texts(rule, "index_column", places[own]), self.path)
            for key, mine in groups(self._keys(rule, "index_column", places[own], devices)):
                index = key if "index_column" in rule else rule.get("index", 0)
                yield self._one(rule, node, index, places[own][mine])

    def _texts(self, rule: Mapping[str, Any], key: str, places: np.ndarray) -> list[str]:
        column = rule.get(key)
        return [""] if column is None else list(self.table[column].iloc[places].unique())

    def _keys(
        self, rule: Mapping[str, Any], key: str, places: np.ndarray, numbers: Mapping[str, int]
    ) -> np.ndarray:
        column = rule.get(key)
        if column is None:
            return np.zeros(places.size, dtype=np.int64)
        return self.table[column].iloc[places].map(dict(numbers)).to_numpy(dtype=np.int64)

    def _one(
        self, rule: Mapping[str, Any], node: str, index: int, places: np.ndarray
    ) -> SensorSeries:
        time_s = self._times(places)
        texts = self.table[rule["column"]].iloc[places]
        numbers = self._numbers(texts)
        said = texts[~texts.str.lower().isin(_NO_NAMES)]
        if len(said) and not np.isfinite(numbers).any():
            such = f"has no number, but {shown(said.iloc[0])}; see `decimal`"
            raise InputError(f"{self.path}: column '{rule['column']}' {such}")
        quantity, factor = UNITS[rule["unit"]]
        stated = rule.get("quantity", quantity)
        _check_quantity(rule, quantity, stated, f"{self.options.columns}: sensors")
        one = SensorSeries(
            node=node,
            sensor=rule.get("name", rule["column"])
            + (f":{index}" if "index_column" in rule else ""),
            device_kind=rule["kind"],
            device_index=index,
            quantity="counter" if stated == "energy" else stated,
            time_s=time_s,
            values=numbers * factor,
            valid_max=_range_j(rule, factor, stated),
            limit_w=rule.get("limit_w"),
            origin=rule.get("origin", "measured"),
        )
        if stated == "energy":
            one = replace(one, values=_added_up(one.time_s, one.values))
        elif _contradicts(one):
            raise InputError(
                f"{self.path}: column '{rule['column']}' has several values at one time; name index_column, "
                "node_column or where in the YAML file"
            )
        good = np.isfinite(one.time_s)
        return replace(one, time_s=one.time_s[good], values=one.values[good])

    def _numbers(self, texts: pd.Series) -> Floats:
        if self.decimal != ".":
            texts = texts.str.replace(self.decimal, ".", regex=False)
        return as_numbers(texts)

    def _times(self, places: np.ndarray) -> Floats:
        """Return the times of some rows, in their order."""
        if self.stamps is None:
            return self.from_s + self.time["period_s"] * np.arange(places.size)
        seconds = self.stamps.seconds[places]
        if not self.stamps.local:
            return seconds
        known = np.isfinite(seconds)
        unix = np.full(seconds.size, np.nan)
        unix[known], unsure = unix_seconds(seconds[known], self.zone)
        self.unsure |= unsure
        return unix

    def _stamps(self) -> Stamps:
        texts, unit = self.table[self.time["column"]], self.time.get("unit")
        if "format" in self.time:
            return self._formatted(texts)
        if unit in (None, "iso"):
            stamps = parse_times(texts)
            if stamps is None or (unit == "iso" and not _has_dates(texts)):
                hint = "unix times, or dates with a time of day" if unit is None else "dates"
                such = unread(texts[:1], [np.nan])
                raise InputError(
                    f"{self.path}: column '{self.time['column']}' has no {hint}{such}; state its unit or "
                    "format"
                )
            return stamps
        numbers = self._numbers(texts)
        if unit == "excel":
            return Stamps(within((numbers - _EXCEL_1970) * _SECONDS["d"]), local=True)
        seconds = numbers * _SECONDS[unit] + self.from_s
        if (
            self.time.get("since", "unix") == "unix"
            and np.nanmax(seconds, initial=0.0) < _EARLIEST_S
        ):
            raise InputError(
                f"{self.path}: column '{self.time['column']}' has no unix times in {unit}; say what it "
                "counts from (time: since: begin, or a time)"
            )
        return Stamps(np.where(np.abs(seconds) < LATEST_S, seconds, np.nan), local=False)

    def _formatted(self, texts: pd.Series) -> Stamps:
        form = self.time["format"]
        try:
            return Stamps(dates(texts, form, zoned="%z" in form), local="%z" not in form)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{self.where}.format: {shown(form)} is no form of a date") from error


def _has_dates(texts: pd.Series) -> bool:
    return any("-" in text or "/" in text for text in texts.head(100))


def _device_numbers(names: list[str], path: Path) -> Mapping[str, int]:
    """Return the numbers of devices: what is written, if all are other numbers, else by order of names."""
    if len(names) > MOST_DEVICES:
        raise InputError(f"{path}: names {len(names)} devices; allowed: at most {MOST_DEVICES}")
    if all(name.isascii() and name.isdigit() and len(name) < 5 for name in names):
        numbers = {name: int(name) for name in names}
        if len(set(numbers.values())) == len(names):
            return numbers
    return {name: place for place, name in enumerate(sorted(names))}


def _check_quantity(rule: Mapping[str, Any], natural: str, stated: str, where: str) -> None:
    allowed = {
        "power": ("power", "mean_power"),
        "counter": ("counter", "energy"),
        "utilisation": ("utilisation",),
    }[natural]
    if stated not in allowed:
        raise InputError(
            f"{where}: column '{rule['column']}' is in {rule['unit']}, and no {stated}; "
            f"allowed: {', '.join(allowed)}"
        )


def _contradicts(one: SensorSeries) -> bool:
    """Return True if over a tenth of the values share their time with another one."""
    valued = np.isfinite(one.time_s) & np.isfinite(one.values)
    pairs = np.unique(np.column_stack((one.time_s[valued], one.values[valued])), axis=0)
    _, values_of = np.unique(pairs[:, 0], return_counts=True)
    return bool(values_of[values_of > 1].sum() > _MOST_CONTRADICTING * np.count_nonzero(valued))


def _added_up(time_s: Floats, used_j: Floats) -> Floats:
    """Return a counter, (n,), of energies used since the row before, in the order of the rows.

    For how long the first is nothing says; it is not counted, nor is one that repeats the one before, at
    the same time. Where one is unknown the counter begins anew, lower, so that it is told from no energy.
    """
    unknown = ~(used_j >= 0)
    unknown[:1] = False
    steps = np.where(unknown, 0.0, used_j)
    steps[:1] = 0.0
    steps[1:][(used_j[1:] == used_j[:-1]) & (time_s[1:] == time_s[:-1])] = 0.0
    total, begun = np.cumsum(steps), np.cumsum(unknown)
    begins = np.concatenate(([0.0], total[unknown]))
    return total - begins[begun] + 1.0 + np.count_nonzero(unknown) - begun


def _range_j(rule: Mapping[str, Any], factor: float, quantity: str) -> float | None:
    """Return where a counter begins anew. Only those of CPUs and memories are known to, early."""
    if "valid_max" in rule:
        return float(rule["valid_max"] * factor)
    if quantity == "energy":
        return NEVER_WRAPS_J
    return NEVER_WRAPS_J if quantity == "counter" and rule["kind"] not in ("cpu", "ram") else None


def _refuse_doubles(series: list[SensorSeries], options: Options) -> None:
    """Refuse two columns that say the same of one device: one of them has a wrong index or node."""
    seen: dict[tuple[str, str, int, str], str] = {}
    for one in series:
        key = (one.node, one.device_kind, one.device_index, one.quantity)
        if key in seen:
            raise InputError(
                f"{options.columns}: {shown(seen[key])} and {shown(one.sensor)} are both {one.quantity} of "
                f"{one.device_kind} {one.device_index} of {one.node}; give each its index or node"
            )
        seen[key] = one.sensor


FORMAT = Format("csv", lambda _: False, read_generic_csv)
"""Known by the user's description alone; `describes` tells."""
