"""Building the tables from runs' files, and writing them with what their captions need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import SAME, VARIED
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.files import read_json_object
from scalewatt.results.columns import SEVERAL
from scalewatt.results.figures.figure_schema import SCHEMAS
from scalewatt.results.figures.figure_tables import BUILDERS
from scalewatt.results.figures.footnotes import notes
from scalewatt.results.figures.power_trace import panels
from scalewatt.results.other_sources import CROSS_CHECKS, cross_checks_of
from scalewatt.results.tables.comparisons import comparisons_of
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import frame_of, records, write_frame
from scalewatt.results.tables.idle import without_baseline
from scalewatt.results.tables.repeat_statistics import configurations_of, unlike_energies
from scalewatt.results.tables.run_row import RunFiles, run_record, runs_of
from scalewatt.results.tables.scaling import scaling_of
from scalewatt.results.tables.table_schema import COMPARISONS, CONFIGURATIONS, RUNS, SCALING
from scalewatt.results.text.flag_labels import (
    FLAG_WORDS,
    NULL_ENERGY,
    counts_processes,
    details_of,
    read_flags,
)

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
    runs = frame_of([], RUNS) if figure == "figure1" else _runs(definition, results)
    complete = {**definition, "excluded": _excluded(definition, runs)}
    frame = BUILDERS[figure](complete, configurations_of(runs), results)
    write_frame(frame, out, SCHEMAS[figure], _metadata(definition, runs, results))


def _runs(definition: Row, results: Path) -> pd.DataFrame:
    excluded = {
        (run["configuration"], run["repeat"]): run["reason"]
        for run in definition.get("excluded", [])
    }
    runs = [
        run_record(
            RunFiles(results, id_, repeat), definition["campaign"], excluded.get((id_, repeat))
        )
        for id_, repeat in definition["runs"]
    ]
    return runs_of(runs, Facility(**definition.get("facility", {})), _idle(definition, results))


def _idle(definition: Row, results: Path) -> Path | None:
    """Path of the table of idle probes, where the campaign has them and they count for this table."""
    return results / "tables" / "idle.parquet" if definition.get("idle") else None


def _excluded(definition: Row, runs: pd.DataFrame) -> list[Row]:
    """Runs that a user excluded, and those that their own flags leave out."""
    by_user = definition.get("excluded", [])
    known = [(run["configuration"], run["repeat"]) for run in by_user]
    rows = runs[runs["excluded"].notna()][["configuration", "repeat", "excluded"]]
    by_flags = records(rows.rename(columns={"excluded": "reason"}))
    return [
        *by_user,
        *(row for row in by_flags if (row["configuration"], row["repeat"]) not in known),
    ]


# --- what is stored with a table ------------------------------------------------------------------


def _metadata(definition: Row, runs: pd.DataFrame, results: Path) -> Row:
    figure, idle = definition.get("figure"), _idle(definition, results)
    metadata = {
        "figure": figure,
        "campaign": definition["campaign"],
        "missing": definition["missing"] if figure != "figure1" else [],
        "excluded": _excluded(definition, runs) if figure != "figure1" else [],
        "options": definition.get("options", {}),
        "notes": notes(definition, runs, repeat_seeds(runs, results)),
        "gpu_word": _gpu_word(definition, runs),
        "metric_name": _metric_name(runs),
        "no_energy": _without_energy(runs) | unlike_energies(runs),
        # All that the table depends on besides its runs: whoever has those can make it again.
        "definition": definition,
    }
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


def repeat_seeds(runs: pd.DataFrame, results: Path) -> dict[str, str | None]:
    """Seeds of repeats that count and have an error, by configuration: same, varied, or null."""
    counted = runs[runs["excluded"].isna() & runs["metric_last"].notna()]
    return {
        str(id_): _seeds_of([RunFiles(results, str(id_), repeat).folder for repeat in repeats])
        for id_, repeats in counted.groupby("configuration", sort=False)["repeat"]
        if len(repeats) > 1
    }


def _seeds_of(folders: Sequence[Path]) -> str | None:
    """Seeds of repeats, by their specs, or by the descriptions that they were registered with."""
    seeds = {read_spec(folder / "spec.json").seed for folder in folders}
    if None not in seeds:
        return SAME if len(seeds) == 1 else VARIED
    paths = [folder / "provenance.json" for folder in folders]
    words = {read_json_object(path).get("seeds") if path.is_file() else None for path in paths}
    return words.pop() if len(words) == 1 else None


def _gpu_word(definition: Row, runs: pd.DataFrame) -> str:
    """Return what n counts; by the campaign's devices where there are no runs to tell, if those settle it."""
    if "torch_devices" in definition:
        words = {"cpu": "processes", "cuda": "GPUs"}
        names = {words.get(device, "ranks") for device in definition["torch_devices"]}
        return names.pop() if len(names) == 1 else "ranks"
    names = {"processes" if counts_processes(row) else "GPUs" for row in records(runs)}
    return "ranks" if len(names) > 1 else next(iter(names), "GPUs")


def _without_energy(runs: pd.DataFrame) -> dict[str, str]:
    """Say why the energy of a configuration is not known, by the flags of its runs that count, and of how
    many of these."""
    why: dict[str, str] = {}
    for id_, counted in runs[runs["excluded"].isna()].groupby("configuration", sort=False):
        words: dict[str, None] = {}
        unknown = records(counted[counted["energy_kwh"].isna()])
        for row in unknown:
            codes = {flag["code"] for flag in read_flags(row["flags"])}
            usual = "absent" if row["energy_scope"] is None else "not_recorded"
            known = [code for code in NULL_ENERGY if code in codes] or [usual]
            words |= dict.fromkeys(FLAG_WORDS[code] for code in known)
        if unknown:
            some = f" in {len(unknown)} of {len(counted)} runs" * (len(unknown) < len(counted))
            why[str(id_)] = "; ".join(words) + some
    return why


def _metric_name(runs: pd.DataFrame) -> str | None:
    """Return the metric that all runs have, `several` where they differ or do not say, null without runs."""
    names = runs["metric_name"].unique()
    if len(names) == 0:
        return None
    return SEVERAL if len(names) > 1 or pd.isna(names[0]) else str(names[0])
