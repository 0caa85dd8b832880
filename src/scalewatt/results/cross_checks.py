"""The same energies by other sources: all runs' cross-checks, summed over the nodes and segments of each."""

from __future__ import annotations

import pandas as pd

from scalewatt.common.columns import schema
from scalewatt.energies.checks import METERS, NODE_METER
from scalewatt.energies.tables import CROSS_CHECKS_SCHEMA
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.tables.derived_quantities import ratio
from scalewatt.results.tables.frames import read_frame, to_frame, to_table

CROSS_CHECKS = schema("cross_checks")
"""One row per run, source and device kind."""
_KEYS = ["configuration", "repeat", "source", "device_kind"]
_RUN = ["campaign", "configuration", "model", "device", "gpus", "nodes", "repeat"]


def cross_checks_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Make the table CROSS_CHECKS of runs (a table RUNS) from their energy tables."""
    paths = [path for files in runs["files"] if (path := files.cross_checks).is_file()]
    parts = [part for path in paths if len(part := read_frame(path, CROSS_CHECKS_SCHEMA))]
    if not parts:
        return to_frame(CROSS_CHECKS.empty_table())
    checks = pd.concat(parts, ignore_index=True).merge(runs[_RUN], on=_KEYS[:2])
    return to_frame(to_table(sums_of(checks), CROSS_CHECKS))


def sums_of(checks: pd.DataFrame) -> pd.DataFrame:
    """Sum cross-checks over the nodes and segments of each run, source and device kind.

    The energy is null if that of one row is, or if a meter of nodes is not on all nodes in all segments;
    what was recorded also where it is of other device kinds on one node than on another.
    """
    checks = checks.assign(segments=checks.groupby(_KEYS[:2])["segment"].transform("nunique"))
    groups = checks.groupby(_KEYS, sort=False)
    rows = groups[[*_RUN, "segments", "recorded_scope"]].first().drop(columns=_KEYS[:2])
    sums = groups[["energy_j", "recorded_j"]].sum(skipna=False)
    node_s = groups["duration_s"].sum()
    metered = checks.drop_duplicates([*_KEYS, "segment", "node"]).groupby(_KEYS, sort=False).size()
    is_meter = rows.index.get_level_values("source").isin([*METERS.values(), NODE_METER])
    everywhere = metered >= rows["nodes"].fillna(0) * rows["segments"]
    energy = sums["energy_j"].where(~is_meter | everywhere)
    recorded = sums["recorded_j"].where(groups["recorded_scope"].nunique(dropna=False) == 1)
    scope = rows["recorded_scope"].where(recorded.notna())
    return rows.assign(
        checks=groups.size(),
        duration_s=groups["duration_s"].max(),
        node_s=node_s,
        energy_kwh=energy / J_PER_KWH,
        recorded_kwh=recorded / J_PER_KWH,
        difference=ratio(energy, recorded) - 1,
        recorded_scope=scope,
        extra_w=ratio(energy - recorded, node_s).where(scope.notna()),
    ).reset_index()
