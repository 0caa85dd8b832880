"""What the report reads: a campaign's tables, its runs' provenance, and what the campaign asks for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.report.definition import Definition
from scalewatt.results.figures.superseded import replaced_measurements
from scalewatt.results.tables.frames import opened_parquet, records, to_frame
from scalewatt.results.tables.run_row import read_provenances
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.flag_labels import read_flags


@dataclass(frozen=True)
class Results:
    """A campaign's results, and what it asks for."""

    folder: Path
    definition: Definition

    def table(self, name: str) -> pd.DataFrame | None:
        """Table with numpy columns, None if it has not been made; InputError if the file is damaged."""
        path = self.folder / "tables" / f"{name}.parquet"
        if not path.is_file():
            return None
        with opened_parquet(path, ()) as file:
            return data.drawable(to_frame(file.read()))

    @cached_property
    def runs(self) -> pd.DataFrame:
        """Table of runs, with `run` (configuration/repeat) and `parsed` (its flags); empty if not made."""
        table = self.table("runs")
        runs = data.drawable(to_frame(RUNS.empty_table())) if table is None else table
        run = runs["configuration"] + "/" + runs["repeat"].astype(str)
        return runs.assign(run=run, parsed=runs["flags"].map(read_flags))

    @cached_property
    def counting(self) -> pd.DataFrame:
        """Runs that count: those that are not excluded."""
        return self.runs[self.runs["excluded"].isna()]

    @cached_property
    def missing(self) -> pd.DataFrame:
        """Configuration and repeat of the planned runs that have no row."""
        done = set(zip(self.runs["configuration"], self.runs["repeat"], strict=True))
        missing = [run for run in self.definition.planned if run not in done]
        return pd.DataFrame(missing, columns=["configuration", "repeat"])

    @cached_property
    def replaced(self) -> pd.DataFrame:
        """Measurements that were set aside to measure their runs again."""
        return replaced_measurements(self.folder, self.definition.remeasured)

    @cached_property
    def provenance(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Provenance of each run in the table of runs that has one, by configuration and repeat."""
        return read_provenances(records(self.runs[["configuration", "repeat"]]), self.folder)

    @property
    def gpu_word(self) -> str:
        """What n counts."""
        return data.gpu_word(self.runs)
