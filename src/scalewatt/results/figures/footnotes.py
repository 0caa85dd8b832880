"""Notes that a caption has of the runs of a table: published points, simulations, estimates and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from scalewatt.campaign.campaign_types import SAME
from scalewatt.recordings.terms import SIMULATED
from scalewatt.results.figures.figure_schema import PANEL_FIGURES
from scalewatt.results.tables.estimates import is_estimated
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.published import is_overlaid
from scalewatt.results.text.flag_labels import read_flags

ASSUMED = (
    "Simulated: run times and whole energies are the scaling model's. Errors that were not published, the "
    "parts of GPUs, CPUs and memory in the energy if the model does not know them, power over time and the "
    "scatter of repeats are assumed."
)
SCATTER = "the scatter of their errors does not show what another seed would give."
_WITH_ERRORS = ("learning", "table1", "variants")
"""Tables that show errors, besides figures with a panel of them."""


def notes(
    definition: Mapping[str, Any], runs: pd.DataFrame, seeds: Mapping[str, str | None]
) -> list[str]:
    """Sentences on the runs of a table, as far as they concern any of them; `seeds` as of `seed_notes`."""
    counted, notes = runs[runs["excluded"].isna()], []
    if is_overlaid(definition):
        notes.append("Published: Huber et al. (2025), where they have the same training.")
        protocols = sorted({*counted["protocol"]} - {"paper"})
        if protocols:
            words = ", ".join(protocols)
            notes.append(f"Published runs followed protocol paper, these (also) {words}.")
    if counted["energy_origin"].eq(SIMULATED).any():
        notes.append(ASSUMED)
    kinds: dict[str, dict[str, None]] = {}
    for run in records(counted[["model", "phase", "device", "flags"]]):
        for flag in read_flags(run["flags"]):
            if flag["code"] in ("cost_assumed", "extrapolated"):
                kind = f"{run['model']}.{run['phase']} on {run['device']}"
                kinds.setdefault(flag["detail"], {})[kind] = None
    notes += [f"Simulated {', '.join(names)}: {detail}." for detail, names in kinds.items()]
    notes += estimate_notes(counted)
    return notes + (seed_notes(seeds) if _shows_errors(definition.get("figure")) else [])


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


def seed_notes(seeds: Mapping[str, str | None]) -> list[str]:
    """Sentences on repeats that do not tell how errors scatter.

    `seeds` of the repeats' errors, by configuration: same, varied, or null where they are not known.
    """
    same, unknown = ([id_ for id_, seed in seeds.items() if seed == kind] for kind in (SAME, None))
    of_same, of_unknown = (
        "" if len(ids) == len(seeds) else f" of {len(ids)} of {len(seeds)} configurations"
        for ids in (same, unknown)
    )
    notes = [f"Repeats{of_same} share one seed: {SCATTER}"] if same else []
    if unknown:
        notes.append(f"Whether repeats{of_unknown} share a seed is not known; if so, {SCATTER}")
    return notes


def _shows_errors(figure: str | None) -> bool:
    panels = PANEL_FIGURES[figure].panels if figure in PANEL_FIGURES else ()
    shown = any(panel.y_name.startswith("metric_") for panel in panels)
    return figure is None or figure in _WITH_ERRORS or shown
