"""`scalewatt compare`: two campaigns next to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.comparison.compared_source import Row, Source, place_of, read_source
from scalewatt.comparison.matching import Alone, Matched, match, trainings_of
from scalewatt.comparison.ratios import COMPARED, compared_rows
from scalewatt.comparison.setting_differences import Difference, differences
from scalewatt.results.tables.frames import frame_of, records, write_frame


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two campaigns, what they have in common, and how it differs."""

    a: Source
    b: Source
    matched: Matched
    differences: list[Difference]
    table: pd.DataFrame
    """COMPARED: one row per pair and quantity."""

    @property
    def word(self) -> str:
        """What n counts: GPUs, or processes where that is so in both campaigns."""
        return "processes" if self.a.counts_processes and self.b.counts_processes else "GPUs"

    @property
    def rows(self) -> list[Row]:
        """The rows of the table."""
        return records(self.table)

    @property
    def same_runs(self) -> int:
        """How many measurements are in both: of the same spec, with the same run time and energy."""
        names = ("spec_sha256", "repeat", "runtime_s", "energy_kwh")
        a, b = ({tuple(row[n] for n in names) for row in own.runs} for own in (self.a, self.b))
        return len(a & b)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON-ready values."""
        return {
            "a": summary(self.a),
            "b": summary(self.b),
            "same_runs": self.same_runs,
            "differences": [difference._asdict() for difference in self.differences],
            "compared": self.rows,
            "only_a": self._alone(self.matched.only_a),
            "only_b": self._alone(self.matched.only_b),
        }

    def _alone(self, only: Iterable[Alone]) -> list[Row]:
        return [
            {
                "configuration": training.id,
                "label": training.label(self.word),
                "device": training.device,
                "why": why or None,
            }
            for training, why in only
        ]


def compare(a: str, b: str, results: Path) -> Comparison:
    """Return two campaigns next to each other; each is named as `read_source` takes it.

    Raises InputError like `read_source`, and where both are one place.
    """
    places = {place_of(text, results).resolve() for text in (a, b)}
    if len(places) == 1:
        raise InputError(f"compare: {a} and {b} are the same; expected two campaigns")
    return compared(*(read_source(text, results) for text in (a, b)))


def compared(a: Source, b: Source) -> Comparison:
    """Return two sources next to each other."""
    matched = match(trainings_of(a), trainings_of(b))
    rows = [row for pair in matched.pairs for row in compared_rows(pair, a, b)]
    return Comparison(a, b, matched, differences(a, b, matched.pairs), frame_of(rows, COMPARED))


def write_compared(comparison: Comparison, stem: Path) -> None:
    """Write `stem`.parquet and .csv: one row per pair and quantity."""
    sources = {"a": summary(comparison.a), "b": summary(comparison.b)}
    write_frame(comparison.table, Path(f"{stem}.parquet"), COMPARED, sources)


def summary(source: Source) -> Row:
    """Return a source in a few facts."""
    origins = Counter(row["energy_origin"] or "unknown" for row in source.runs)
    return {
        "place": source.place,
        "campaign": source.campaign,
        "runs": len(source.runs),
        "excluded": source.excluded,
        "unlisted": source.unlisted,
        "configurations": len({row["configuration"] for row in source.runs}),
        "devices": sorted({row["device"] for row in source.runs}),
        "protocols": sorted({row["protocol"] for row in source.runs}),
        "energy_origins": dict(sorted(origins.items())),
        "energy_scopes": sorted({r["energy_scope"] for r in source.runs if r["energy_scope"]}),
    }
