"""Which years and times an ERA5-format dataset definition asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

STEP_H = 6
TARGET_STEPS = 2
"""A sample's targets are up to this many steps (12 h) ahead."""


def part_years(definition: dict[str, Any], part: str) -> range:
    """The years of `part` (train, validation, test); both ends of its pair belong to it."""
    first, last = definition[f"{part}_years"]
    return range(first, last + 1)


def all_years(definition: dict[str, Any]) -> list[int]:
    """All years of a definition, ascending."""
    parts = ("train", "validation", "test")
    return sorted({year for part in parts for year in part_years(definition, part)})


def year_times(year: int, samples_per_year: int | None = None) -> np.ndarray:
    """The 6-hourly times (datetime64[ns]) stored for a year, from 1 January 00:00 UTC.

    With `samples_per_year`, only as many as its samples and their targets need; the targets of
    the last samples of a calendar year are in the next year.
    """
    start, end = np.datetime64(f"{year}-01-01", "h"), np.datetime64(f"{year + 1}-01-01", "h")
    times = np.arange(start, end, np.timedelta64(STEP_H, "h"))
    stop = None if samples_per_year is None else samples_per_year + TARGET_STEPS
    return times[:stop].astype("datetime64[ns]")
