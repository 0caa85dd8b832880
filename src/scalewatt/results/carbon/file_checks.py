"""Checks of the rows of a file of carbon intensity, with the line in messages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.recordings.series import Floats


def column_key(name: str) -> str:
    """Return a column's name in small letters, with single spaces, and CO₂ as co2."""
    return " ".join(str(name).replace("₂", "2").casefold().split())


def stamp(time_s: float) -> str:
    """Return a unix time in s as UTC, to the minute or, where it has such, the second."""
    moment = datetime.fromtimestamp(time_s, UTC)
    return f"{moment:%Y-%m-%d %H:%M{':%S' if moment.second else ''}} UTC"


def check_times(path: Path, time_s: Floats, lines: Floats | None = None) -> None:
    """Raise InputError where a time in s, (n,), is not later than the one before; `lines` of the file."""
    wrong = np.flatnonzero(np.diff(time_s) <= 0)
    if wrong.size:
        place = int(wrong[0]) + 1
        line = place + 2 if lines is None else int(lines[place])
        twice = time_s[place] == time_s[place - 1]
        said = "stands there twice" if twice else f"is not after {stamp(time_s[place - 1])}"
        raise InputError(
            f"{path}: line {line}: {stamp(time_s[place])} {said}; allowed: rows in order of time, each once"
        )


def check_values(path: Path, texts: pd.Series, values: Floats, what: str = "g per kWh") -> None:
    """Raise InputError where a text that is not empty is no finite number of 0 or more."""
    wrong = np.flatnonzero((texts.to_numpy() != "") & ~(values >= 0))
    if wrong.size:
        place = int(wrong[0])
        raise InputError(
            f"{path}: line {place + 2}: {texts.iloc[place][:40]!r} {what}; allowed: 0 or more, or nothing "
            "where it is not known"
        )
