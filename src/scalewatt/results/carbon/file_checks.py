"""Checks of the rows of a file of carbon intensity, with the line in messages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import schema
from scalewatt.common.tabular_files import Cells
from scalewatt.recordings.series import Floats

BELOW_AS_KG = 2
"""In kg per kWh every grid lies below; in g per kWh, over the whole life cycle, none does throughout."""


def column_key(name: str) -> str:
    """Return a column's name in small letters, with single spaces, and CO₂ as co2."""
    return " ".join(str(name).replace("₂", "2").casefold().split())


def stamp(time_s: float) -> str:
    """Return a unix time in s as UTC, to the minute or, where it has such, the second."""
    moment = datetime.fromtimestamp(time_s, UTC)
    return f"{moment:%Y-%m-%d %H:%M{':%S' if moment.second else ''}} UTC"


def text_table(path: Path, cells: Cells) -> pd.DataFrame:
    """Return the cells as a table of texts, whose index is the line of each row in the file.

    InputError, with the line, if a row has more or fewer cells than there are columns. Separators at the
    end of a line, with nothing behind them, are no cells.
    """
    width = len(cells.names)
    rows = {line: row for line, row in cells.rows if row != [""]}
    for line, row in rows.items():
        if len(row) < width or any(row[width:]):
            raise InputError(
                f"{path}: line {line}: has {_counted(len(row), 'cell')}, but the first line names "
                f"{_counted(width, 'column')}; allowed: a cell for each column, empty where it is not known; "
                "a point for decimals"
            )
    table = pd.DataFrame([row[:width] for row in rows.values()], columns=cells.names, dtype=str)
    return table.set_axis(pd.Index(rows, dtype="int64"))


def check_rows(path: Path, table: pd.DataFrame) -> None:
    """Raise InputError for a table of fewer than two rows, which tell no step of time."""
    if len(table) < 2:
        raise InputError(
            f"{path}: has {_counted(len(table), 'row')}; expected two or more, in order of time"
        )


def check_times(path: Path, time_s: Floats, lines: pd.Index) -> None:
    """Raise InputError where a time in s, (n,), is not later than the one before; `lines` of the file."""
    wrong = np.flatnonzero(np.diff(time_s) <= 0)
    if wrong.size:
        place = int(wrong[0]) + 1
        twice = time_s[place] == time_s[place - 1]
        said = "stands there twice" if twice else f"is not after {stamp(time_s[place - 1])}"
        raise InputError(
            f"{path}: line {lines[place]}: {stamp(time_s[place])} {said}; allowed: rows in order of time, "
            "each once"
        )


def check_intensities(path: Path, texts: pd.Series, g_per_kwh: Floats) -> None:
    """Raise InputError where g/kWh are none that one value of a cluster file may be, or look like kg/kWh.

    `g_per_kwh`, (n,), are the numbers of `texts`, whose index has the lines of the file.
    """
    one = schema("cluster")["properties"]["carbon_intensity"]["properties"]["value"]
    check_values(path, texts, g_per_kwh, "g per kWh", (one["minimum"], one["maximum"]))
    largest = np.max(g_per_kwh, initial=0.0, where=np.isfinite(g_per_kwh))
    if 0 < largest < BELOW_AS_KG:
        raise InputError(
            f"{path}: its largest value is {largest:g}: these look like kg per kWh, or t per MWh; allowed: "
            f"g CO2e per kWh of the whole life cycle, one of them {BELOW_AS_KG} or more, or all 0"
        )


def check_values(
    path: Path, texts: pd.Series, values: Floats, what: str, bounds: tuple[float, float]
) -> None:
    """Raise InputError where a text that is not empty is no number within the bounds, which are allowed.

    `what` is the unit; the index of `texts` has the lines of the file.
    """
    least, most = bounds
    wrong = np.flatnonzero((texts.to_numpy() != "") & ~((values >= least) & (values <= most)))
    if wrong.size:
        place = int(wrong[0])
        raise InputError(
            f"{path}: line {texts.index[place]}: {texts.iloc[place][:40]!r} {what}; allowed: {least} to "
            f"{most}, with a point for decimals, or nothing where it is not known"
        )


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
