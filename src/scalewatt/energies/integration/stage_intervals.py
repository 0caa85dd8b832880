"""When a recording happened, and which stage each of its seconds belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.energies.integrate import EnergyCurve
from scalewatt.recordings import stage_log
from scalewatt.recordings.series import Flag, Floats, Recording, SensorSeries, flag

UNATTRIBUTED = "unattributed"
LEAST_PERIODS = 5
"""A stage shorter than so many sampling periods is not resolved: at each of its ends up
to half a period's worth of the difference in power is put to the wrong side, a quarter on average."""
MOST_SHORT = 0.05
"""Of a stage that comes several times, this part of its time may be in shorter pieces."""
LOST_PERIODS = 3
"""Sampling periods between the stages' first and last stamp that may lie outside of a node's recording:
a sampler's last sample is up to a period old when it is stopped."""
LEAST_UNCOVERED_S = 1e-4
"""Less is the rounding of unix seconds, and of sums of their steps."""
STAGES = (*stage_log.STAGES, UNATTRIBUTED)

_OPEN_STAGES = ("startup", "shutdown")

Series = Sequence[SensorSeries]


@dataclass(frozen=True, eq=False)
class StageIntervals:
    """Intervals that tile a window without hole or overlap; all arrays have shape (k,)."""

    stage: NDArray[np.object_]
    epoch: NDArray[np.object_]
    start_s: Floats
    end_s: Floats

    @classmethod
    def of_window(cls, window: tuple[float, float]) -> StageIntervals:
        """Return a window as one interval without a stage."""
        start_s, end_s = (np.array([end], dtype=np.float64) for end in window)
        stage, epoch = (np.array([one], dtype=object) for one in (UNATTRIBUTED, None))
        return cls(stage, epoch, start_s, end_s)

    @property
    def seconds(self) -> Floats:
        """Return the length of each interval in s."""
        return self.end_s - self.start_s

    def energy_j(self, curve: EnergyCurve) -> Floats:
        """Return the energy of each interval; they add up to the window's energy."""
        edges = self._edges
        return (
            np.diff(curve.until(edges)) if edges.size else curve.between(self.start_s, self.end_s)
        )

    def covered_s(self, curve: EnergyCurve) -> Floats:
        """Return the seconds of each interval of which the energy is known."""
        edges = self._edges
        if edges.size:
            return np.diff(curve.covered_until(edges))
        return curve.covered_s(self.start_s, self.end_s)

    def uncovered_s(self, curve: EnergyCurve) -> Floats:
        """Return the seconds of each interval of which the energy is not known; 0 for what is rounding."""
        uncovered = self.seconds - self.covered_s(curve)
        return np.where(uncovered > LEAST_UNCOVERED_S, uncovered, 0.0)

    def with_outside(self) -> StageIntervals:
        """Return the intervals after one without length, `unattributed`, for what lies outside of them."""
        outside = StageIntervals.of_window((self.start_s[0], self.start_s[0]))
        return StageIntervals(
            np.concatenate((outside.stage, self.stage)),
            np.concatenate((outside.epoch, self.epoch)),
            np.concatenate((outside.start_s, self.start_s)),
            np.concatenate((outside.end_s, self.end_s)),
        )

    @cached_property
    def _edges(self) -> Floats:
        """Return where the intervals begin and end, (k + 1,); none unless each begins where the last ends."""
        tile = np.array_equal(self.start_s[1:], self.end_s[:-1])
        return np.concatenate((self.start_s, self.end_s[-1:])) if tile else self.start_s[:0]

    def within(self, start_s: float, end_s: float) -> StageIntervals:
        """Return the same intervals cut to a span; those outside of it have no length."""
        first = np.clip(self.start_s, start_s, end_s)
        return replace(self, start_s=first, end_s=np.maximum(first, np.minimum(self.end_s, end_s)))

    def spans_of(self, stages: Sequence[str]) -> list[tuple[float, float]]:
        """Return start and end of the intervals of some stages."""
        spans = zip(self.stage, self.start_s.tolist(), self.end_s.tolist(), strict=True)
        return [(start, end) for stage, start, end in spans if stage in stages]

    def by_stage(self, values: Floats) -> dict[str, float]:
        """Return the sums of one value an interval, by stage."""
        names, places = self._stages
        sums = np.bincount(places, weights=values, minlength=len(names))
        return dict(zip(names, sums.tolist(), strict=True))

    @property
    def epochs(self) -> list[tuple[int | None, str]]:
        """Return the different epochs and stages of the intervals."""
        return self._epochs[0]

    def epoch_sums(self, values: Floats) -> Floats:
        """Return the sum of one value an interval for each of `epochs`."""
        sums = np.bincount(self._epochs[1], weights=values, minlength=len(self.epochs))
        return np.asarray(sums, dtype=np.float64)

    def short_stages(self, period_s: float) -> dict[str, float]:
        """Return the stages that `period_s` is too long for, with the mean length in s of their pieces."""
        return self._short(*self._stages, [str(name) for name in self._stages[0]], period_s)

    def short_epochs(self, period_s: float) -> set[tuple[int | None, str]]:
        """Return epoch and stage of those that `period_s` is too long for."""
        names, places = self._epochs
        return set(self._short(names, places, [stage for _, stage in names], period_s))

    def codes_at(self, time_s: Floats) -> NDArray[np.int8]:
        """Return the place in STAGES of each time, `unattributed` outside of the window."""
        codes = self._codes
        if (counts := self._counts(time_s)) is not None:
            return np.repeat(codes, counts)
        place = np.searchsorted(self.start_s, time_s, side="right")
        place[time_s > self.end_s[-1]] = len(codes) - 1
        return codes[place]

    def samples_by_stage(self, time_s: Floats) -> dict[str, int]:
        """Return how many of these times are in each of STAGES, `unattributed` outside of the window."""
        codes, counts = self._codes, self._counts(time_s)
        if counts is None:
            codes = self.codes_at(time_s)
        sums = np.bincount(codes, counts, len(STAGES))
        return dict(zip(STAGES, sums.astype(int).tolist(), strict=True))

    @cached_property
    def _codes(self) -> NDArray[np.int8]:
        """Return the index in STAGES of the time before the window, of each interval, and after it."""
        outside = STAGES.index(UNATTRIBUTED)
        codes = [outside, *(STAGES.index(stage) for stage in self.stage), outside]
        return np.array(codes, dtype=np.int8)

    def _counts(self, time_s: Floats) -> NDArray[np.intp] | None:
        """Return how many of the times there are of each of `_codes`; None if they are not in order."""
        if (np.diff(time_s) < 0).any():
            return None
        edges = np.searchsorted(time_s, self.start_s, side="left")
        last = np.searchsorted(time_s, self.end_s[-1:], side="right")
        return np.maximum(np.diff(np.concatenate(([0], edges, last, [time_s.size]))), 0)

    def _short(
        self, names: list[Any], places: NDArray[np.intp], stages: list[str], period_s: float
    ) -> dict[Any, float]:
        """Return those of `names`, which are of `stages`, with too short pieces, and their mean length."""
        here = np.flatnonzero(self.seconds > 0)
        if not here.size:
            return {}
        codes = places[here]
        begins = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        lengths, pieces = np.add.reduceat(self.seconds[here], begins), codes[begins]
        # One per cent less is tolerated: a recording need not begin or end with a stage.
        short = lengths < 0.99 * LEAST_PERIODS * period_s
        whole, lost = (
            np.bincount(pieces[those], lengths[those], len(names)) for those in (pieces >= 0, short)
        )
        counts = np.bincount(pieces, minlength=len(names))
        return {
            names[i]: float(whole[i] / counts[i])
            for i in np.flatnonzero(lost > MOST_SHORT * whole)
            if stages[i] != UNATTRIBUTED
        }

    @cached_property
    def _stages(self) -> tuple[list[str], NDArray[np.intp]]:
        return _places([str(stage) for stage in self.stage])

    @cached_property
    def _epochs(self) -> tuple[list[tuple[int | None, str]], NDArray[np.intp]]:
        return _places(list(zip(self.epoch, map(str, self.stage), strict=True)))


