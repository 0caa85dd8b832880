"""Golden tables: how they are written, read and compared.

A cell is text, as it stands in the file; two cells are the same if they are equal as text or, where both
are numbers, to 1e-9. Empty is not known.
"""

from __future__ import annotations

import csv
import io
import lzma
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

FOLDER = Path(__file__).parent
REL, ABS = 1e-9, 1e-12
SHOWN = 3
"""Differences of a column, and rows, that are shown one by one."""


@dataclass(frozen=True)
class Golden:
    """A golden table: its file below this folder, and the columns that name a row."""

    file: str
    keys: tuple[str, ...]
    rel: float = REL
    abs: float = ABS

    @property
    def path(self) -> Path:
        """Where it is stored."""
        return FOLDER / self.file

    def read(self) -> pd.DataFrame:
        """The stored table, as text."""
        data = self.path.read_bytes()
        return _frame(lzma.decompress(data) if self.path.suffix == ".xz" else data)

    def write(self, table: pd.DataFrame) -> None:
        """Store a table, with its rows in the order of their keys."""
        data = _content(self._sorted(table))
        if self.path.suffix == ".xz":
            data = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(data)

    def differences(self, table: pd.DataFrame, only: str = "") -> list[str]:
        """What a table has other than the stored one, in sentences; none where they are the same.

        `only`: a pattern in the keys of the rows that are compared.
        """
        stored, made = (
            {key: row for key, row in self._rows(rows).items() if re.search(only, ", ".join(key))}
            for rows in (self.read(), _frame(_content(table)))
        )
        differences = _only(stored, made, "gone") + _only(made, stored, "new")
        changed: Counter[str] = Counter()
        for key, row in stored.items():
            for name, value in row.items():
                now = made.get(key, row).get(name)
                if now is None or self._same(value, now):
                    continue
                changed[name] += 1
                if changed[name] <= SHOWN:
                    differences.append(
                        f"{', '.join(key)}: {name} {value or 'null'} → {now or 'null'}"
                    )
        names = [set(next(iter(rows.values()), {})) for rows in (stored, made)]
        differences += [f"column {name} is gone" for name in sorted(names[0] - names[1])]
        differences += [f"column {name} is new" for name in sorted(names[1] - names[0])]
        return differences + [
            f"{name}: {n} cells differ" for name, n in changed.items() if n > SHOWN
        ]

    def _same(self, value: str, other: str) -> bool:
        if value == other:
            return True
        try:
            return math.isclose(float(value), float(other), rel_tol=self.rel, abs_tol=self.abs)
        except ValueError:
            return False

    def _sorted(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.sort_values(list(self.keys), kind="stable") if self.keys else table

    def _rows(self, table: pd.DataFrame) -> dict[tuple[str, ...], dict[str, str]]:
        """Rows by key; those of the same key are numbered."""
        rows: dict[tuple[str, ...], dict[str, str]] = {}
        seen: Counter[tuple[str, ...]] = Counter()
        for row in table.to_dict("records"):
            key = tuple(row[name] for name in self.keys)
            seen[key] += 1
            rows[(*key, f"row {seen[key]}") if seen[key] > 1 else key] = {
                name: value for name, value in row.items() if name not in self.keys
            }
        return rows


def renew(goldens: Mapping[Golden, pd.DataFrame]) -> Iterable[str]:
    """Store tables; say what is other than it was."""
    for golden, table in goldens.items():
        differences = golden.differences(table) if golden.path.exists() else ["new file"]
        golden.write(table)
        yield f"{golden.file}: {len(table)} rows, {'the same' if not differences else ''}"
        yield from (f"  {difference}" for difference in differences)


def _only(
    rows: Mapping[tuple[str, ...], Any], others: Mapping[tuple[str, ...], Any], word: str
) -> list[str]:
    keys = [key for key in rows if key not in others]
    more = [f"and {len(keys) - SHOWN} more rows {word}"] if len(keys) > SHOWN else []
    return [f"{', '.join(key)}: {word}" for key in keys[:SHOWN]] + more


def _content(table: pd.DataFrame) -> bytes:
    """A table as CSV: numbers by 12 digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_text(value) for value in row] for row in table.itertuples(index=False))
    return out.getvalue().encode()


def _text(value: Any) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _frame(content: bytes) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
