"""The energy of each epoch and stage of a run, over all nodes and segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.energies.accounting.totals import one_origin
from scalewatt.energies.stages import STAGES, StageIntervals
from scalewatt.recordings.series import Floats

_VALUES = {
    "duration_s": "duration_s",
    "recorded_j": "energy_j",
    "low_j": "energy_low_j",
    "high_j": "energy_high_j",
}
"""Sums of intervals, and what they are called in the table; the first is always known."""


@dataclass(frozen=True, eq=False)
class EpochParts:
    """The epochs and stages of one device kind of one node in one segment; all arrays (k,)."""

    epoch: NDArray[np.int64]
    """-1 outside of all epochs."""
    stage: NDArray[np.int64]
    """Place in STAGES."""
    values: Mapping[str, Floats]
    """`duration_s` and, where there is a power, `recorded_j`, `low_j` and `high_j`."""
    short: NDArray[np.bool_]

    @classmethod
    def of(
        cls, intervals: StageIntervals, values: Mapping[str, Floats], period_s: float
    ) -> EpochParts:
        """Add up values of the intervals, of which `period_s` may be too long for some epochs."""
        names = [*zip(intervals.epoch, intervals.stage, strict=True)]
        short = intervals.short_epochs(period_s)
        keys = {name: i for i, name in enumerate(dict.fromkeys(names))}
        place, names = np.array([keys[name] for name in names]), [*keys]
        return cls(
            np.array([-1 if epoch is None else epoch for epoch, _ in names], dtype=np.int64),
            np.array([STAGES.index(stage) for _, stage in names], dtype=np.int64),
            {
                n: np.bincount(place, values[n], len(names)).astype(np.float64)
                for n in _VALUES
                if n in values
            },
            np.array([name in short for name in names], dtype=np.bool_),
        )

    def known(self, counted: bool, uncounted: bool) -> NDArray[np.bool_]:
        """Mark what may be stated, where that is known of what counts and of what does not."""
        if not counted or uncounted:
            return np.full(self.stage.size, counted)
        return self.stage != STAGES.index("stage_data")


@dataclass(frozen=True, eq=False)
class StatedEpochs:
    """What may be stated of the epochs of one device kind of one node in one segment."""

    device_kind: str
    origin: str
    known: NDArray[np.bool_]
    """Whether the energy of each may be stated."""
    found: EpochParts

    def column(self, name: str) -> Floats:
        """Return what may be stated of one of the values; NaN where it is not known."""
        values = self.found.values.get(name)
        if values is None:
            return np.full(self.known.size, np.nan)
        return values if name == "duration_s" else np.where(self.known, values, np.nan)


def epoch_rows(parts: Iterable[StatedEpochs]) -> list[dict[str, Any]]:
    """Return the rows of EPOCHS_SCHEMA, without the run's name, outside of all epochs first."""
    import pandas as pd

    if not (parts := list(parts)):
        return []
    sizes = [one.known.size for one in parts]
    origins = list({one.origin: None for one in parts})
    columns = {
        name: np.concatenate([p.column(own) for p in parts]) for own, name in _VALUES.items()
    }
    frame = pd.DataFrame(
        {
            "epoch": np.concatenate([one.found.epoch for one in parts]),
            "stage": np.concatenate([one.found.stage for one in parts]),
            "device_kind": np.repeat([one.device_kind for one in parts], sizes),
            **columns,
            "short": np.concatenate([one.found.short for one in parts]),
            "energy_origin": np.repeat([origins.index(one.origin) for one in parts], sizes),
            "known": ~np.isnan(columns["energy_j"]),
        }
    )
    sums: dict[str, Any] = {**dict.fromkeys(columns, "sum"), "known": "all", "short": "any"}
    keys = ["epoch", "stage", "device_kind"]
    found = frame.groupby(keys).agg({**sums, "energy_origin": set}).reset_index()
    return [
        {
            "epoch": None if row["epoch"] < 0 else row["epoch"],
            "stage": STAGES[row["stage"]],
            "device_kind": row["device_kind"],
            "node_s": row["duration_s"],
            **{
                name: row[name] if row["known"] else None
                for name in columns
                if name != "duration_s"
            },
            "short": row["short"],
            "energy_origin": one_origin({origins[place] for place in row["energy_origin"]}),
        }
        for row in found.to_dict("records")
    ]