def _places(names: list[Any]) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the different names in order, and the place of each name among them."""
    different = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return list(different), np.array([different[name] for name in names], dtype=np.intp)


def segment_events(events: pa.Table | None, segment: int) -> list[dict[str, object]]:
    """Return the events of one segment in order of time; a stage without an end never ended.

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
    events: list[dict[str, object]], window: tuple[float, float]
) -> tuple[StageIntervals, list[Flag]]:
    """Cut [start, end] (unix s) into the stages of `segment_events` and `unattributed` between.

    Where two stages overlap the earlier one keeps the time, flagged `overlap`.
    """
    rows: list[tuple[str, object, float, float]] = []
    now, last = window
    overlap = 0.0
    previous_end = -np.inf
    for event in events:
        begin, end = float(event["start_s"]), float(event["end_s"])  # type: ignore[arg-type]
        overlap += max(0.0, min(previous_end, end) - begin)
        previous_end = max(previous_end, end)
        begin, end = max(begin, now), min(end, last)
        if end <= begin:
            continue
        if begin > now:
            rows.append((UNATTRIBUTED, None, now, begin))
        rows.append((str(event["stage"]), event.get("epoch"), begin, end))
        now = end
    if last > now or not rows:
        rows.append((UNATTRIBUTED, None, now, last))
    intervals = StageIntervals(
        stage=np.array([row[0] for row in rows], dtype=object),
        epoch=np.array([row[1] for row in rows], dtype=object),
        start_s=np.array([row[2] for row in rows], dtype=np.float64),
        end_s=np.array([row[3] for row in rows], dtype=np.float64),
    )
    # Stamps of one process cannot overlap by more than their rounding.
    flags = []
    if overlap > 1e-3:
        flags.append(flag("overlap", None, f"stages overlap by {overlap:.3f} s"))
    return intervals, flags


