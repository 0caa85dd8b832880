"""How far training had come for what energy and time: the metric after each epoch of each run.

Energy and time count from the start of the run. An epoch's are all that was used on it, what a
killed segment lost and did again included; what belongs to no epoch is where its segment stands:
start-up and staging before the segment's epochs, the rest after them. What a stage used outside of
all epochs although it has some comes before the first epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from scalewatt.energies.tables import BOUNDS, ENERGY_SCHEMA, EPOCHS_SCHEMA
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.columns import SEVERAL
from scalewatt.results.figures.figure_schema import LEARNING
from scalewatt.results.tables.derived_quantities import is_estimated
from scalewatt.results.tables.frames import RUN_KEY, to_frame, to_table
from scalewatt.results.tables.run_row import read_energies, read_of_runs
from scalewatt.results.tables.scaling import lines_of
from scalewatt.training.history import HISTORY_SCHEMA

_JOULES = {
    "energy_kwh": "energy_j",
    "energy_kwh_estimate_low": BOUNDS[0],
    "energy_kwh_estimate_high": BOUNDS[1],
}
"""Columns of the table, and what they are of."""
_USED = [*_JOULES.values(), "time_s"]
_FIRST = ("startup", "stage_data")
"""Stages outside of all epochs that come before a segment's epochs; the others come after."""
_BEFORE, _IN, _AFTER = range(3)
"""Where something was used in its segment: before its epochs, in one of them, or after them."""


def learning(
    definition: dict[str, Any], configurations: pd.DataFrame, runs: pd.DataFrame
) -> pd.DataFrame:
    """Build one row per run (of `runs`, which count) and epoch, under the first series that has it."""
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    epochs = run_epochs(runs[runs["configuration"].isin(chosen["configuration"])])
    rows = chosen.merge(epochs, on="configuration").assign(figure=definition["figure"])
    # A curve is the mean over repeats: energies of unlike origin or scope have none, and neither energy nor
    # time has where repeats ran on different kinds of devices.
    elsewhere = rows["torch_device"] == SEVERAL
    energies = list(_JOULES)
    rows[energies] = rows[energies].mask(rows["energy_unlike"].notna() | elsewhere)
    rows["time_h"] = rows["time_h"].mask(elsewhere)
    return to_frame(to_table(rows, LEARNING))


def run_epochs(runs: pd.DataFrame) -> pd.DataFrame:
    """Read epoch, metric, and energy and time since the run's start at the end of each epoch of runs.

    Null throughout a run where it is not known, or the recording does not say which epoch was when. All
    of it where the history has a single row and no epoch was marked, as of a registered run.
    """
    history = read_of_runs(runs, "history", HISTORY_SCHEMA, ["energy_origin", "energy_scope"])
    used = _used(runs, history)
    places = [*RUN_KEY, "segment", "place", "epoch"]
    sums = used.groupby(places, dropna=False)[_USED].sum(skipna=False)
    since_start = sums.groupby(RUN_KEY).cumsum(skipna=False).reset_index()
    since_start = since_start.dropna(subset="epoch")[[*RUN_KEY, "epoch", *_USED]]
    ends = history.merge(since_start, "left", [*RUN_KEY, "epoch"])
    by_run = ends.groupby(RUN_KEY)[_USED]
    ends[_USED] = ends[_USED].where(by_run.transform("count").eq(by_run.transform("size"), axis=0))
    ends[list(BOUNDS)] = ends[list(BOUNDS)].where(is_estimated(ends))
    return ends[[*RUN_KEY, "epoch", "metric"]].assign(
        **{name: ends[joules] / J_PER_KWH for name, joules in _JOULES.items()},
        time_h=ends["time_s"] / 3600,
    )


def _used(runs: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """List what runs used, in J and s, by segment, `place` in it and epoch.

    Segment -1 has what was used in a segment that no table names; infinity is the end of the run.
    """
    energies = read_energies(runs, "energy", ENERGY_SCHEMA).rename(columns={"duration_s": "node_s"})
    parts = read_energies(runs, "epochs", EPOCHS_SCHEMA)
    parts = parts[parts["in_scope"]]
    marked = parts[parts["epoch"].notna()][[*RUN_KEY, "stage"]].drop_duplicates()
    # Of a stage in and outside of epochs, no table says in which segment it was outside.
    in_epoch = history[[*RUN_KEY, "epoch", "segment"]].assign(place=_IN)
    loose = history[RUN_KEY].drop_duplicates().assign(epoch=np.nan, segment=-1, place=_BEFORE)
    places = pd.concat([in_epoch, loose])
    inside = parts.merge(marked, on=list(marked)).merge(places, on=[*RUN_KEY, "epoch"])
    outside = _without(energies[energies["in_scope"]], marked)
    is_first = outside["stage"].isin(_FIRST)
    used = pd.concat([inside, outside.assign(place=np.where(is_first, _BEFORE, _AFTER))])
    # A node's kinds have the same time: it is that of the first, mean over nodes.
    used["time_s"] = (used["node_s"] / used["nodes"]).where(used["of_first"], 0.0)
    # The longest unrecorded time of a node in each segment comes after its epochs.
    segments = energies[energies["of_first"]].groupby([*RUN_KEY, "segment"])["unrecorded_s"]
    nothing = dict.fromkeys(_JOULES.values(), 0.0)
    unrecorded = segments.max().fillna(0.0).rename("time_s").reset_index()
    # The only epoch of a run without marks ends with the run.
    single = history[history["energy_scope"].notna()].drop_duplicates(RUN_KEY, keep=False)
    end = _without(single, marked[RUN_KEY])[[*RUN_KEY, "epoch"]]
    end = end.assign(segment=np.inf, place=_IN, time_s=0.0, **nothing)
    return pd.concat([used, unrecorded.assign(place=_AFTER, **nothing), end])


def _without(rows: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Rows that agree with none of the others in all of their columns."""
    keys = list(others)
    both = rows.merge(others.drop_duplicates(), "left", keys, indicator="found")
    return both[both["found"] == "left_only"].drop(columns="found")
