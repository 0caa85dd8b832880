"""What a figure's table holds: its options, the points that can be plotted, and the labels of series.

Figures draw from `drawable(frame)`: there, a missing number is NaN and a missing text is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

PUBLISHED = "published"


@dataclass(frozen=True)
class Options:
    """The campaign's options for drawing a figure (keys of the same names in its entry)."""

    width_mm: float = 180.0
    error_bars: str = "interval"
    power_window_s: float | None = None


def options(frame: pd.DataFrame) -> Options:
    """Return the options in the table's metadata, with defaults for those that are not there."""
    stored = frame.attrs.get("options", {})
    names = Options.__dataclass_fields__
    return Options(**{name: value for name, value in stored.items() if name in names})


def gpu_word(frame: pd.DataFrame) -> str:
    """Return what n counts, for axis labels: `GPUs` or `processes`."""
    return str(frame.attrs.get("gpu_word", "GPUs"))


def drawable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with numpy columns: a null number is NaN, a null text or truth value None.

    `read_frame` refuses tables with NaN, so nothing is confused.
    """
    made: dict[str, Any] = {}
    for name, column in frame.items():
        if column.dtype.kind == "f":
            made[str(name)] = column.astype(float)
        elif column.dtype.kind in "iu" and not column.hasnans:
            made[str(name)] = column.astype(int)
        else:
            made[str(name)] = column.astype(object).where(column.notna(), None)
    # At once: `assign` would insert column by column.
    whole = pd.DataFrame(made, index=frame.index)
    whole.attrs = frame.attrs
    return whole


def stored(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the metadata of the table."""
    return {str(key): value for key, value in frame.attrs.items()}


def each(frame: pd.DataFrame) -> Iterator[Any]:
    """Iterate over the rows as named tuples."""
    return iter(frame.itertuples())


