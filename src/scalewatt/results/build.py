"""Building the tables from runs' files, and writing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import SAME, VARIED
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.files import read_json_object
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
from scalewatt.results.tables.table_schema import (
    COMPARISONS,
    CONFIGURATIONS,
    RUNS,
    SCALING,
)
from scalewatt.results.text.flag_labels import (
    FLAG_WORDS,
    NULL_ENERGY,
    counts_processes,
    details_of,
    read_flags,
)


def _runs(definition: dict[str, Any], results: Path) -> pd.DataFrame:
    facility = Facility(**definition.get("facility", {}))
    reasons = {
        (e["configuration"], e["repeat"]): e["reason"] for e in definition.get("excluded", [])
    }
    over_time = bool(definition.get("carbon_over_time"))
    given = [
        (RunFiles(results, *run), definition["campaign"], reasons.get(run), over_time)
        for run in map(tuple, definition["runs"])
    ]
    records = [run_record(*one) for one in given]
    return runs_of(records, facility, _idle(definition, results))


def _files(definition: dict[str, Any], results: Path) -> list[RunFiles]:
    return [RunFiles(results, *run) for run in map(tuple, definition["runs"])]


def _idle(definition: dict[str, Any], results: Path) -> Path | None:
    """Return the table of idle probes, where the campaign has them and they count for this table."""
    return results / "tables" / "idle.parquet" if definition.get("idle") else None


def write_runs(definition: dict[str, Any], results: Path, out: Path) -> None:
    """Write `out`/runs and the other tables of all of a campaign's runs, as Parquet and CSV."""
    runs = _runs(definition, results)
    configurations = configurations_of(runs)
    no_energy = _without_energy(records(runs)) | unlike_energies(runs)
    tables = {
        "runs": (runs, RUNS),
        "configurations": (configurations, CONFIGURATIONS),
        "scaling": (scaling_of(definition["series"], configurations), SCALING),
        "comparisons": (comparisons_of(runs, no_energy), COMPARISONS),
        "cross_checks": (cross_checks_of(runs, _files(definition, results)), CROSS_CHECKS),
    }
    metadata = _metadata(definition, _told(definition, runs), runs, results)
    for name, (frame, columns) in tables.items():
        write_frame(frame, out / f"{name}.parquet", columns, metadata)


def write_figure_table(definition: dict[str, Any], results: Path, out: Path) -> None:
    """Write the table of one figure (or Table 1), from its own runs and no others."""
    figure = definition["figure"]
    # The overview is of the campaign, not of its results.
    runs = frame_of([], RUNS) if figure == "figure1" else _runs(definition, results)
    told = _told(definition, runs)
    frame = builder(figure, results)(told, configurations_of(runs))
    metadata = _metadata(definition, told, runs, results)
    write_frame(frame, out, SCHEMAS[figure], metadata)


def _told(definition: dict[str, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """Return the definition with the runs that their own flags leave out beside those a user excluded."""
    excluded = list(definition.get("excluded", []))
    known = {(one["configuration"], one["repeat"]) for one in excluded}
    for row in records(runs):
        run = row["configuration"], row["repeat"]
        if row["excluded"] is not None and run not in known:
            excluded.append({"configuration": run[0], "repeat": run[1], "reason": row["excluded"]})
    return {**definition, "excluded": excluded}


def _metadata(
    definition: dict[str, Any], told: dict[str, Any], runs: pd.DataFrame, results: Path
) -> dict[str, Any]:
    """Return what is stored with a table; `told`: its definition with all that is left out."""
    rows = records(runs)
    of_runs = definition.get("figure") != "figure1"
    idle = _idle(definition, results)
    no_idle = without_baseline(idle, runs) if idle else {}
    of_idle = no_idle if definition.get("figure") == "breakdown" else {}
    return {
        "figure": definition.get("figure"),
        "campaign": definition["campaign"],
        "missing": definition["missing"] if of_runs else [],
        "excluded": told["excluded"] if of_runs else [],
        "options": definition.get("options", {}),
        "notes": [
            *notes(told, rows, _seeds(rows, results)),
            *(f"No idle baseline of {device}: {why}." for device, why in of_idle.items()),
        ],
        "gpu_word": _gpu_word(definition, rows),
        "metric_name": _metric_name(rows),
        "no_energy": _without_energy(rows) | unlike_energies(runs),
        **({"no_idle": no_idle} if idle else {}),
        **_of_figure5(definition, rows),
        # All that the table depends on besides its runs: whoever has those can make it again.
        "definition": definition,
    }


def _seeds(rows: list[dict[str, Any]], results: Path) -> dict[str, str | None]:
    """Return the seeds of repeats that count and have an error, by configuration: same, varied, or null."""
    found: dict[str, list[int | None]] = {}
    for row in rows:
        if row["excluded"] is None and row["metric_last"] is not None:
            files = RunFiles(results, row["configuration"], row["repeat"])
            seed = _seed(files)
            found.setdefault(row["configuration"], []).append(seed)
    return {
        configuration: None if None in seeds else SAME if len(set(seeds)) == 1 else VARIED
        for configuration, seeds in found.items()
        if len(seeds) > 1
    }


def _seed(files: RunFiles) -> int | None:
    """Return a run's seed, by its spec or by what was told when it was registered."""
    seed = read_spec(files.folder / "spec.json").seed
    path = files.folder / "provenance.json"
    if seed is None and path.is_file():
        told = read_json_object(path).get("description") or {}
        seed = told.get("seed")
    return seed


def _gpu_word(definition: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return what n counts; by the campaign's devices where there are no runs to tell, if those settle it."""
    if "torch_devices" in definition:
        words = {"cpu": "processes", "cuda": "GPUs"}
        names = {words.get(device, "ranks") for device in definition["torch_devices"]}
        return names.pop() if len(names) == 1 else "ranks"
    names = {"processes" if counts_processes(row) else "GPUs" for row in rows}
    return "ranks" if len(names) > 1 else next(iter(names), "GPUs")


def _without_energy(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return why the energy of a configuration is not known, by the flags of its runs that count, and of how
    many of these."""
    found: dict[str, dict[str, None]] = {}
    counted = [row["configuration"] for row in rows if row["excluded"] is None]
    unknown = [
        row["configuration"]
        for row in rows
        if row["energy_kwh"] is None and row["excluded"] is None
    ]
    for row in rows:
        if row["energy_kwh"] is None and row["excluded"] is None:
            codes = [flag["code"] for flag in read_flags(row["flags"])]
            words = [FLAG_WORDS[code] for code in NULL_ENERGY if code in codes]
            nothing = "absent" if row["energy_scope"] is None else "not_recorded"
            found.setdefault(row["configuration"], {}).update(
                dict.fromkeys(words or [FLAG_WORDS[nothing]])
            )
    of = {
        id_: f" in {unknown.count(id_)} of {counted.count(id_)} runs"
        for id_ in found
        if counted.count(id_) > unknown.count(id_)
    }
    return {id_: "; ".join(words) + of.get(id_, "") for id_, words in found.items()}


def _metric_name(rows: list[dict[str, Any]]) -> str | None:
    """Return the metric that all runs have, `several` where they differ or do not say, null without runs."""
    names = {row["metric_name"] for row in rows}
    if not names:
        return None
    return names.pop() or "several" if len(names) == 1 else "several"


def _of_figure5(definition: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return figure 5's panels, and its configurations whose runs do not say when training began."""
    if definition.get("figure") != "figure5":
        return {}
    without = sorted({r["configuration"] for r in rows if details_of(r, "no_events")})
    return {"panels": panels(definition)} | ({"no_stages": without} if without else {})
