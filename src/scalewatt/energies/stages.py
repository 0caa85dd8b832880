"""Stages of a recording: intervals that tile its window, so that each second belongs to one stage.

Intervals are a frame with the columns `stage` (of STAGES), `epoch` (-1 outside of all epochs), `start_s` and
`end_s`, in order of time, without hole or overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.recordings import stage_log
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.terms import Flag, Floats, flag

Window = tuple[float, float]

UNATTRIBUTED = "unattributed"
LEAST_PERIODS = 5
"""A shorter stage, in sampling periods, is not resolved: at each of its ends up to half a period's worth of
the difference in power is put to the wrong side, a quarter on average."""
MOST_SHORT = 0.05
"""Share of a stage's time that may be in shorter pieces."""
LOST_PERIODS = 3
"""Sampling periods between the stages' first and last stamp that may lie outside of a node's recording:
a sampler's last sample is up to a period old when it is stopped."""
STAGES = (*stage_log.STAGES, UNATTRIBUTED)
STAGE_TYPE: pd.CategoricalDtype[Any] = pd.CategoricalDtype([*STAGES])
_ROUNDING_S = 1e-3
"""Stamps of one process overlap by no more."""


def segment_events(events: pa.Table | None, segment: int) -> pd.DataFrame:
    """Stages (of STAGES) of one segment, as EVENTS_SCHEMA has them, in order of time.

    A stage that never ended has an infinite `end_s`, and one that names no segment is of any.
    """
    rows = (EVENTS_SCHEMA.empty_table() if events is None else events).to_pandas()
    rows = rows[rows["segment"].isin([segment]) | rows["segment"].isna()]
    rows = rows.fillna({"end_s": np.inf, "epoch": -1})
    rows = rows.astype({"epoch": "int64", "stage": STAGE_TYPE})
    return rows.sort_values("start_s", kind="stable", ignore_index=True)


def tile_window(events: pd.DataFrame, window: Window) -> tuple[pd.DataFrame, list[Flag]]:
    """Cut a window (unix s) into the stages of `segment_events` and `unattributed` between.

    If two stages overlap, the earlier one keeps the time, flagged `overlap`.
    """
    start_s, end_s = (events[name].to_numpy(np.float64) for name in ("start_s", "end_s"))
    before_s = np.maximum.accumulate(np.append(-np.inf, end_s))[:-1]
    overlap_s = np.maximum(np.minimum(before_s, end_s) - start_s, 0.0).sum()
    begin_s = np.clip(np.maximum(start_s, before_s), *window)
    finish_s = np.clip(end_s, *window)
    kept = finish_s > begin_s
    # Every second interval is that of a stage; those between may have no length.
    stage = np.full(2 * np.count_nonzero(kept) + 1, STAGES.index(UNATTRIBUTED))
    epoch = np.full(stage.size, -1)
    stage[1::2], epoch[1::2] = (rows[kept] for rows in (events["stage"].cat.codes, events["epoch"]))
    within_s = np.column_stack((begin_s, finish_s))[kept].ravel()
    edges_s = np.concatenate((window[:1], within_s, window[1:]))
    some = np.diff(edges_s) > 0
    some[0] |= not some.any()
    columns = {
        **{"stage": pd.Categorical.from_codes(stage[some], dtype=STAGE_TYPE), "epoch": epoch[some]},
        **{"start_s": edges_s[:-1][some], "end_s": edges_s[1:][some]},
    }
    intervals = pd.DataFrame(columns)
    flags = [flag("overlap", None, f"stages overlap by {overlap_s:.3f} s")]
    return intervals, flags if overlap_s > _ROUNDING_S else []


def interval_at(intervals: pd.DataFrame, time_s: Floats) -> NDArray[np.intp]:
    """Number of the interval at each time, (n,); -1 outside of the window."""
    index = np.searchsorted(_edges_s(intervals), time_s, side="right") - 1
    index[index == len(intervals)] = -1
    return index


def samples_in(intervals: pd.DataFrame, time_s: Floats) -> NDArray[np.intp]:
    """Number of samples in each interval."""
    return np.diff(np.searchsorted(np.sort(time_s, kind="stable"), _edges_s(intervals)))


def _edges_s(intervals: pd.DataFrame) -> Floats:
    """Edges of intervals; the last one ends with a sample at its end."""
    return np.append(intervals["start_s"], np.nextafter(intervals["end_s"].iloc[-1], np.inf))


def short_pieces_s(group: NDArray[Any], seconds: Floats, period_s: float) -> Floats:
    """Mean length in s of the pieces of an interval's group if a sampling period is too long for them.

    `group` (k,) numbers what the intervals are of. Adjacent intervals of a group are a piece. NaN where the
    samples resolve the group.
    """
    number = np.unique(group, return_inverse=True)[1]
    long = seconds > 0
    begins = np.flatnonzero(np.diff(number[long], prepend=-1))
    piece_s, of_group = np.add.reduceat(seconds[long], begins), number[long][begins]
    # A per cent less is tolerated: a recording need not begin or end with a stage.
    is_short = piece_s < 0.99 * LEAST_PERIODS * period_s
    weights = np.column_stack((piece_s, piece_s * is_short, np.ones(piece_s.size)))
    total_s, short_s, count = (np.bincount(of_group, w, number.max() + 1) for w in weights.T)
    is_unresolved = short_s > MOST_SHORT * total_s
    return np.where(is_unresolved, total_s / np.maximum(count, 1), np.nan)[number]


def seconds_where(time_s: Floats, holds: NDArray[np.bool_], window: Window) -> float:
    """Seconds of a window in which something held, as read at `time_s`.

    What was read holds from halfway to the reading before until halfway to the next.
    """
    if time_s.size == 0:
        return 0.0
    middle = 0.5 * (time_s[1:] + time_s[:-1])
    edges = np.clip(np.concatenate(([window[0]], middle, [window[1]])), *window)
    return float(np.diff(edges)[holds].sum())


def seconds_outside(events: pd.DataFrame, window: Window, period_s: float) -> float:
    """Seconds of a run outside of a recording, 0 where a late start explains them.

    Startup and shutdown do not count: the sampler runs inside of them.
    """
    inner = events[~events["stage"].isin(["startup", "shutdown"]) & (events["end_s"] < np.inf)]
    if inner.empty:
        return 0.0
    begin, end = inner["start_s"].min(), inner["end_s"].max()
    lost_s = (end - begin) - max(0.0, min(end, window[1]) - max(begin, window[0]))
    return float(lost_s) if lost_s > LOST_PERIODS * period_s else 0.0