def groups(frame: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Iterate over the values of a text column in table order, each with its rows."""
    for value, own in frame.groupby(column, sort=False):
        yield str(value), own


# --- points of curve tables -----------------------------------------------------------------------


def has_value(points: pd.DataFrame) -> pd.Series:
    """Return True for rows that are points: those with a place on both axes."""
    return points["x"].notna() & (points["y"].notna() | points["y_name"].eq("line"))


def is_single(points: pd.DataFrame) -> pd.Series:
    """Return True for points that stand for one run."""
    return points["n_repeats"].fillna(1).astype(int) == 1


def is_published(points: pd.DataFrame) -> pd.Series:
    """Return True for points that the paper published."""
    return points["energy_origin"].fillna("").eq(PUBLISHED).astype(bool)


def error_bars(points: pd.DataFrame, kind: str, axis: str = "y") -> pd.DataFrame:
    """Return the ends `low` and `high` of error bars along an axis; NaN where there is none.

    `kind` is one of prose.BAR_WORDS or `none`. Single runs have no error bar.
    """
    middle = points[axis].astype(float)
    if kind == "none":
        low = high = pd.Series(np.nan, points.index)
    elif kind == "interval":
        low, high = (points[f"{axis}_{end}"].astype(float) for end in ("low", "high"))
    else:
        half = points[f"{axis}_{kind}"].astype(float)
        low, high = middle - half, middle + half
    known = ~is_single(points) & middle.notna() & low.notna() & high.notna()
    return pd.DataFrame({"low": low, "high": high}).where(known)


def points_of(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table of points with what drawing needs of each: whether it has a value, is a
    single run or published, and the origin that its marker shows."""
    points = drawable(frame)
    return points.assign(
        valued=has_value(points),
        single=is_single(points),
        published=is_published(points),
        drawn_origin=drawn_origins(points),
    )


def without_value(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of runs that have no value in panels where others have one."""
    drawn = points.loc[points["valued"], "panel"]
    has_run = points["n_repeats"].notna()
    return points[~points["valued"] & has_run & points["panel"].isin(drawn)]


def front_keys(points: pd.DataFrame) -> list[str]:
    """Return the columns in which points of one Pareto front agree."""
    names = points["x_name"].iloc[0] + points["y_name"].iloc[0]
    return ["phase", *(["energy_origin", "energy_scope"] if "energy" in names else [])]


def blocks_of(points: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the rows of each model and phase, in the table's order."""
    return [own for _, own in points.groupby(["model", "phase"], sort=False)]


# --- the extent of axes ---------------------------------------------------------------------------

WIDEST_BAR = 0.3
"""How far error bars may widen an axis at either end, as a share of the range of the points."""
LEAST_ROOM = 0.05
"""The same where the points are all but equal, as a share of the greatest point."""


def room_for(values: Sequence[float], ends: Sequence[float], log: bool) -> list[float]:
    """Return the points, and the ends of error bars as far as they do not squeeze the points."""
    low, high = min(values), max(values)
    if log and low > 0:
        factor = max((high / low) ** WIDEST_BAR, 1.5)
        least, most = low / factor, high * factor
    else:
        room = max(WIDEST_BAR * (high - low), LEAST_ROOM * abs(high))
        least, most = (max(low - room, 0.0) if low >= 0 else low - room), high + room
    return [*values, *(min(max(end, least), most) for end in ends)]


def bar_ends(points: pd.DataFrame, axis: str = "y") -> list[float]:
    """Return the known ends of error bars along an axis in one list."""
    return points[[f"{axis}_low", f"{axis}_high"]].dropna().to_numpy(float).ravel().tolist()


# --- series ---------------------------------------------------------------------------------------


def drawn_origins(points: pd.DataFrame) -> pd.Series:
    """Return the origin that each marker shows: that of its energy, or, where the energy is unknown,
    the only one of its series (published points apart); None if there is no such."""
    known = points["energy_origin"].mask(is_published(points), None)
    by_series = known.groupby(points["series"])
    only = by_series.transform("first").where(by_series.transform("nunique") == 1)
    origins = points["energy_origin"].fillna(only).astype(object)
    return origins.where(origins.notna(), None)


def series_origins(points: pd.DataFrame) -> dict[str, str | None]:
    """Return by series the origin that its legend entry shows: the first known one of its own energies,
    `published` where all its points are, None if none is known."""
    own = points["energy_origin"].mask(is_published(points), None)
    first = own.groupby(points["series"], sort=False).first()
    theirs = is_published(points).groupby(points["series"], sort=False).all()
    return {
        str(series): PUBLISHED if published else None if pd.isna(origin) else str(origin)
        for (series, origin), published in zip(first.items(), theirs, strict=True)
    }


def series_labels(points: pd.DataFrame) -> dict[str, str]:
    """Return series and their legend labels in table order; a shared label gets what tells it apart."""
    first = points.drop_duplicates("series")
    labels = dict(zip(first["series"], first["label"].fillna(first["series"]), strict=True))
    sharing: dict[str, list[str]] = {}
    for series, label in labels.items():
        sharing.setdefault(label, []).append(series)
    return {
        series: f"{label} ({_apart(series, sharing[label])})" if len(sharing[label]) > 1 else label
        for series, label in labels.items()
    }


def series_places(points: pd.DataFrame) -> dict[str, int]:
    """Return each series' place in the campaign, by which it has its colour in every figure; without a
    definition that in the table."""
    series = points.attrs.get("definition", {}).get("series", [])
    known = {one["name"]: one["place"] for one in series if "place" in one}
    return {name: known.get(name, at) for at, name in enumerate(series_labels(points))}


def _apart(series: str, names: Sequence[str]) -> str:
    """Return the parts of a series' name that not all of `names` have, or the name where that is unclear."""
    shared = set.intersection(*(set(name.split("-")) for name in names))
    short = {name: "-".join(p for p in name.split("-") if p not in shared) for name in names}
    unclear = not all(short.values()) or len(set(short.values())) < len(names)
    return series if unclear else short[series]
