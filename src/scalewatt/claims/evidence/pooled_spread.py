"""Spread of a single run: pooled over the campaign's repeats, as the table `comparisons` takes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scalewatt.claims.evidence.origin_tracking import is_of_energy
from scalewatt.results.tables.repeat_statistics import summary_of
from scalewatt.results.tables.table_schema import QUANTITIES

Row = Mapping[str, Any]
Key = tuple[str, str | None]
"""A quantity, and what its values share: of an energy the origin, of a metric its name."""


@dataclass(frozen=True)
class Spread:
    """Relative sample standard deviation of one run, and how many repeats beyond the first tell it."""

    relative: float
    freedom: int


def key_of(row: Row, name: str) -> Key:
    """Return what a quantity's spread is pooled over."""
    if is_metric(name):
        return name, row["metric_name"]
    return name, row["energy_origin"] if is_of_energy(name) else None


def is_metric(name: str) -> bool:
    """Return True if a quantity is an error of the trained model, of which no spread was published."""
    return name.startswith("metric_")


def pooled(rows: Iterable[Row]) -> dict[Key, Spread]:
    """Return the spread of each quantity over all configurations (rows of the table) with repeats.

    None where all repeats are equal: they share their seed, and do not tell what another run would give.
    """
    squares: dict[Key, float] = {}
    freedom: dict[Key, int] = {}
    for row in rows:
        for name in QUANTITIES:
            found = summary_of(row, name)
            if found.n > 1 and found.mean and found.sd is not None:
                key = key_of(row, name)
                squares[key] = squares.get(key, 0.0) + (found.n - 1) * (found.sd / found.mean) ** 2
                freedom[key] = freedom.get(key, 0) + found.n - 1
    return {
        key: Spread(math.sqrt(square / freedom[key]), freedom[key])
        for key, square in squares.items()
        if square
    }
