"""What the page of one run shows: the power of its devices against time, and its stages.

Times are those of a page: seconds since the run's start, with the waiting between segments left out.
However long a run was and however many nodes it had, a page has at most BINS bins along the time,
and holds the extremes of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from scalewatt.energies.node import UNUSED_GPU
from scalewatt.energies.traces import TRACES_SCHEMA, read_devices, read_samples
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.recordings.terms import ALL_KINDS
from scalewatt.results.tables.frames import opened_parquet, read_checked, records
from scalewatt.results.tables.run_row import RunFiles, read_runs

BINS = 800
MOST_NODES = 3
"""Of more nodes a page shows the devices of a kind together."""
KINDS = (*ALL_KINDS, UNUSED_GPU)
DEVICE = ["node", "device_kind", "device_index"]


@dataclass(frozen=True, eq=False)
class RunPage:
    """One run."""

    row: dict[str, Any]
    """Its row of the runs table."""
    devices: pd.DataFrame
    """Columns DEVICE: its sensors."""
    segments: pd.DataFrame
    """By number: `start_s` and `end_s`, `waited_s` since the end of the one before, `clock_s`, the Unix time
    of its start."""
    spans: pd.DataFrame
    """Columns stage, start_s, end_s."""
    bands: pd.DataFrame
    """Columns DEVICE, and as of `power_by_bin`; node is "" and device_index -1 of all devices."""
    bin_s: float
    """Length of the bins that samples were put together in."""

    @property
    def nodes(self) -> int:
        """Number of nodes with a sensor."""
        return int(self.devices["node"].nunique())

    @property
    def length_s(self) -> float:
        """Length of the run without waiting."""
        return float(self.segments["end_s"].max()) if len(self.segments) else 0.0


def read_pages(
    results: Path, configuration: str, repeats: Iterable[int], excluded: Mapping[str, str]
) -> Iterator[RunPage]:
    """Read the pages of a configuration's runs; `excluded`: why repeats (as text) are left out elsewhere."""
    runs = [(configuration, repeat) for repeat in repeats]
    why = {(configuration, int(repeat)): reason for repeat, reason in excluded.items()}
    for row in records(read_runs(results, runs, results.name, excluded=why)):
        yield _read_page(RunFiles(results, configuration, row["repeat"]), row)


def _read_page(files: RunFiles, row: dict[str, Any]) -> RunPage:
    events = read_checked(files.folder / "events.parquet", EVENTS_SCHEMA).to_pandas()
    with opened_parquet(files.traces, TRACES_SCHEMA.names) as file:
        times = file.read(columns=["segment", "time", "node", "block"]).to_pandas()
        devices = read_devices(file)[DEVICE].drop_duplicates()
    times["time_s"] = times["time"].astype("int64") / 1e6
    segments = _segments(times, events)
    steps = times.groupby(["segment", "node", "block"], observed=True)["time_s"].diff()
    length_s = float(segments["end_s"].max()) if len(segments) else 0.0
    # Twice the period: a bin without a sample is a gap.
    bin_s = max(length_s / BINS, 2 * steps.median() if steps.notna().any() else 0.0) or 1.0
    shifts = segments["start_s"] - segments["clock_s"]
    samples = _samples(files.traces, shifts, devices["node"].nunique() > MOST_NODES)
    bands = power_by_bin(samples, DEVICE, bin_s, max(1, math.ceil(length_s / bin_s)))
    shift = events["segment"].map(shifts)
    spans = events[["stage"]].assign(
        start_s=events["start_s"] + shift, end_s=events["end_s"] + shift
    )
    return RunPage(row, devices, segments, spans, bands, bin_s)


def _segments(times: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Put segments one after another, each as long as its recording and its stages together."""
    stages = events.rename(columns={"start_s": "first", "end_s": "last"})
    recorded = times.assign(first=times["time_s"], last=times["time_s"])
    both = pd.concat([rows[["segment", "first", "last"]] for rows in (recorded, stages)])
    clock = both.groupby("segment").agg(first=("first", "min"), last=("last", "max"))
    length = clock["last"] - clock["first"]
    end = length.cumsum()
    waited = (clock["first"] - clock["last"].shift()).clip(lower=0.0).fillna(0.0)
    return pd.DataFrame(
        {"start_s": end - length, "end_s": end, "waited_s": waited, "clock_s": clock["first"]}
    )


def _samples(path: Path, shifts: pd.Series, together: bool) -> Iterator[pd.DataFrame]:
    """Yield the samples of each device, `time_s` on the page; `together`: as of one device of a kind."""
    with opened_parquet(path, TRACES_SCHEMA.names) as file:
        for samples in read_samples(file):
            time_s = samples["time"].astype("int64") / 1e6 + samples["segment"].map(shifts)
            samples = samples.assign(time_s=time_s)
            yield samples.assign(node="", device_index=-1) if together else samples


def power_by_bin(
    batches: Iterable[pd.DataFrame], keys: list[str], bin_s: float, count: int
) -> pd.DataFrame:
    """Least, mean and greatest power of each value of `keys` in `count` equal bins of the time.

    Columns are the keys, the middle `time_s` of the bin, and low_w, mean_w, high_w, NaN where nothing is
    known. Samples have their time on the page in column `time_s`.
    """
    parts = [pd.DataFrame(columns=[*keys, "bin", "min", "max", "sum", "count"])]
    for samples in batches:
        number = (samples["time_s"] / bin_s).astype(int).clip(0, count - 1).rename("bin")
        power = samples["power_w"].astype(float).groupby([*(samples[key] for key in keys), number])
        parts.append(power.agg(["min", "max", "sum", "count"]).reset_index())
    ways = {"min": "min", "max": "max", "sum": "sum", "count": "sum"}
    sums = pd.concat(parts[1:] or parts).groupby([*keys, "bin"]).agg(ways).reset_index()
    bins = sums[keys].drop_duplicates().merge(pd.DataFrame({"bin": range(count)}), how="cross")
    sums = bins.merge(sums, how="left", on=[*keys, "bin"])
    return sums[keys].assign(
        time_s=(sums["bin"] + 0.5) * bin_s,
        low_w=sums["min"],
        mean_w=sums["sum"] / sums["count"].where(sums["count"] > 0),
        high_w=sums["max"],
    )
