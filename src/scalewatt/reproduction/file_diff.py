"""Find where two files differ: of tables the first rows and columns, with both values."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

MOST = 3
"""Differing values that are named."""


def difference(expected: Path, found: Path) -> str:
    """Return in one sentence where `found` differs from `expected`; their bytes differ.

    Of tables (CSV, Parquet) the first differing values, else the first differing byte.
    """
    if expected.suffix == ".csv":
        return _said(_of_csv(expected, found)) or _bytes(expected, found)
    if expected.suffix == ".parquet":
        return _said(_of_parquet(expected, found)) or _bytes(expected, found)
    return _bytes(expected, found)


def _of_csv(expected: Path, found: Path) -> list[str]:
    own, other = _csv_rows(expected), _csv_rows(found)
    if not own or not other or own[0] != other[0]:
        return _columns(own[0] if own else [], other[0] if other else [])
    return _values(own[0], own[1:], other[1:])


def _csv_rows(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8", errors="replace", newline="") as handle:
        return list(csv.reader(handle))


def _of_parquet(expected: Path, found: Path) -> list[str]:
    import pyarrow.parquet as pq

    try:
        own, other = pq.read_table(expected), pq.read_table(found)
    except (OSError, ValueError, pa.ArrowException) as error:
        return [f"one of them is no readable Parquet file ({' '.join(str(error).split())})"]
    if own.schema.names != other.schema.names:
        return _columns(own.schema.names, other.schema.names)
    rows = [
        [list(row) for row in zip(*(column.to_pylist() for column in one.columns), strict=True)]
        for one in (own, other)
    ]
    said = _values(own.schema.names, *rows)
    if not said and own.schema.metadata != other.schema.metadata:
        return ["all values are the same; the file's metadata differ"]
    return said or ["all values are the same; their encoding differs"]


def _columns(own: Sequence[str], other: Sequence[str]) -> list[str]:
    missing = [name for name in own if name not in other]
    more = [name for name in other if name not in own]
    said = [f"column {name} is missing" for name in missing[:MOST]]
    said += [f"column {name} is new" for name in more[:MOST]]
    return said or ["the columns are in another order"]


def _values(
    names: Sequence[str], own: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]]
) -> list[str]:
    """Return the first values that differ; rows count from 1, the first row of data."""
    said: list[str] = []
    count = 0
    for number, (one, two) in enumerate(zip(own, other, strict=False), 1):
        for name, value, now in zip(names, one, two, strict=False):
            if not same_value(value, now):
                count += 1
                if len(said) < MOST:
                    said.append(f"row {number}, {name}: {_text(value)} is now {_text(now)}")
    if count > MOST:
        said.append(f"{count - MOST} more values differ")
    if len(own) != len(other):
        said.append(f"{len(own)} rows are now {len(other)}")
    return said


def same_value(one: Any, two: Any) -> bool:
    """Return True if two values are the same: NaN equals NaN, -0.0 does not equal 0.0."""
    if isinstance(one, float) and isinstance(two, float):
        return one.hex() == two.hex()
    return type(one) is type(two) and bool(one == two)


def _text(value: Any) -> str:
    text = "null" if value is None else "an empty cell" if value == "" else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _bytes(expected: Path, found: Path) -> str:
    own, other = expected.read_bytes(), found.read_bytes()
    at = next(
        (i for i, (a, b) in enumerate(zip(own, other, strict=False)) if a != b),
        min(len(own), len(other)),
    )
    sizes = f"{len(own)} bytes" if len(own) == len(other) else f"{len(own)} and {len(other)} bytes"
    return f"the first difference is at byte {at + 1} ({sizes})"


def _said(parts: Sequence[str]) -> str:
    return "; ".join(parts)
