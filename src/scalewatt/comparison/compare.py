"""`scalewatt compare`: two campaigns next to each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.common.columns import schema
from scalewatt.common.errors import InputError
from scalewatt.comparison.matching import KEY, differences, match
from scalewatt.comparison.sources import Source, find_folder, read_source
from scalewatt.results.tables.frames import frame_of, records, write_frame
from scalewatt.results.tables.ratios import CAMPAIGN, ratios

COMPARED = schema("compare")
_SAME_RUN = ["spec_sha256", "repeat", "runtime_s", "energy_kwh"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two campaigns, what they have in common, and how it differs."""

    a: Source
    b: Source
    pairs: pd.DataFrame
    """Columns configuration_a, configuration_b."""
    differences: pd.DataFrame
    """Columns section, name, a, b, pairs."""
    table: pd.DataFrame
    """COMPARED: one row per pair and quantity."""

    @property
    def same_runs(self) -> int:
        """How many measurements are in both: of the same spec, with the same run time and energy."""
        return len(self.a.runs[_SAME_RUN].merge(self.b.runs[_SAME_RUN]))

    def only(self, side: str) -> list[str]:
        """Configurations that only `a` or only `b` has."""
        source = self.a if side == "a" else self.b
        matched = set(self.pairs[f"configuration_{side}"])
        return [id_ for id_ in source.settings.index if id_ not in matched]

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON-ready values."""
        return {
            "a": self.a.summary(),
            "b": self.b.summary(),
            "same_runs": self.same_runs,
            "differences": records(self.differences),
            "compared": records(self.table),
            "only_a": self.only("a"),
            "only_b": self.only("b"),
        }


def compare(a: str, b: str, results: Path) -> Comparison:
    """Compare two campaigns; each is named as `read_source` takes it.

    Raises InputError like `read_source`, and where both are the same folder.
    """
    if find_folder(a, results).resolve() == find_folder(b, results).resolve():
        raise InputError(f"compare: {a} and {b} are the same; expected two campaigns")
    return compared(*(read_source(text, results) for text in (a, b)))


def compared(a: Source, b: Source) -> Comparison:
    """Compare two sources."""
    pairs = match(a, b)
    rows = []
    if len(pairs):
        sides = []
        for side, source in zip("ab", (a, b), strict=True):
            training = pd.Series(pairs.index, index=pairs[f"configuration_{side}"])
            runs = source.runs.assign(campaign=side.upper())
            runs["training"] = runs["configuration"].map(training)
            sides.append(runs.dropna(subset="training"))
        both = pd.concat(sides, ignore_index=True).sort_values("training", kind="stable")
        keys = {row["training"]: {name: row[name] for name in KEY} for row in records(sides[0])}
        rows = [keys[row["training"]] | row for row in ratios(both, CAMPAIGN)]
    table = frame_of([{name: row[name] for name in COMPARED.names} for row in rows], COMPARED)
    return Comparison(a, b, pairs, differences(a, b, pairs), table)


def write_compared(comparison: Comparison, stem: Path) -> None:
    """Write `stem`.parquet and .csv: one row per pair and quantity."""
    sources = {"a": comparison.a.summary(), "b": comparison.b.summary()}
    write_frame(comparison.table, Path(f"{stem}.parquet"), COMPARED, sources)
