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
from scalewatt.results.tables.table_schema import NET_ENERGY, OVER_TIME

Ends = tuple[float, float]

ORIGINS = (ESTIMATED, "mixed")
"""Origins of energies of which a part is estimated."""
_OF_KINDS = {
    "mean_gpu_power_w": "gpu_",
    "mean_cpu_socket_power_w": "cpu_",
    "mean_ram_power_w": "ram_",
    **{f"{kind}_energy_kwh": f"{kind}_" for kind in DEVICE_KINDS},
}
_OF_ALL = (
    *("energy_kwh", "p_gpuh_kw", "energy_per_sample_j", "energy_per_update_j"),
    *("energy_per_node_kwh", "facility_energy_kwh", "carbon_kg", OVER_TIME, "cost"),
)
_OF_METERS = "node_energy_kwh"
"""Measured, whatever is estimated of a node's parts."""


def estimate_bounds(
    runs: pd.DataFrame, in_scope: Mapping[str, pd.Series], total_j: pd.Series, of_nodes: pd.Series
) -> dict[str, pd.Series]:
    """Return ESTIMATE_BOUNDS of runs, from the columns `<kind>_low_j` and `<kind>_high_j`.

    Of the whole energy as if the errors of all device kinds had the same sign; where it is that of whole
    nodes (`of_nodes`), which is measured, the energy itself.
    """
    found: dict[str, pd.Series] = {}
    for end in ("low", "high"):
        parts = {kind: runs[f"{kind}_{end}_j"] for kind in DEVICE_KINDS}
        total = total_in_scope(parts, in_scope).where(~of_nodes, total_j).where(total_j.notna())
        found |= {f"energy_{end}_kwh": total / J_PER_KWH}
        found |= {f"{kind}_energy_{end}_kwh": parts[kind] / J_PER_KWH for kind in DEVICE_KINDS}
    return found


def relative_bounds(row: Mapping[str, Any], name: str, ending: str = "_mean") -> Ends | None:
    """Return the ends of the interval that estimates leave to a quantity, over the quantity itself.

    `ending` is that of energies' columns: `_mean` of a configuration, nothing of a run. (1, 1) where
    nothing of it is estimated, or it is no energy; None where that is not known.
    """
    open_ = row["energy_origin"] in ORIGINS
    if name == NET_ENERGY and open_:
        return None  # a difference of two estimates
    if name.endswith("_energy_share"):
        return _share_bounds(row, name.removesuffix("_energy_share"), ending)
    prefix = _OF_KINDS.get(name, "" if name in _OF_ALL else None)
    if prefix is None and _is_open(name, open_):
        return None
    energy = None if prefix is None else row.get(f"{prefix}energy_kwh{ending}")
    if not (open_ and energy):
        return 1.0, 1.0
    low, high = (row.get(f"{prefix}energy_{end}_kwh") for end in ("low", "high"))
    return None if low is None or high is None else left_open(energy, low, high)


def is_estimated(rows: pd.DataFrame) -> pd.Series:
    """Return where an energy is estimated, wholly or in part."""
    return rows["energy_origin"].isin(ORIGINS).fillna(False).astype(bool)


def is_measured(rows: pd.DataFrame, prefix: str = "") -> pd.Series:
    """Return where nothing of an energy of runs is estimated: it is the lower end of its interval."""
    energy, low = rows[f"{prefix}energy_kwh"], rows[f"{prefix}energy_low_kwh"]
    return ~is_estimated(rows) | ((energy - low).abs() <= 1e-12 * energy)


def left_open(energy: float, low: float, high: float) -> Ends:
    """Return the ends of an energy's interval over it, as far as estimates leave it open.

    (1, 1) where the energy is its lower end: it was measured, and the interval is what its uncovered time
    can have cost.
    """
    measured = math.isclose(low, energy, rel_tol=1e-12)
    return (1.0, 1.0) if measured else (low / energy, high / energy)


def _is_open(name: str, estimated: bool) -> bool:
    """Return True if a quantity without an interval is an energy that may be estimated."""
    return estimated and "energy" in name and name != _OF_METERS


def _share_bounds(row: Mapping[str, Any], kind: str, ending: str) -> Ends | None:
    """Return that of a device kind's share of the energy."""
    part = relative_bounds(row, f"{kind}_energy_kwh", ending)
    whole = relative_bounds(row, "energy_kwh", ending)
    return None if part is None or whole is None else (part[0] / whole[1], part[1] / whole[0])


def estimated_ends(rows: pd.DataFrame, energy: str) -> pd.DataFrame:
    """Return the ends of the intervals of energies, as far as estimates leave them open; else null.

    `energy` is the column of the energies: `energy_kwh` of runs, with `_mean` of configurations.
    """
    ends = rows[["energy_low_kwh", "energy_high_kwh"]]
    apart = (rows[energy] - rows["energy_low_kwh"]).abs() > 1e-12 * rows[energy]
    return ends.where(is_estimated(rows) & apart.fillna(False))
