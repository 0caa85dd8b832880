"""What the page of one run shows: the power of its devices against time, thinned out, and its stages.

Times are those of a page: seconds since the run's start, with the waiting between segments left out.
However long a run was and however many nodes it had, a page has at most BINS places along the time,
and holds the extremes of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.common.errors import InputError
from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.traces import TRACES_SCHEMA, read_samples
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.telemetry import TELEMETRY_PERIOD_LIMIT_S
from scalewatt.recordings.terms import ALL_KINDS, Floats
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.read_table import opened_parquet, read_checked
from scalewatt.results.tables.run_row import RunFiles, run_record, runs_of

BINS = 1200
"""About one for each dot of the picture's width."""
MOST_NODES = 3
"""Of more nodes a page shows the devices of a kind together."""
KINDS = (*ALL_KINDS, UNUSED_GPU)
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
    """Length of the places that samples were put together in; None if each of them is there."""
    clocks: tuple[Trace, ...] | Band | None = None
    """The GPUs' clocks, in MHz in place of W; None where none was recorded, or none asked for."""


def read_pages(
    results: Path, configuration: str, repeats: Iterable[int], excluded: Mapping[str, str]
) -> Iterator[RunPage]:
    """Read the pages of a configuration's runs; `excluded`: why repeats (as text) are left out elsewhere."""
    if not isinstance(excluded, Mapping):
        raise InputError(
            f"--excluded: is {excluded!r}; expected a JSON object of repeats and reasons"
        )
    runs = [RunFiles(results, configuration, repeat) for repeat in repeats]
    # Derived together: that takes as long for all repeats as for one.
    rows = runs_of(
        [run_record(files, results.name, excluded.get(str(files.repeat))) for files in runs],
        Facility(),
    )
    for files, row in zip(runs, records(rows), strict=True):
        yield _read_page(files, row)


def read_page(results: Path, configuration: str, repeat: int, excluded: str | None) -> RunPage:
    """Return what the page of a run shows; `excluded` says why it is left out of everything else."""
    reasons = {} if excluded is None else {str(repeat): excluded}
    return next(read_pages(results, configuration, [repeat], reasons))


def _read_page(files: RunFiles, row: dict[str, Any]) -> RunPage:
    events = read_checked(files.folder / "events.parquet", EVENTS_SCHEMA).to_pylist()
    recorded = _recorded(files.traces)
    segments = _segments(recorded.spans, events)
    length = segments[-1].end_s if segments else 0.0
    nodes = tuple(sorted(set(recorded.devices["node"])))
    traces: tuple[Trace, ...] = ()
    bands: tuple[Band, ...] = ()
    place_s: float | None = None
    if len(nodes) > MOST_NODES:
        count = int(min(BINS, max(1.0, length / (2 * recorded.period_s or 1.0))))
        place_s = length / count or 1.0
        bands = _bands(files.traces, segments, place_s, count, recorded.devices)
    elif not length or length / BINS < 3 * recorded.period_s:
        traces = _whole_traces(files.traces, segments)
    else:
        place_s = length / BINS
        traces = _thinned_traces(files.traces, segments, place_s)
    shifts = _shifts(segments)
    spans = tuple(
        Span(e["stage"], *(e[end] + shifts[e["segment"]] for end in ("start_s", "end_s")))
        for e in events
    )
    clocks = None if row["gpu_clock_mhz"] is None else _clocks(files, segments, len(nodes), place_s)
    return RunPage(row, nodes, segments, spans, traces, bands, place_s, clocks)


# --- when -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Recorded:
    """The traces' devices and time span."""

    spans: dict[int, tuple[float, float]]
    """First and last time of each segment."""
    devices: pd.DataFrame
    period_s: float
    """Time from a sample to the next one; 0 where it is not known."""


def _recorded(path: Path) -> _Recorded:
    times, devices, period_s = [], [], 0.0
    for samples in _samples(path):
        times.append(samples.groupby("segment")["time_s"].agg(["min", "max"]))
        devices.append(samples[_DEVICE].drop_duplicates())
        if not period_s:
            steps = samples.groupby(["segment", *_DEVICE], sort=False)["time_s"]
            several = (own for _, own in steps if len(own) > 2)
            period_s = float(np.median(np.diff(next(several, [0.0, 0.0]))))
    ends = pd.concat(times).groupby("segment").agg({"min": "min", "max": "max"}) if times else None
    spans = {} if ends is None else {int(n): (low, high) for n, low, high in ends.itertuples()}
    found = pd.concat(devices).drop_duplicates() if devices else pd.DataFrame(columns=_DEVICE)
    return _Recorded(spans, found, period_s)


def _segments(
    recorded: dict[int, tuple[float, float]], events: list[dict[str, Any]]
) -> tuple[Segment, ...]:
    """Return segments one after another, each as long as its recording and its stages together."""
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


def _shifts(segments: tuple[Segment, ...]) -> dict[int, float]:
    """Return what to add to a clock's time for the page's, by segment."""
    return {one.number: one.start_s - one.clock_s for one in segments}


# --- power ----------------------------------------------------------------------------------------

_TIME = ("segment", "time")
_DEVICE: list[Any] = ["node", "device_kind", "device_index"]


def _samples(path: Path) -> Iterator[pd.DataFrame]:
    """Yield the samples of each device of traces; `time_s` is Unix time in s."""
    with opened_parquet(path, TRACES_SCHEMA.names) as file:
        for samples in read_samples(file):
            yield samples.assign(time_s=samples["time"].astype("int64") / 1e6)


