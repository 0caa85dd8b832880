"""Checks of the rows of a file of carbon intensity, with the line in messages."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from scalewatt.campaign.cluster import CARBON_BOUNDS
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import Floats

BELOW_AS_KG = 2
"""In kg per kWh every grid lies below; in g per kWh, over the whole life cycle, none does throughout."""


def stamp(time_s: float) -> str:
    """Return a unix time in s as UTC, to the minute or, where it has such, the second."""
    moment = datetime.fromtimestamp(time_s, UTC)
    return f"{moment:%Y-%m-%d %H:%M{':%S' if moment.second else ''}} UTC"


def check_times(path: Path, time_s: Floats, lines: pd.Index) -> None:
    """Raise InputError where a time in s, (n,), is not later than the one before; `lines` of the file."""
    wrong = np.flatnonzero(np.diff(time_s) <= 0)
    if wrong.size:
        place = int(wrong[0]) + 1
        raise InputError(
            f"{path}: line {lines[place]}: {stamp(time_s[place])} is not after "
            f"{stamp(time_s[place - 1])}; expected rows in order of time, each once"
        )


def check_intensities(path: Path, texts: pd.Series, g_per_kwh: Floats) -> None:
    """Raise InputError where g/kWh are not what a cluster file's value may be, or look like kg/kWh.

    `g_per_kwh`, (n,), are the numbers of `texts`, whose index has the lines of the file.
    """
    least, most = CARBON_BOUNDS
    wrong = (texts.to_numpy() != "") & ~((g_per_kwh >= least) & (g_per_kwh <= most))
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{path}: line {texts.index[place]}: {texts.iloc[place][:40]!r} g per kWh; allowed: {least} to "
            f"{most}, with a point for decimals, or nothing where it is not known"
        )
    largest = np.max(g_per_kwh, initial=0.0, where=np.isfinite(g_per_kwh))
    if 0 < largest < BELOW_AS_KG:
        raise InputError(
            f"{path}: its largest value is {largest:g}, as of kg per kWh; expected g CO2e per kWh of the "
            f"whole life cycle, a value of {BELOW_AS_KG} or more, or all 0"
        )
