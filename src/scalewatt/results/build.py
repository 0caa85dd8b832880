"""Building the tables from runs' files, and writing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalewatt.files import write_table_with_csv, write_text
from scalewatt.results import variants
from scalewatt.results.comparisons import comparison_rows
from scalewatt.results.derived import Facility, with_model_energies
from scalewatt.results.figure_tables import builder
from scalewatt.results.metadata import METADATA_KEY as METADATA_KEY
from scalewatt.results.metadata import with_metadata
from scalewatt.results.notes import notes
from scalewatt.results.runs import RunFiles, run_row
from scalewatt.results.scaling import scaling_rows
from scalewatt.results.schema import COMPARISONS, CONFIGURATIONS, RUNS, SCALING, table
from scalewatt.results.statistics import configuration_rows
from scalewatt.results.text_tables import latex, markdown


def _rows(definition: dict[str, Any], results: Path) -> list[dict[str, Any]]:
    facility = Facility(**definition.get("facility", {}))
    idle = results / "tables" / "idle.parquet" if definition.get("idle") else None
    reasons = {
        (e["configuration"], e["repeat"]): e["reason"] for e in definition.get("excluded", [])
    }
    runs = [(configuration, repeat) for configuration, repeat in definition["runs"]]
    rows = [
        run_row(RunFiles(results, *run), definition["campaign"], facility, idle, reasons.get(run))
        for run in runs
    ]
    return with_model_energies(rows)


def write_runs(definition: dict[str, Any], results: Path, out: Path) -> None:
    """Write `out`/runs, configurations, scaling and comparisons (Parquet and CSV) of a campaign's runs."""
    rows = _rows(definition, results)
    metadata = _metadata(definition, rows)
    configurations = configuration_rows(rows)
    tables = {
        "runs": table(rows, RUNS),
        "configurations": table(configurations, CONFIGURATIONS),
        "scaling": table(scaling_rows(definition["series"], configurations), SCALING),
        "comparisons": table(comparison_rows(rows), COMPARISONS),
    }
    for name, built in tables.items():
        write_table_with_csv(with_metadata(built, metadata), out / f"{name}.parquet")


def write_figure_table(definition: dict[str, Any], results: Path, out: Path) -> None:
    """Write the table of one figure (or Table 1), from its own runs and no others."""
    figure = definition["figure"]
    # The overview is of the campaign, not of its results.
    rows = [] if figure == "figure1" else _rows(definition, results)
    built = builder(figure, results)(definition, configuration_rows(rows))
    built = with_metadata(built, _metadata(definition, rows))
    write_table_with_csv(built, out)
    if figure == "table1":
        write_text(out.with_suffix(".md"), markdown(built))
        write_text(out.with_suffix(".tex"), latex(built))
    if figure == "variants":
        write_text(out.with_suffix(".md"), variants.markdown(built))


def _metadata(definition: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    counts_processes = any(
        row["torch_device"] == "cpu" or '"gpus_shared"' in row["flags"] for row in rows
    )
    of_runs = definition.get("figure") != "figure1"
    return {
        "figure": definition.get("figure"),
        "campaign": definition["campaign"],
        "missing": definition["missing"] if of_runs else [],
        "excluded": definition.get("excluded", []) if of_runs else [],
        "options": definition.get("options", {}),
        "notes": notes(definition, rows),
        "gpu_word": "processes" if counts_processes else "GPUs",
        "metric_name": _metric_name(rows),
        **_without_stages(definition, rows),
    }


def _metric_name(rows: list[dict[str, Any]]) -> str | None:
    """The metric that all runs have, `several` where they differ or do not say, null without runs."""
    names = {row["metric_name"] for row in rows}
    if not names:
        return None
    return names.pop() or "several" if len(names) == 1 else "several"


def _without_stages(definition: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Figure 5's configurations whose runs do not say when training began, where there are such."""
    without = sorted({r["configuration"] for r in rows if '"no_events"' in r["flags"]})
    return {"no_stages": without} if definition.get("figure") == "figure5" and without else {}
