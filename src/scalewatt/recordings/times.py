"""Times of rows: stamps in text, and unix seconds of local ones.

Local times of the hour that comes twice, when clocks are set back, are refused; one that does not exist, when
they are set forward, is taken by the offset before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError, shown
from scalewatt.recordings.terms import LATEST_S, Flag, Floats, flag

NUMBER, DAY, UNIX, LOCAL, BEGIN = "number", "day", "unix", "local", "begin"
_DATE = r"\d{4}(?:-?\d\d?-?|/\d\d?/)\d\d?[T ]+\d\d?:\d\d"
_FORMS = {
    NUMBER: r"\d{9,19}(?:\.\d+)?",
    DAY: r"\d\d?:\d\d:\d\d(?:[.,:]\d+)?",
    UNIX: rf"{_DATE}.*(?:[Zz+-]|UTC).*",
    LOCAL: rf"{_DATE}[\d:.,]*",
}
"""How a time is written: unix time, time of day, date with an offset or without."""
_HEAD_ROWS = 100
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EARLIEST_S = 1e8
"""Unix times are later, in 1973: smaller numbers count from something else."""
_SLOT_S = 900
"""Zones change their offset at a full quarter of an hour."""
_EPOCH = datetime(1970, 1, 1)


# --- stamps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stamps:
    """Times of n rows: (n,) seconds, NaN where there is none."""

    seconds: Floats
    clock: str
    """UNIX; LOCAL: since a local clock showed 1970; DAY: since a midnight, times of day without a date;
    BEGIN: since the recording began."""


def parse_times(texts: pd.Series) -> Stamps | None:
    """Parse texts that are all written as most of the first ones are; None if these are no times.

    Understood are unix times in s, ms, µs or ns, by their digits; dates with `-`, `/` or nothing between,
    and a time of day, with or without an offset (Z, UTC, +02, +0200 or +02:00); times of day alone.
    """
    texts = texts.str.strip()
    head = texts[texts != ""].head(_HEAD_ROWS)
    counts = {form: head.str.fullmatch(pattern).sum() for form, pattern in _FORMS.items()}
    form = max(counts, key=lambda form: counts[form])
    if not counts[form]:
        return None
    if form == NUMBER:
        digits = head.str.extract(r"^(\d{9,19})")[0].str.len().mode()[0]
        return Stamps(within(as_numbers(texts) / 1000.0 ** ((digits - 9) // 3)), UNIX)
    if form == DAY:
        return Stamps(_seconds_of_day(texts), DAY)
    # The other form cannot be parsed together with this one: those rows have no time.
    plain = texts.where(texts.str.fullmatch(_FORMS[form]), "")
    plain = plain.str.replace("/", "-", regex=False).str.replace(",", ".", regex=False)
    plain = plain.str.replace(r"\s*(?:UTC|z)$", "Z", regex=True)
    return Stamps(dates(plain, "ISO8601", form == UNIX), form)


def _seconds_of_day(texts: pd.Series) -> Floats:
    """Parse 13:35:39, 13:35:39.250 or 13:35:39:250; a day later where it goes back over midnight."""
    plain = texts.str.replace(r"^(\d+:\d+:\d+)[,:](\d+)$", r"\1.\2", regex=True)
    seconds = pd.to_timedelta(plain, errors="coerce").dt.total_seconds().to_numpy(np.float64)
    steps = np.diff(pd.Series(seconds).ffill().to_numpy(), prepend=np.nan)
    return seconds + 86400.0 * np.cumsum(steps < -43200.0)


def dates(texts: pd.Series, form: str, zoned: bool) -> Floats:
    """Seconds of dates, (n,), NaN where there is none, by pandas' name of their form."""
    stamps = pd.to_datetime(texts, format=form, errors="coerce", utc=zoned)
    stamps = stamps.dt.tz_localize(None).astype("datetime64[us]")
    seconds = stamps.to_numpy().astype(np.int64) / 1e6
    return within(np.where(stamps.isna(), np.nan, seconds))


