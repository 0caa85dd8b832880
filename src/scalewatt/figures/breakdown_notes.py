"""Notes below the figure `breakdown` on what stands beside the energy: switches, and idle devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from scalewatt.figures import prose
from scalewatt.results.tables.estimates import ORIGINS

NETWORK = "switches"


def network_sentence(bars: pd.DataFrame) -> str:
    """Return what the outlines are, where a configuration has one, and how uncertain estimates are."""
    known = bars["network_energy_kwh"].notna()
    if not known.any():
        return ""
    some = "" if known.all() else " Of the other configurations none is known."
    return (
        f"Outlined, beside the bars and no part of them: {NETWORK} between the nodes, by what the "
        f"recordings state of them{_estimated(bars[known])}.{some}"
    )


def _estimated(bars: pd.DataFrame) -> str:
    """Return within what the true energies of switches lie, in brackets; nothing of measured ones."""
    low, energy, high = (
        bars[name].astype(float)
        for name in ("network_energy_low_kwh", "network_energy_kwh", "network_energy_high_kwh")
    )
    wide = high > low
    if not wide.any():
        return ""
    factor = max((high / energy)[wide].max(), (energy / low)[wide].max())
    which = "an estimate" if wide.all() else "some are estimates"
    return f" ({which}: the true value is within × or ÷ {factor:.2g})"


def idle_sentence(table: Mapping[str, Any], parts: pd.DataFrame) -> str:
    """Return what is hatched, what is not and why, and where devices used less than idle ones."""
    known = parts[parts["energy_kwh"].notna()]
    if known.empty:
        return ""
    if known["idle_energy_kwh"].isna().all():
        if table.get("no_idle"):
            return ""  # the table's notes say so, and why
        probe = "usable probe" if "no_idle" in table else "idle probe of these devices"
        return f"The idle baseline is not known: the campaign has no {probe}."
    probe = "Hatched: what the devices would have used idle over the same time."
    if known["idle_energy_kwh"].isna().any():
        probe += " Bars without hatching: not known."
    if (known["energy_origin"].isin(ORIGINS) & known["idle_energy_kwh"].notna()).any():
        probe += " Whether estimated devices used more than idle ones is not told."
    less = prose.below_idle(known)
    return probe + (
        f" They used less than idle devices, so that all is hatched: {'; '.join(less)}."
        if less
        else ""
    )
