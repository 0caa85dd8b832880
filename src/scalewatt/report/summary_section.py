"""The top of the page: what ran, the origin and amount of energy, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from scalewatt.figures import figure_data as data
from scalewatt.figures import prose
from scalewatt.recordings.terms import SIMULATED
from scalewatt.report.html_tables import in_unit
from scalewatt.report.report_request import Definition
from scalewatt.results.figures.footnotes import ASSUMED
from scalewatt.results.tables.estimates import ORIGINS
from scalewatt.results.text.markdown_latex import UNEQUAL_SCOPES
from scalewatt.results.text.number_format import (
    MISSING,
    count,
    listed,
    number,
    unit_for,
    with_unit,
)

Fact = tuple[str, str, str]
"""A label, its value, and a note on it (may be empty)."""
_OF_SUMS = (
    ("energy of the facility, with PUE", "facility_energy_kwh", "kWh"),
    ("CO₂e", "carbon_kg", "kg"),
    ("CO₂e by the intensity at the time", "carbon_over_time_kg", "kg"),
)
_KIND = ["energy_origin", "energy_scope"]


def counting(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that count: those that are not excluded."""
    return runs[runs["excluded"].isna()]


def missing_runs(definition: Definition, runs: pd.DataFrame) -> list[tuple[str, int]]:
    """Return configuration and repeat of the planned runs that have no row."""
    there = set(zip(runs["configuration"], runs["repeat"], strict=True))
    return [
        (configuration, repeat)
        for configuration in definition.planned
        for repeat in definition.repeats(configuration)
        if (configuration, repeat) not in there
    ]


def facts(definition: Definition, runs: pd.DataFrame, hours: str, replaced: int = 0) -> list[Fact]:
    """Return the campaign in numbers. Sums are over the runs that count; each names how many lack a value.

    `replaced`: how many runs were measured again.
    """
    valid = counting(runs)
    excluded = runs[runs["excluded"].notna()]
    missing = missing_runs(definition, runs)
    notes = [_named("missing", len(missing)), _named("measured again", replaced)]
    left = valid["configuration"].nunique()
    gone = runs["configuration"].nunique() - left
    planned = sum(definition.planned.values())
    done = f"{len(runs)} of {planned}" if planned and missing else number(len(runs))
    found = [
        ("runs done", done, ", ".join(filter(None, notes))),
        ("configurations", number(left), _named("more with excluded runs alone", gone)),
    ]
    if len(excluded):
        beside = _total(excluded, "energy_kwh", "kWh")[0]
        found.append(("runs excluded", number(len(excluded)), f"{beside}, not in the sums"))
    found += _energies(valid)
    # The difference of two estimates is open.
    told = valid.assign(
        net_energy_kwh=valid["net_energy_kwh"].where(~valid["energy_origin"].isin(ORIGINS))
    )
    if told["net_energy_kwh"].notna().any():
        found.append(_sum(told, "energy above idle", "net_energy_kwh", "kWh"))
    found += _hours(valid, hours)
    columns = (*_OF_SUMS, ("cost", "cost", definition.currency))
    return found + [_sum(valid, *one) for one in columns if _is_told(valid, one[1])]


def _is_told(runs: pd.DataFrame, column: str) -> bool:
    """Return True if a sum tells something: not of the facility where its PUE is 1."""
    known = runs[column].dropna().astype(float)
    if column != "facility_energy_kwh":
        return len(known) > 0
    energy = runs.loc[known.index, "energy_kwh"].astype(float)
    return bool(((known - energy).abs() > 1e-9 * known).any())


def left_out_of_sums(runs: pd.DataFrame, has_idle: bool) -> list[str]:
    """Return what a reader may miss in the sums: a cost without a price, and what `scalewatt status` adds."""
    sentences = []
    if len(runs) and runs["cost"].isna().all():
        sentences.append(
            "No cost is stated: the cluster file has no price of energy for these runs."
        )
    if len(runs):
        probes = ", idle probes" if has_idle else ""
        sentences.append(
            f"Sums are over the runs that count. scalewatt status adds the other energy used{probes}: "
            "unfinished and excluded runs, replaced measurements, and data staging, which "
            "protocol paper does not count."
        )
    if runs["energy_origin"].isin(["estimated", "mixed"]).any():
        sentences.append(
            "An estimate is made from the load of whole devices and includes other programs that ran on "
            "them at the same time."
        )
    return sentences


def _named(label: str, n: int) -> str:
    return f"{number(n)} {label}" if n else ""


