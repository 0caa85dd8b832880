"""The top of the page: what ran, and where its energy comes from, with sums over the runs that count."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.recordings.terms import SIMULATED
from scalewatt.report.definition import Definition
from scalewatt.results.columns import label
from scalewatt.results.figures.footnotes import ASSUMED
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.text.captions import ORIGIN_WORDS, UNEQUAL_SCOPES, interval_words
from scalewatt.results.text.number_format import MISSING, listed, unit_for, with_unit

Fact = tuple[str, str, str]
"""A label, its value, and a note on it (may be empty)."""
_KIND = ["energy_origin", "energy_scope"]
_SUMS = {
    "net_energy_kwh": ("Energy above idle", "kWh"),
    "facility_energy_kwh": ("Energy of the facility, with PUE", "kWh"),
    "carbon_kg": ("CO₂e", "kg"),
    "cost": ("Cost", ""),
}


def missing_runs(definition: Definition, runs: pd.DataFrame) -> pd.DataFrame:
    """Configuration and repeat of the planned runs that have no row."""
    done = set(zip(runs["configuration"], runs["repeat"], strict=True))
    missing = [run for run in definition.planned if run not in done]
    return pd.DataFrame(missing, columns=["configuration", "repeat"])


def facts(
    definition: Definition, runs: pd.DataFrame, gpu_word: str = "GPUs", replaced: int = 0
) -> list[Fact]:
    """The campaign in numbers. Sums are over the runs that count; each names how many have a value.

    `replaced`: how many runs were measured again.
    """
    counting, excluded = runs[runs["excluded"].isna()], runs[runs["excluded"].notna()]
    missing = len(missing_runs(definition, runs))
    again = f"measured again: {replaced}" if replaced else ""
    done = f"{len(runs)} of {len(definition.planned)}" if missing else str(len(runs))
    found = [
        ("Runs done", done, again),
        ("Configurations", str(counting["configuration"].nunique()), ""),
    ]
    if len(excluded):
        energy = _sum(excluded, "", "energy_kwh", "kWh")[1]
        found.append(("Runs excluded", str(len(excluded)), f"{energy}, not in the sums"))
    found += _energies(counting)
    for device, of_device in data.groups(
        counting, "device"
    ):  # an hour of one is not one of another
        unit = unit_for([of_device["gpu_hours"].sum()], "h").name
        hours = label("gpu_hours", gpu_word)
        hours = hours.replace("hours", "time") if unit in ("min", "s") else hours
        of = f", {device}" if counting["device"].nunique() > 1 else ""
        found.append(_sum(of_device, hours + of, "gpu_hours", "h"))
    # The difference of two estimates is not known.
    is_estimated = counting["energy_origin"].isin(ORIGINS)
    counting = counting.assign(net_energy_kwh=counting["net_energy_kwh"].where(~is_estimated))
    for column, (text, unit) in _SUMS.items():
        if _is_worth_a_tile(counting, column):
            found.append(
                _sum(counting, text, column, unit or definition.currency, _doubts(counting, column))
            )
    return found


def _is_worth_a_tile(runs: pd.DataFrame, column: str) -> bool:
    """True if a sum is known: of the facility only where its PUE is not 1."""
    known = runs[column].dropna().astype(float)
    if column != "facility_energy_kwh":
        return len(known) > 0
    energy = runs.loc[known.index, "energy_kwh"].astype(float)
    return bool(((known - energy).abs() > 1e-9 * known).any())


def _energies(runs: pd.DataFrame) -> list[Fact]:
    """One sum for each origin and scope: different ones are never added up."""
    known = runs[runs["energy_kwh"].notna()]
    lacking = f"runs without: {len(runs) - len(known)}" if len(known) < len(runs) else ""
    found: list[Fact] = []
    for (origin, scope), of_kind in known.groupby(_KIND):
        ends = (
            of_kind[f"energy_{end}_kwh"].astype(float).sum(skipna=False) for end in ("low", "high")
        )
        # Errors of estimates do not average out.
        interval = interval_words(str(origin), *ends)
        of = f"runs: {len(of_kind)}" if len(of_kind) < len(known) else ""
        note = ", ".join(filter(None, [of, "" if found else lacking, interval]))
        total = with_unit(float(of_kind["energy_kwh"].sum()), "kWh")
        found.append((f"Energy, {origin} ({scope})", total, note))
    return found or [("Energy", MISSING, lacking)]


def _doubts(runs: pd.DataFrame, column: str) -> list[str]:
    known = runs[runs[column].notna()]
    unlike = len(known[_KIND].drop_duplicates()) > 1
    estimated = known["energy_origin"].isin(ORIGINS).any()
    return [
        "over unequal scopes or origins" if unlike else "",
        "as uncertain as the estimates" if estimated else "",
    ]


def _sum(runs: pd.DataFrame, text: str, column: str, unit: str, doubts: Any = ()) -> Fact:
    values = runs[column].dropna()
    if values.empty:
        return text, MISSING, ""
    partial = f"runs: {len(values)} of {len(runs)}" if len(values) < len(runs) else ""
    return text, with_unit(float(values.sum()), unit), ", ".join(filter(None, [partial, *doubts]))


# --- sentences ------------------------------------------------------------------------------------


def origin_sentences(runs: pd.DataFrame) -> str:
    """Where the energies of runs come from, what they contain, and how many runs have none."""
    if runs.empty:
        return "No run counts, as all are excluded."
    known = runs[runs["energy_kwh"].notna()]
    kinds = list(known.groupby(_KIND))
    parts = []
    for (origin, scope), of_kind in kinds:
        on = f" on {listed(of_kind['device'].unique())}" if len(kinds) > 1 else ""
        parts.append(f"Energy{on} {ORIGIN_WORDS[str(origin)]}; scope: {scope}.")
    if len(known) < len(runs):
        parts.append(f"Runs whose energy is not known: {len(runs) - len(known)} of {len(runs)}.")
    if known["energy_scope"].nunique() > 1:
        parts.append(UNEQUAL_SCOPES)
    if (known["energy_origin"] == SIMULATED).any():
        parts.append(ASSUMED)
    return " ".join(parts)


def what_ran(runs: pd.DataFrame, gpu_word: str) -> list[str]:
    """Models and hardware of each device, and the most GPUs and nodes."""
    lines = []
    for device, of_device in data.groups(runs, "device"):
        phases = of_device[["model", "phase"]].drop_duplicates()
        models = [
            str(row.model if row.phase == "train" else f"{row.model} ({row.phase})")
            for row in data.each(phases)
        ]
        names = " / ".join(of_device["device_name"].dropna().unique())
        lines.append(
            f"{listed(models)} on {device}{f' ({names})' if names else ''}. Runs: {len(of_device)}; "
            f"{gpu_word}: up to {of_device['gpus'].max()}; nodes: up to "
            f"{int(of_device['nodes'].fillna(1).max())}."
        )
    return lines


def left_out_of_sums(runs: pd.DataFrame, has_idle: bool) -> list[str]:
    """What a reader may miss in the sums: a cost without a price, and what `scalewatt status` adds."""
    if runs.empty:
        return []
    sentences = [
        "Sums are over the runs that count. scalewatt status adds the other energy used: "
        f"{'idle probes, ' if has_idle else ''}unfinished and excluded runs, replaced measurements, and "
        "data staging, which protocol paper does not count."
    ]
    if runs["cost"].isna().all():
        sentences.append(
            "No cost is stated: the cluster file has no price of energy for these runs."
        )
    if runs["energy_origin"].isin(ORIGINS).any():
        sentences.append(
            "An estimate is made from the load of whole devices and includes other programs that ran on "
            "them at the same time."
        )
    return sentences
