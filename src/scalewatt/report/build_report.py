"""report.html: the whole campaign on one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.common.files import write_text
from scalewatt.report import provenance_section, summary_section
from scalewatt.report.claims_section import claims_of
from scalewatt.report.data_quality_section import quality
from scalewatt.report.figure_section import ORDER, FigureEntry, figure_entry
from scalewatt.report.html_tables import STYLE, Part, templates
from scalewatt.report.page_scripts import script_of
from scalewatt.report.report_inputs import Results, read_results
from scalewatt.report.report_request import Definition
from scalewatt.report.tables_section import table_parts
from scalewatt.results.figures.superseded import Replaced, replaced_measurements

_FOLDER = Path(__file__).parent
_OF_THE_MODEL = "prediction"
"""A figure that is there where a scaling model knows the campaign."""


def write_report(results: Path, out: Path, definition: Definition) -> None:
    """Write a campaign's report to `out`, one HTML file without any reference outside itself.

    `results`: the campaign's folder with tables/, figures/ and runs/. What the campaign has and
    `results` has not is named as missing on the page. InputError: a file that exists is damaged.
    """
    found = read_results(Path(results))
    contents = _contents(found, definition)
    page = (
        templates(_FOLDER)
        .get_template("report.html.j2")
        .render(
            **contents,
            style=STYLE.read_text(encoding="utf-8"),
            script=script_of(_FOLDER / "page.js"),
        )
    )
    write_text(out, page)


def _contents(results: Results, definition: Definition) -> dict[str, Any]:
    runs = results.rows("runs")
    counting = summary_section.counting(runs)
    replaced = replaced_measurements(results.folder, definition.remeasured)
    word, hours = results.gpu_word, results.hours
    figures = [figure_entry(name, results) for name in ORDER if name in definition.figures]
    if _OF_THE_MODEL in results.tables:
        figures.append(figure_entry(_OF_THE_MODEL, results))
    shown = table_parts(results, definition)
    claims = claims_of(results.rows("claims")) if definition.claims else []
    return {
        "campaign": definition.campaign,
        "maker": provenance_section.maker(),
        "has_runs": len(runs) > 0,
        "planned": sum(definition.planned.values()),
        "origin": summary_section.origin_sentences(counting),
        "counts": f"n counts {word}.",
        "facts": summary_section.facts(definition, runs, hours, _anew(runs, replaced))
        if len(runs)
        else [],
        "what_ran": summary_section.what_ran(runs, word),
        "basis": [
            *definition.basis,
            *summary_section.left_out_of_sums(counting, len(results.rows("idle")) > 0),
        ],
        "figures": figures,
        "tables": shown,
        "claims": claims,
        "claim_notes": results.metadata("claims").get("notes") or [],
        "quality": quality(
            definition,
            runs,
            results.rows("idle") if "idle" in results.tables else None,
            results.metadata("runs").get("no_idle"),
            replaced,
            results.rows("cross_checks"),
        ),
        "hardware": provenance_section.hardware(runs, results.provenance),
        "software": provenance_section.software(results.provenance),
        "machines": provenance_section.machines(results.provenance),
        "departures": provenance_section.packages(results.provenance),
        "variables": provenance_section.variables(results.provenance),
        "records": provenance_section.records(runs, results.provenance),
        "specifications": provenance_section.specifications(runs) if len(runs) else None,
        "commands": _commands(definition, figures, shown, bool(claims), "idle" in results.tables),
    }


def _anew(runs: pd.DataFrame, replaced: Sequence[Replaced]) -> int:
    """Return how many of the runs were measured again."""
    again = {(one.configuration, one.repeat) for one in replaced}
    return sum(key in again for key in zip(runs["configuration"], runs["repeat"], strict=True))


def _commands(
    definition: Definition,
    figures: list[FigureEntry],
    shown: list[Part],
    has_claims: bool,
    has_idle: bool,
) -> list[tuple[str, str, str, str]]:
    """Return what the page shows, its place on it, the files it is from, and the command that makes them."""
    files = {
        "table1": ("tables/table1.csv, .md, .tex, .parquet", "table1"),
        "plan": ("tables/plan.csv, .md, .parquet", "plan"),
        **{
            name: (f"tables/{name}.csv, .parquet", "tables")
            for name in ("scaling", "comparisons", "configurations", "runs")
        },
    }
    rows = [
        (one.label, one.name, f"figures/{one.name}.pdf, .svg, .png, .csv, .caption.tex", one.name)
        for one in figures
    ]
    rows += [(part.heading, part.name, *files[part.name]) for part in shown if part.name in files]
    if has_claims:
        rows.append(("Claims", "claims", "tables/claims.csv, .md, .json, .parquet", "claims"))
    if has_idle:
        rows.append(("Idle powers", "quality", "tables/idle.csv, .parquet", "idle_probe"))
    pages = "figures/runs/<configuration>/<repeat>.svg"
    rows.append(("A page for each run", "runs", pages, "run_pages"))
    rows.append(("This page", "summary", "report.html", "report"))
    own = "snakemake-report.html"
    rows.append(("Snakemake's own report", "", own, f"all --report {own}"))
    return [(what, place, made, definition.command(target)) for what, place, made, target in rows]
