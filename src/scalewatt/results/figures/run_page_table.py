"""What the page of one run shows: the power of its devices against time, thinned out, and its stages.

Times are those of a page: seconds since the run's start, with the waiting between segments left out.
However long a run was and however many nodes it had, a page has at most BINS places along the time,
and holds the extremes of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scalewatt.common.errors import InputError
from scalewatt.energy.accounting.node_energy import UNUSED_GPU
from scalewatt.recordings.series import DEVICE_KINDS, Floats
from scalewatt.recordings.stage_files import EVENTS_SCHEMA
from scalewatt.results.figures.superseded import Replaced, replaced_measurements
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.read_table import opened_parquet, read_checked
from scalewatt.results.tables.run_row import RunFiles, run_row

BINS = 1200
"""About one for each dot of the picture's width."""
MOST_NODES = 3
"""Of more nodes a page shows the devices of a kind together."""
KINDS = (*DEVICE_KINDS, UNUSED_GPU)
_ROWS = 1_000_000  # that are in memory at a time

Device = tuple[str, str, int]
"""Node, device kind, index."""


@dataclass(frozen=True)
class Segment:
    """A start of the run, in page time; `waited_s` since the end of the one before."""

    number: int
    start_s: float
    end_s: float
    waited_s: float
    clock_s: float
    """Unix time of its start."""


@dataclass(frozen=True)
class Span:
    """A stage, in page time."""

    stage: str
    start_s: float
    end_s: float


@dataclass(frozen=True, eq=False)
class Trace:
    """The power of one device, shape (k,) each; NaN where it is not known."""

    device: Device
    time_s: Floats
    power_w: Floats


@dataclass(frozen=True, eq=False)
class Band:
    """The power of the devices of a kind, shape (k,) each; NaN where none is known."""

    device_kind: str
    devices: int
    time_s: Floats
    low_w: Floats
    mean_w: Floats
    high_w: Floats


@dataclass(frozen=True, eq=False)
class RunPage:
    """One run; it has either traces or bands."""

    row: dict[str, Any]
    """Its row of the runs table."""
    nodes: tuple[str, ...]
    segments: tuple[Segment, ...]
    spans: tuple[Span, ...]
    traces: tuple[Trace, ...]
    bands: tuple[Band, ...]
    place_s: float | None
    """Length of the places that samples were put together in; None where each of them is there."""
    replaced: tuple[Replaced, ...] = ()
    """Measurements of the run that were set aside before this one."""


def read_pages(
    results: Path, configuration: str, repeats: Iterable[int], excluded: Mapping[str, str]
) -> Iterator[RunPage]:
    """The pages of a configuration's runs; `excluded`: why repeats (as text) are left out elsewhere."""
    if not isinstance(excluded, Mapping):
        raise InputError(
            f"--excluded: is {excluded!r}; expected a JSON object of repeats and reasons"
        )
    for repeat in repeats:
        yield read_page(results, configuration, repeat, excluded.get(str(repeat)))


def read_page(results: Path, configuration: str, repeat: int, excluded: str | None) -> RunPage:
    """What the page of a run shows; `excluded` says why it is left out of everything else."""
    files = RunFiles(results, configuration, repeat)
    row = run_row(files, results.name, Facility(), excluded=excluded)
    events = read_checked(files.folder / "events.parquet", EVENTS_SCHEMA).to_pylist()
    recorded = _recorded(files.traces)
    segments = _segments(recorded.spans, events)
    length = segments[-1].end_s if segments else 0.0
    few = len(recorded.nodes) <= MOST_NODES
    traces: tuple[Trace, ...] = ()
    bands: tuple[Band, ...] = ()
    place_s: float | None = None
    if few and length / BINS < 3 * recorded.period_s:
        traces = _whole_traces(files.traces, segments)
    elif few:
        place_s = length / BINS
        binned = _binned(files.traces, segments, length, BINS, lambda device: device)
        traces = tuple(
            _thinned(device, bins) for device, bins in sorted(binned.items(), key=_order)
        )
    else:
        count = int(min(BINS, max(1.0, length / (2 * recorded.period_s or 1.0))))
        place_s = length / count
        bands = _bands(files.traces, segments, length, count)
    spans = _spans(segments, events)
    replaced = tuple(replaced_measurements(results, run=(configuration, repeat)))
    return RunPage(row, recorded.nodes, segments, spans, traces, bands, place_s, replaced)


