"""Metadata of a table for its caption: notes on its runs, what n counts, and why energies are not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import SAME, VARIED
from scalewatt.recordings.terms import SIMULATED
from scalewatt.results.figures.figure_schema import PANEL_FIGURES
from scalewatt.results.tables.estimates import is_estimated
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import is_overlaid
from scalewatt.results.text.flag_labels import (
    FLAG_WORDS,
    NULL_ENERGY,
    counts_processes,
    read_flags,
)

Row = dict[str, Any]
ASSUMED = (
    "Simulated: run times and whole energies are the scaling model's. Errors that were not published, the "
    "parts of GPUs, CPUs and memory in the energy if the model does not know them, power over time and the "
    "scatter of repeats are assumed."
)
SCATTER = "the scatter of their errors does not show what another seed would give."
_WITH_ERRORS = ("learning", "table1", "variants")
"""Tables that show errors, besides figures with a panel of them."""


def notes(definition: Mapping[str, Any], runs: pd.DataFrame) -> list[str]:
    """Sentences on the runs of a table, as far as they concern any of them."""
    counted, notes = runs[runs["excluded"].isna()], []
    if is_overlaid(definition):
        notes.append("Published: Huber et al. (2025), where they have the same training.")
        if protocols := sorted({*counted["protocol"]} - {"paper"}):
            words = ", ".join(protocols)
            notes.append(f"Published runs followed protocol paper, these (also) {words}.")
    if counted["energy_origin"].eq(SIMULATED).any():
        notes.append(ASSUMED)
    kinds: dict[str, dict[str, None]] = {}
    for run in records(counted[["model", "phase", "device", "flags"]]):
        for flag in read_flags(run["flags"]):
            if flag["code"] == "extrapolated":
                kind = f"{run['model']}.{run['phase']} on {run['device']}"
                kinds.setdefault(flag["detail"], {})[kind] = None
    notes += [f"Simulated {', '.join(names)}: {detail}." for detail, names in kinds.items()]
    notes += estimate_notes(counted)
    if _shows_errors(definition.get("figure")):
        seeds = list(repeat_seeds(runs).values())
        for seed, words in ((SAME, "Repeats share one seed"), (None, "Repeats may share a seed")):
            if count := seeds.count(seed):
                some = f" (configurations: {count} of {len(seeds)})" * (count < len(seeds))
                notes.append(f"{words}{some}: {SCATTER}")
    return notes


def estimate_notes(runs: pd.DataFrame) -> list[str]:
    """Sentence on where true energies lie, if some of these runs' are estimated."""
    known = runs[runs["energy_kwh"].notna()]
    estimated = known[is_estimated(known)]
    if estimated.empty:
        return []
    some = "Energies are" if len(estimated) == len(known) else "Some energies are"
    ends = estimated[["energy_low_kwh", "energy_high_kwh"]].div(estimated["energy_kwh"], axis=0)
    if ends.isna().any(axis=None):
        return [f"{some} estimated, in part without an interval."]
    return [
        f"{some} estimated: the true ones lie within {ends['energy_low_kwh'].min():.2g} to "
        f"{ends['energy_high_kwh'].max():.2g} times what is shown. Repeats share this error, so their "
        "spread does not show it."
    ]


def _shows_errors(figure: str | None) -> bool:
    panels = PANEL_FIGURES[figure].panels if figure in PANEL_FIGURES else ()
    shown = any(panel.y_name.startswith("metric_") for panel in panels)
    return figure is None or figure in _WITH_ERRORS or shown


def repeat_seeds(runs: pd.DataFrame) -> dict[str, str | None]:
    """Seeds of repeats that count and have an error, by configuration: same, varied, or null if not known."""
    counted = runs[runs["excluded"].isna() & runs["metric_last"].notna()]
    seeds: dict[str, str | None] = {}
    for id_, repeats in counted.groupby("configuration", sort=False):
        if len(repeats) > 1:
            count = repeats["seed"].nunique()
            is_known = repeats["seed"].notna().all()
            # The descriptions that runs were registered with may say it.
            words = [SAME if count == 1 else VARIED] if is_known else repeats["seeds"].unique()
            seeds[str(id_)] = words[0] if len(words) == 1 and not pd.isna(words[0]) else None
    return seeds


def what_n_counts(definition: Mapping[str, Any], runs: pd.DataFrame) -> str:
    """`GPUs`, `processes`, or `ranks` of both; by the campaign's devices where no runs tell it."""
    if "torch_devices" in definition:
        words = {"cpu": "processes", "cuda": "GPUs"}
        names = {words.get(device, "ranks") for device in definition["torch_devices"]}
    else:
        names = {"processes" if counts_processes(row) else "GPUs" for row in records(runs)}
    return "ranks" if len(names) > 1 else next(iter(names), "GPUs")


def unknown_energies(runs: pd.DataFrame) -> dict[str, str]:
    """Name why the energy of a configuration is not known, by the flags of its runs that count."""
    why: dict[str, str] = {}
    for id_, counted in runs[runs["excluded"].isna()].groupby("configuration", sort=False):
        words: dict[str, None] = {}
        unknown = records(counted[counted["energy_kwh"].isna()])
        for row in unknown:
            codes = {flag["code"] for flag in read_flags(row["flags"])}
            usual = "absent" if row["energy_scope"] is None else "not_recorded"
            known = [code for code in NULL_ENERGY if code in codes] or [usual]
            words |= dict.fromkeys(FLAG_WORDS[code] for code in known)
        if unknown:
            some = f" in {len(unknown)} of {len(counted)} runs" * (len(unknown) < len(counted))
            why[str(id_)] = "; ".join(words) + some
    return why