def as_numbers(texts: pd.Series) -> Floats:
    """Texts as numbers, (n,); NaN for what is no finite number."""
    numbers = np.asarray(pd.to_numeric(texts, errors="coerce"), dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def within(seconds: Floats) -> Floats:
    """Unix seconds, NaN where no clock shows them."""
    return np.where((seconds > 0) & (seconds < LATEST_S), seconds, np.nan)


def unread(texts: Iterable[str], seconds: Iterable[float]) -> str:
    """First text that is no time, in quotes, for a message; "" where all are."""
    for text, second in zip(texts, seconds, strict=False):
        if not np.isfinite(second):
            return f" (such as {shown(text[:40])})"
    return ""


# --- local clocks ---------------------------------------------------------------------------------


def zone_named(name: str | None, where: str) -> tzinfo | None:
    """Zone of a name; None, this machine's zone, for None. Raises InputError."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        allowed = "allowed: a name such as Europe/Berlin, or UTC"
        raise InputError(f"{where}: {shown(name)} is not a time zone; {allowed}") from error


def _unix_seconds(stamps: Stamps, zone: tzinfo | None) -> tuple[Floats, list[Flag]]:
    """Seconds of stamps, of LOCAL ones by a zone (None: this machine's), (n,); and what is assumed.

    Raises InputError for times of the hour that comes twice in autumn.
    """
    if stamps.clock != LOCAL:
        return stamps.seconds, []
    local_s = stamps.seconds
    slots, slot_of = np.unique(np.floor(local_s / _SLOT_S), return_inverse=True, equal_nan=True)
    early, late = (np.array([_offset_s(slot, zone, fold) for slot in slots]) for fold in (0, 1))
    if (early > late).any():
        raise InputError(
            "has local times of the hour that comes twice in autumn; expected unix times or UTC"
        )
    detail = "its local times name no zone; they are read as this machine's"
    return local_s - early[slot_of], [flag("time_assumed", None, detail)] * (zone is None)


def _offset_s(slot: float, zone: tzinfo | None, fold: int) -> float:
    if np.isnan(slot):
        return np.nan
    seconds = float(slot) * _SLOT_S
    local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone, fold=fold)
    return seconds - local.timestamp()


def zoned_times(texts: Sequence[str], time_zone: str | None) -> tuple[Floats, list[Flag]]:
    """Unix seconds of a file's stamps in their order, (n,), NaN for none; and what is assumed of them."""
    stamps = parse_times(pd.Series(texts, dtype="str"))
    if stamps is None or stamps.clock == DAY:
        return np.full(len(texts), np.nan), []
    return _unix_seconds(stamps, zone_named(time_zone, "zone"))


# --- rows of a table ------------------------------------------------------------------------------


def read_times(
    rules: Mapping[str, Any], texts: pd.Series, zone: str | None
) -> tuple[Stamps, list[Flag]]:
    """Read the times of rows, of the texts of their columns, as a description says; and what is assumed.

    The clock is UNIX, or DAY or BEGIN where it is unknown when that was. Raises InputError without any.
    """
    rule = rules["time"]
    of_zone = zone_named(rule.get("zone") or zone, "time.zone")
    if (texts == "").all():
        raise InputError("its rows have no times; record them (docs/recordings.md)")
    stamps = _parse_column(texts, rule, rules.get("decimal", "."))
    seconds, flags = _unix_seconds(stamps, of_zone)
    if not np.isfinite(seconds).any():
        example = unread(texts, seconds)
        raise InputError(f"holds no row with a time that can be read{example}")
    return Stamps(seconds, UNIX if stamps.clock == LOCAL else stamps.clock), flags


def _parse_column(texts: pd.Series, rule: Mapping[str, Any], decimal: str) -> Stamps:
    """Parse a column by its stated format or unit, else as times are written."""
    unit, form = rule.get("unit"), rule.get("format")
    if form:
        try:
            return Stamps(dates(texts, form, "%z" in form), UNIX if "%z" in form else LOCAL)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"time.format: {shown(form)} is not a form of a date") from error
    if unit is None:
        if (stamps := parse_times(texts)) is not None:
            return stamps
        example = unread(texts[:1], [np.nan])
        what = f"has no unix times, or dates with a time of day{example}"
        raise InputError(f"its column of times {what}; state its unit or format")
    seconds = as_numbers(texts.str.replace(decimal, ".", regex=False)) * _SECONDS[unit]
    seconds = np.where(np.abs(seconds) < LATEST_S, seconds, np.nan)
    if rule.get("since") == BEGIN:
        return Stamps(seconds, BEGIN)
    if np.nanmax(seconds, initial=0.0) < _EARLIEST_S:
        hint = "if it counts from the begin, say so (time: {since: begin})"
        raise InputError(f"its column of times has no unix times in {unit}; {hint}")
    return Stamps(seconds, UNIX)
