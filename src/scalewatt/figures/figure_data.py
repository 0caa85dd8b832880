"""What figures read of a table: its options, points with what drawing needs of them, and series.

Figures draw from `drawable(frame)`: there, a missing number is NaN and a missing text is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

PUBLISHED = "published"


@dataclass(frozen=True)
class Options:
    """The campaign's options for drawing a figure (keys of the same names in its entry)."""

    width_mm: float = 180.0
    error_bars: str = "interval"
    power_window_s: float | None = None


def options(frame: pd.DataFrame) -> Options:
    """Options in the table's metadata, with defaults for those that are not there."""
    stored = frame.attrs.get("options", {})
    names = Options.__dataclass_fields__
    return Options(**{name: value for name, value in stored.items() if name in names})


def gpu_word(frame: pd.DataFrame) -> str:
    """Return what n counts, for axis labels: `GPUs` or `processes`."""
    return str(frame.attrs.get("gpu_word", "GPUs"))


def stored(frame: pd.DataFrame) -> dict[str, Any]:
    """Metadata of the table."""
    return {str(key): value for key, value in frame.attrs.items()}


def drawable(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert a table to numpy columns: a null number is NaN, a null text or truth value None."""
    columns: dict[str, Any] = {}
    for name, column in frame.items():
        if column.dtype.kind == "f":
            columns[str(name)] = column.astype(float)
        elif column.dtype.kind in "iu" and not column.hasnans:
            columns[str(name)] = column.astype(int)
        else:
            columns[str(name)] = column.astype(object).where(column.notna(), None)
    # At once: `assign` would insert column by column.
    whole = pd.DataFrame(columns, index=frame.index)
    whole.attrs = frame.attrs
    return whole


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """Iterate over the rows as named tuples."""
    return iter(frame.itertuples())


def groups(frame: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Iterate over the values of a text column in table order, each with its rows."""
    for value, rows in frame.groupby(column, sort=False):
        yield str(value), rows


# --- points ---------------------------------------------------------------------------------------


def has_value(points: pd.DataFrame) -> pd.Series:
    """Return True for rows that are points: those with a place on both axes."""
    return points["x"].notna() & (points["y"].notna() | points["y_name"].eq("line"))


def is_published(points: pd.DataFrame) -> pd.Series:
    """Return True for points that the paper published."""
    return points["energy_origin"].eq(PUBLISHED).fillna(False).astype(bool)


def points_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to a table of points whether each has a value, and the origin that its marker shows."""
    points = drawable(frame)
    return points.assign(valued=has_value(points), drawn_origin=drawn_origins(points))


def drawn_origins(points: pd.DataFrame) -> pd.Series:
    """Origin that each marker shows: of its energy or, where that is unknown, the only one of its series.

    Published points are apart from their series; None where there is no such origin.
    """
    known = points["energy_origin"].mask(is_published(points), None)
    by_series = known.groupby(points["series"])
    only = by_series.transform("first").where(by_series.transform("nunique") == 1)
    origins = points["energy_origin"].fillna(only).astype(object)
    return origins.where(origins.notna(), None)


# --- series ---------------------------------------------------------------------------------------


def series_origins(points: pd.DataFrame) -> dict[str, str | None]:
    """Origin that the legend shows for each series: the first known one of its energies.

    `published` where all its points are, None if none is known.
    """
    origins: dict[str, str | None] = {}
    for series, rows in groups(points, "series"):
        known = rows["energy_origin"].dropna()
        measured = known[known != PUBLISHED]
        all_published = len(known) == len(rows) and measured.empty
        origins[series] = PUBLISHED if all_published else next(iter(measured), None)
    return origins


def series_labels(points: pd.DataFrame) -> dict[str, str]:
    """Legend labels of series in table order; series that share a label have theirs told apart by name."""
    first = points.drop_duplicates("series")
    labels = dict(zip(first["series"], first["label"].fillna(first["series"]), strict=True))
    sharing: dict[str, list[str]] = {}
    for series, label in labels.items():
        sharing.setdefault(label, []).append(series)
    return {
        series: label if len(sharing[label]) == 1 else f"{label} ({_apart(series, sharing[label])})"
        for series, label in labels.items()
    }


def _apart(series: str, names: Sequence[str]) -> str:
    """Parts of a series' name that not all of `names` have, or the name where that is unclear."""
    shared = set.intersection(*(set(name.split("-")) for name in names))
    short = {name: "-".join(p for p in name.split("-") if p not in shared) for name in names}
    unclear = not all(short.values()) or len(set(short.values())) < len(names)
    return series if unclear else short[series]


def series_places(points: pd.DataFrame) -> dict[str, int]:
    """Each series' place in the campaign, by which it has its colour in every figure.

    Without a definition it is that in the table.
    """
    series = points.attrs.get("definition", {}).get("series", [])
    known = {line["name"]: line["place"] for line in series if "place" in line}
    return {name: known.get(name, index) for index, name in enumerate(points["series"].unique())}
