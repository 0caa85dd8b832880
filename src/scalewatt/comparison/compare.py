"""`scalewatt compare`: two campaigns beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.comparison.compared_source import Row, Source, place_of, read_source
from scalewatt.comparison.matching import Alone, Matched, match, trainings_of
from scalewatt.comparison.ratios import COMPARED, compared_rows
from scalewatt.comparison.setting_differences import Difference, as_json, differences, summary
from scalewatt.results.tables.frames import frame_of, records, write_frame


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two campaigns, what they have in common, and how it differs."""

    a: Source
    b: Source
    matched: Matched
    differences: tuple[Difference, ...]
    table: pd.DataFrame
    """COMPARED: one row per pair and quantity."""

    @property
    def word(self) -> str:
        """What n counts: GPU, or process where that is so in both campaigns."""
        return "process" if self.a.counts_processes and self.b.counts_processes else "GPU"

    @property
    def rows(self) -> list[Row]:
        """The rows of the table."""
        return records(self.table)

    @property
    def same_runs(self) -> int:
        """How many measurements are in both: of the same spec, with the same run time and energy."""
        a, b = ({_measurement(row) for row in one.runs} for one in (self.a, self.b))
        return len(a & b)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        return {
            "a": summary(self.a),
            "b": summary(self.b),
            "same_runs": self.same_runs,
            "differences": as_json(self.differences),
            "compared": self.rows,
            "only_a": _alone(self.matched.only_a, self.word),
            "only_b": _alone(self.matched.only_b, self.word),
        }


def compare(a: str, b: str, results: Path) -> Comparison:
    """Return two campaigns beside each other; each is named as `read_source` takes it.

    InputError as of `read_source`, and where both are one place.
    """
    places = {place_of(text, results).resolve() for text in (a, b)}
    if len(places) == 1:
        raise InputError(f"compare: {a} and {b} are the same; expected two campaigns")
    return compared(*(read_source(text, results) for text in (a, b)))


def compared(a: Source, b: Source) -> Comparison:
    """Return two sources beside each other."""
    matched = match(trainings_of(a), trainings_of(b))
    rows = [row for pair in matched.pairs for row in compared_rows(pair, a, b)]
    found = differences(a, b, matched.pairs)
    return Comparison(a, b, matched, tuple(found), frame_of(rows, COMPARED))


def write_compared(comparison: Comparison, stem: Path) -> None:
    """Write `stem`.parquet and .csv: one row per pair and quantity."""
    sources = {"a": summary(comparison.a), "b": summary(comparison.b)}
    write_frame(comparison.table, Path(f"{stem}.parquet"), COMPARED, sources)


def _measurement(row: Row) -> tuple[Any, ...]:
    return row["spec_sha256"], row["repeat"], row["runtime_s"], row["energy_kwh"]


def _alone(found: Iterable[Alone], word: str) -> list[Row]:
    return [
        {
            "configuration": one.training.id,
            "label": one.training.label(word),
            "device": one.training.device,
            "why": one.why or None,
        }
        for one in found
    ]
