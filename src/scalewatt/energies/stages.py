"""Stages of a recording: intervals that tile its window, so that each second belongs to one stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.energies.integrate import EnergyCurve
from scalewatt.recordings import stage_log
from scalewatt.recordings.terms import Flag, Floats, flag

UNATTRIBUTED = "unattributed"
LEAST_PERIODS = 5
"""A shorter stage, in sampling periods, is not resolved: at each of its ends up to half a period's worth of
the difference in power is put to the wrong side, a quarter on average."""
MOST_SHORT = 0.05
"""Share of a stage's time that may be in shorter pieces."""
LOST_PERIODS = 3
"""Sampling periods between the stages' first and last stamp that may lie outside of a node's recording:
a sampler's last sample is up to a period old when it is stopped."""
LEAST_UNCOVERED_S = 1e-4
"""Less is the rounding of unix seconds, and of sums of their steps."""
STAGES = (*stage_log.STAGES, UNATTRIBUTED)
_ROUNDING_S = 1e-3
"""Stamps of one process overlap by no more."""


@dataclass(frozen=True, eq=False)
class StageIntervals:
    """Intervals that tile a window without hole or overlap; all arrays have shape (k,)."""

    stage: NDArray[np.object_]
    """Names, of STAGES."""
    epoch: NDArray[np.object_]
    """Numbers, None outside of all epochs."""
    start_s: Floats
    end_s: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[str, Any, float, float]]) -> StageIntervals:
        """Intervals from rows of stage, epoch, start and end."""
        stage, epoch, start_s, end_s = zip(*rows, strict=True)
        names = (np.array(column, dtype=object) for column in (stage, epoch))
        times = (np.array(column, dtype=np.float64) for column in (start_s, end_s))
        return cls(*names, *times)

    @property
    def seconds(self) -> Floats:
        """Length of each interval in s."""
        return self.end_s - self.start_s

    def energy_j(self, curve: EnergyCurve) -> Floats:
        """Energy of each interval in J; they add up to the window's energy."""
        return curve.between(self.start_s, self.end_s)

    def covered_s(self, curve: EnergyCurve) -> Floats:
        """Seconds of each interval of which the energy is known."""
        return curve.covered_s(self.start_s, self.end_s)

    def uncovered_s(self, curve: EnergyCurve) -> Floats:
        """Seconds of each interval of which the energy is not known; 0 for what is rounding."""
        uncovered = self.seconds - self.covered_s(curve)
        return np.where(uncovered > LEAST_UNCOVERED_S, uncovered, 0.0)

    def within(self, start_s: float, end_s: float) -> StageIntervals:
        """Intervals cut to a span; those outside of it have no length."""
        first = np.clip(self.start_s, start_s, end_s)
        return replace(self, start_s=first, end_s=np.maximum(first, np.minimum(self.end_s, end_s)))

    def spans_of(self, stages: Sequence[str]) -> list[tuple[float, float]]:
        """Start and end of the intervals of some stages."""
        rows = zip(self.stage, self.start_s.tolist(), self.end_s.tolist(), strict=True)
        return [(start_s, end_s) for stage, start_s, end_s in rows if stage in stages]

    def codes_at(self, time_s: Floats) -> NDArray[np.int8]:
        """Index in STAGES of each time, (n,), `unattributed` outside of the window."""
        stages = (UNATTRIBUTED, *self.stage, UNATTRIBUTED)
        order = np.argsort(time_s, kind="stable")
        codes = np.empty(time_s.size, dtype=np.int8)
        codes[order] = np.repeat([*map(STAGES.index, stages)], self.counts(time_s[order]))
        return codes

    def counts(self, time_s: Floats) -> NDArray[np.intp]:
        """Number of times before, in each of and after the k intervals, (k+2,); times in order."""
        begins = np.searchsorted(time_s, self.start_s)
        end = np.searchsorted(time_s, self.end_s[-1:], side="right")
        return np.diff(np.concatenate(([0], begins, end, [time_s.size])))

    def short_pieces_s(self, period_s: float, group: NDArray[np.intp]) -> Floats:
        """Mean length in s of a group's pieces, (groups,), if `period_s` is too long for them, else NaN.

        `group` (k,) numbers what the intervals are of. Adjacent intervals of a group are a piece.
        """
        here = self.seconds > 0
        begins = np.flatnonzero(np.diff(group[here], prepend=-1))
        of_piece = group[here][begins]
        length_s = (
            np.add.reduceat(self.seconds[here], begins) if begins.size else self.seconds[here]
        )
        # A per cent less is tolerated: a recording need not begin or end with a stage.
        is_short = length_s < 0.99 * LEAST_PERIODS * period_s
        size = int(group.max()) + 1
        whole_s, short_s = (np.bincount(of_piece, w, size) for w in (length_s, length_s * is_short))
        mean_s = whole_s / np.maximum(np.bincount(of_piece, minlength=size), 1)
        return np.where(short_s > MOST_SHORT * whole_s, mean_s, np.nan)