def _energies(runs: pd.DataFrame) -> list[Fact]:
    """Return one sum for each origin and scope: different ones are never added up."""
    known = runs[runs["energy_kwh"].notna()]
    without = len(runs) - len(known)
    lacking = f"{count(without, 'run')} without" if without else ""
    if known.empty:
        return [("energy", MISSING, lacking)]
    kinds = list(known.groupby(_KIND))
    found = []
    for place, ((origin, scope), own) in enumerate(kinds):
        of = count(len(own), "run") if len(kinds) > 1 else ""
        note = ", ".join(filter(None, [of, "" if place else lacking, _open_ends(own)]))
        total = with_unit(float(own["energy_kwh"].sum()), "kWh")
        found.append((f"energy, {origin} ({scope})", total, note))
    return found


def _open_ends(runs: pd.DataFrame) -> str:
    """Return within what the true sum of one origin lies: errors of estimates do not average out."""
    low, high = (
        runs[f"energy_{end}_kwh"].astype(float).sum(skipna=False) for end in ("low", "high")
    )
    return prose.open_interval(runs["energy_origin"].iloc[0], low, high)


def _hours(runs: pd.DataFrame, hours: str) -> list[Fact]:
    """Return one sum for each device: an hour of one is not an hour of another."""
    if runs["device"].nunique() < 2:
        return [_hours_of(runs, hours)]
    by_device = data.groups(runs, "device")
    return [_hours_of(own, hours, f", {one}") for one, own in by_device]


def _hours_of(runs: pd.DataFrame, hours: str, of: str = "") -> Fact:
    text, note = _total(runs, "gpu_hours", "h")
    unit = unit_for([runs["gpu_hours"].sum()], "h").name
    return in_unit(hours, unit) + of, text, note


def _sum(runs: pd.DataFrame, label: str, column: str, unit: str) -> Fact:
    text, note = _total(runs, column, unit)
    known = runs[runs[column].notna()]
    if (known[_KIND].nunique(dropna=False) > 1).any():
        note = ", ".join(filter(None, [note, "over unequal scopes or origins"]))
    if known["energy_origin"].isin(ORIGINS).any():
        note = ", ".join(filter(None, [note, "as uncertain as the estimates"]))
    return label, text, note


def _total(runs: pd.DataFrame, column: str, unit: str) -> tuple[str, str]:
    values = runs[column].dropna()
    if values.empty:
        return MISSING, ""
    partial = f"{len(values)} of {count(len(runs), 'run')}" if len(values) < len(runs) else ""
    return with_unit(float(sum(values)), unit), partial


def origin_sentences(runs: pd.DataFrame) -> str:
    """Return where the energies of runs come from, what they contain, and how many runs have none."""
    if runs.empty:
        return "No run counts, as all are excluded."
    known = runs[runs["energy_kwh"].notna()]
    without = len(runs) - len(known)
    kinds = list(known.groupby(_KIND))
    parts = []
    for (origin, scope), own in kinds:
        of = f" on {listed(own['device'].unique())}" if len(kinds) > 1 else ""
        parts.append(f"Energy{of} {prose.origin_phrase(str(origin), str(scope))}; scope: {scope}.")
    if without:
        parts.append(f"The energy of {count(without, 'run')} of {len(runs)} is not known.")
    simulated = (known["energy_origin"] == SIMULATED).any()
    return " ".join(filter(None, [*parts, scope_sentence(runs), ASSUMED if simulated else ""]))


def what_ran(runs: pd.DataFrame, word: str) -> list[str]:
    """Return for each device the hardware's name, the models, and the most GPUs and nodes."""
    lines = []
    for device, own in data.groups(runs, "device"):
        names = " / ".join(own["device_name"].dropna().unique())
        models = listed(dict.fromkeys(model_words(row._asdict()) for row in data.each(own)))
        nodes = int(own["nodes"].fillna(1).max())
        lines.append(
            f"{models} on {device}"
            + (f" ({names})" if names else "")
            + f": {count(len(own), 'run')}, on up to {prose.counted(own['gpus'].max(), word)}"
            + f" and {count(nodes, 'node')}."
        )
    return lines


def model_words(row: Mapping[str, Any] | pd.Series) -> str:
    """Return the model of a run or configuration, with its phase unless that is plain training."""
    return str(row["model"] if row["phase"] == "train" else f"{row['model']} ({row['phase']})")


def scope_sentence(runs: pd.DataFrame) -> str:
    """Return that totals of unequal scope are not comparable, where there are such."""
    return UNEQUAL_SCOPES if runs["energy_scope"].nunique() > 1 else ""
