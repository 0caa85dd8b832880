"""Times of rows: stamps in text, and unix seconds of local ones.

A local time that comes twice, in the hour when clocks are set back, is resolved by the order of the rows; one
that does not exist, when they are set forward, is taken by the offset before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown
from scalewatt.recordings.terms import LATEST_S, Flag, Floats, flag

UNIX, LOCAL, DAY = "unix", "local", "day"

_FORMS = {
    "number": re.compile(r"\s*(\d{9,19})(?:\.\d+)?\s*"),
    DAY: re.compile(r"\s*\d\d?:\d\d:\d\d(?:[.,:]\d+)?\s*"),
    # The zone stands behind a time of day: 2024-05-31 10-02 has none, and is no time.
    UNIX: re.compile(r"(?s)\s*\d{4}([-/]?)\d\d?\1\d\d?[T ]+\d\d?:\d\d.*(?:[Zz+-]|UTC).*"),
    LOCAL: re.compile(r"\s*\d{4}([-/]?)\d\d?\1\d\d?[T ]+\d\d?:\d\d[\d:.,]*\s*"),
}
_HEAD_ROWS = 100
# Digits of a whole unix time, between 1973 and 5138, by its unit.
_PER_S = {**dict.fromkeys((9, 10, 11), 1.0), **dict.fromkeys((12, 13, 14), 1e3)}
_PER_S.update(dict.fromkeys((15, 16, 17), 1e6))
_NANO = 1e9
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EARLIEST_S = 1e8
"""Unix times are later, in 1973: smaller numbers count from something else."""
# Zones change their offset at a full quarter of an hour.
_SLOT_S = 900
# A clock that is corrected goes back by less; one that is set back in autumn by more.
_SET_BACK_S = 60.0
_EPOCH = datetime(1970, 1, 1)


# --- stamps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stamps:
    """Times of n rows: (n,) seconds, NaN where there is none."""

    seconds: Floats
    clock: str
    """UNIX; LOCAL: since a local clock showed 1970; DAY: since a midnight, times of day without a date."""


def parse_times(texts: pd.Series) -> Stamps | None:
    """Parse texts that are all written as most of the first ones are; None if these are no times.

    Understood are unix times in s, ms, µs or ns, by their digits; dates with `-`, `/` or nothing between,
    and a time of day, with or without an offset (Z, UTC, +02, +0200 or +02:00); times of day alone.
    """
    head = [text for text in texts.head(_HEAD_ROWS) if text and not text.isspace()]
    forms = Counter(written for text in head if (written := _form(text)))
    if not forms:
        return None
    (form, digits), _ = forms.most_common(1)[0]
    if form == "number":
        return Stamps(within(as_numbers(texts) / _PER_S.get(digits, _NANO)), UNIX)
    if form == DAY:
        return Stamps(_seconds_of_day(texts), DAY)
    # Mixed in one column they cannot be parsed together: the other kind has no time.
    plain = texts.where(texts.str.fullmatch(_FORMS[form].pattern), "").str.strip()
    plain = plain.str.replace("/", "-", regex=False).str.replace(",", ".", regex=False)
    plain = plain.str.replace(r"\s*(?:UTC|z)$", "Z", regex=True)
    return Stamps(dates(plain, "ISO8601", form == UNIX), form)


def _form(text: str) -> tuple[str, int] | None:
    """How a time is written, by the key of _FORMS, and the digits of a number; None if it is no time."""
    for form, pattern in _FORMS.items():
        if match := pattern.fullmatch(text):
            return form, len(match[1]) if form == "number" else 0
    return None


def _seconds_of_day(texts: pd.Series) -> Floats:
    """Parse 13:35:39, 13:35:39.250 or 13:35:39:250; a day later where it goes back over midnight."""
    plain = texts.str.strip().str.replace(r"^(\d+:\d+:\d+)[,:](\d+)$", r"\1.\2", regex=True)
    seconds = pd.to_timedelta(plain, errors="coerce").dt.total_seconds().to_numpy(np.float64)
    steps = np.diff(pd.Series(seconds).ffill().to_numpy(), prepend=np.nan)
    return seconds + 86400.0 * np.cumsum(steps < -43200.0)


def unread(texts: Iterable[str], seconds: Iterable[float]) -> str:
    """First text that is no time, in quotes, for a message; "" where all are."""
    for text, second in zip(texts, seconds, strict=False):
        if not np.isfinite(second):
            return f" (such as {shown(text[:40])})"
    return ""


def dates(texts: pd.Series, form: str, zoned: bool) -> Floats:
    """Seconds of dates, (n,), NaN where there is none, by pandas' name of their form."""
    stamps = pd.to_datetime(texts, format=form, errors="coerce", utc=zoned)
    if zoned:
        stamps = stamps.dt.tz_localize(None)
    seconds = stamps.astype("datetime64[us]").to_numpy().astype(np.int64) / 1e6
    return within(np.where(stamps.isna(), np.nan, seconds))


