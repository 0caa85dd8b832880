"""What estimates leave open: the intervals of energies, and of what follows from them.

The error of an estimate belongs to the machine: repeats share it, and it averages out over nothing. So no
ratio, front or verdict is stated of energies that are estimated, wholly or in part (ORIGINS).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from scalewatt.recordings.terms import DEVICE_KINDS, ESTIMATED, J_PER_KWH
from scalewatt.results.tables.derived_quantities import total_in_scope

Ends = tuple[float, float]

ORIGINS = (ESTIMATED, "mixed")
"""Origins of energies of which a part is estimated."""
_PREFIXES = {
    **{f"{kind}_energy_kwh": f"{kind}_" for kind in DEVICE_KINDS},
    "mean_gpu_power_w": "gpu_",
    "mean_cpu_socket_power_w": "cpu_",
    "mean_ram_power_w": "ram_",
    **dict.fromkeys(("energy_kwh", "p_gpuh_kw", "energy_per_sample_j", "energy_per_update_j"), ""),
    **dict.fromkeys(("energy_per_node_kwh", "facility_energy_kwh", "carbon_kg", "cost"), ""),
}
"""Beginning of the columns of the energy that a quantity is proportional to."""
_BY_METERS = "node_energy_kwh"
"""Measured, whatever is estimated of a node's parts."""


def estimate_bounds(
    runs: pd.DataFrame, in_scope: Mapping[str, pd.Series], total_j: pd.Series, by_node: pd.Series
) -> dict[str, pd.Series]:
    """Columns ESTIMATE_BOUNDS of runs, from the columns `<kind>_low_j` and `<kind>_high_j`.

    Those of the whole energy are as if the errors of all device kinds had the same sign; where it is that of
    whole nodes (`by_node`), which is measured, they are the energy itself.
    """
    bounds: dict[str, pd.Series] = {}
    for end in ("low", "high"):
        parts = {kind: runs[f"{kind}_{end}_j"] for kind in DEVICE_KINDS}
        total = total_in_scope(parts, in_scope).where(~by_node, total_j).where(total_j.notna())
        bounds[f"energy_{end}_kwh"] = total / J_PER_KWH
        bounds |= {f"{kind}_energy_{end}_kwh": parts[kind] / J_PER_KWH for kind in DEVICE_KINDS}
    return bounds


def relative_bounds(row: Mapping[str, Any], name: str) -> Ends | None:
    """Ends of the interval that estimates leave to a quantity of a configuration, over the quantity.

    (1, 1) where nothing of it is estimated, or it is no energy; None where that is not known.
    """
    is_open = row["energy_origin"] in ORIGINS
    if name.endswith("_energy_share"):
        part = relative_bounds(row, f"{name.removesuffix('_energy_share')}_energy_kwh")
        whole = relative_bounds(row, "energy_kwh")
        return None if part is None or whole is None else (part[0] / whole[1], part[1] / whole[0])
    prefix = _PREFIXES.get(name)
    if prefix is None:
        # An energy without an interval of its own, such as a difference of two estimates.
        return None if is_open and "energy" in name and name != _BY_METERS else (1.0, 1.0)
    energy = row.get(f"{prefix}energy_kwh_mean")
    if not (is_open and energy):
        return 1.0, 1.0
    low, high = (row.get(f"{prefix}energy_{end}_kwh") for end in ("low", "high"))
    if low is None or high is None:
        return None
    # What is its own lower end was measured, and the interval is what its uncovered time can have cost.
    return (1.0, 1.0) if math.isclose(low, energy, rel_tol=1e-12) else (low / energy, high / energy)


def is_estimated(rows: pd.DataFrame) -> pd.Series:
    """True where an energy is estimated, wholly or in part."""
    return rows["energy_origin"].isin(ORIGINS).fillna(False).astype(bool)


def is_measured(rows: pd.DataFrame, prefix: str) -> pd.Series:
    """True where nothing of an energy of runs is estimated: it is the lower end of its interval."""
    energy, low = rows[f"{prefix}energy_kwh"], rows[f"{prefix}energy_low_kwh"]
    return ~is_estimated(rows) | ((energy - low).abs() <= 1e-12 * energy)


def estimated_ends(rows: pd.DataFrame, energy: str) -> pd.DataFrame:
    """Ends of the intervals of energies, as far as estimates leave them open; else null.

    `energy` is the column of the energies: `energy_kwh` of runs, with `_mean` of configurations.
    """
    ends = rows[["energy_low_kwh", "energy_high_kwh"]]
    apart = (rows[energy] - rows["energy_low_kwh"]).abs() > 1e-12 * rows[energy]
    return ends.where(is_estimated(rows) & apart.fillna(False))
