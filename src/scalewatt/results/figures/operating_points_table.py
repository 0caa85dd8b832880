"""What a clock or power limit costs in time and saves in energy: the points of each training over its levers.

A line is one training at all of its operating points: a configuration's id without them. Compared is the
whole run: per sample, or of trainings to a target the training itself.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.operating_points import without_point
from scalewatt.campaign.registered_campaign import TARGET_PROTOCOL
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.figures.figure_schema import OPERATING_POINTS
from scalewatt.results.figures.pareto_table import cheapest_and_fastest
from scalewatt.results.tables.estimates import is_estimated, quantity_bounds
from scalewatt.results.tables.frames import column_of, to_frame, to_table, values
from scalewatt.results.tables.repeat_statistics import inverse, quotients
from scalewatt.results.tables.scaling import lines_of
from scalewatt.results.tables.table_schema import SUMMARY

SAMPLE, TRAINING = "sample", "training"
"""What time and energy are those of."""
_ENERGY = {SAMPLE: ("energy_per_sample_j", 1.0), TRAINING: ("energy_kwh", J_PER_KWH)}


def operating_points(definition: dict[str, Any], configurations: pd.DataFrame) -> pd.DataFrame:
    """Return one row per configuration that has runs, under the first series that has it."""
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    chosen = chosen.reset_index(drop=True)
    if chosen.empty:
        return to_frame(OPERATING_POINTS.empty_table())
    to_target = (chosen["protocol"] == TARGET_PROTOCOL).fillna(False)
    parts = [
        _rows(own.reset_index(drop=True), TRAINING if target else SAMPLE)
        for target, own in chosen.groupby(to_target, sort=False)
    ]
    rows = pd.concat(parts, ignore_index=True).sort_values("place", kind="stable")
    rows = rows.reset_index(drop=True).assign(figure=definition["figure"])
    return to_frame(to_table(rows[OPERATING_POINTS.names], OPERATING_POINTS))


def _rows(own: pd.DataFrame, basis: str) -> pd.DataFrame:
    name, factor = _ENERGY[basis]
    lines = [without_point(id_) for id_ in values(own["configuration"])]
    own = own.assign(line=column_of(lines, pa.string(), own.index), basis=basis)
    time = _times(own, basis)
    energy = own[[f"{name}_{part}" for part in SUMMARY]].set_axis(list(SUMMARY), axis=1) * factor
    open_ = quantity_bounds(own, name) * factor
    rows = own.assign(
        **{f"time_s_{part}": time[part] for part in SUMMARY},
        **{f"energy_j_{part}": energy[part] for part in SUMMARY},
        **{f"energy_j_estimate_{end}": open_[end] for end in ("low", "high")},
        energy_delay=energy["mean"] * time["mean"],
        cost=energy["mean"] * own["cost_mean"] / (own["energy_kwh_mean"] * J_PER_KWH),
        comparable=_comparable(own),
    )
    rows = _with_ratios(rows, name)
    return rows.assign(
        pareto_optimal=cheapest_and_fastest(rows, "energy_j_mean", rows["time_s_mean"])
    )


def _comparable(own: pd.DataFrame) -> pd.Series:
    """Return what the points of a line share that compare: energies of one origin and scope."""
    texts = [own[name].fillna("") for name in ("line", "energy_origin", "energy_scope")]
    return texts[0] + "|" + texts[1] + "|" + texts[2]


def _times(own: pd.DataFrame, basis: str) -> pd.DataFrame:
    """Return the time of the whole run in s: a sample's share of it, or all of a training to a target."""
    if basis == TRAINING:
        return own[[f"runtime_h_{part}" for part in SUMMARY]].set_axis(list(SUMMARY), axis=1) * 3600
    rate = own[[f"samples_per_gpuh_{part}" for part in SUMMARY]].set_axis(list(SUMMARY), axis=1)
    return inverse(rate.mul(own["gpus"], axis=0), pd.Series(3600.0, own.index))


def _with_ratios(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Add time and energy over those of the line's fastest point.

    A line is only those of its points whose energies compare (`comparable`). There is no ratio of
    estimated energies.
    """
    time = "samples_per_gpuh" if name == _ENERGY[SAMPLE][0] else "runtime_h"
    fastest = _fastest(rows)
    top, bottom = (rows, fastest) if time == "runtime_h" else (fastest, rows)
    slower = quotients(top, bottom, time)
    saved = quotients(rows, fastest, name).where(~is_estimated(rows))
    ends = {"": "mean", "_low": "low", "_high": "high"}
    return rows.assign(
        **{f"time_ratio{end}": slower[part] for end, part in ends.items()},
        **{f"energy_ratio{end}": saved[part] for end, part in ends.items()},
    )


def _fastest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each row the fastest one of its line; itself where no time is known."""
    places = pd.Series(range(len(rows)), index=rows.index)
    known = rows["time_s_mean"].astype("float64").fillna(float("inf"))
    order = known.sort_values(kind="stable").index
    first = places.loc[order].groupby(rows["comparable"].loc[order], sort=False).transform("first")
    return rows.iloc[first.reindex(rows.index)].set_axis(rows.index)