def seconds_where(time_s: Floats, holds: NDArray[np.bool_], window: tuple[float, float]) -> float:
    """Return the seconds of a window in which something held, as read at `time_s`.

    What was read holds from halfway to the reading before until halfway to the next.
    """
    if time_s.size == 0:
        return 0.0
    middle = 0.5 * (time_s[1:] + time_s[:-1])
    begin = np.clip(np.concatenate(([window[0]], middle)), *window)
    end = np.clip(np.concatenate((middle, [window[1]])), *window)
    return float(np.sum((end - begin)[holds]))


def on_wall_clock(
    recording: Recording, series: Series, journal: Series
) -> tuple[tuple[SensorSeries, ...], list[Flag]]:
    """Shift the series of one host of `recording` to unix seconds.

    The offset is the median of journal time minus HDF5 time, sample by sample from the first (the
    same sampler writes both). A host without journal starts at perun's `execution_dt`, read as
    local time of this machine and flagged `time_assumed`; without that the times stay
    as they are, flagged `time_unknown`.
    """
    if recording.t0_known:
        return tuple(series), []
    offset = _journal_offset(series, journal)
    flags: list[Flag] = []
    if offset is None:
        offset, of_clock = _execution_offset(recording, series[0].node if series else "")
        flags.append(of_clock)
    shifted: dict[int, Floats] = {}  # the sensors of a host share their times
    for one in series:
        if id(one.time_s) not in shifted:
            shifted[id(one.time_s)] = one.time_s + offset
    return tuple(replace(one, time_s=shifted[id(one.time_s)]) for one in series), flags


def _journal_offset(series: Series, journal: Series) -> float | None:
    ours, theirs = ([s.time_s for s in part if s.time_s.size] for part in (series, journal))
    if not ours or not theirs:
        return None
    a, b = max(ours, key=len), max(theirs, key=len)
    count = min(a.size, b.size)
    return float(np.median(b[:count] - a[:count]))


def _execution_offset(recording: Recording, host: str) -> tuple[float, Flag]:
    try:
        start = datetime.fromisoformat(recording.execution_dt or "").timestamp()
    except ValueError:
        return 0.0, flag("time_unknown", None, f"{host}: no journal and no start time in the file")
    detail = f"{host}: no journal; times count from perun's start {recording.execution_dt}"
    return start, flag("time_assumed", None, detail + " (local time)")


def seconds_outside(
    events: Sequence[Mapping[str, Any]], window: tuple[float, float], period_s: float
) -> float:
    """Return the run's seconds outside of a recording, 0 where a late start explains them.

    Startup and shutdown do not count: the sampler runs inside of them.
    """
    inner = [e for e in events if e["stage"] not in _OPEN_STAGES and e["end_s"] != float("inf")]
    if not inner:
        return 0.0
    begin = min(float(e["start_s"]) for e in inner)
    end = max(float(e["end_s"]) for e in inner)
    inside = max(0.0, min(end, window[1]) - max(begin, window[0]))
    lost = (end - begin) - inside
    return lost if lost > LOST_PERIODS * period_s else 0.0
