"""The notes of the breakdown of energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from scalewatt.energy.integration.stage_intervals import LEAST_PERIODS
from scalewatt.figures.figure_data import (
    gpu_word,
    groups,
    is_single,
    stored,
)
from scalewatt.figures.footnote_text import (
    KIND_WORDS,
    bar_sentence,
    device_sentence,
    excluded_sentence,
    missing_sentence,
    named,
    no_energy_sentence,
    origin_sentence,
)
from scalewatt.results.tables.frames import records

KINDS = {"gpu": 0, "cpu": 1, "ram": 2}
"""Colour of each device kind, in the order of the bars."""
OTHER = "other stages"
STAGES = {
    "train": "train",
    "evaluate_train": "evaluate train",
    "validate": "validate",
    "stage_data": "stage data",
    "checkpoint": OTHER,
    "startup": OTHER,
    "shutdown": OTHER,
    "unattributed": OTHER,
}
"""Stages in the order of the bars, each with the label of its shade; more shades than these few could
not be told apart."""


def note_sentences(
    parts: pd.DataFrame, bars: pd.DataFrame, kind: str, cut: Sequence[str]
) -> list[str]:
    """Return the notes below the figure: of the table's rows, of its bars, their kind of error bars,
    and those that are cut."""
    table = stored(parts)
    said = [
        f"{_origin_sentences(parts)} n counts {gpu_word(parts)}. {device_sentence(records(bars))}",
        f"Colour: device kind; shade: stage. {_others(parts)}Means over repeats; numbers: totals.",
        _spread_sentence(bars, kind, cut),
        _idle_sentence(table, parts),
        "Discarded: energy used by killed segments after their last checkpoint, part of the total."
        if (parts["discarded_energy_kwh"] > 0).any()
        else "",
        no_energy_sentence(table, records(bars.reset_index()[["configuration"]])),
        "A configuration shared by several series is shown with the first of them.",
    ]
    return [
        *(said if len(parts) else []),
        excluded_sentence(table.get("excluded", [])),
        missing_sentence(table.get("missing", [])),
        *table.get("notes", []),
    ]


def _others(parts: pd.DataFrame) -> str:
    """Return which stages have the shade of the others, and which were too short to have one."""
    there = set(parts.loc[parts["energy_kwh"] > 0, "stage"])
    others = [stage for stage, label in STAGES.items() if label == OTHER and stage in there]
    short = {stage for text in parts["short_stages"].dropna() for stage in text.split(", ")}
    inside = [stage for stage in STAGES if stage in short]
    said = f"Other stages: {', '.join(others)}. " if others else ""
    if inside:
        said += (
            f"Unattributed includes stages shorter than {LEAST_PERIODS} sampling periods, "
            f"which cannot be told from those around them: {', '.join(inside)}. "
        )
    return said


def _spread_sentence(bars: pd.DataFrame, kind: str, cut: Sequence[str]) -> str:
    """Return which error bars the totals have, which have none and why."""
    known = bars[bars["total_kwh"].notna()]
    singles, barred = int(is_single(known).sum()), int(known["bar_low"].notna().sum())
    said = "; totals without one are of single runs" if singles else ""
    if barred + singles < len(known):
        said += "; not known for some totals"
    if cut:
        said += f"; beyond the axis: {named(cut)}"
    return bar_sentence(kind, len(known), singles, barred, said).replace("point", "total")


def _origin_sentences(parts: pd.DataFrame) -> str:
    """Return origin and scope of the energies that are known; bars have no markers that could show it."""
    known = parts[parts["energy_kwh"].notna()]
    keys = ["energy_origin", "energy_scope", "device"]
    by_origin = known[keys].drop_duplicates().groupby("energy_origin", sort=False)
    said = [origin_sentence(records(own)) for _, own in by_origin]
    return " ".join(said) or "No energy is known for these runs."


def _idle_sentence(table: Mapping[str, Any], parts: pd.DataFrame) -> str:
    """Return what is hatched, what is not and why, and where devices used less than idle ones."""
    known = parts[parts["energy_kwh"].notna()]
    if known.empty:
        return ""
    if known["idle_energy_kwh"].isna().all():
        if table.get("no_idle"):
            return ""  # the table's notes say so, and why
        said = "usable probe" if "no_idle" in table else "idle probe of these devices"
        return f"The idle baseline is not known: the campaign has no {said}."
    said = "Hatched: what the devices would have used idle over the same time."
    if known["idle_energy_kwh"].isna().any():
        said += " Bars without hatching: not known."
    less = _below_idle(known)
    return said + (
        f" They used less than idle devices, so that all is hatched: {'; '.join(less)}."
        if less
        else ""
    )


def _below_idle(parts: pd.DataFrame) -> list[str]:
    """Return device kinds that used less than idle ones would have, with their configurations."""
    columns = ["idle_energy_kwh", "energy_kwh"]
    by_kind = parts.groupby(["device_kind", "configuration"], sort=False)
    sums = by_kind[columns].sum(skipna=False)
    below = sums[sums["idle_energy_kwh"] > sums["energy_kwh"] * (1 + 1e-9)].reset_index()
    return [
        f"{KIND_WORDS[kind]} of {named(list(own['configuration']))}"
        for kind, own in groups(below, "device_kind")
    ]
