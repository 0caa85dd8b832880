"""Quantities derived from the energies and the work of runs, with and without the idle baseline.

The columns are Arrow-backed; null if an input is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from scalewatt.recordings.terms import DEVICE_KINDS, ESTIMATED, J_PER_KWH
from scalewatt.results.tables.frames import equal

if TYPE_CHECKING:  # it takes a third of a second to import
    from scalewatt.campaign.cluster import Cluster


@dataclass(frozen=True)
class Facility:
    """The site's PUE, carbon intensity and price; null if the cluster file has none."""

    pue: float | None = None
    carbon_g_per_kwh: float | None = None
    price_per_kwh: float | None = None


def facility_of(cluster: Cluster) -> Facility:
    """PUE, carbon intensity and price of a cluster, null if it names none."""
    factors: list[Any] = [cluster.pue, cluster.carbon_intensity, cluster.price]
    return Facility(*(factor.get("value") if factor else None for factor in factors))


def energy_columns(
    joules: Mapping[str, pd.Series], total_j: pd.Series, work: pd.DataFrame, facility: Facility
) -> dict[str, pd.Series]:
    """Compute the quantities of energy but `energy_per_model_kwh`, from J of each device kind and in total.

    Columns of `work`: gpu_hours, nodes, samples, updates; and the seconds of the GPUs held, the sockets and
    the nodes, summed over them, as gpu_s, socket_s and node_s.
    """
    kwh = total_j / J_PER_KWH
    facility_kwh = times(kwh, facility.pue)
    return {
        "energy_kwh": kwh,
        **{f"{kind}_energy_kwh": joules[kind] / J_PER_KWH for kind in DEVICE_KINDS},
        **{f"{kind}_energy_share": ratio(joules[kind], total_j) for kind in DEVICE_KINDS},
        "p_gpuh_kw": ratio(kwh, work["gpu_hours"]),
        "mean_gpu_power_w": ratio(joules["gpu"], work["gpu_s"]),
        "mean_cpu_socket_power_w": ratio(joules["cpu"], work["socket_s"]),
        "mean_ram_power_w": ratio(joules["ram"], work["node_s"]),
        "energy_per_sample_j": ratio(total_j, work["samples"]),
        "energy_per_update_j": ratio(total_j, work["updates"]),
        "energy_per_node_kwh": ratio(kwh, work["nodes"]),
        "facility_energy_kwh": facility_kwh,
        "carbon_kg": times(facility_kwh, facility.carbon_g_per_kwh) / 1000,
        "cost": times(facility_kwh, facility.price_per_kwh),
    }


def total_in_scope(parts: Mapping[str, pd.Series], in_scope: Mapping[str, pd.Series]) -> pd.Series:
    """Sum over the device kinds in scope; null if one is, or none is in scope."""
    gpu, cpu, ram = (parts[kind].where(in_scope[kind], 0.0) for kind in DEVICE_KINDS)
    return (gpu + cpu + ram).where(in_scope["gpu"] | in_scope["cpu"] | in_scope["ram"])


def with_model_energies(runs: pd.DataFrame) -> pd.DataFrame:
    """Add `energy_per_model_kwh`: a run's energy, and that of the run whose weights it began from.

    Null if that run is not in the table, is excluded, or its energy is not known or of another origin or
    scope.
    """
    counted = runs[runs["excluded"].isna()]
    names = counted["configuration"].str.cat(counted["repeat"].astype("string[pyarrow]"), sep="/")
    alone = runs["initial_weights"].isna()
    facts = ["energy_kwh", "energy_origin", "energy_scope"]
    before = counted[facts].set_axis(names).reindex(runs["initial_weights"]).set_axis(runs.index)
    alike = [equal(runs[name], before[name]) for name in facts[1:]]
    total = (runs["energy_kwh"] + before["energy_kwh"]).where(alike[0] & alike[1])
    return runs.assign(energy_per_model_kwh=runs["energy_kwh"].where(alone, total))


def ratio(top: pd.Series, bottom: pd.Series) -> pd.Series:
    """Divide; null if one is, or the divisor is 0."""
    return top / bottom.where(bottom != 0)


def times(column: pd.Series, factor: float | None) -> pd.Series:
    """Multiply; null if the factor is None."""
    return column * (pd.NA if factor is None else factor)


# --- what estimates leave open --------------------------------------------------------------------
# The error of an estimate belongs to the machine: repeats share it, and it averages out over nothing. So no
# ratio, front or verdict is stated of energies that are estimated, wholly or in part (ORIGINS).


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


def is_measured(rows: pd.DataFrame, energy: str, low: str) -> pd.Series:
    """True where nothing of an energy is estimated: it is the lower end of its interval."""
    is_low = (rows[energy] - rows[low]).abs() <= 1e-12 * rows[energy]
    return ~is_estimated(rows) | is_low.fillna(False)


def estimated_ends(rows: pd.DataFrame, energy: str) -> pd.DataFrame:
    """Ends of the intervals of energies, as far as estimates leave them open; else null.

    `energy` is the column of the energies: `energy_kwh` of runs, with `_mean` of configurations.
    """
    ends = rows[["energy_low_kwh", "energy_high_kwh"]]
    return ends.where(~is_measured(rows, energy, "energy_low_kwh"))
