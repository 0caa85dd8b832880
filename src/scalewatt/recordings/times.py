"""Times of rows: stamps in text, and unix seconds of local ones.

Local times of the hour that comes twice, when clocks are set back, are refused; one that does not exist, when
they are set forward, is no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from dateutil.tz import gettz, tzlocal  # type: ignore[import-untyped]

from scalewatt.common.errors import InputError, shown
from scalewatt.recordings.terms import LATEST_S, Flag, Floats, flag

DAY, UNIX, LOCAL, BEGIN = "day", "unix", "local", "begin"
_NUMBER = r"(\d{9,19})(?:\.\d+)?"
_DAY = r"\d\d?:\d\d:\d\d(?:[.,:]\d+)?"
_DATE = r"\d{4}(?:-?\d\d?-?|/\d\d?/)\d\d?[T ]+\d\d?:\d\d"
_FORMS = {_NUMBER: UNIX, _DAY: DAY, rf"{_DATE}.*(?:[Zz+-]|UTC).*": UNIX, rf"{_DATE}[\d:.,]*": LOCAL}
"""How a time is written (unix time, time of day, date with an offset or without), and its clock."""
_HEAD_ROWS = 100
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EARLIEST_S = 1e8
"""Unix times are later, in 1973: smaller numbers count from something else."""


class Stamps(NamedTuple):
    """Times of n rows: (n,) seconds, NaN where there is none."""

    seconds: Floats
    clock: str
    """UNIX; LOCAL: unix seconds of times that a zone was applied to; DAY: since a midnight, times of day
    without a date; BEGIN: since the recording began."""
    flags: tuple[Flag, ...] = ()
    """Assumptions about them."""


def parse_times(texts: pd.Series, zone: tzinfo | None = None) -> Stamps:
    """Parse texts that are all written as most of the first ones are; all NaN if these are no times.

    Understood are unix times in s, ms, µs or ns, by their digits; dates with `-`, `/` or nothing between,
    and a time of day, with an offset (Z, UTC, +02, +0200 or +02:00) or of a zone, by default this machine's;
    times of day alone, such as 13:35:39, 13:35:39.250 or 13:35:39:250.
    """
    head = texts[texts != ""].head(_HEAD_ROWS)
    form = max(_FORMS, key=lambda form: head.str.fullmatch(form).sum())
    first = head[head.str.fullmatch(form)]
    if first.empty:
        return Stamps(np.full(len(texts), np.nan), UNIX)
    if form == _NUMBER:
        digits = first.str.extract(_NUMBER)[0].str.len().mode()[0]
        return Stamps(within(as_numbers(texts) / 1000.0 ** ((digits - 9) // 3)), UNIX)
    if form == _DAY:  # a day later where it goes back over midnight
        plain = texts.str.replace(r"^(\d+:\d+:\d+)[,:](\d+)$", r"\1.\2", regex=True)
        seconds = pd.to_timedelta(plain, errors="coerce").dt.total_seconds()
        seconds += 86400.0 * (seconds.ffill().diff() < -43200.0).cumsum()
        return Stamps(np.asarray(seconds, dtype=np.float64), DAY)
    # The other form cannot be parsed together with this one: those rows have no time.
    plain = texts.where(texts.str.fullmatch(form), "")
    plain = plain.str.replace("/", "-", regex=False).str.replace(",", ".", regex=False)
    plain = plain.str.replace(r"\s*(?:UTC|z)$", "Z", regex=True)
    return _dates(plain, "ISO8601", _FORMS[form], zone)


def _dates(texts: pd.Series, form: str, clock: str, zone: tzinfo | None) -> Stamps:
    """Parse dates by pandas' name of their form. Raises InputError for the hour that comes twice."""
    stamps = pd.to_datetime(texts, format=form, errors="coerce", utc=clock == UNIX)
    if clock == LOCAL:
        try:
            stamps = stamps.dt.tz_localize(zone or gettz() or tzlocal(), nonexistent="NaT")
        except AttributeError as error:  # pandas knows no rules such as CET-1CEST
            raise InputError(
                "has local times, and TZ here names no zone; give --time-zone"
            ) from error
        except ValueError as error:
            what = "has local times of the hour that comes twice in autumn"
            raise InputError(f"{what}; expected unix times or UTC") from error
    micros = stamps.dt.tz_convert(None).astype("datetime64[us]").to_numpy().astype(np.int64)
    seconds = within(np.where(stamps.isna(), np.nan, micros / 1e6))
    detail = "its local times name no zone; they are read as this machine's"
    is_assumed = clock == LOCAL and zone is None
    return Stamps(seconds, clock, (flag("time_assumed", None, detail),) * is_assumed)


def as_numbers(texts: pd.Series) -> Floats:
    """Texts as numbers, (n,); NaN for what is no finite number."""
    numbers = np.asarray(pd.to_numeric(texts, errors="coerce"), dtype=np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def within(seconds: Floats) -> Floats:
    """Unix seconds, NaN where no clock shows them."""
    return np.where((seconds > 0) & (seconds < LATEST_S), seconds, np.nan)


def zone_named(name: str | None, where: str) -> tzinfo | None:
    """Zone of a name; None, this machine's zone, for None. Raises InputError."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        allowed = "allowed: a name such as Europe/Berlin, or UTC"
        raise InputError(f"{where}: {shown(name)} is not a time zone; {allowed}") from error


def read_times(rules: Mapping[str, Any], texts: pd.Series, time_zone: str | None) -> Stamps:
    """Read the times of rows, of the texts of their columns, as a description says.

    Raises InputError without any.
    """
    rule = rules["time"]
    zone = zone_named(rule.get("zone") or time_zone, "time.zone")
    if (texts == "").all():
        raise InputError("its rows have no times; record them (docs/guide/formats.md)")
    if form := rule.get("format"):
        try:
            stamps = _dates(texts, form, UNIX if "%z" in form else LOCAL, zone)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"time.format: {shown(form)} is not a form of a date") from error
    elif unit := rule.get("unit"):
        numbers = as_numbers(texts.str.replace(rules.get("decimal", "."), ".", regex=False))
        seconds = numbers * _SECONDS[unit]
        seconds[np.abs(seconds) >= LATEST_S] = np.nan
        stamps = Stamps(seconds, rule.get("since", UNIX))
        if stamps.clock == UNIX and np.nanmax(seconds, initial=0.0) < _EARLIEST_S:
            hint = "if it counts from the begin, say so (time: {since: begin})"
            raise InputError(f"its column of times has no unix times in {unit}; {hint}")
    else:
        stamps = parse_times(texts, zone)
    if not np.isfinite(stamps.seconds).any():
        what = f"unix times, or dates with a time of day (such as {shown(texts.iloc[0][:40])})"
        raise InputError(f"its column of times has no {what}; state its unit or format")
    return stamps
