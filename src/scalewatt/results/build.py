"""Building the tables from runs' files, and writing them with what their captions need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.results.columns import SEVERAL
from scalewatt.results.cross_checks import CROSS_CHECKS, cross_checks_of
from scalewatt.results.figures.figure_schema import SCHEMAS
from scalewatt.results.figures.figure_tables import BUILDERS
from scalewatt.results.figures.footnotes import notes, unknown_energies, what_n_counts
from scalewatt.results.figures.power_trace import panels
from scalewatt.results.tables.comparisons import comparisons_of
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import records, write_frame
from scalewatt.results.tables.idle import without_baseline
from scalewatt.results.tables.repeat_statistics import configurations_of, unlike_energies
from scalewatt.results.tables.run_row import RunFiles, read_runs
from scalewatt.results.tables.scaling import scaling_of
from scalewatt.results.tables.table_schema import COMPARISONS, CONFIGURATIONS, RUNS, SCALING
from scalewatt.results.text.flag_labels import details_of

Row = dict[str, Any]


def write_runs(definition: Row, results: Path, out: Path) -> None:
    """Write `out`/runs and the other tables of all of a campaign's runs, as Parquet and CSV."""
    runs = _runs(definition, results)
    configurations = configurations_of(runs)
    metadata = _metadata(definition, runs, results)
    files = [RunFiles(results, *run) for run in definition["runs"]]
    tables = {
        "runs": (runs, RUNS),
        "configurations": (configurations, CONFIGURATIONS),
        "scaling": (scaling_of(definition["series"], configurations), SCALING),
        "comparisons": (comparisons_of(runs, metadata["no_energy"]), COMPARISONS),
        "cross_checks": (cross_checks_of(runs, files), CROSS_CHECKS),
    }
    for name, (frame, columns) in tables.items():
        write_frame(frame, out / f"{name}.parquet", columns, metadata)


def write_figure_table(definition: Row, results: Path, out: Path) -> None:
    """Write the table of one figure (or Table 1), from its own runs and no others."""
    figure = definition["figure"]
    # The overview is of the campaign, not of its results.
    runs = _runs(definition | {"runs": []} if figure == "figure1" else definition, results)
    complete = {**definition, "excluded": _excluded(definition, runs)}
    frame = BUILDERS[figure](complete, configurations_of(runs), results)
    write_frame(frame, out, SCHEMAS[figure], _metadata(definition, runs, results))


def _runs(definition: Row, results: Path) -> pd.DataFrame:
    runs, campaign = definition["runs"], definition["campaign"]
    facility = Facility(**definition.get("facility", {}))
    why = {(run["configuration"], run["repeat"]): run["reason"] for run in _by_user(definition)}
    return read_runs(results, runs, campaign, facility, _idle(definition, results), why)


def _idle(definition: Row, results: Path) -> Path | None:
    """Path of the table of idle probes, where the campaign has them and they count for this table."""
    return results / "tables" / "idle.parquet" if definition.get("idle") else None


def _by_user(definition: Row) -> list[Row]:
    """Runs that a user excluded."""
    return list(definition.get("excluded", []))


def _excluded(definition: Row, runs: pd.DataFrame) -> list[Row]:
    """Runs that a user excluded, and those that their own flags leave out."""
    by_user = _by_user(definition)
    known = [(run["configuration"], run["repeat"]) for run in by_user]
    left_out = runs[runs["excluded"].notna()].rename(columns={"excluded": "reason"})
    by_flags = records(left_out[["configuration", "repeat", "reason"]])
    return by_user + [row for row in by_flags if (row["configuration"], row["repeat"]) not in known]


def _metadata(definition: Row, runs: pd.DataFrame, results: Path) -> Row:
    """What is stored with a table (docs/tables.md)."""
    figure, idle = definition.get("figure"), _idle(definition, results)
    metrics = runs["metric_name"].unique()
    metadata = {
        "figure": figure,
        "campaign": definition["campaign"],
        "missing": definition["missing"] if figure != "figure1" else [],
        "excluded": _excluded(definition, runs) if figure != "figure1" else [],
        "options": definition.get("options", {}),
        "notes": notes(definition, runs),
        "gpu_word": what_n_counts(definition, runs),
        # The metric that all runs have; `several` where they differ or do not say.
        "metric_name": SEVERAL if len(metrics) > 1 else next(iter(metrics), None),
        "no_energy": unknown_energies(runs) | unlike_energies(runs),
        # All that the table depends on besides its runs: whoever has those can make it again.
        "definition": definition,
    }
    if pd.isna(metadata["metric_name"]) and len(metrics):
        metadata["metric_name"] = SEVERAL
    if idle:
        why = metadata["no_idle"] = without_baseline(idle, runs)
        if figure == "breakdown":
            metadata["notes"] += [f"No idle baseline of {name}: {why[name]}." for name in why]
    if figure == "figure5":
        metadata["panels"] = panels(definition)
        # Whose times count from the start of the recording, as it has no stages.
        without = {row["configuration"] for row in records(runs) if details_of(row, "no_events")}
        metadata |= {"no_stages": sorted(without)} if without else {}
    return metadata