# --- when -----------------------------------------------------------------------------------------


@dataclass
class _Recorded:
    """What a first look at the traces tells."""

    spans: dict[int, tuple[float, float]] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    period_s: float = 0.0


def _recorded(path: Path) -> _Recorded:
    found = _Recorded()
    nodes: set[str] = set()
    for piece in _pieces(path, ("segment", "time", "node", "device_kind", "device_index")):
        first, last = piece.time_s[0], piece.time_s[-1]
        low, high = found.spans.get(piece.segment, (first, last))
        found.spans[piece.segment] = (min(low, first), max(high, last))
        nodes.add(piece.device[0])
        if not found.period_s and len(piece.time_s) > 2:
            found.period_s = float(np.median(np.diff(piece.time_s)))
    found.nodes = tuple(sorted(nodes))
    return found


def _segments(
    recorded: dict[int, tuple[float, float]], events: list[dict[str, Any]]
) -> tuple[Segment, ...]:
    """Segments one after another, each as long as its recording and its stages together."""
    windows = dict(recorded)
    for event in events:
        low, high = windows.get(event["segment"], (event["start_s"], event["end_s"]))
        windows[event["segment"]] = (min(low, event["start_s"]), max(high, event["end_s"]))
    found: list[Segment] = []
    end = before = 0.0
    for number, (low, high) in sorted(windows.items()):
        waited = max(low - before, 0.0) if found else 0.0
        found.append(Segment(number, end, end + high - low, waited, low))
        end, before = end + high - low, high
    return tuple(found)


def _spans(segments: tuple[Segment, ...], events: list[dict[str, Any]]) -> tuple[Span, ...]:
    shift = {one.number: one.start_s - one.clock_s for one in segments}
    return tuple(
        Span(e["stage"], e["start_s"] + shift[e["segment"]], e["end_s"] + shift[e["segment"]])
        for e in events
    )


# --- power ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Piece:
    """Consecutive samples of one device; power in W with NaN for null, where it was asked for."""

    segment: int
    device: Device
    time_s: Floats
    power_w: Floats
    after_gap: np.ndarray[Any, Any]


def _pieces(path: Path, columns: tuple[str, ...]) -> Iterator[_Piece]:
    """The samples device by device, as they lie in the file; a device may come in several pieces."""
    # Word columns stay dictionaries: a few words for millions of rows.
    with opened_parquet(path, columns) as file:
        for batch in file.iter_batches(_ROWS, columns=list(columns)):
            if batch.num_rows:
                yield from _pieces_of(batch)


def _pieces_of(batch: pa.RecordBatch) -> Iterator[_Piece]:
    codes, words = {}, {}
    for name in ("node", "device_kind"):
        encoded = batch[name]
        codes[name] = encoded.indices.to_numpy(zero_copy_only=False)
        words[name] = encoded.dictionary.to_pylist()
    segment = batch["segment"].to_numpy()
    index = batch["device_index"].to_numpy()
    time_s = batch["time"].cast(pa.int64()).to_numpy() / 1e6
    has_power = "power_w" in batch.schema.names
    power = batch["power_w"].to_numpy(zero_copy_only=False) if has_power else np.empty(0)
    gaps = np.empty(0, dtype=bool)
    if "flag" in batch.schema.names:
        gaps = pc.equal(batch["flag"].cast(pa.string()), "gap").to_numpy(zero_copy_only=False)
    changes = np.zeros(batch.num_rows, dtype=bool)
    for values in (segment, codes["node"], codes["device_kind"], index):
        changes[1:] |= values[1:] != values[:-1]
    edges = [0, *np.flatnonzero(changes).tolist(), batch.num_rows]
    for start, end in pairwise(edges):
        node = words["node"][codes["node"][start]]
        kind = words["device_kind"][codes["device_kind"][start]]
        device = (node, kind, int(index[start]))
        part = slice(start, end)
        yield _Piece(int(segment[start]), device, time_s[part], power[part], gaps[part])


