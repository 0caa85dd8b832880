"""What figures read of a table: numpy columns, the origins of its points, and its series.

Figures draw from `drawable(frame)`: there, a missing number is NaN and a missing text is None.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from scalewatt.results.tables.frames import PUBLISHED


def gpu_word(frame: pd.DataFrame) -> str:
    """What n counts, for axis labels: `GPUs` or `processes`."""
    return str(frame.attrs.get("gpu_word", "GPUs"))


def option(frame: pd.DataFrame, name: str, default: Any = None) -> Any:
    """Option of the campaign's entry for a figure, such as `width_mm`."""
    return frame.attrs.get("options", {}).get(name, default)


def width_mm(frame: pd.DataFrame) -> float:
    """Width that a figure is drawn in."""
    return float(option(frame, "width_mm", 180.0))


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


# --- points ---------------------------------------------------------------------------------------


def drawn_origins(points: pd.DataFrame) -> pd.Series:
    """Origin that each marker shows: of its energy or, where that is unknown, the only one of its series.

    Published points are apart from their series; None where there is no such origin.
    """
    known = points["energy_origin"].mask(points["energy_origin"] == PUBLISHED, None)
    by_series = known.groupby(points["series"])
    only = by_series.transform("first").where(by_series.transform("nunique") == 1)
    origins = points["energy_origin"].fillna(only).astype(object)
    return origins.where(origins.notna(), None)


# --- series ---------------------------------------------------------------------------------------


def series_origins(points: pd.DataFrame) -> dict[str, str | None]:
    """Origin that the legend shows for each series: the first known one of its energies.

    `published` where all its points are, None if none is known.
    """
    series, published = points["series"], points["energy_origin"] == PUBLISHED
    first = points["energy_origin"].mask(published, None).groupby(series, sort=False).first()
    origins = first.mask(published.groupby(series, sort=False).all(), PUBLISHED)
    return {str(name): None if pd.isna(known) else known for name, known in origins.items()}


def series_labels(points: pd.DataFrame) -> dict[str, str]:
    """Legend labels of series in table order; series that share one have their names added."""
    first = points.drop_duplicates("series").set_index("series")["label"]
    labels = first.fillna(first.index.to_series())
    named = labels.astype(str) + " (" + labels.index + ")"
    texts = named.where(labels.duplicated(keep=False), labels.astype(str))
    return {str(series): text for series, text in texts.items()}


def series_places(points: pd.DataFrame) -> dict[str, int]:
    """Place of each series in the campaign, by which it has its colour in every figure.

    Without a definition it is that in the table.
    """
    series = points.attrs.get("definition", {}).get("series", [])
    known = {line["name"]: line["place"] for line in series if "place" in line}
    return {name: known.get(name, index) for index, name in enumerate(points["series"].unique())}
