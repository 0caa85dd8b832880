"""What the report reads: a campaign's tables, drawings, claims, and its runs' provenance."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.claims import check_claims
from scalewatt.figures import figure_data as data
from scalewatt.results.figures.figure_schema import SCHEMAS
from scalewatt.results.other_sources import CROSS_CHECKS
from scalewatt.results.tables import table_schema
from scalewatt.results.tables.frames import read_frame, records, to_frame
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.tables.read_table import RUN_KEY
from scalewatt.results.tables.run_row import RunFiles, read_provenances
from scalewatt.scaling.planning.plan import PLAN

Row = dict[str, Any]
_SCHEMAS: dict[str, pa.Schema] = {
    "runs": table_schema.RUNS,
    "configurations": table_schema.CONFIGURATIONS,
    "scaling": table_schema.SCALING,
    "comparisons": table_schema.COMPARISONS,
    "cross_checks": CROSS_CHECKS,
    "idle": IDLE,
    "claims": check_claims.TABLE,
    "plan": PLAN,
    **SCHEMAS,
}
"""The columns of each table."""
_GUESSED = "top1_error_percent"
"""The metric that guessing has a level of."""
_IMAGES = (("svg", "svg+xml"), ("png", "png"))
MOST_SVG_BYTES = 1_500_000
"""A larger drawing is shown as PNG, where that is smaller."""


@dataclass(frozen=True)
class Results:
    """The results that a campaign has; those it lacks are left out."""

    folder: Path
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    provenance: dict[tuple[str, int], Row] = field(default_factory=dict)
    """Of each run in the table of runs, by configuration and repeat."""
    guessed: dict[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    """Of each classifier with a spec: the error of guessing, and the one it seldom falls below."""

    def rows(self, name: str) -> pd.DataFrame:
        """Return a table with numpy columns (figure_data.drawable); without rows where it is not there."""
        frame = self.tables.get(name)
        return data.drawable(to_frame(_SCHEMAS[name].empty_table()) if frame is None else frame)

    @property
    def gpu_word(self) -> str:
        """Return what n counts."""
        return data.gpu_word(self.tables["runs"]) if "runs" in self.tables else "GPUs"

    @property
    def hours(self) -> str:
        """Return the name of GPU hours."""
        return "process hours" if self.gpu_word == "processes" else "GPU hours"

    def metadata(self, name: str) -> dict[str, Any]:
        """Return the metadata of a table."""
        frame = self.tables.get(name)
        return {} if frame is None else data.stored(frame)

    def image(self, name: str) -> str | None:
        """Return a drawing as a data URI, or None if there is none."""
        found = [(self.folder / "figures" / f"{name}.{end}", kind) for end, kind in _IMAGES]
        there = [(path, kind) for path, kind in found if path.is_file()]
        if len(there) > 1 and there[0][0].stat().st_size > MOST_SVG_BYTES:
            there.sort(key=lambda one: one[0].stat().st_size)
        if not there:
            return None
        path, kind = there[0]
        return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


def read_results(folder: Path) -> Results:
    """Read what the report shows. InputError: a file that is there is not what it should be."""
    paths = {name: folder / "tables" / f"{name}.parquet" for name in _SCHEMAS}
    tables = {
        name: read_frame(path, _SCHEMAS[name]) for name, path in paths.items() if path.is_file()
    }
    runs = records(tables["runs"][list(RUN_KEY)]) if "runs" in tables else []
    return Results(folder, tables, read_provenances(runs, folder), _guessed(tables, folder))


def _guessed(
    tables: dict[str, pd.DataFrame], folder: Path
) -> dict[tuple[str, int], tuple[float, float]]:
    found = {}
    names = (*RUN_KEY, "metric_name")
    for run in records(tables["runs"][list(names)]) if "runs" in tables else []:
        path = RunFiles(folder, run["configuration"], run["repeat"]).folder / "spec.json"
        if run["metric_name"] == _GUESSED and path.is_file():
            level = _guessed_error(read_spec(path))
            if level is not None:
                found[run["configuration"], run["repeat"]] = level
    return found


def _guessed_error(spec: RunSpec) -> tuple[float, float] | None:
    """Return a guess's error over the validation set of a run, in percent, and what it seldom falls below.

    That is two standard deviations less. None if classes or validation samples are not known.
    """
    classes, samples = spec.dataset.get("classes"), spec.validation_samples
    if not classes or not samples:
        return None
    hits = 1 / classes
    error = 100 * (1 - hits)
    return error, error - 200 * math.sqrt(hits * (1 - hits) / samples)
