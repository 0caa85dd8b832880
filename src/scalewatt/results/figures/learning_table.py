"""How far training had come for what energy and time: the metric after each epoch of each run.

Energy and time count from the start of the run. An epoch's are all that was used on it, what a
killed segment lost and did again included; what belongs to no epoch is where its segment stands:
start-up and staging before the segment's epochs, the rest after them. What a stage used outside of
all epochs although it has some comes before the first epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.campaign.run_spec import read_spec
from scalewatt.energies.tables import BOUNDS, EPOCHS_SCHEMA, EnergyTotals
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.results.columns import SEVERAL
from scalewatt.results.figures.breakdown_table import counted_repeats
from scalewatt.results.figures.figure_schema import LEARNING
from scalewatt.results.tables.derived_quantities import ORIGINS
from scalewatt.results.tables.frames import read_checked, to_frame, to_table
from scalewatt.results.tables.run_row import RunFiles, read_history, read_totals
from scalewatt.results.tables.scaling import lines_of

_JOULES = {
    "energy_kwh": "energy_j",
    "energy_kwh_estimate_low": BOUNDS[0],
    "energy_kwh_estimate_high": BOUNDS[1],
}
"""Columns of the table, and what they are of."""
_USED = [*_JOULES.values(), "time_s"]
_FIRST = ("startup", "stage_data")
"""Stages outside of all epochs that come before a segment's epochs; the others come after."""


def learning(
    definition: dict[str, Any], configurations: pd.DataFrame, results: Path
) -> pd.DataFrame:
    """Build one row per run and epoch, under the first series that has the configuration."""
    repeats = counted_repeats(definition)
    chosen = lines_of(definition["series"], configurations).drop_duplicates("configuration")
    epochs = [
        run_epochs(RunFiles(results, id_, repeat)).assign(configuration=id_, repeat=repeat)
        for id_ in chosen["configuration"]
        for repeat in repeats[id_]
    ]
    if not epochs:
        return to_frame(LEARNING.empty_table())
    rows = chosen.merge(pd.concat(epochs), on="configuration").assign(figure=definition["figure"])
    # A curve is the mean over repeats: energies of unlike origin or scope have none, and neither energy nor
    # time has where repeats ran on different kinds of devices.
    elsewhere = rows["torch_device"] == SEVERAL
    energies = list(_JOULES)
    rows[energies] = rows[energies].mask(rows["energy_unlike"].notna() | elsewhere)
    rows["time_h"] = rows["time_h"].mask(elsewhere)
    return to_frame(to_table(rows, LEARNING))


def run_epochs(files: RunFiles) -> pd.DataFrame:
    """Read epoch, metric, and energy and time since the run's start at the end of each epoch of a run.

    Null throughout where it is not known, or the recording does not say which epoch was when. All
    of it where the history has a single row and no epoch was marked, as of a registered run.
    """
    spec = read_spec(files.folder / "spec.json")
    totals = read_totals(files, spec.protocol)
    history = pd.DataFrame(read_history(files.folder / "history.parquet"))
    parts: pd.DataFrame = read_checked(files.epochs, EPOCHS_SCHEMA).to_pandas()
    counted = parts["device_kind"].isin(totals.scope)
    counted &= (spec.protocol != "paper") | (parts["stage"] != "stage_data")
    used = _since_start(history, totals, parts[counted], spec.nodes)
    if totals.origin not in ORIGINS:
        used[list(BOUNDS)] = np.nan
    return history[["epoch", "metric"]].assign(
        **{name: used[joules] / J_PER_KWH for name, joules in _JOULES.items()},
        time_h=used["time_s"] / 3600,
    )


def _since_start(
    history: pd.DataFrame, totals: EnergyTotals, parts: pd.DataFrame, nodes: int
) -> pd.DataFrame:
    """Sum up energies in J and time in s from the run's start to the end of each row of its history."""
    marked = parts["epoch"].notna()
    in_epochs = set(parts["stage"][marked])
    outside = totals.in_scope[~totals.in_scope["stage"].isin(in_epochs)]
    outside = outside.rename(columns={"duration_s": "node_s"})
    # Of a stage in and outside of epochs, no table says in which segment it was outside.
    loose = parts[~marked & parts["stage"].isin(in_epochs)].assign(segment=-1, order=0)
    segments = history.set_index("epoch")["segment"]
    epochs = parts[marked & parts["epoch"].isin(segments.index)]
    used = pd.concat(
        [
            loose,
            outside.assign(order=np.where(outside["stage"].isin(_FIRST), 0, 2)),
            epochs.assign(segment=epochs["epoch"].map(segments), order=1),
        ]
    )
    # A node's kinds have the same time: it is that of the first, mean over nodes.
    first = totals.scope[:1]
    used["time_s"] = (used["node_s"] / nodes).where(used["device_kind"].isin(first), 0.0)
    # The longest unrecorded time of a node in each segment comes after its epochs.
    rows = totals.rows[totals.rows["device_kind"].isin(first)]
    unrecorded_s = rows.groupby("segment")["unrecorded_s"].max().fillna(0.0)
    unrecorded = unrecorded_s.rename("time_s").reset_index()
    used = pd.concat([used, unrecorded.assign(order=2, **dict.fromkeys(_JOULES.values(), 0.0))])
    if len(history) == 1 and not in_epochs:
        return used[_USED].sum(skipna=False, min_count=1).to_frame().T
    order = ["segment", "order", "epoch"]
    sums = used.groupby(order, dropna=False)[_USED].sum(skipna=False).cumsum(skipna=False)
    ends = sums.reset_index().dropna(subset="epoch").set_index("epoch").reindex(history["epoch"])
    ends.loc[:, ends.isna().any()] = np.nan
    return ends[_USED].reset_index(drop=True)
