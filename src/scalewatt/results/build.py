"""Building the tables from runs' files, and writing them."""

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
from scalewatt.results.figures.figure_tables import builder
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
    tables = {
        "runs": (runs, RUNS),
        "configurations": (configurations, CONFIGURATIONS),
        "scaling": (scaling_of(definition["series"], configurations), SCALING),
        "comparisons": (comparisons_of(runs, metadata["no_energy"]), COMPARISONS),
        "cross_checks": (cross_checks_of(runs, _files(definition, results)), CROSS_CHECKS),
    }
    for name, (frame, columns) in tables.items():
        write_frame(frame, out / f"{name}.parquet", columns, metadata)


def write_figure_table(definition: Row, results: Path, out: Path) -> None:
    """Write the table of one figure (or Table 1), from its own runs and no others."""
    figure = definition["figure"]
    # The overview is of the campaign, not of its results.
    runs = frame_of([], RUNS) if figure == "figure1" else _runs(definition, results)
    complete = {**definition, "excluded": _excluded(definition, runs)}
    frame = builder(figure, results)(complete, configurations_of(runs))
    write_frame(frame, out, SCHEMAS[figure], _metadata(definition, runs, results))


def _files(definition: Row, results: Path) -> list[RunFiles]:
    return [RunFiles(results, *run) for run in definition["runs"]]


def _runs(definition: Row, results: Path) -> pd.DataFrame:
    reasons = {
        (run["configuration"], run["repeat"]): run["reason"]
        for run in definition.get("excluded", [])
    }
    over_time = bool(definition.get("carbon_over_time"))
    found = [
        run_record(
            files,
            definition["campaign"],
            reasons.get((files.configuration, files.repeat)),
            over_time,
        )
        for files in _files(definition, results)
    ]
    return runs_of(found, Facility(**definition.get("facility", {})), _idle(definition, results))


def _idle(definition: Row, results: Path) -> Path | None:
    """Path of the table of idle probes, where the campaign has them and they count for this table."""
    return results / "tables" / "idle.parquet" if definition.get("idle") else None


def _excluded(definition: Row, runs: pd.DataFrame) -> list[Row]:
    """Runs that a user excluded, and those that their own flags leave out."""
    names = ["configuration", "repeat"]
    excluded = list(definition.get("excluded", []))
    known = [(run["configuration"], run["repeat"]) for run in excluded]
    left_out = runs[runs["excluded"].notna()][[*names, "excluded"]]
    rows = records(left_out.rename(columns={"excluded": "reason"}))
    return excluded + [row for row in rows if (row["configuration"], row["repeat"]) not in known]


# --- what is stored with a table ------------------------------------------------------------------


def _metadata(definition: Row, runs: pd.DataFrame, results: Path) -> Row:
    rows, figure = records(runs), definition.get("figure")
    of_runs = figure != "figure1"
    excluded = _excluded(definition, runs)
    idle = _idle(definition, results)
    no_idle = without_baseline(idle, runs) if idle else {}
    sentences = notes({**definition, "excluded": excluded}, rows, repeat_seeds(runs, results))
    if figure == "breakdown":
        sentences += [f"No idle baseline of {device}: {why}." for device, why in no_idle.items()]
    return {
        "figure": figure,
        "campaign": definition["campaign"],
        "missing": definition["missing"] if of_runs else [],
        "excluded": excluded if of_runs else [],
        "options": definition.get("options", {}),
        "notes": sentences,
        "gpu_word": _gpu_word(definition, rows),
        "metric_name": _metric_name(runs),
        "no_energy": _without_energy(runs) | unlike_energies(runs),
        **({"no_idle": no_idle} if idle else {}),
        **_of_figure5(definition, rows),
        # All that the table depends on besides its runs: whoever has those can make it again.
        "definition": definition,
    }


def repeat_seeds(runs: pd.DataFrame, results: Path) -> dict[str, str | None]:
    """Return the seeds of repeats that count and have an error, by configuration: same, varied, or null."""
    counted = runs[runs["excluded"].isna() & runs["metric_last"].notna()]
    return {
        str(id_): _seeds_of(
            [RunFiles(results, str(id_), repeat).folder for repeat in rows["repeat"]]
        )
        for id_, rows in counted.groupby("configuration", sort=False)
        if len(rows) > 1
    }


def _seeds_of(folders: Sequence[Path]) -> str | None:
    """Seeds of repeats, by their specs, or by the descriptions that they were registered with."""
    seeds = {read_spec(folder / "spec.json").seed for folder in folders}
    if None not in seeds:
        return SAME if len(seeds) == 1 else VARIED
    paths = [folder / "provenance.json" for folder in folders]
    words = {read_json_object(path).get("seeds") if path.is_file() else None for path in paths}
    return words.pop() if len(words) == 1 else None


def _gpu_word(definition: Row, rows: list[Row]) -> str:
    """Return what n counts; by the campaign's devices where there are no runs to tell, if those settle it."""
    if "torch_devices" in definition:
        words = {"cpu": "processes", "cuda": "GPUs"}
        names = {words.get(device, "ranks") for device in definition["torch_devices"]}
        return names.pop() if len(names) == 1 else "ranks"
    names = {"processes" if counts_processes(row) else "GPUs" for row in rows}
    return "ranks" if len(names) > 1 else next(iter(names), "GPUs")


def _without_energy(runs: pd.DataFrame) -> dict[str, str]:
    """Return why the energy of a configuration is not known, by the flags of its runs that count, and of how
    many of these."""
    found: dict[str, str] = {}
    for id_, own in runs[runs["excluded"].isna()].groupby("configuration", sort=False):
        unknown = records(own[own["energy_kwh"].isna()])
        words: dict[str, None] = {}
        for row in unknown:
            codes = [flag["code"] for flag in read_flags(row["flags"])]
            usual = "absent" if row["energy_scope"] is None else "not_recorded"
            given = [code for code in NULL_ENERGY if code in codes] or [usual]
            words |= dict.fromkeys(FLAG_WORDS[code] for code in given)
        if unknown:
            some = f" in {len(unknown)} of {len(own)} runs" if len(unknown) < len(own) else ""
            found[str(id_)] = "; ".join(words) + some
    return found


def _metric_name(runs: pd.DataFrame) -> str | None:
    """Return the metric that all runs have, `several` where they differ or do not say, null without runs."""
    names = runs["metric_name"].unique()
    if len(names) == 0:
        return None
    return SEVERAL if len(names) > 1 or pd.isna(names[0]) else str(names[0])


def _of_figure5(definition: Row, rows: list[Row]) -> Row:
    """Return figure 5's panels, and its configurations whose runs do not say when training began."""
    if definition.get("figure") != "figure5":
        return {}
    without = sorted({row["configuration"] for row in rows if details_of(row, "no_events")})
    return {"panels": panels(definition)} | ({"no_stages": without} if without else {})
