"""Time stamps in text, and unix seconds of local ones.

A local time that comes twice, in the hour when clocks are set back, is resolved by the order of the
rows; one that does not exist, when they are set forward, is taken by the offset before. Clocks are
otherwise taken as they are: what goes back is flagged when the energy is computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown
from scalewatt.common.untrusted_text import printable
from scalewatt.recordings.series import LATEST_S, Flag, Floats, flag

_NUMBER = re.compile(r"\s*(\d{9,19})(?:\.\d+)?\s*")
_DATE = re.compile(r"\s*\d{4}([-/])\d\d?\1\d\d?[T ]+\d\d?:\d\d.*", re.DOTALL)
# Behind a time of day: 2024-05-31 10-02 has no zone, and is no time.
_ZONED, _PERHAPS_ZONED = r":\d\d.*(?:[Zz+-]|UTC)", r"[T ]\s*\d.*(?:[Zz+-]|UTC)"
# Digits of a whole unix time, between 1973 and 5138, by its unit.
_PER_S = {9: 1.0, 10: 1.0, 11: 1.0, 12: 1e3, 13: 1e3, 14: 1e3, 15: 1e6, 16: 1e6, 17: 1e6}
_NANO = 1e9
# Zones change their offset at a full quarter of an hour.
_SLOT_S = 900
# A clock that is corrected goes back by less; one that is set back in autumn by more.
_SET_BACK_S = 60.0
_EPOCH = datetime(1970, 1, 1)

TIME_ZONE_ASSUMED = "time_assumed"
"""Flag of a recording whose local times name no zone, read as this machine's."""


@dataclass(frozen=True, eq=False)
class Stamps:
    """Times of n rows: (n,) seconds, NaN where there is none."""

    seconds: Floats
    local: bool
    """True if they are what a local clock shows, in seconds since it showed 1970; else unix seconds."""


def zone_named(name: str | None, where: str) -> tzinfo | None:
    """Return the zone of a name; None, this machine's zone, for none. Raises InputError."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InputError(
            f"{where}: {shown(name)} is no time zone; allowed: a name such as Europe/Berlin, or UTC"
        ) from error


def parse_times(texts: pd.Series) -> Stamps | None:
    """Return the times of texts, all written like the first; None if that is no time.

    Understood are unix times in s, ms, µs or ns, by their digits, and dates with `-` or `/` and a time
    of day, with or without an offset from UTC: Z, UTC, +02, +0200 or +02:00.
    """
    first = next((text for text in texts if text and not text.isspace()), "")
    if number := _NUMBER.fullmatch(first):
        per_s = _PER_S.get(len(number.group(1)), _NANO)
        return Stamps(within(as_numbers(texts) / per_s), local=False)
    if not _DATE.fullmatch(first):
        return None
    zoned = re.search(_ZONED, first) is not None
    # Mixed in one column they cannot be parsed together: the other kind has no time.
    fits = texts.str.contains(_ZONED) if zoned else ~texts.str.contains(_PERHAPS_ZONED)
    texts = texts.where(fits, "")
    plain = texts.str.strip().str.replace("/", "-", regex=False)
    if zoned:
        plain = plain.str.replace(r"\s*(?:UTC|z)$", "Z", regex=True)
    if "," in first:
        plain = plain.str.replace(",", ".", regex=False)
    return Stamps(dates(plain, "ISO8601", zoned), local=not zoned)


def unread(texts: Iterable[str], seconds: Iterable[float]) -> str:
    """Return the first text that is no time, in quotes, for a message; "" where all are."""
    for text, second in zip(texts, seconds, strict=False):
        if not np.isfinite(second):
            return f" (such as '{printable(text)[:40]}')"
    return ""


def dates(texts: pd.Series, form: str, zoned: bool) -> Floats:
    """Return the seconds of dates, (n,), NaN where there is none, by pandas' name of their form."""
    found = pd.to_datetime(texts, format=form, errors="coerce", utc=zoned)
    if zoned:
        found = found.dt.tz_localize(None)
    seconds = found.astype("datetime64[us]").to_numpy().astype(np.int64) / 1e6
    return within(np.where(found.isna(), np.nan, seconds))


def as_numbers(texts: pd.Series) -> Floats:
    """Return texts as numbers, (n,); NaN for what is no finite number."""
    found = np.asarray(pd.to_numeric(texts, errors="coerce"), dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def within(seconds: Floats) -> Floats:
    """Return unix seconds, NaN where no clock shows them."""
    return np.where((seconds > 0) & (seconds < LATEST_S), seconds, np.nan)


def unix_seconds(local_s: Floats, zone: tzinfo | None) -> tuple[Floats, bool]:
    """Return unix seconds of what a local clock showed, (n,), and whether an hour of them is unsure.

    `local_s` are finite and in the order of the recording. Unsure is the hour where all times lie in
    the one that comes twice; its first time is taken then.
    """
    if local_s.size == 0:
        return local_s, False
    slots, place = np.unique(np.floor(local_s / _SLOT_S), return_inverse=True)
    early, late = (np.array([_offset_s(slot, zone, fold) for slot in slots]) for fold in (0, 1))
    second, unsure = _second_time(local_s, (early > late)[place])
    return local_s - np.where(second, late[place], early[place]), unsure


def _offset_s(slot: float, zone: tzinfo | None, fold: int) -> float:
    seconds = float(slot) * _SLOT_S
    local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone, fold=fold)
    return seconds - local.timestamp()


def _second_time(local_s: Floats, twice: np.ndarray) -> tuple[np.ndarray, bool]:
    """Mark the rows of the hour that comes twice, `twice`, which are of its second time.

    It begins where the clock goes back. Where it does not, a stretch belongs to the rows that it
    follows or precedes more closely.
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


def zone_flags(path: Path, name: str | None, unsure: bool) -> list[Flag]:
    """Return what is to be known of a file's local times, read in the zone `name` or this machine's."""
    found = []
    if name is None:
        detail = f"{path.name}: its local times name no zone; they are read as this machine's"
        found.append(flag(TIME_ZONE_ASSUMED, None, detail))
    if unsure:
        detail = (
            f"{path.name}: all its times lie in the hour that comes twice when clocks are set back; "
            "the first is taken"
        )
        found.append(flag("time_assumed", None, detail))
    return found
