"""What the breakdown of energy says in words, and the sums that it says it of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scalewatt.energy.integration.stage_intervals import LEAST_PERIODS
from scalewatt.figures.figure_data import Row, bar, is_single
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
"""Stages in the order of the bars, each with the words of its shade; more shades than these few could
not be told apart."""


def sum_of(rows: Iterable[Row], column: str) -> float | None:
    """The sum over the parts; None where one is not known, or there is none."""
    values = [row[column] for row in rows]
    return None if not values or None in values else sum(values)


def total_bar(rows: Sequence[Row], kind: str) -> tuple[float, float] | None:
    """The ends in kWh of the error bar of a configuration's total; None without one."""
    total = sum_of(rows, "energy_kwh")
    return bar(rows[0] | {"total_kwh": total}, kind, "total_kwh")


def idle_kwh(rows: Iterable[Row], kind: str) -> float | None:
    """What idle devices of a kind would have used, in kWh; None where it is not known."""
    return sum_of([row for row in rows if row["device_kind"] == kind], "idle_energy_kwh")


def note_sentences(stored: Row, rows: Sequence[Row], bars: str, cut: Sequence[str]) -> list[str]:
    """The small print: of `rows`, their table's metadata, the kind of error bars, and which are cut."""
    said = [
        f"{_origin_sentences(rows)} n counts {stored.get('gpu_word', 'GPUs')}."
        f" {device_sentence(rows)}",
        f"Colour: device kind; shade: stage. {_others(rows)}Means over repeats; numbers: totals.",
        _spread_sentence(rows, bars, cut),
        _idle_sentence(stored, rows),
        "Discarded: spent by killed segments after their last checkpoint, and part of the total."
        if any(row["discarded_energy_kwh"] for row in rows)
        else "",
        no_energy_sentence(stored, rows),
        "A configuration that several series share stands under the first of them.",
    ]
    return [
        *(said if rows else []),
        excluded_sentence(stored.get("excluded", [])),
        missing_sentence(stored.get("missing", [])),
        *stored.get("notes", []),
    ]


def _others(rows: Sequence[Row]) -> str:
    """Which stages have the shade of the others, and which were too short to have one."""
    there = {row["stage"] for row in rows if row["energy_kwh"]}
    named = [stage for stage, words in STAGES.items() if words == OTHER and stage in there]
    short = {stage for row in rows for stage in (row["short_stages"] or "").split(", ") if stage}
    inside = [stage for stage in STAGES if stage in short]
    said = f"Other stages: {', '.join(named)}. " if named else ""
    if inside:
        said += (
            f"Unattributed is also what was spent in stages of under {LEAST_PERIODS} sampling periods, "
            f"which cannot be told from those around them: {', '.join(inside)}. "
        )
    return said


def _spread_sentence(rows: Sequence[Row], kind: str, cut: Sequence[str]) -> str:
    """Which error bars the totals have, which have none and why."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["configuration"], []).append(row)
    known = [own for own in by_name.values() if sum_of(own, "energy_kwh") is not None]
    singles = sum(is_single(own[0]) for own in known)
    barred = sum(total_bar(own, kind) is not None for own in known)
    said = "; totals without one are of single runs" if singles else ""
    if barred + singles < len(known):
        said += "; of some totals not known"
    if cut:
        said += f"; beyond the axis: {named(cut)}"
    return bar_sentence(kind, len(known), singles, barred, said).replace("point", "total")


def _origin_sentences(rows: Sequence[Row]) -> str:
    """Origin and scope of the energies that are known; bars have no markers that could say it."""
    known = [row for row in rows if row["energy_kwh"] is not None]
    origins = dict.fromkeys(row["energy_origin"] for row in known)
    said = [origin_sentence([r for r in known if r["energy_origin"] == o]) for o in origins]
    return " ".join(said) or "No energy is known for these runs."


def _idle_sentence(stored: Row, rows: Sequence[Row]) -> str:
    """What is hatched, what is not and why, and where devices used less than idle ones."""
    known = [row for row in rows if row["energy_kwh"] is not None]
    if not known:
        return ""
    if all(row["idle_energy_kwh"] is None for row in known):
        if stored.get("no_idle"):
            return ""  # the table's notes say so, and why
        said = "usable probe" if "no_idle" in stored else "idle probe of these devices"
        return f"The idle baseline is not known: the campaign has no {said}."
    said = "Hatched: what the devices would have used idle over the same time."
    if any(row["idle_energy_kwh"] is None for row in known):
        said += " Bars without hatching: not known."
    less = _below_idle(known)
    return said + (
        f" They used less than idle ones, so that all is hatched: {'; '.join(less)}."
        if less
        else ""
    )


def _below_idle(rows: Sequence[Row]) -> list[str]:
    """Device kinds that used less than idle ones would have, with their configurations."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(row["configuration"] for row in rows):
        for kind in KINDS:
            own = [r for r in rows if (r["configuration"], r["device_kind"]) == (name, kind)]
            idle, energy = idle_kwh(own, kind), sum_of(own, "energy_kwh")
            if idle is not None and energy is not None and idle > energy * (1 + 1e-9):
                found.setdefault(KIND_WORDS[kind], []).append(name)
    return [f"{kind} of {named(names)}" for kind, names in found.items()]