def _telemetry(path: Path) -> Iterator[pd.DataFrame]:
    """Yield the rows of telemetry as they lie in the file, some at a time; `time_s` is Unix time in s."""
    columns = (*_TIME, *_DEVICE, "quantity", "value")
    with opened_parquet(path, columns) as file:
        for batch in file.iter_batches(_ROWS, columns=list(columns)):
            if batch.num_rows:
                samples = batch.drop_columns(["time"]).to_pandas()
                words = samples.select_dtypes("category").columns
                samples[words] = samples[words].astype(object)
                yield samples.assign(time_s=batch["time"].cast(pa.int64()).to_numpy() / 1e6)


def _whole_traces(path: Path, segments: tuple[Segment, ...]) -> tuple[Trace, ...]:
    """Return every sample, with a NaN before each that follows a gap or begins a segment."""
    samples = pd.concat(list(_samples(path)) or [_NOTHING])
    samples["time_s"] += samples["segment"].map(_shifts(segments))
    traces = []
    by_device: Any = samples.groupby(_DEVICE, sort=False)
    for device, own in by_device:
        segment = own["segment"].to_numpy()
        begins = np.append(False, segment[1:] != segment[:-1])
        breaks = np.flatnonzero(begins | (own["flag"] == "gap").to_numpy())
        time_s, power_w = own["time_s"].to_numpy(), own["power_w"].to_numpy(dtype=np.float64)
        time_s = np.insert(time_s, breaks, time_s[breaks])
        traces.append(Trace(device, time_s, np.insert(power_w, breaks, np.nan)))
    return _in_order(traces)


_NOTHING = pd.DataFrame(columns=["segment", *_DEVICE, "power_w", "flag", "time_s"])


def power_by_place(
    batches: Iterable[pd.DataFrame], keys: list[Any], place_s: float, count: int
) -> Iterator[tuple[Any, dict[str, Floats]]]:
    """Yield for each value of `keys` its power in `count` equal places of the time.

    That is the middle of the places in s, and least, mean and greatest power in W, shape (count,);
    NaN where nothing is known. Samples have their time on the page in column `time_s`.
    """
    parts = []
    for samples in batches:
        place = (samples["time_s"] / place_s).astype(np.int64).clip(0, count - 1).rename("place")
        power = samples["power_w"].astype(np.float64)
        by_place = power.groupby([*(samples[key] for key in keys), place])
        parts.append(by_place.agg(["min", "max", "sum", "count"]))
    if not parts:
        return
    ways = {"min": "min", "max": "max", "sum": "sum", "count": "sum"}
    found = pd.concat(parts).groupby(level=list(range(len(keys) + 1))).agg(ways)
    for key, own in found.groupby(level=keys):
        placed = own.droplevel(keys).reindex(range(count))
        yield (
            key,
            {
                "time_s": np.asarray((np.arange(count) + 0.5) * place_s, dtype=np.float64),
                "low_w": placed["min"].to_numpy(),
                "mean_w": (placed["sum"] / placed["count"]).to_numpy(),
                "high_w": placed["max"].to_numpy(),
            },
        )


def _placed(path: Path, segments: tuple[Segment, ...]) -> Iterator[pd.DataFrame]:
    shifts = _shifts(segments)
    for samples in _samples(path):
        yield samples.assign(time_s=samples["time_s"] + samples["segment"].map(shifts))


def _thinned_traces(path: Path, segments: tuple[Segment, ...], place_s: float) -> tuple[Trace, ...]:
    """Return the least and the greatest power of each place, one after the other."""
    by_device = power_by_place(_placed(path, segments), _DEVICE, place_s, BINS)
    return _in_order(
        Trace(
            device,
            np.repeat(own["time_s"], 2),
            np.stack([own["low_w"], own["high_w"]], axis=1).ravel(),
        )
        for device, own in by_device
    )


def _bands(
    path: Path, segments: tuple[Segment, ...], place_s: float, count: int, devices: pd.DataFrame
) -> tuple[Band, ...]:
    by_kind = dict(power_by_place(_placed(path, segments), ["device_kind"], place_s, count))
    several = devices["device_kind"].value_counts()
    return tuple(
        Band(kind, int(several[kind]), **by_kind[(kind,)]) for kind in KINDS if (kind,) in by_kind
    )


def _clocks(
    files: RunFiles, segments: tuple[Segment, ...], nodes: int, place_s: float | None
) -> tuple[Trace, ...] | Band | None:
    """Return the GPUs' clocks on the page: of each GPU, or of many nodes together."""
    path = files.energy.with_suffix(".telemetry.parquet")
    if not path.is_file():  # an archive may leave it out
        return None
    found = pd.concat(list(_telemetry(path)) or [_NOTHING.assign(quantity=None)])
    found = found[found["quantity"] == "clock_sm"]
    if found.empty:
        return None
    found["time_s"] += found["segment"].map(_shifts(segments))
    if nodes <= MOST_NODES:
        by_device: Any = found.groupby(_DEVICE, sort=False)
        return _in_order(
            Trace(device, own["time_s"].to_numpy(), own["value"].to_numpy(dtype=np.float64))
            for device, own in by_device
        )
    length = segments[-1].end_s if segments else 0.0
    # A reading every few seconds: each place has one of every GPU.
    wide_s = max(place_s or 0.0, 2 * TELEMETRY_PERIOD_LIMIT_S, length / BINS)
    batches = [found.rename(columns={"value": "power_w"})]
    count = max(1, int(length / wide_s))
    ((_, places),) = power_by_place(batches, ["device_kind"], wide_s, count)
    return Band("gpu", len(found[_DEVICE].drop_duplicates()), **places)


def _in_order(traces: Iterable[Trace]) -> tuple[Trace, ...]:
    """Return traces by node, kind and index."""
    return tuple(sorted(traces, key=lambda t: (t.device[0], KINDS.index(t.device[1]), t.device[2])))