def as_numbers(texts: pd.Series) -> Floats:
    """Texts as numbers, (n,); NaN for what is no finite number."""
    numbers = np.asarray(pd.to_numeric(texts, errors="coerce"), dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def within(seconds: Floats) -> Floats:
    """Unix seconds, NaN where no clock shows them."""
    return np.where((seconds > 0) & (seconds < LATEST_S), seconds, np.nan)


# --- local clocks ---------------------------------------------------------------------------------


def zone_named(name: str | None, where: str) -> tzinfo | None:
    """Zone of a name; None, this machine's zone, for None. Raises InputError."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(
            f"{where}: {shown(name)} is no time zone; allowed: a name such as Europe/Berlin, or UTC"
        ) from error


def unix_seconds(local_s: Floats, zone: tzinfo | None) -> tuple[Floats, list[str]]:
    """Unix seconds of what a clock of a zone showed, (n,), in the order of the rows; and what is assumed.

    The zone is this machine's for None.
    """
    known = np.isfinite(local_s)
    slots, slot_of = np.unique(np.floor(local_s[known] / _SLOT_S), return_inverse=True)
    early, late = (np.array([_offset_s(slot, zone, fold) for slot in slots]) for fold in (0, 1))
    second, unsure = _second_time(local_s[known], (early > late)[slot_of])
    unix_s = local_s.copy()
    unix_s[known] -= np.where(second, late[slot_of], early[slot_of])
    details = ["its local times name no zone; they are read as this machine's"] * (zone is None)
    if unsure:
        details.append("its times lie in the hour that comes twice in autumn; the first is taken")
    return unix_s, details


def _offset_s(slot: float, zone: tzinfo | None, fold: int) -> float:
    seconds = float(slot) * _SLOT_S
    local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone, fold=fold)
    return seconds - local.timestamp()


def _second_time(local_s: Floats, twice: np.ndarray) -> tuple[np.ndarray, bool]:
    """Mark the rows of the hour that comes twice, `twice`, which are of its second time.

    It begins where the clock goes back. Where it does not, a stretch belongs to the rows that it follows or
    precedes more closely.
    """
    second = np.zeros(local_s.size, dtype=np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], twice, [False])).astype(np.int8)))
    unsure = False
    for begin, end in edges.reshape(-1, 2):
        back = np.flatnonzero(np.diff(local_s[begin:end]) < -_SET_BACK_S)
        if back.size:
            second[begin + back[0] + 1 : end] = True
            continue
        before = local_s[begin] - local_s[begin - 1] if begin else np.inf
        after = local_s[end] - local_s[end - 1] if end < local_s.size else np.inf
        second[begin:end] = before < 0 or before > after
        unsure |= bool(before == after == np.inf)
    return second, unsure


def zoned_times(
    name: str, texts: Sequence[str], time_zone: str | None
) -> tuple[Floats, list[Flag]]:
    """Unix seconds of a file's stamps in their order, (n,), NaN for none; and what is assumed of them."""
    zone, stamps = (
        zone_named(time_zone, f"{name}: zone"),
        parse_times(pd.Series(texts, dtype="str")),
    )
    if stamps is None or stamps.clock == DAY:
        return np.full(len(texts), np.nan), []
    if stamps.clock == UNIX:
        return stamps.seconds, []
    unix_s, details = unix_seconds(stamps.seconds, zone)
    return unix_s, [flag("time_assumed", None, f"{name}: {detail}") for detail in details]


# --- rows of a table ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RowTimes:
    """Times of a table's rows: of a column or several, or a stated period apart."""

    seconds: Floats
    """(n,), NaN for none; as the clock showed; of the first row where rows are a period apart."""
    clock_known: bool
    begin_s: float | None
    """When the recording began, if its times count from then; None if that is unknown."""
    flags: list[Flag]
    """What is assumed of them; of local ones once `of` is asked."""
    file: str
    period_s: float | None = None
    is_local: bool = False
    zone: tzinfo | None = None

    @property
    def order(self) -> np.ndarray:
        """Rows in order of time, (n,)."""
        rows = np.arange(self.seconds.size)
        return rows[::-1] if _is_newest_first(self.seconds) else rows

    def of(self, rows: np.ndarray) -> Floats:
        """Times of the rows of one device in their order, (m,); unix where `clock_known`."""
        seconds = self.seconds[rows]
        if self.is_local:
            seconds, details = unix_seconds(seconds, self.zone)
            flags = [flag("time_assumed", None, f"{self.file}: {detail}") for detail in details]
            self.flags.extend(each for each in flags if each not in self.flags)
        return seconds + (self.period_s or 0.0) * np.arange(rows.size)


def _is_newest_first(seconds: Floats) -> bool:
    steps = np.diff(seconds[np.isfinite(seconds)])
    return bool((steps < 0).sum() > (steps > 0).sum())


def read_times(
    path: Path, place: str, rules: Mapping[str, Any], cells: pd.DataFrame, zone: str | None
) -> RowTimes:
    """Read the times of a table's rows as its description says, at `place`. Raises InputError without any."""
    rule, decimal = rules["time"], rules.get("decimal", ".")
    zone, details, from_s = rule.get("zone") or zone, list[str](), 0.0
    of_zone = zone_named(zone, f"{place}.zone")
    names = [rule["column"]] if isinstance(rule.get("column"), str) else rule.get("column", [])
    texts = pd.Series("", cells.index, dtype="str")
    for name in names:
        texts = (texts + " " + cells.get(name, pd.Series("", cells.index))).str.strip()
    has_times = bool((texts != "").any())
    since = rule.get("since", "unix" if has_times else "begin")
    if since != "begin" and not (has_times and since == "unix"):
        ((from_s,), _) = zoned_times(f"{place}.since", [since], zone)
        if np.isnan(from_s):
            allowed = 'begin, or a time such as "2024-05-31 10:39:13"'
            raise InputError(f"{place}.since: {shown(since)} is no time; allowed: {allowed}")
    if has_times:
        column = f"{path}: column {shown(' '.join(names))}"
        stamps = _parse_column(texts, rule, column, place, decimal)
    elif "period_s" in rule:
        details = [f"its rows have no times; they are taken to be {rule['period_s']:g} s apart"]
        stamps = Stamps(np.zeros(len(texts)), UNIX)
    else:
        hint = "record them (docs/recordings.md), or state the period (time: {period_s: 1.0})"
        raise InputError(f"{path}: its rows have no times; {hint}")
    seconds, is_local = stamps.seconds, stamps.clock == LOCAL
    if not np.isfinite(seconds).any():
        raise InputError(
            f"{path}: holds no row with a time that can be read{unread(texts, seconds)}"
        )
    counts = since != "unix" and not is_local
    return RowTimes(
        seconds=seconds + from_s * counts,
        clock_known=since != "begin" and not (since == "unix" and stamps.clock == DAY),
        begin_s=from_s if counts and stamps.clock != DAY else None,
        flags=[flag("time_assumed", None, f"{path.name}: {detail}") for detail in details],
        file=path.name,
        period_s=None if has_times else rule["period_s"],
        is_local=is_local,
        zone=of_zone,
    )


def _parse_column(
    texts: pd.Series, rule: Mapping[str, Any], column: str, place: str, decimal: str
) -> Stamps:
    """Parse a column by its stated format or unit, else as times are written."""
    unit, form = rule.get("unit"), rule.get("format")
    if form:
        clock = UNIX if "%z" in form else LOCAL
        try:
            return Stamps(dates(texts, form, clock == UNIX), clock)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{place}.format: {shown(form)} is no form of a date") from error
    if unit is None:
        stamps = parse_times(texts)
        if stamps is None:
            example = unread(texts[:1], [np.nan])
            what = f"no unix times, or dates with a time of day{example}"
            raise InputError(f"{column} has {what}; state its unit or format")
        return stamps
    seconds = as_numbers(texts.str.replace(decimal, ".", regex=False)) * _SECONDS[unit]
    if rule.get("since", "unix") == "unix" and np.nanmax(seconds, initial=0.0) < _EARLIEST_S:
        hint = "say what it counts from (time: since: begin, or a time)"
        raise InputError(f"{column} has no unix times in {unit}; {hint}")
    return Stamps(np.where(np.abs(seconds) < LATEST_S, seconds, np.nan), UNIX)
