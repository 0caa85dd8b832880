"""Time stamps in text, and unix seconds of local ones.

A local time that comes twice, in the hour when clocks are set back, is resolved by the order of the rows; one
that does not exist, when they are set forward, is taken by the offset before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown
from scalewatt.recordings.terms import LATEST_S, Flag, Floats, flag

UNIX, LOCAL, DAY = "unix", "local", "day"

_NUMBER = re.compile(r"\s*(\d{9,19})(?:\.\d+)?\s*")
_DATE = re.compile(r"\s*\d{4}([-/]?)\d\d?\1\d\d?[T ]+\d\d?:\d\d.*", re.DOTALL)
_TIME_OF_DAY = re.compile(r"\s*\d\d?:\d\d:\d\d(?:[.,:]\d+)?\s*")
# Behind a time of day: 2024-05-31 10-02 has no zone, and is no time.
_ZONED, _PLAIN = r":\d\d.*(?:[Zz+-]|UTC)", r"\s*[\d/-]+[T ]+[\d:.,]+\s*"
# Digits of a whole unix time, between 1973 and 5138, by its unit.
_PER_S = {**dict.fromkeys((9, 10, 11), 1.0), **dict.fromkeys((12, 13, 14), 1e3)}
_PER_S.update(dict.fromkeys((15, 16, 17), 1e6))
_NANO = 1e9
# Zones change their offset at a full quarter of an hour.
_SLOT_S = 900
# A clock that is corrected goes back by less; one that is set back in autumn by more.
_SET_BACK_S = 60.0
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, eq=False)
class Stamps:
    """Times of n rows: (n,) seconds, NaN where there is none."""

    seconds: Floats
    clock: str
    """UNIX; LOCAL: since a local clock showed 1970; DAY: since a midnight, times of day without a date."""


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


def parse_times(texts: pd.Series) -> Stamps | None:
    """Parse texts that are all written like the first; None if that is no time.

    Understood are unix times in s, ms, µs or ns, by their digits; dates with `-`, `/` or nothing between,
    and a time of day, with or without an offset (Z, UTC, +02, +0200 or +02:00); times of day alone.
    """
    first = next((text for text in texts if text and not text.isspace()), "")
    if number := _NUMBER.fullmatch(first):
        per_s = _PER_S.get(len(number.group(1)), _NANO)
        return Stamps(within(as_numbers(texts) / per_s), UNIX)
    if _TIME_OF_DAY.fullmatch(first):
        return Stamps(_seconds_of_day(texts), DAY)
    if not _DATE.fullmatch(first):
        return None
    zoned = re.search(_ZONED, first) is not None
    # Mixed in one column they cannot be parsed together: the other kind has no time.
    fits = texts.str.contains(_ZONED) if zoned else texts.str.fullmatch(_PLAIN)
    texts = texts.where(fits, "")
    plain = texts.str.strip().str.replace("/", "-", regex=False)
    if zoned:
        plain = plain.str.replace(r"\s*(?:UTC|z)$", "Z", regex=True)
    if "," in first:
        plain = plain.str.replace(",", ".", regex=False)
    return Stamps(dates(plain, "ISO8601", zoned), UNIX if zoned else LOCAL)


def _seconds_of_day(texts: pd.Series) -> Floats:
    """Parse 13:35:39, 13:35:39.250 or 13:35:39:250; a day later where it goes back over midnight."""
    plain = texts.str.strip().str.replace(r"^(\d+:\d+:\d+)[,:](\d+)$", r"\1.\2", regex=True)
    seconds = pd.to_timedelta(plain, errors="coerce").dt.total_seconds().to_numpy(np.float64)
    steps = np.diff(pd.Series(seconds).ffill().to_numpy(), prepend=np.nan)
    days = np.cumsum(steps < -43200.0)
    return seconds + 86400.0 * days


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


class LocalClock:
    """A clock that shows local times of a zone, this machine's for None; it notes what it assumed of them."""

    def __init__(self, zone: str | None, where: str) -> None:
        self.zone, self.is_named = zone_named(zone, where), zone is not None
        self.assumptions: set[str] = set()

    def unix_seconds(self, local_s: Floats) -> Floats:
        """Unix seconds of what the clock showed, (n,), in the order of the recording; NaN stays."""
        known = np.isfinite(local_s)
        slots, slot_of = np.unique(np.floor(local_s[known] / _SLOT_S), return_inverse=True)
        early, late = (
            np.array([_offset_s(slot, self.zone, fold) for slot in slots]) for fold in (0, 1)
        )
        second, unsure = _second_time(local_s[known], (early > late)[slot_of])
        unix = local_s.copy()
        unix[known] -= np.where(second, late[slot_of], early[slot_of])
        if not self.is_named:
            self.assumptions.add("its local times name no zone; they are read as this machine's")
        if unsure:
            twice = "its times lie in the hour that comes twice in autumn; the first is taken"
            self.assumptions.add(twice)
        return unix

    def flags(self, name: str) -> list[Flag]:
        """Flag what was assumed of the times of the file `name`."""
        details = sorted(self.assumptions)
        return [flag("time_assumed", None, f"{name}: {detail}") for detail in details]


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
    stamps, clock = (
        parse_times(pd.Series(texts, dtype="str")),
        LocalClock(time_zone, f"{name}: zone"),
    )
    if stamps is None or stamps.clock == DAY:
        return np.full(len(texts), np.nan), []
    is_local = stamps.clock == LOCAL
    return clock.unix_seconds(stamps.seconds) if is_local else stamps.seconds, clock.flags(name)
