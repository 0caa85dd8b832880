"""report.html: the whole campaign on one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt import __version__
from scalewatt.claims.check_claims import by_verdict, stands_text
from scalewatt.claims.reference_tables import MEANINGS, TESTED
from scalewatt.common.files import write_text
from scalewatt.provenance.versions import source_commit
from scalewatt.recordings.terms import SIMULATED
from scalewatt.report.definition import Definition
from scalewatt.report.figure_section import figure_entry
from scalewatt.report.html_tables import Part, grid, render
from scalewatt.report.results import Results
from scalewatt.report.topics import parts, topics_file
from scalewatt.results.columns import label
from scalewatt.results.figures.figure_schema import PANEL_FIGURES
from scalewatt.results.tables.derived_quantities import ORIGINS
from scalewatt.results.tables.frames import RUN_KEY
from scalewatt.results.text.captions import ASSUMED, caption, interval_words
from scalewatt.results.text.number_format import MISSING, with_unit

Fact = tuple[str, str, str]
"""A label, its value, and a note on it (may be empty)."""
_KIND = ["energy_origin", "energy_scope"]
_SUMS = {"net_energy_kwh": "kWh", "facility_energy_kwh": "kWh", "carbon_kg": "kg", "cost": ""}
"""Columns that are summed up, with their units; a cost has the cluster's currency."""


def write_report(results: Path, out: Path, definition: Definition) -> None:
    """Write a campaign's report to `out`, one HTML file that needs nothing outside itself.

    `results`: the campaign's folder with tables/, figures/ and runs/. What the campaign has and
    `results` has not is named as missing on the page. InputError: a file that exists is damaged.
    """
    contents = _contents(Results(Path(results), definition))
    write_text(out, render(Path(__file__).parent, "report.html.j2", "page.js", **contents))


def _contents(results: Results) -> dict[str, Any]:
    definition, has_runs, commit = results.definition, len(results.runs) > 0, source_commit()
    titles = dict(topics_file()["figures"])
    for name in sorted(PANEL_FIGURES.keys() - titles.keys()):
        titles[name] = PANEL_FIGURES[name].text.partition(".")[0]
    figures = {
        name: title
        for name, title in titles.items()
        if name in definition.figures or (name == "prediction" and results.table(name) is not None)
    }
    claims = results.table("claims") if definition.claims else None
    quality = parts("quality", results)
    return {
        "definition": definition,
        "maker": f"scalewatt {__version__}" + (f", commit {commit}" if commit else ""),
        "has_runs": has_runs,
        "origin": origin_sentences(results.counting),
        "facts": facts(results) if has_runs else [],
        "summary": parts("summary", results),
        "figures": [figure_entry(name, title, results) for name, title in figures.items()],
        "tables": parts("tables", results),
        "claims": [] if claims is None else claim_parts(claims),
        "claim_notes": [] if claims is None else claims.attrs.get("notes") or [],
        # Without runs there is nothing but what is missing.
        "quality": quality if has_runs else quality[:1],
        "provenance": parts("provenance", results),
    }


# --- summary --------------------------------------------------------------------------------------


def facts(results: Results) -> list[Fact]:
    """The campaign in numbers. Sums are over the runs that count; each says how many have a value."""
    runs, counting = results.runs, results.counting
    # Runs.
    planned = len(results.definition.planned)
    done = f"{len(runs)} of {planned}" if len(results.missing) else str(len(runs))
    again = results.replaced[RUN_KEY].drop_duplicates()
    n_again = len(runs.merge(again, on=RUN_KEY))
    tiles = [
        ("Runs done", done, f"measured again: {n_again}" if n_again else ""),
        ("Configurations", str(counting["configuration"].nunique()), ""),
    ]
    excluded = runs[runs["excluded"].notna()]
    if len(excluded):
        energy = with_unit(float(excluded["energy_kwh"].sum(min_count=1)), "kWh")
        tiles.append(("Runs excluded", str(len(excluded)), f"{energy}, not in the sums"))
    # Energies of unequal origin or scope, and hours of unequal devices, are never added up.
    tiles += _energies(counting)
    for device, rows in counting.groupby("device", sort=False):
        suffix = f", {device}" if counting["device"].nunique() > 1 else ""
        text = label("gpu_hours", results.gpu_word) + suffix
        tiles.append(_sum(rows, "gpu_hours", text, "h"))
    # The difference of two estimates is not known.
    is_estimated = counting["energy_origin"].isin(ORIGINS)
    counting = counting.assign(net_energy_kwh=counting["net_energy_kwh"].where(~is_estimated))
    for column, unit in _SUMS.items():
        if counting[column].notna().any():
            unit = unit or results.definition.currency
            tiles.append(_sum(counting, column, label(column), unit))
    return tiles


