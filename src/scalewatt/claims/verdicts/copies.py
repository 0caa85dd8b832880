"""Energies that rest on copied recordings: the same evidence by the recordings that are no copies.

A run whose devices or nodes repeat each other's samples has a `duplicate_share`, and beside its energy
`distinct_energy_kwh`: the mean of the distinct ones in place of each.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pandas as pd

from scalewatt.claims.evidence.claim_types import Outcome
from scalewatt.claims.evidence.evidence import Evidence, Point, pooled_spreads
from scalewatt.claims.numbers.uncertain_number import shown
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.table_schema import PARTS

WHOLE = ("energy_kwh", "node_energy_kwh", "p_gpuh_kw")
"""What is changed with the energy: these, and energies per sample, update, node and model, in proportion."""
PER = (
    "energy_per_sample_j",
    "energy_per_update_j",
    "energy_per_node_kwh",
    "energy_per_model_kwh",
)


def copied(evidence: Evidence, configurations: Collection[str]) -> pd.DataFrame:
    """Return the runs of these configurations whose energy rests on copies in part."""
    runs = evidence.runs
    own = runs["configuration"].isin(list(configurations)) & runs["energy_kwh"].notna()
    return runs[own & (runs["duplicate_share"].astype("float64").fillna(0) > 0)]


def without_copies(evidence: Evidence, configurations: Collection[str]) -> Evidence | None:
    """Return the evidence with distinct energies in place of copied ones; null where there are none.

    Runs of a configuration without copies keep their energies.
    """
    found = copied(evidence, configurations)
    known = set(found.dropna(subset=["distinct_energy_kwh"])["configuration"])
    if not known:
        return None
    runs = evidence.runs[evidence.runs["configuration"].isin(list(known))]
    groups = dict(list(runs.groupby("configuration")))

    def changed(point: Point) -> Point:
        own = groups.get(point.id)
        return point if own is None else replace(point, row={**point.row, **_columns(own, point)})

    whole = evidence.changed(changed)
    spreads = pooled_spreads(whole.points)
    return whole.changed(lambda point: replace(point, spreads=spreads))


def _columns(runs: pd.DataFrame, point: Point) -> dict[str, Any]:
    """Return the columns of a point's energies, by what is no copy."""
    energy = runs["energy_kwh"].astype("float64")
    ratio = (runs["distinct_energy_kwh"].astype("float64") / energy).fillna(1.0)
    found: dict[str, Any] = {}
    for name in (*WHOLE, *PER):
        if point.row.get(f"{name}_mean") is None:
            continue
        if name == "p_gpuh_kw":
            own = runs[name].astype("float64") * ratio
        elif name in PER:
            own = point.row[f"{name}_mean"] * energy * ratio / energy.mean()
        else:
            own = energy * ratio
        summary = summarise([None if pd.isna(one) else float(one) for one in own])
        found |= {f"{name}_{part}": getattr(summary, part) for part in PARTS}
    return found


def about_copies(
    evidence: Evidence, configurations: Collection[str], outcome: Outcome, again: Outcome
) -> str:
    """Return a sentence: how much of the energies rests on copies, and the verdict without these."""
    runs = copied(evidence, configurations)
    shares = runs["duplicate_share"].astype("float64")
    span = " to ".join(dict.fromkeys(f"{100 * one:.0f}" for one in (shares.min(), shares.max())))
    ids = runs["configuration"].nunique()
    where = f"{len(runs)} runs of {ids} configuration{'s' if ids > 1 else ''}"
    text = f"Of the energy of {where} {span} % rests on recordings that are copies of others; "
    if again.verdict == outcome.verdict:
        return f"{text}without these the verdict is the same{_value(again)}."
    return f"{text}without these the verdict is {again.verdict}: {again.detail}"


def _value(again: Outcome) -> str:
    return f" ({shown(again.value)})" if isinstance(again.value, float) else ""
