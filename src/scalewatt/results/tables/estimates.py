"""What estimates leave open: the intervals of energies, and of what follows from them.

The error of an estimate belongs to the machine: repeats share it, and it averages out over nothing. In the
ratio of two energies on one device, of CPUs alike by `rated_w`, the machine's part cancels, and the curve
over load leaves SHAPE_FACTOR. Of anything else the whole of both intervals counts: of measured curves, of a
user's own factor, and of sums with a part that was measured or estimated otherwise. No row says by which
formula an energy was estimated; what tells is its interval, × or ÷ FACTOR.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.energies.integration.rated_power import FACTOR, SHAPE_FACTOR
from scalewatt.recordings.series import DEVICE_KINDS, ESTIMATED, J_PER_KWH
from scalewatt.results.tables.derived_quantities import total_in_scope
from scalewatt.results.tables.frames import column_of, records
from scalewatt.results.tables.table_schema import OVER_TIME

Row = dict[str, Any]
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
_OF_SWITCHES = "network_energy_kwh"
"""Its origin is in no row."""


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
    if name.startswith("net_") and open_:
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


def left_open(energy: float, low: float, high: float) -> Ends:
    """Return the ends of an energy's interval over it, as far as estimates leave it open.

    (1, 1) where the energy is its lower end: it was measured, and the interval is what its uncovered time
    can have cost.
    """
    measured = math.isclose(low, energy, rel_tol=1e-12)
    return (1.0, 1.0) if measured else (low / energy, high / energy)


def _is_open(name: str, estimated: bool) -> bool:
    """Return True if a quantity without an interval is an energy that may be estimated."""
    return name == _OF_SWITCHES or (estimated and "energy" in name and name != _OF_METERS)


def _share_bounds(row: Mapping[str, Any], kind: str, ending: str) -> Ends | None:
    """Return that of a device kind's share of the energy."""
    part = relative_bounds(row, f"{kind}_energy_kwh", ending)
    whole = relative_bounds(row, "energy_kwh", ending)
    return None if part is None or whole is None else (part[0] / whole[1], part[1] / whole[0])


def quantity_bounds(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return columns `low` and `high`: what estimates leave to a quantity of configurations.

    Null where nothing of it is estimated, and where its interval is not known.
    """
    found: list[Ends | None] = []
    for row in records(rows):
        ends, mean = relative_bounds(row, name), row.get(f"{name}_mean")
        wide = ends is not None and ends[0] < ends[1] and mean is not None
        found.append((mean * ends[0], mean * ends[1]) if ends and wide and mean else None)
    return pd.DataFrame(
        {
            end: column_of((pair and pair[at] for pair in found), pa.float64(), rows.index)
            for at, end in enumerate(("low", "high"))
        },
        index=rows.index,
    )


def energy_ratio_bounds(top: Row, bottom: Row) -> Ends | None:
    """Return the least and largest ratio of two configurations' true energies that estimates allow.

    The ratio itself, twice, where nothing is estimated; None where an energy or its interval is not known.
    """
    kinds = sorted({*(top["energy_scope"] or "").split("+")} & set(DEVICE_KINDS))
    energies: list[list[Any]] = [
        [row.get(f"{kind}_energy_kwh_mean") for kind in kinds] for row in (top, bottom)
    ]
    if top["energy_origin"] not in ORIGINS and bottom["energy_origin"] not in ORIGINS:
        whole = top["energy_kwh_mean"], bottom["energy_kwh_mean"]
        return None if None in whole or not whole[1] else (whole[0] / whole[1],) * 2
    if top["configuration"] == bottom["configuration"]:
        return 1.0, 1.0
    same_device = top["device"] == bottom["device"]
    choices: list[list[tuple[Ends, Ends]]] = []
    for place, kind in enumerate(kinds):
        one, other = (relative_bounds(row, f"{kind}_energy_kwh") for row in (top, bottom))
        if one is None or other is None or None in (energies[0][place], energies[1][place]):
            return None
        choices.append(extreme_errors(one, other, shared=kind == "cpu" and same_device))
    if not kinds or not sum(energies[1]):
        return None
    least, most = (
        [_weighted_ratio(energies, [pair[side] for pair in chosen]) for chosen in product(*choices)]
        for side in (0, 1)
    )
    return min(least), max(most)


def extreme_errors(one: Ends, other: Ends, shared: bool) -> list[tuple[Ends, Ends]]:
    """Return pairs of errors (of one, of the other) that make a ratio least, and largest, in each pair.

    Shared errors of estimates by `rated_w` are of one machine by one formula: the two differ by SHAPE_FACTOR
    at most. A ratio of sums of such energies is linear in each error over linear, so that it is least and
    largest at corners.
    """
    if not (shared and _is_by_rated_power(one) and _is_by_rated_power(other)):
        return [((one[0], other[1]), (one[1], other[0]))]
    more, others_more = one[1] / FACTOR, other[1] / FACTOR  # by uncovered time, else 1
    least, most = 1 / FACTOR, FACTOR
    return [
        ((least, least * SHAPE_FACTOR * others_more), (least * SHAPE_FACTOR * more, least)),
        ((most / SHAPE_FACTOR, most * others_more), (most * more, most / SHAPE_FACTOR)),
    ]


def _is_by_rated_power(ends: Ends) -> bool:
    """Return True if an interval is that of an estimate of CPUs by `rated_w`, without a `factor`.

    Uncovered time adds to its upper end alone.
    """
    low, high = ends
    return math.isclose(low, 1 / FACTOR, rel_tol=1e-6) and high >= FACTOR * (1 - 1e-6)


def _weighted_ratio(energies: Sequence[Sequence[float]], errors: Sequence[Ends]) -> float:
    sums = [
        sum(energy * error[at] for energy, error in zip(own, errors, strict=True))
        for at, own in enumerate(energies)
    ]
    return sums[0] / sums[1]


def ratio_bounds(top: pd.DataFrame, bottom: pd.DataFrame) -> pd.DataFrame:
    """Return columns `low` and `high` of `energy_ratio_bounds`, of rows with the same index.

    Null where nothing of the energy in `top` is estimated (whatever is in `bottom`), and where an energy or
    an interval of one of the two is not known.
    """
    pairs = zip(records(top), records(bottom), strict=True)
    found = [
        energy_ratio_bounds(one, other)
        if one["energy_origin"] in ORIGINS and other["energy_kwh_mean"] is not None
        else None
        for one, other in pairs
    ]
    return pd.DataFrame(
        {
            end: column_of((pair and pair[at] for pair in found), pa.float64(), top.index)
            for at, end in enumerate(("low", "high"))
        },
        index=top.index,
    )
