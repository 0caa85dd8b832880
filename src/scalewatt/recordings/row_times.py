"""Times of the rows of a table, as its description says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import shown
from scalewatt.recordings import times
from scalewatt.recordings.block import Flag, Floats
from scalewatt.recordings.series import LATEST_S, flag
from scalewatt.recordings.table_rows import Preset, listed

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EXCEL_1970 = 25569.0  # days of spreadsheets count from the end of 1899
_EARLIEST_S = 1e8
"""Unix times are later, in 1973: smaller numbers count from something else."""


class RowTimes:
    """Times of a table's rows: of a column or several, or a stated period apart."""

    def __init__(
        self, path: Path, place: str, zone: str | None, rules: Preset, frame: pd.DataFrame
    ) -> None:
        self.path, self.rules, self.time = path, rules, rules["time"]
        self.where = f"{place}: time"
        self.names = [name for name in listed(self.time.get("column")) if name in frame]
        self.texts = pd.Series("", frame.index, dtype="str")
        for name in self.names:
            self.texts = (self.texts + " " + frame[name]).str.strip()
        self.zone_name = self.time.get("zone") or zone
        self.zone = times.zone_named(self.zone_name, f"{self.where}.zone")
        self.assumed_zone = self.unsure = False
        has_column = bool(self.texts.str.strip().any())
        if not has_column and "period_s" not in self.time:
            hint = self.time.get("hint", "record them, or state the period (time: {period_s: 1.0})")
            missing = (
                ""
                if "column" in self.time
                else "missing key 'column'; allowed: the column of times, or "
            )
            raise InputError(
                f"{self.where}: {missing}period_s"
                if missing
                else f"{path}: its rows have no times; {hint}"
            )
        since = self.time.get("since", "unix" if has_column else "begin")
        self.is_unix = since == "unix" and has_column
        self.from_s = 0.0 if self.is_unix or since == "begin" else self._since(since)
        self.stamps = self._stamps(self.texts) if has_column else None
        is_day = self.stamps is not None and self.stamps.clock == times.DAY
        self.clock_known = since != "begin" and not (is_day and self.is_unix)
        self.seconds = None if self.stamps is None else self.stamps.seconds
        self.known_rows = (
            np.ones(len(frame), np.bool_) if self.seconds is None else np.isfinite(self.seconds)
        )
        steps = np.diff([] if self.seconds is None else self.seconds[self.known_rows])
        newest_first = (steps < 0).sum() > (steps > 0).sum()
        self.order = np.arange(len(frame))[:: -1 if newest_first else 1]
        """Rows in order of time."""

    @property
    def begin_s(self) -> float | None:
        """When the recording began, if its times count from then; None if that is unknown."""
        counts = self.stamps is None or (self.stamps.clock == times.UNIX and not self.is_unix)
        return self.from_s if counts else None

    def unread(self) -> str:
        """First text that is no time, for a message."""
        return times.unread(self.texts, self.stamps.seconds) if self.stamps else ""

    def of(self, rows: np.ndarray) -> Floats:
        """Times of the rows of one device in their order; unix seconds where `clock_known`."""
        if self.stamps is None:
            return self.from_s + self.time["period_s"] * np.arange(rows.size)
        seconds = self.stamps.seconds[rows]
        if self.stamps.clock != times.LOCAL:
            return seconds + (self.from_s if self.stamps.clock == times.DAY else 0.0)
        timed, unix = np.isfinite(seconds), seconds.copy()
        unix[timed], unsure = times.unix_seconds(seconds[timed], self.zone)
        self.unsure |= unsure
        self.assumed_zone |= self.zone_name is None
        return unix

    def flags(self) -> list[Flag]:
        """What is to be known of the times that were asked for."""
        details = []
        if self.stamps is None:
            period_s = self.time["period_s"]
            details.append(f"its rows have no times; they are taken to be {period_s:g} s apart")
        if self.assumed_zone:
            details.append("its local times name no zone; they are read as this machine's")
        if self.unsure:
            details.append(
                "its times lie in the hour that comes twice in autumn; the first is taken"
            )
        return [flag("time_assumed", None, f"{self.path.name}: {detail}") for detail in details]

    def _since(self, since: str) -> float:
        """Unix seconds of a time from which others count."""
        stamps = times.parse_times(pd.Series([since]))
        if stamps is None or stamps.clock == times.DAY or not np.isfinite(stamps.seconds[0]):
            raise InputError(
                f"{self.where}.since: {shown(since)} is no time; allowed: begin, or a time such as "
                '"2024-05-31 10:39:13"'
            )
        self.assumed_zone = stamps.clock == times.LOCAL and self.zone_name is None
        is_local = stamps.clock == times.LOCAL
        return float(
            (times.unix_seconds(stamps.seconds, self.zone)[0] if is_local else stamps.seconds)[0]
        )

    def _stamps(self, texts: pd.Series) -> times.Stamps:
        """Parse the column; numbers count from `since`. Raises InputError if it has no times."""
        unit, where = self.time.get("unit"), f"{self.path}: column {shown(' '.join(self.names))}"
        if form := self.time.get("format"):
            try:
                zoned = "%z" in form
                return times.Stamps(
                    times.dates(texts, form, zoned), times.UNIX if zoned else times.LOCAL
                )
            except (ValueError, TypeError, OverflowError) as error:
                raise InputError(
                    f"{self.where}.format: {shown(form)} is no form of a date"
                ) from error
        if unit in (None, "iso"):
            stamps = times.parse_times(texts)
            if stamps is None or (unit == "iso" and not texts.head(100).str.contains("[-/]").any()):
                expected = "unix times, or dates with a time of day" if unit is None else "dates"
                example = times.unread(texts[:1], [np.nan])
                raise InputError(f"{where} has no {expected}{example}; state its unit or format")
            return stamps
        numbers = times.as_numbers(
            texts.str.replace(self.rules.get("decimal", "."), ".", regex=False)
        )
        if unit == "excel":
            return times.Stamps(times.within((numbers - _EXCEL_1970) * _SECONDS["d"]), times.LOCAL)
        seconds = numbers * _SECONDS[unit] + self.from_s
        if self.is_unix and np.nanmax(seconds, initial=0.0) < _EARLIEST_S:
            raise InputError(
                f"{where} has no unix times in {unit}; say what it counts from (time: since: begin, or a "
                "time)"
            )
        return times.Stamps(np.where(np.abs(seconds) < LATEST_S, seconds, np.nan), times.UNIX)