def _energies(runs: pd.DataFrame) -> list[Fact]:
    """A sum of energies for each origin and scope."""
    known = runs[runs["energy_kwh"].notna()]
    lacking = f"runs without: {len(runs) - len(known)}" if len(known) < len(runs) else ""
    tiles: list[Fact] = []
    for (origin, scope), rows in known.groupby(_KIND):
        # Errors of estimates do not average out.
        low, high = (rows[f"energy_{end}_kwh"].sum(skipna=False) for end in ("low", "high"))
        interval = interval_words(str(origin), low, high)
        part = f"runs: {len(rows)}" if len(rows) < len(known) else ""
        note = ", ".join(filter(None, [part, "" if tiles else lacking, interval]))
        total = with_unit(float(rows["energy_kwh"].sum()), "kWh")
        tiles.append((f"Energy, {origin} ({scope})", total, note))
    return tiles or [("Energy", MISSING, lacking)]


def _sum(runs: pd.DataFrame, column: str, text: str, unit: str) -> Fact:
    """Sum of a column over the runs that have a value, with what makes it doubtful."""
    known = runs[runs[column].notna()]
    notes = [f"runs: {len(known)} of {len(runs)}"] if len(known) < len(runs) else []
    if column != "gpu_hours" and len(known[_KIND].drop_duplicates()) > 1:
        notes.append("over unequal scopes or origins")
    if column != "gpu_hours" and known["energy_origin"].isin(ORIGINS).any():
        notes.append("as uncertain as the estimates")
    return text, with_unit(float(known[column].sum(min_count=1)), unit), ", ".join(notes)


def origin_sentences(runs: pd.DataFrame) -> str:
    """Where the energies of runs come from, what they contain, and what n counts."""
    if runs.empty:
        return "No run counts, as all are excluded."
    origins = {*runs.loc[runs["energy_kwh"].notna(), "energy_origin"]}
    sentences = [caption(runs)[0]]
    if origins & {*ORIGINS}:
        sentences.append(
            "An estimate is made from the load of whole devices, other programs on them included."
        )
    return " ".join([*sentences, ASSUMED] if SIMULATED in origins else sentences)


# --- claims ---------------------------------------------------------------------------------------


def claim_parts(claims: pd.DataFrame) -> list[Part]:
    """Claims by verdict, or by the reason why nothing was tested; only tests are unfolded."""
    # Probability of such data were the claim true, and whether a contradiction stands.
    shown = [
        MISSING
        if pd.isna(p)
        else f"{p:.2g}" + ("" if stands is None else f" ({stands_text(stands)})")
        for p, stands in zip(claims["p"], claims["stands"], strict=True)
    ]
    claims = claims.assign(p=shown)
    parts, headings = [], topics_file()["claims"]
    for name, heading, rows in by_verdict(claims):
        columns = [column for column in headings if column != "p" or name in TESTED]
        table, sentence = grid(rows, columns, headings), f"{len(rows)}. {MEANINGS[name]}"
        section = f"claims-{name.replace(' ', '_')}"
        parts.append(Part(section, heading, sentence, table, folded=name not in TESTED))
    return parts