def segment_events(events: pa.Table | None, segment: int) -> list[dict[str, Any]]:
    """Events of one segment in order of time; a stage without an end never ended.

    Events that name no segment are those of any.
    """
    if events is None:
        return []
    rows = [
        {**row, "end_s": np.inf if row["end_s"] is None else row["end_s"]}
        for row in events.to_pylist()
        if row["segment"] in (segment, None)
    ]
    return sorted(rows, key=lambda row: row["start_s"])


def tile_window(
    events: Sequence[Mapping[str, Any]], window: tuple[float, float]
) -> tuple[StageIntervals, list[Flag]]:
    """Cut [start, end] (unix s) into the stages of `segment_events` and `unattributed` between.

    Where two stages overlap the earlier one keeps the time, flagged `overlap`.
    """
    start_s, end_s = (np.array([e[key] for e in events], float) for key in ("start_s", "end_s"))
    before_s = np.maximum.accumulate(np.append(-np.inf, end_s))[:-1]
    overlap_s = np.maximum(np.minimum(before_s, end_s) - start_s, 0.0).sum()
    begin_s = np.clip(np.maximum(start_s, before_s), *window)
    finish_s = np.clip(end_s, *window)
    kept = finish_s > begin_s
    # Every second interval is that of a stage; those between may have no length.
    stage = np.full(2 * np.count_nonzero(kept) + 1, UNATTRIBUTED, dtype=object)
    epoch = np.full(stage.size, None, dtype=object)
    stage[1::2] = np.array([e["stage"] for e in events], dtype=object)[kept]
    epoch[1::2] = np.array([e.get("epoch") for e in events], dtype=object)[kept]
    within_s = np.column_stack((begin_s, finish_s))[kept].ravel()
    edges_s = np.concatenate((window[:1], within_s, window[1:]))
    some = np.diff(edges_s) > 0
    some[0] |= not some.any()
    intervals = StageIntervals(stage[some], epoch[some], edges_s[:-1][some], edges_s[1:][some])
    flags = [flag("overlap", None, f"stages overlap by {overlap_s:.3f} s")]
    return intervals, flags if overlap_s > _ROUNDING_S else []


def seconds_where(time_s: Floats, holds: NDArray[np.bool_], window: tuple[float, float]) -> float:
    """Seconds of a window in which something held, as read at `time_s`.

    What was read holds from halfway to the reading before until halfway to the next.
    """
    if time_s.size == 0:
        return 0.0
    middle = 0.5 * (time_s[1:] + time_s[:-1])
    edges = np.clip(np.concatenate(([window[0]], middle, [window[1]])), *window)
    return float(np.diff(edges)[holds].sum())


def seconds_outside(
    events: Sequence[Mapping[str, Any]], window: tuple[float, float], period_s: float
) -> float:
    """Seconds of a run outside of a recording, 0 where a late start explains them.

    Startup and shutdown do not count: the sampler runs inside of them.
    """
    inner = [
        (float(e["start_s"]), float(e["end_s"]))
        for e in events
        if e["stage"] not in ("startup", "shutdown") and e["end_s"] != np.inf
    ]
    if not inner:
        return 0.0
    begin, end = min(start for start, _ in inner), max(end for _, end in inner)
    lost_s = (end - begin) - max(0.0, min(end, window[1]) - max(begin, window[0]))
    return lost_s if lost_s > LOST_PERIODS * period_s else 0.0


def start_of(started: str | None, node: str) -> tuple[float, Flag]:
    """Unix time in s of a recording's first sample by perun's naive local start time, 0 if unknown."""
    try:
        start_s = datetime.fromisoformat(started or "").timestamp()
    except ValueError:
        return 0.0, flag("time_unknown", None, f"{node}: no journal and no start time in the file")
    detail = f"{node}: no journal; times count from perun's start {started} (local time)"
    return start_s, flag("time_assumed", None, detail)
