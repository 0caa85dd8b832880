"""What follows from a run's energies and its work, with and without the idle baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scalewatt.campaign.campaign_types import Cluster
from scalewatt.recordings.series import DEVICE_KINDS, J_PER_KWH
from scalewatt.results.tables.table_schema import NET


@dataclass(frozen=True)
class Facility:
    """What the site adds to a run's energy; null where the cluster file does not say."""

    pue: float | None = None
    carbon_g_per_kwh: float | None = None
    price_per_kwh: float | None = None


def facility_of(cluster: Cluster) -> Facility:
    """PUE, carbon and price of a cluster, null where it names none."""
    given = (cluster.pue, cluster.carbon_intensity, cluster.price)
    return Facility(*(entry["value"] if entry else None for entry in given))


@dataclass(frozen=True)
class Work:
    """What a run's energy was used for, and how long its devices were recorded."""

    gpu_hours: float
    nodes: int
    samples: int | None
    updates: int | None
    gpu_s: float
    """Seconds of the GPUs held, summed over them; likewise of sockets and nodes."""
    socket_s: float
    node_s: float


def energy_columns(
    joules: Mapping[str, float | None], total_j: float | None, work: Work, facility: Facility
) -> dict[str, float | None]:
    """ENERGY_QUANTITIES but `energy_per_model_kwh`, from J of each device kind and in total."""
    kwh = ratio(total_j, J_PER_KWH)
    facility_kwh = product(kwh, facility.pue)
    return {
        "energy_kwh": kwh,
        **{f"{kind}_energy_kwh": ratio(joules[kind], J_PER_KWH) for kind in DEVICE_KINDS},
        **{f"{kind}_energy_share": ratio(joules[kind], total_j) for kind in DEVICE_KINDS},
        "p_gpuh_kw": ratio(kwh, work.gpu_hours),
        "mean_gpu_power_w": ratio(joules["gpu"], work.gpu_s),
        "mean_cpu_socket_power_w": ratio(joules["cpu"], work.socket_s),
        "mean_ram_power_w": ratio(joules["ram"], work.node_s),
        "energy_per_sample_j": ratio(total_j, work.samples),
        "energy_per_update_j": ratio(total_j, work.updates),
        "energy_per_node_kwh": ratio(kwh, work.nodes),
        "facility_energy_kwh": facility_kwh,
        "carbon_kg": ratio(product(facility_kwh, facility.carbon_g_per_kwh), 1000),
        "cost": product(facility_kwh, facility.price_per_kwh),
    }


def net_columns(
    joules: Mapping[str, float | None],
    idle_j: Mapping[str, float | None],
    scope: Iterable[str],
    work: Work,
    facility: Facility,
) -> dict[str, float | None]:
    """The same above the idle baseline: of each device kind its energy less what it uses idle.

    Null in the total where one kind of the scope has no baseline.
    """
    net = {kind: difference(joules[kind], idle_j.get(kind)) for kind in DEVICE_KINDS}
    parts = [net[kind] for kind in scope]
    known = [part for part in parts if part is not None]
    total = sum(known) if known and len(known) == len(parts) else None
    columns = energy_columns(net, total, work, facility)
    return {f"{NET}{name}": value for name, value in columns.items()}


def with_model_energies(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add `energy_per_model_kwh`: a run's energy, and that of the run whose weights it began from.

    Null where that run is not among the rows, is excluded, or its energy is not known.
    """
    by_run = {
        f"{row['configuration']}/{row['repeat']}": row
        for row in rows
        if row.get("excluded") is None
    }
    return [{**row, **_model_energies(row, by_run)} for row in rows]


def _model_energies(
    row: Mapping[str, Any], by_run: Mapping[str, Mapping[str, Any]]
) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for prefix in ("", NET):
        own = row[f"{prefix}energy_kwh"]
        if row["initial_weights"] is not None:
            before = by_run.get(row["initial_weights"])
            own = None if before is None else _sum(own, before[f"{prefix}energy_kwh"])
        found[f"{prefix}energy_per_model_kwh"] = own
    return found


def ratio(top: float | None, bottom: float | None) -> float | None:
    """The ratio; null where one is, or the divisor is 0."""
    return top / bottom if top is not None and bottom else None


def product(*factors: float | None) -> float | None:
    """The product; null where one factor is."""
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def difference(one: float | None, other: float | None) -> float | None:
    """The difference; null where one is."""
    return None if one is None or other is None else one - other


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
