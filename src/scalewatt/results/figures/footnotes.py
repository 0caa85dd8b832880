"""Sentences that a reader of a figure, or of Table 1, must have beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scalewatt.campaign.campaign_types import SAME
from scalewatt.recordings.terms import SIMULATED
from scalewatt.results.figures.figure_schema import PANEL_FIGURES
from scalewatt.results.tables.estimates import ORIGINS, relative_bounds
from scalewatt.results.tables.published import (
    is_overlaid,
    published_lines,
    published_sources,
)
from scalewatt.results.tables.scaling import points_of
from scalewatt.results.text.flag_labels import read_flags

Row = dict[str, Any]

_SOURCES = {
    "paper_table1": "Table 1",
    "paper_text_3.2.2": "section 3.2.2",
    "paper_text_3.3.1": "section 3.3.1",
    "paper_text_3.3.2": "section 3.3.2",
    "authors_code_fig3": "the authors' code for Figure 3",
}

ASSUMED = (
    "Simulated: run times and whole energies are the scaling model's. Errors that are not published, how "
    "energy divides among GPUs, CPUs and memory where the model does not know it, power in time and the "
    "scatter of repeats are assumed (docs/simulate.md)."
)


SCATTER = "how their errors scatter says nothing of how another seed would do."
_WITH_ERRORS = ("learning", "table1", "variants")
"""Tables that show errors, besides figures with a panel of them and the tables of all runs."""


def notes(
    definition: Row, rows: Sequence[Row], seeds: Mapping[str, str | None] | None = None
) -> list[str]:
    """Return what a caption must say of published points, simulations, estimates and seeds.

    `rows` are those of the runs, `seeds` as of `seed_notes`.
    """
    return [
        *_overlay_notes(definition, rows),
        *_simulated_notes(rows),
        *estimate_notes(rows),
        *(seed_notes(seeds or {}) if _shows_errors(definition.get("figure")) else []),
    ]


def estimate_notes(rows: Sequence[Row]) -> list[str]:
    """Say within what the true energies lie, where some of these runs' are estimated."""
    counted = [r for r in rows if r.get("excluded") is None and r.get("energy_kwh") is not None]
    found = [
        relative_bounds(row, "energy_kwh", "") for row in counted if row["energy_origin"] in ORIGINS
    ]
    known = [ends for ends in found if ends is not None]
    if not found:
        return []
    if len(known) < len(found):
        return ["Energies are estimated, in part without an interval."]
    low, high = min(ends[0] for ends in known), max(ends[1] for ends in known)
    some = "Energies are" if len(found) == len(counted) else "Some energies are"
    return [
        f"{some} estimated: the true ones lie within {low:.2g} to {high:.2g} times what is shown. "
        "Repeats share that error, so their spread says nothing of it (docs/energy.md)."
    ]


def seed_notes(seeds: Mapping[str, str | None]) -> list[str]:
    """Say which repeats do not tell how errors scatter.

    `seeds` of the repeats' errors, by configuration: same, varied, or null where they are not known.
    """
    same, unknown = (sum(word == one for word in seeds.values()) for one in (SAME, None))

    def of_some(number: int) -> str:
        return "" if number == len(seeds) else f" of {number} of {len(seeds)} configurations"

    found = [f"Repeats{of_some(same)} share one seed: {SCATTER}"] if same else []
    if unknown:
        found.append(
            f"Whether repeats{of_some(unknown)} share a seed is not known; if so, {SCATTER}"
        )
    return found


def _shows_errors(figure: str | None) -> bool:
    panels = PANEL_FIGURES[figure].panels if figure in PANEL_FIGURES else ()
    shown = any(panel.y_name.startswith("metric_") for panel in panels)
    return figure is None or figure in _WITH_ERRORS or shown


def _overlay_notes(definition: Row, rows: Sequence[Row]) -> list[str]:
    """Return where the published points stand, and in what their runs differed."""
    if not is_overlaid(definition):
        return []
    series = definition.get("series") or [
        {"name": "", "label": "", "points": definition["points"]}  # of Table 1
    ]
    shown = list(published_lines(points_of(series))["configuration"])
    if not shown:
        return ["Nothing is published of these trainings."]
    notes = [f"Published: Huber et al. (2025), {', '.join(_places(shown))}."]
    protocols = sorted({row["protocol"] for row in rows} - {"paper"})
    if protocols:
        notes.append(
            f"Published runs followed protocol paper, these (also) protocol {', '.join(protocols)}."
        )
    return notes


def _simulated_notes(rows: Sequence[Row]) -> list[str]:
    """Say what simulations assume, and what the scaling model does not know, once per kind of training."""
    counted = [row for row in rows if row["excluded"] is None]
    assumed = [ASSUMED] if any(row.get("energy_origin") == SIMULATED for row in counted) else []
    found: dict[str, dict[str, None]] = {}
    for row in counted:
        for one in read_flags(row.get("flags")):
            if one["code"] in ("cost_assumed", "extrapolated"):
                kind = f"{row['model']}.{row['phase']} on {row['device']}"
                found.setdefault(one["detail"], {})[kind] = None
    simulated = [
        f"Simulated {'; '.join(kinds)}: {statement}." for statement, kinds in found.items()
    ]
    return [*assumed, *simulated]


def _places(configurations: Iterable[str]) -> list[str]:
    found = published_sources()
    codes = dict.fromkeys(code for id_ in configurations for code in found[id_].split("; "))
    known = [words for code, words in _SOURCES.items() if code in codes]
    return known + [code for code in codes if code not in _SOURCES]
