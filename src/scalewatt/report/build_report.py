"""report.html: the whole campaign on one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalewatt.common.files import write_text
from scalewatt.figures import figure_data as data
from scalewatt.report import provenance_section, summary_section
from scalewatt.report.claims_section import claims_of
from scalewatt.report.data_quality_section import Evidence, quality
from scalewatt.report.definition import Definition
from scalewatt.report.figure_section import TITLES, figure_entry, figure_label
from scalewatt.report.html_tables import Part, render
from scalewatt.report.results import Results
from scalewatt.report.tables_section import table_parts
from scalewatt.results.figures.superseded import replaced_measurements

_OF_MODEL = "prediction"
"""A figure that exists where a scaling model knows the campaign."""
_FILES = {
    **dict.fromkeys(("scaling", "comparisons", "configurations", "runs"), ".csv, .parquet"),
    "table1": ".csv, .md, .tex, .parquet",
    "plan": ".csv, .md, .parquet",
    "claims": ".csv, .md, .json, .parquet",
}


def write_report(results: Path, out: Path, definition: Definition) -> None:
    """Write a campaign's report to `out`, one HTML file that needs nothing outside itself.

    `results`: the campaign's folder with tables/, figures/ and runs/. What the campaign has and
    `results` has not is named as missing on the page. InputError: a file that exists is damaged.
    """
    contents = _contents(Results(Path(results)), definition)
    write_text(out, render(Path(__file__).parent, "report.html.j2", "page.js", **contents))


def _contents(results: Results, definition: Definition) -> dict[str, Any]:
    runs, counting, gpu_word = results.runs, results.counting, results.gpu_word
    replaced = replaced_measurements(results.folder, definition.remeasured)
    again = {(each.configuration, each.repeat) for each in replaced}
    n_again = len(again.intersection(zip(runs["configuration"], runs["repeat"], strict=True)))
    names = [name for name in TITLES if name in definition.figures]
    if results.path(_OF_MODEL).is_file():
        names.append(_OF_MODEL)
    tables = table_parts(results, definition)
    claims = results.table("claims") if definition.claims else None
    idle, checks = results.table("idle"), results.table("cross_checks")
    evidence = Evidence(
        runs,
        counting,
        summary_section.missing_runs(definition, runs),
        replaced,
        **{
            name: frame for name, frame in (("idle", idle), ("checks", checks)) if frame is not None
        },
        no_idle=data.stored(runs).get("no_idle") or {},
    )
    return {
        "campaign": definition.campaign,
        "planned": len(definition.planned),
        "maker": provenance_section.maker(),
        "has_runs": len(runs) > 0,
        "origin": summary_section.origin_sentences(counting),
        "gpu_word": gpu_word,
        "facts": summary_section.facts(definition, runs, gpu_word, n_again) if len(runs) else [],
        "what_ran": summary_section.what_ran(runs, gpu_word),
        "basis": [
            *definition.basis,
            *summary_section.left_out_of_sums(counting, idle is not None),
        ],
        "figures": [figure_entry(name, results) for name in names],
        "tables": tables,
        "claims": [] if claims is None else claims_of(claims),
        "claim_notes": [] if claims is None else data.stored(claims).get("notes") or [],
        "quality": quality(evidence, gpu_word),
        "provenance": provenance_section.parts(runs, results.provenance),
        "records": provenance_section.sentences(runs, results.provenance),
        "commands": _commands(definition, names, tables, claims is not None, idle is not None),
    }


def _commands(
    definition: Definition, figures: list[str], tables: list[Part], has_claims: bool, has_idle: bool
) -> list[tuple[str, str, str, str]]:
    """What the page shows, its id, the files that it is from, and the command that makes them."""
    own = ("table1", "plan", "claims")
    rows = [
        (figure_label(name), name, f"figures/{name}.pdf, .svg, .png, .csv, .caption.tex", name)
        for name in figures
    ]
    named = [(part.heading, part.name) for part in tables]
    named += [("Claims", "claims")] * has_claims
    rows += [
        (heading, name, f"tables/{name}{_FILES[name]}", name if name in own else "tables")
        for heading, name in named
        if name in _FILES
    ]
    if has_idle:
        rows.append(("Idle powers", "quality", "tables/idle.csv, .parquet", "idle_probe"))
    rows += [
        ("A page for each run", "runs", "figures/runs/<configuration>/<repeat>.svg", "run_pages"),
        ("This page", "summary", "report.html", "report"),
        (
            "Snakemake's own report",
            "",
            "snakemake-report.html",
            "all --report snakemake-report.html",
        ),
    ]
    return [
        (what, id_, made, definition.command.format(target)) for what, id_, made, target in rows
    ]
