"""report.html: the whole campaign on one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalewatt.common.files import write_text
from scalewatt.figures import figure_data as data
from scalewatt.report.claims_section import claim_parts
from scalewatt.report.definition import Definition
from scalewatt.report.figure_section import TITLES, figure_entry
from scalewatt.report.html_tables import render
from scalewatt.report.provenance_section import maker
from scalewatt.report.results import Results
from scalewatt.report.summary_section import facts, origin_sentences
from scalewatt.report.topics import parts

_OF_MODEL = "prediction"
"""A figure that exists if a scaling model knows the campaign."""


def write_report(results: Path, out: Path, definition: Definition) -> None:
    """Write a campaign's report to `out`, one HTML file that needs nothing outside itself.

    `results`: the campaign's folder with tables/, figures/ and runs/. What the campaign has and
    `results` has not is named as missing on the page. InputError: a file that exists is damaged.
    """
    contents = _contents(Results(Path(results), definition))
    write_text(out, render(Path(__file__).parent, "report.html.j2", "page.js", **contents))


def _contents(results: Results) -> dict[str, Any]:
    definition, has_runs = results.definition, len(results.runs) > 0
    figures = [name for name in TITLES if name in definition.figures]
    if results.table(_OF_MODEL) is not None:
        figures.append(_OF_MODEL)
    claims = results.table("claims") if definition.claims else None
    quality = parts("quality", results)
    return {
        "definition": definition,
        "maker": maker(),
        "has_runs": has_runs,
        "gpu_word": results.gpu_word,
        "origin": origin_sentences(results.counting),
        "facts": facts(results) if has_runs else [],
        "summary": parts("summary", results),
        "figures": [figure_entry(name, results) for name in figures],
        "tables": parts("tables", results),
        "claims": [] if claims is None else claim_parts(claims),
        "claim_notes": [] if claims is None else data.stored(claims).get("notes") or [],
        # Without runs there is nothing but what is missing.
        "quality": quality if has_runs else quality[:1],
        "provenance": parts("provenance", results),
        "targets": [
            *(*definition.figures, "tables", "plan", "idle_probe", "run_pages", "report"),
            *(["claims"] if definition.claims else []),
        ],
    }
