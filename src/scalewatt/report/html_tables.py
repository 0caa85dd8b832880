"""Tables as HTML: ready texts, numbers to sort by, the whole table as CSV; and the templates of pages."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from scalewatt.results.tables.frames import records
from scalewatt.results.text.number_format import MISSING, number, unit_for, with_interval

if TYPE_CHECKING:
    from jinja2 import Environment

Row = dict[str, Any]
_LONG, _LONGEST = 40, 160


@dataclass(frozen=True)
class Cell:
    """One cell: its text, and the number that it is sorted by (None: by its text)."""

    text: str
    value: float | None = None

    @property
    def kind(self) -> str:
        """Return the class of the cell on the page: number, long or longest text that may wrap, or none."""
        if self.value is not None or self.text == MISSING:
            return "n"
        if len(self.text) > _LONGEST:
            return "long longest"
        # An id has no space: it is never broken.
        return "long" if len(self.text) > _LONG and " " in self.text else ""


@dataclass(frozen=True)
class Grid:
    """A table of the page."""

    name: str
    """Stem of the file that a download makes."""
    says: str
    """Its title, also for screen readers."""
    headings: list[str]
    rows: list[list[Cell]]
    download: str
    """The whole table, with all its columns, as a data URI of CSV."""


@dataclass(frozen=True)
class Column:
    """A column of a grid: where its values come from and how they are formatted."""

    name: str
    heading: str
    unit: str = ""
    """Of the table's values; the grid takes kWh, h and kW in what suits them."""
    interval: str = ""
    """Prefix of the ends of an interval, `energy_kwh` for `energy_kwh_low`; empty: none."""
    text: Callable[[Row], str] | None = None
    """Makes the text of a row; None: the value itself."""
    optional: bool = False
    """True if the column is left out where no row has a value."""


def stored(name: str, heading: str, unit: str = "", optional: bool = False) -> Column:
    """Return a column whose values are shown as they are."""
    return Column(name, heading, unit, optional=optional)


def summed_up(name: str, heading: str, unit: str = "", optional: bool = False) -> Column:
    """Return a column of means of configurations, with their intervals."""
    return Column(f"{name}_mean", heading, unit, interval=name, optional=optional)


def said(heading: str, text: Callable[[Row], str], name: str = "") -> Column:
    """Return a column whose text is made from the row; it is sorted by column `name`, or by the text."""
    return Column(name, heading, text=text)


def grid(
    name: str,
    says: str,
    frame: pd.DataFrame,
    columns: Sequence[Column],
    download: pd.DataFrame | None = None,
) -> Grid:
    """Return a table in the given columns; `download`: the table with all there is, None: what is shown."""
    rows = records(frame)
    columns = [one for one in columns if not one.optional or frame[one.name].notna().any()]
    table = _shown(rows, columns) if download is None else _arrow(download)
    filled = [_column(column, rows) for column in columns]
    return Grid(
        name=name,
        says=says,
        headings=[heading for heading, _ in filled],
        rows=[list(cells) for cells in zip(*(cells for _, cells in filled), strict=True)],
        download=csv_uri(table),
    )


def _shown(rows: Sequence[Row], columns: Sequence[Column]) -> pa.Table:
    """Return what a grid shows, in the tables' own units."""
    return pa.table(
        {
            f"{one.heading} ({one.unit})" if one.unit else one.heading: [
                _stored(one.text(row)) if one.text else row.get(one.name) for row in rows
            ]
            for one in columns
        }
    )


def texts(name: str, says: str, headings: list[str], rows: Iterable[Sequence[Any]]) -> Grid:
    """Return a grid of plain values and cells; its download is what it shows."""
    rows = [list(row) for row in rows]
    columns = [[_stored(v) for v in column] for column in zip(*rows, strict=True)]
    table = pa.table(dict(zip(headings, columns or [[] for _ in headings], strict=True)))
    cells = [[v if isinstance(v, Cell) else _cell(v, number(v)) for v in row] for row in rows]
    return Grid(name, says, headings, cells, csv_uri(table))


def _stored(value: Any) -> Any:
    """Return a value as the CSV has it: a cell's text, and null for the dash."""
    if isinstance(value, Cell):
        value = value.text
    return None if value == MISSING else value


def _column(column: Column, rows: Sequence[Row]) -> tuple[str, list[Cell]]:
    if column.text is not None:
        made = column.text
        return column.heading, [_cell(row.get(column.name), made(row)) for row in rows]
    values = [row.get(column.name) for row in rows]
    if not column.unit:
        suited, heading = None, column.heading
    else:
        suited = unit_for(values, column.unit)
        heading = f"{column.heading} ({suited.name})"
    factor = suited.factor if suited else 1.0
    return heading, [
        _cell(value, _text(column, row, value, factor))
        for row, value in zip(rows, values, strict=True)
    ]


def _text(column: Column, row: Row, value: Any, factor: float) -> str:
    if column.interval:
        low, high = (row.get(f"{column.interval}_{end}") for end in ("low", "high"))
        return with_interval(value, low, high, factor)
    scaled = value * factor if isinstance(value, float) else value
    return number(scaled)


def _cell(value: Any, text: str) -> Cell:
    known = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    return Cell(text, float(value) if known else None)


def _arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


def csv_uri(table: pa.Table | pd.DataFrame) -> str:
    """Return a table as a data URI of CSV; null is an empty cell."""
    import pyarrow.csv as pc

    table = _arrow(table) if isinstance(table, pd.DataFrame) else table

    sink = io.BytesIO()
    pc.write_csv(table, sink)
    return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(sink.getvalue()).decode()}"


# --- templates ------------------------------------------------------------------------------------

STYLE = Path(__file__).parent / "page.css"
"""The style of all pages."""


def templates(folder: Path) -> Environment:
    """Return the templates in `folder`, whose values are escaped as HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
