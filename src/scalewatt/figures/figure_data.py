"""What a figure's table holds: its rows, its metadata, and the points that can be plotted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.results.tables.metadata import metadata as metadata
from scalewatt.results.text.metric_labels import SEVERAL

Row = dict[str, Any]


def _schema_of(figure: int | str) -> pa.Schema:
    """The columns that the table of a figure must have."""
    from scalewatt.results.figures import figure_schema

    if figure == "prediction":
        from scalewatt.scaling.planning.prediction_table import PREDICTION

        return PREDICTION
    if isinstance(figure, str):
        from scalewatt.results.figures.extra_tables import SCHEMAS

        return {**SCHEMAS, "variants": figure_schema.VARIANTS}[figure]
    by_number = {1: figure_schema.OVERVIEW, 5: figure_schema.POWER}
    return by_number.get(figure, figure_schema.POINTS)


def read_figure_table(figure: int | str, path: Path) -> pa.Table:
    """Read a figure's table; InputError, with the row, where it is not what such a table is."""
    from scalewatt.results.tables.read_table import POINT_KEY, read_checked

    curves = isinstance(figure, int) and figure not in (1, 5)
    return read_checked(path, _schema_of(figure), unique=POINT_KEY if curves else ())


@dataclass(frozen=True)
class Options:
    """How the campaign wants a figure drawn (its entry's keys of the same names)."""

    width_mm: float = 180.0
    error_bars: str = "interval"
    power_window_s: float | None = None


def options(table: pa.Table) -> Options:
    """The options in the table's metadata; what is not there is the default."""
    stored = metadata(table).get("options", {})
    names = Options.__dataclass_fields__
    return Options(**{name: value for name, value in stored.items() if name in names})


def bar(row: Row, kind: str, axis: str = "y") -> tuple[float, float] | None:
    """The ends of a point's error bar of a kind (words.BAR_WORDS) along an axis; None without one, as
    of a single run."""
    middle = row[axis]
    if kind == "none" or is_single(row) or middle is None:
        return None
    if kind == "interval":
        low, high = row[f"{axis}_low"], row[f"{axis}_high"]
    else:
        half = row[f"{axis}_{kind}"]
        low, high = (None, None) if half is None else (middle - half, middle + half)
    return None if low is None or high is None else (low, high)


WIDEST_BAR = 1.0
"""How far error bars may widen an axis: in parts of what the points take up, at either end."""
LEAST_ROOM = 0.05
"""What they may take where the points are all but equal: in parts of the greatest point."""


def room_for(values: Sequence[float], ends: Sequence[float], log: bool) -> list[float]:
    """Points, and the ends of error bars as far as these leave room for the points."""
    low, high = min(values), max(values)
    if log and low > 0:
        factor = max((high / low) ** WIDEST_BAR, 1.5)
        least, most = low / factor, high * factor
    else:
        room = max(WIDEST_BAR * (high - low), LEAST_ROOM * abs(high))
        least, most = (max(low - room, 0.0) if low >= 0 else low - room), high + room
    return [*values, *(min(max(end, least), most) for end in ends)]


def is_beyond(limits: tuple[float, float], ends: Sequence[float]) -> bool:
    """Whether an end of an error bar is beyond what its axis shows."""
    return any(not limits[0] <= end <= limits[1] for end in ends)


def is_single(row: Row) -> bool:
    """Whether a point stands for one run."""
    return bool((row["n_repeats"] or 1) == 1)


def gpu_word(table: pa.Table) -> str:
    """What n counts, for axis labels: `GPUs` or `processes`."""
    return str(metadata(table).get("gpu_word", "GPUs"))


def plotted(table: pa.Table) -> pa.Table:
    """The rows that are drawn as points: those with a place on both axes, and a meaning there."""
    rows = table.to_pylist()
    left_out = {id(row) for row in (*lone_speedups(rows), *unlike_metrics(table, rows))}
    return table.filter(
        pa.array([has_value(r) and id(r) not in left_out for r in rows], pa.bool_())
    )


def lone_speedups(rows: Sequence[Row]) -> list[Row]:
    """Speed-ups that nobody measured: where a series (published points apart) has its first one only,
    which is n0 by definition."""
    found: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        if row["y_name"] == "speedup" and has_value(row):
            key = (row["series"], row["energy_origin"] == "published")
            found.setdefault(key, []).append(row)
    alone = (own for own in found.values() if len({row["gpus"] for row in own}) == 1)
    return [row for own in alone for row in own]


def unlike_metrics(table: pa.Table, rows: Sequence[Row]) -> list[Row]:
    """The metrics in `rows` of a curve table, where several models have none in common: no axis is of
    all of them."""
    own = [row for row in rows if row["y_name"] == "metric_last" and row["x_name"] in _OF_CURVES]
    known = metadata(table).get("metric_name") or SEVERAL
    return own if known == SEVERAL and len({row["model"] for row in own}) > 1 else []


_OF_CURVES = ("gpus", "dataset_samples")
"""What a metric is drawn against in panels that all series share."""


def has_value(row: Row) -> bool:
    """Whether a row of a curve table is a point."""
    return row["x"] is not None and row["y"] is not None


def blocks_of(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each model and phase, in the table's order."""
    kinds = dict.fromkeys((row["model"], row["phase"]) for row in rows)
    return [[r for r in rows if (r["model"], r["phase"]) == kind] for kind in kinds]


def drawn_origins(rows: Sequence[Row]) -> list[str | None]:
    """Whose look each row's marker has: its energy's origin, or, of unknown energy, the only one that
    its series has (published points apart); None where there is no such."""
    known: dict[str, set[str]] = {}
    for row in rows:
        if row["energy_origin"] not in (None, "published"):
            known.setdefault(row["series"], set()).add(row["energy_origin"])
    only = {series: next(iter(found)) for series, found in known.items() if len(found) == 1}
    return [row["energy_origin"] or only.get(row["series"]) for row in rows]


def series_origins(rows: Sequence[Row]) -> dict[str, str | None]:
    """By series the origin that its entry in a legend shows: the first known one of its own energies,
    `published` where all its points are, None where none is known."""
    found: dict[str, str | None] = {}
    for row in rows:
        so_far = found.setdefault(row["series"], "published")
        if so_far in (None, "published") and row["energy_origin"] != "published":
            found[row["series"]] = row["energy_origin"]
    return found


def series_labels(rows: Sequence[Row]) -> dict[str, str]:
    """Series to legend label in table order; a label that several share gets what tells them apart."""
    labels: dict[str, str] = {}
    for row in rows:
        labels.setdefault(row["series"], row["label"] or row["series"])
    sharing: dict[str, list[str]] = {}
    for series, label in labels.items():
        sharing.setdefault(label, []).append(series)
    return {
        series: f"{label} ({_apart(series, sharing[label])})" if len(sharing[label]) > 1 else label
        for series, label in labels.items()
    }


def _apart(series: str, names: Sequence[str]) -> str:
    """The parts of a series' name that not all of `names` have; the whole name where that is unclear."""
    parts = {name: [p for p in name.split("-") if not all(p in n.split("-") for n in names)]
             for name in names}  # fmt: skip
    words = {name: "-".join(own) for name, own in parts.items()}
    return (
        words[series] if all(words.values()) and len(set(words.values())) == len(names) else series
    )