_SAMPLES = ("segment", "time", "node", "device_kind", "device_index", "power_w")


def _whole_traces(path: Path, segments: tuple[Segment, ...]) -> tuple[Trace, ...]:
    """Every sample, with a NaN before each that follows a gap or begins a segment."""
    shift = {one.number: one.start_s - one.clock_s for one in segments}
    found: dict[Device, tuple[list[Floats], list[Floats]]] = {}
    for piece in _pieces(path, (*_SAMPLES, "flag")):
        times, powers = found.setdefault(piece.device, ([], []))
        breaks = np.flatnonzero(piece.after_gap)
        if times:
            breaks = np.union1d(breaks, [0])
        at = piece.time_s + shift[piece.segment]
        times.append(np.insert(at, breaks, at[breaks]))
        powers.append(np.insert(piece.power_w.astype(np.float64), breaks, np.nan))
    return tuple(
        Trace(device, np.concatenate(times), np.concatenate(powers))
        for device, (times, powers) in sorted(found.items(), key=_order)
    )


class _Bins:
    """Least, greatest and mean power in equal parts of the page's time; `devices` that were in it."""

    def __init__(self, length_s: float, count: int) -> None:
        self.width_s = length_s / count
        self.low = np.full(count, np.inf)
        self.high = np.full(count, -np.inf)
        self.total = np.zeros(count)
        self.known = np.zeros(count)
        self.devices: set[Device] = set()

    def add(self, device: Device, time_s: Floats, power_w: Floats) -> None:
        """Add samples in the order of time."""
        self.devices.add(device)
        known = np.isfinite(power_w)
        if not known.any():
            return
        power = power_w[known].astype(np.float64)
        places = (time_s[known] / self.width_s).astype(np.int64)
        places = np.clip(places, 0, len(self.low) - 1)
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        at = places[starts]
        self.low[at] = np.minimum(self.low[at], np.minimum.reduceat(power, starts))
        self.high[at] = np.maximum(self.high[at], np.maximum.reduceat(power, starts))
        self.total[at] += np.add.reduceat(power, starts)
        self.known[at] += np.diff(starts, append=len(power))

    def named(self) -> dict[str, Floats]:
        """Middle of the parts, and low, mean, high in W; NaN where nothing is known."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self.total / self.known
        empty = self.known == 0
        return {
            "time_s": (np.arange(len(self.low)) + 0.5) * self.width_s,
            "low_w": np.where(empty, np.nan, self.low),
            "mean_w": np.where(empty, np.nan, mean),
            "high_w": np.where(empty, np.nan, self.high),
        }


def _binned(
    path: Path, segments: tuple[Segment, ...], length_s: float, count: int, key: Any
) -> dict[Any, _Bins]:
    """The samples of all devices with the same `key` in common parts of the time."""
    shift = {one.number: one.start_s - one.clock_s for one in segments}
    found: dict[Any, _Bins] = {}
    for piece in _pieces(path, _SAMPLES):
        bins = found.setdefault(key(piece.device), _Bins(length_s, count))
        bins.add(piece.device, piece.time_s + shift[piece.segment], piece.power_w)
    return found


def _thinned(device: Device, bins: _Bins) -> Trace:
    """The least and the greatest power of each part, one after the other."""
    named = bins.named()
    ends = np.stack([named["low_w"], named["high_w"]], axis=1)
    return Trace(device, np.repeat(named["time_s"], 2), ends.ravel())


def _bands(
    path: Path, segments: tuple[Segment, ...], length_s: float, count: int
) -> tuple[Band, ...]:
    found = _binned(path, segments, length_s, count, lambda device: device[1])
    return tuple(
        Band(kind, len(found[kind].devices), **found[kind].named())
        for kind in KINDS
        if kind in found
    )


def _order(item: tuple[Device, Any]) -> tuple[str, int, int]:
    (node, kind, index), _ = item
    return node, KINDS.index(kind), index
