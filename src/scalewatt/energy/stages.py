"""When a recording happened, and which stage each of its seconds belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.energy.integrate import EnergyCurve
from scalewatt.energy.samples import Flag, Floats, Recording, flag
from scalewatt.training import events

UNATTRIBUTED = "unattributed"
STAGES = (*events.STAGES, UNATTRIBUTED)


@dataclass(frozen=True, eq=False)
class StageIntervals:
    """Intervals that tile a window without hole or overlap; all arrays have shape (k,)."""

    stage: NDArray[np.object_]
    epoch: NDArray[np.object_]
    start_s: Floats
    end_s: Floats

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage."""
        return self._summed(self.end_s - self.start_s)

    def energy_j(self, curve: EnergyCurve) -> dict[str, float]:
        """Return the energy of each stage; the stages add up to the window's energy."""
        return self._summed(curve.between(self.start_s, self.end_s))

    def at(self, time_s: Floats) -> NDArray[np.object_]:
        """Return the stage of each time, `unattributed` outside of the window."""
        if self.start_s.size == 0:
            return np.full(time_s.shape, UNATTRIBUTED, dtype=object)
        index = np.searchsorted(self.start_s, time_s, side="right") - 1
        inside = (index >= 0) & (time_s <= self.end_s[-1])
        return np.where(inside, self.stage[np.maximum(index, 0)], UNATTRIBUTED)

    def _summed(self, values: Floats) -> dict[str, float]:
        names, place = np.unique(self.stage.astype(str), return_inverse=True)
        sums = np.bincount(place, weights=values, minlength=names.size)
        return {str(name): float(value) for name, value in zip(names, sums, strict=True)}


def segment_events(events: pa.Table | None, segment: int) -> list[dict[str, object]]:
    """Return the events of one segment in order of time; a stage without an end never ended."""
    if events is None:
        return []
    rows = [
        {**row, "end_s": np.inf if row["end_s"] is None else row["end_s"]}
        for row in events.to_pylist()
        if row["segment"] == segment and row["start_s"] is not None
    ]
    return sorted(rows, key=lambda row: row["start_s"])


def tile_window(
    events: list[dict[str, object]], window: tuple[float, float]
) -> tuple[StageIntervals, list[Flag]]:
    """Cut [start, end] (unix s) into the stages of `segment_events` and `unattributed` between.

    Where two stages overlap the earlier one keeps the time, flagged `stages_overlap`.
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
        flags.append(flag("stages_overlap", None, f"stages overlap by {overlap:.3f} s"))
    return intervals, flags


def on_wall_clock(recording: Recording, journal: Recording | None) -> tuple[Recording, list[Flag]]:
    """Shift each host's times to unix seconds.

    The offset is the median of journal time minus HDF5 time, sample by sample from the first (the
    same sampler writes both). A host without journal starts at perun's `execution_dt`, read as
    local time of this machine and flagged `clock_from_execution_dt`; without that the times stay
    as they are, flagged `clock_unknown`.
    """
    if recording.t0_known:
        return recording, []
    offsets: dict[str, float] = {}
    flags: list[Flag] = []
    for host in recording.hosts:
        offset = _journal_offset(recording, journal, host)
        if offset is None:
            offset, doubt = _execution_offset(recording, host)
            flags.append(doubt)
        offsets[host] = offset
    shifted = {
        host: tuple(replace(s, time_s=s.time_s + offsets[host]) for s in series)
        for host, series in recording.nodes.items()
    }
    return replace(recording, nodes=shifted, t0_known=True), flags


def _journal_offset(recording: Recording, journal: Recording | None, host: str) -> float | None:
    ours = [s.time_s for s in recording.nodes.get(host, ())]
    theirs = [s.time_s for s in journal.nodes.get(host, ())] if journal else []
    if not ours or not theirs:
        return None
    a, b = max(ours, key=len), max(theirs, key=len)
    count = min(a.size, b.size)
    return float(np.median(b[:count] - a[:count])) if count else None


def _execution_offset(recording: Recording, host: str) -> tuple[float, Flag]:
    try:
        start = datetime.fromisoformat(recording.execution_dt or "").timestamp()
    except ValueError:
        return 0.0, flag("clock_unknown", None, f"{host}: no journal and no start time in the file")
    detail = f"{host}: no journal; times count from perun's start {recording.execution_dt}"
    return start, flag("clock_from_execution_dt", None, detail + " (local time)")
