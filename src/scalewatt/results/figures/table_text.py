"""Texts of the tables that are read as such: Table 1, and the variants of a training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.results.figures import variants_table
from scalewatt.results.text.markdown_latex import latex, markdown

TEXTS: dict[tuple[str, str], Callable[[pa.Table], str]] = {
    ("table1", ".md"): markdown,
    ("table1", ".tex"): latex,
    ("variants", ".md"): variants_table.markdown,
}
"""The function that writes a table as text, by the table and the suffix of its file."""


def table_text(path: Path, suffix: str) -> str:
    """Text of the table in `path`, whose stem names it."""
    with pq.ParquetFile(path) as file:
        return TEXTS[path.stem, suffix](file.read())
