"""Quantities derived from the energies and the work of runs, with and without the idle baseline.

The columns are Arrow-backed; null if an input is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from scalewatt.campaign.cluster import Cluster
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH


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

    Null if that run is not in the table, is excluded, or its energy is not known.
    """
    counted = runs[runs["excluded"].isna()]
    names = counted["configuration"].str.cat(counted["repeat"].astype("string[pyarrow]"), sep="/")
    alone = runs["initial_weights"].isna()
    energy, before = runs["energy_kwh"], counted["energy_kwh"].set_axis(names)
    total = energy + before.reindex(runs["initial_weights"]).set_axis(runs.index)
    return runs.assign(energy_per_model_kwh=energy.where(alone, total))


def ratio(top: pd.Series, bottom: pd.Series) -> pd.Series:
    """Divide; null if one is, or the divisor is 0."""
    return top / bottom.where(bottom != 0)


def times(column: pd.Series, factor: float | None) -> pd.Series:
    """Multiply; null if the factor is None."""
    return column * (pd.NA if factor is None else factor)
