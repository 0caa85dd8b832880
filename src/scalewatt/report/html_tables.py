"""Tables as HTML: ready texts, numbers to sort by, the whole table as CSV; and the templates of pages."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
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
    link: str = ""
    """Where a click on it leads; empty: nowhere."""

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
    anchors: list[str] = field(default_factory=list)
    """Ids of the rows on the page; empty: they have none."""


@dataclass(frozen=True)
class Part:
    """One topic on the page: a sentence, and a table where it has one."""

    heading: str
    says: str
    grid: Grid | None = None
    name: str = ""
    """Its place on the page."""
    folded: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a grid: where its values come from and how they are formatted."""

    name: str
    """Of the table's column; where there is `<name>_mean`, that."""
    heading: str
    unit: str = ""
    """Of the table's values; the grid takes kWh, h and kW in what suits them."""
    text: Callable[[Row], str] | None = None
    """Makes the text of a row, which is sorted by the value, or by the text; None: the value itself."""
    optional: bool = False
    """True if the column is left out where no row has a value."""
    link: Callable[[Row], str] | None = None
    """Makes where a cell leads; None: nowhere."""
    interval: bool = True
    """True if the ends of an interval are shown, where there are `<name>_low` and `<name>_high`."""

    def value(self, row: Row) -> Any:
        """Return the value of a row."""
        return row.get(f"{self.name}_mean", row.get(self.name))

    def cell(self, row: Row, factor: float) -> Cell:
        """Return the cell of a row; numbers are multiplied by `factor`."""
        made = self._cell(row, factor)
        return made if self.link is None else replace(made, link=self.link(row))

    def _cell(self, row: Row, factor: float) -> Cell:
        value = self.value(row)
        if self.text is not None:
            return _cell(value, self.text(row))
        if self.interval and f"{self.name}_low" in row:
            ends = (row[f"{self.name}_low"], row[f"{self.name}_high"])
            return _cell(value, with_interval(value, *ends, factor))
        return _cell(value, number(value * factor if isinstance(value, float) else value))


def in_unit(words: str, unit: str) -> str:
    """Return a heading as it reads with a unit: GPU hours that are given in minutes are GPU time."""
    return words.replace("hours", "time") if unit in ("min", "s") else words


def grid(
    name: str,
    says: str,
    frame: pd.DataFrame,
    columns: Iterable[Column],
    download: pd.DataFrame | None = None,
    anchor: Callable[[Row], str] | None = None,
) -> Grid:
    """Return a table in the given columns; `download`: the table with all there is, None: what is shown.

    `anchor` makes the id of a row, None: rows have none.
    """
    rows = records(frame)
    headings, cells, shown = [], [], {}
    for one in columns:
        values = [one.value(row) for row in rows]
        if one.optional and all(value is None for value in values):
            continue
        suited = unit_for(values if one.unit else (), one.unit)
        heading = in_unit(one.heading, suited.name)
        headings.append(f"{heading} ({suited.name})" if one.unit else heading)
        cells.append([one.cell(row, suited.factor) for row in rows])
        texts_ = [_stored(cell) for cell in cells[-1]] if one.text else values
        shown[f"{one.heading} ({one.unit})" if one.unit else one.heading] = texts_
    uri = csv_uri(pa.table(shown) if download is None else download)
    anchors = [anchor(row) for row in rows] if anchor else []
    made = [list(row) for row in zip(*cells, strict=True)]
    return Grid(name, says, headings, made, uri, anchors)


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


def _cell(value: Any, text: str) -> Cell:
    known = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    return Cell(text, float(value) if known else None)


def csv_uri(table: pa.Table | pd.DataFrame) -> str:
    """Return a table as a data URI of CSV; null is an empty cell."""
    import pyarrow.csv as pc

    if isinstance(table, pd.DataFrame):
        table = pa.Table.from_pandas(table, preserve_index=False)
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
