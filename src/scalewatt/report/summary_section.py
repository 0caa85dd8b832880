"""The top of the page: the campaign in numbers, and where its energy comes from."""

from __future__ import annotations

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.recordings.terms import SIMULATED
from scalewatt.report.results import Results
from scalewatt.results.columns import label
from scalewatt.results.figures.footnotes import ASSUMED
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.text.captions import ORIGIN_WORDS, UNEQUAL_SCOPES, interval_words
from scalewatt.results.text.number_format import MISSING, listed, with_unit

Fact = tuple[str, str, str]
"""A label, its value, and a note on it (may be empty)."""
_KIND = ["energy_origin", "energy_scope"]
_SUMS = {
    "net_energy_kwh": ("Energy above idle", "kWh"),
    "facility_energy_kwh": ("Energy of the facility, with PUE", "kWh"),
    "carbon_kg": ("CO₂e", "kg"),
    "cost": ("Cost", ""),
}


def facts(results: Results) -> list[Fact]:
    """The campaign in numbers. Sums are over the runs that count; each says how many have a value."""
    runs, counting = results.runs, results.counting
    # Runs.
    planned = len(results.definition.planned)
    done = f"{len(runs)} of {planned}" if len(results.missing) else str(len(runs))
    again = {(each.configuration, each.repeat) for each in results.replaced}
    n_again = len(again.intersection(zip(runs["configuration"], runs["repeat"], strict=True)))
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
    for device, rows in data.groups(counting, "device"):
        suffix = f", {device}" if counting["device"].nunique() > 1 else ""
        text = label("gpu_hours", results.gpu_word) + suffix
        tiles.append(_sum(rows, "gpu_hours", text, "h"))
    # The difference of two estimates is not known.
    is_estimated = counting["energy_origin"].isin(ORIGINS)
    counting = counting.assign(net_energy_kwh=counting["net_energy_kwh"].where(~is_estimated))
    for column, (text, unit) in _SUMS.items():
        if counting[column].notna().any():
            tiles.append(_sum(counting, column, text, unit or results.definition.currency))
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
    """Where the energies of runs come from, what they contain, and how many runs have none."""
    if runs.empty:
        return "No run counts, as all are excluded."
    known = runs[runs["energy_kwh"].notna()]
    kinds = list(known.groupby(_KIND))
    sentences = []
    for (origin, scope), rows in kinds:
        device = f" on {listed(rows['device'].unique())}" if len(kinds) > 1 else ""
        sentences.append(f"Energy{device} {ORIGIN_WORDS[str(origin)]}; scope: {scope}.")
    if len(known) < len(runs):
        unknown = len(runs) - len(known)
        sentences.append(f"Runs whose energy is not known: {unknown} of {len(runs)}.")
    if known["energy_scope"].nunique() > 1:
        sentences.append(UNEQUAL_SCOPES)
    if known["energy_origin"].isin(ORIGINS).any():
        sentences.append(
            "An estimate is made from the load of whole devices, other programs on them included."
        )
    if (known["energy_origin"] == SIMULATED).any():
        sentences.append(ASSUMED)
    return " ".join(sentences)
