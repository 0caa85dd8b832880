"""The carbon intensity that a run met, along its power: a mean for each row of its energy table.

The mean is weighted with the energy of the traces, cut where the stage or the intensity changes. So a row's
energy, as it was accounted for, times its mean is what it emitted, and a constant file gives exactly its
constant. Between segments nothing counts. Where no power over time is known (a total, an estimate without
samples), the power is taken to be the same all through the stage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.common.files import file_sha256, write_table
from scalewatt.energies.accounting.energy_schema import ENERGY_SCHEMA, METADATA_KEY
from scalewatt.energies.accounting.node_energy import Window
from scalewatt.energies.accounting.run_inputs import Run, read_planned_run
from scalewatt.energies.integration.sample_checks import (
    EnergyCurve,
    bridge_s,
    forward,
    sampling_period,
)
from scalewatt.energies.integration.stage_intervals import (
    StageIntervals,
    segment_events,
    tile_window,
)
from scalewatt.energies.integration.trace_curve import power_curve
from scalewatt.recordings.series import MEAN, Floats
from scalewatt.results.carbon.carbon_table import BY_POWER, BY_TIME, CARBON, PLACE
from scalewatt.results.carbon.intensity import CarbonIntensity
from scalewatt.results.carbon.intensity_files import read_intensity
from scalewatt.results.tables.read_table import opened_parquet, read_checked

Row = dict[str, Any]
_TRACE_COLUMNS = (
    "segment",
    "time",
    "node",
    "device_kind",
    "device_index",
    "uuid",
    "power_w",
    "quantity",
)
_BATCH_ROWS = 1 << 19


def write_carbon(
    folder: Path, traces: Path, energy: Path, file: Path, source: str, out: Path
) -> None:
    """Write the table CARBON of a run folder, from its traces, its energy table and a file of intensity.

    `source` says where the file comes from. InputError if one of the files is damaged.
    """
    intensity = read_intensity(file)
    run = Run.of(folder, read_planned_run(folder / "spec.json"), {})
    rows = read_checked(energy, ENERGY_SCHEMA).to_pylist()
    found = carbon_rows(run, rows, traces, intensity)
    begin, end = intensity.cover_s
    told = {
        "file": intensity.name,
        "sha256": file_sha256(file),
        "form": intensity.form,
        "source": source,
        "begin_s": begin,
        "end_s": end,
    }
    schema = CARBON.with_metadata({METADATA_KEY: json.dumps(told).encode()})
    write_table(pa.Table.from_pylist(found, schema=schema), out)


def carbon_rows(run: Run, rows: list[Row], traces: Path, intensity: CarbonIntensity) -> list[Row]:
    """Return the rows of CARBON for the `rows` of a run's energy table."""
    nodes = {one.place: one for one in _nodes(run, traces, intensity)}
    found = []
    for row in rows:
        place = int(row["segment"]), str(row["node"])
        if place not in nodes:
            nodes[place] = _Node.of(place, _told_window(run, place[0]), run, intensity)
        mean = nodes[place].mean(row["device_kind"], row["stage"])
        found.append({name: row[name] for name in ("configuration", "repeat", *PLACE)} | mean)
    return found


@dataclass(frozen=True, eq=False)
class _Node:
    """A node in a segment: its time, cut where the stage or the intensity changes."""

    place: tuple[int, str]
    pieces: pd.DataFrame
    """Columns `stage`, `start_s`, `end_s`, `seconds`, `g_per_kwh`; no row where no time is known."""
    joules: dict[str, Floats] = field(default_factory=dict)
    """Of each device kind with samples: the energy in each piece, (k,)."""

    @classmethod
    def of(
        cls, place: tuple[int, str], window: Window | None, run: Run, intensity: CarbonIntensity
    ) -> _Node:
        """Return a node without energies, over a window in unix s."""
        names = ("stage", "start_s", "end_s", "seconds", "g_per_kwh")
        if window is None:
            return cls(place, pd.DataFrame(columns=list(names)))
        intervals, _ = tile_window(segment_events(run.events, place[0]), window)
        start, end, stage = _cut(intervals, intensity.edges_within(*window))
        values = intensity.at(0.5 * (start + end))
        columns = (stage, start, end, end - start, values)
        return cls(place, pd.DataFrame(dict(zip(names, columns, strict=True))))

    def add(self, device_kind: str, curve: EnergyCurve) -> None:
        """Add the energy of a device."""
        joules = curve.between(self.pieces["start_s"].to_numpy(), self.pieces["end_s"].to_numpy())
        self.joules[device_kind] = self.joules.get(device_kind, 0.0) + joules

    def mean(self, device_kind: str, stage: str) -> Row:
        """Return the mean of a device kind in a stage; over the whole time where the stage has none."""
        seconds = self.pieces["seconds"].to_numpy(dtype=np.float64)
        joules = self.joules.get(device_kind, np.zeros(seconds.shape))
        here = (self.pieces["stage"] == stage).to_numpy(dtype=bool)
        if not (seconds[here] > 0).any():
            here = np.ones(seconds.shape, dtype=bool)
        by = BY_POWER if joules[here].sum() > 0 else BY_TIME
        weights = np.where(here, joules if by == BY_POWER else seconds, 0.0)
        counts = weights > 0
        if not counts.any():
            return {"carbon_g_per_kwh": None, "uncovered_s": None, "weighted_by": None}
        values = self.pieces["g_per_kwh"].to_numpy(dtype=np.float64)[counts]
        mean = float(np.average(values, weights=weights[counts]))
        return {
            "carbon_g_per_kwh": mean if np.isfinite(mean) else None,
            "uncovered_s": float(seconds[counts][np.isnan(values)].sum()),
            "weighted_by": by,
        }


def _cut(intervals: StageIntervals, edges_s: Floats) -> tuple[Floats, Floats, Any]:
    """Return begin, end and stage of the pieces between all changes of the stage and `edges_s`."""
    edges = np.unique(np.concatenate([intervals.start_s, intervals.end_s[-1:], edges_s]))
    start, end = edges[:-1], edges[1:]
    place = np.searchsorted(intervals.start_s, start, side="right") - 1
    return start, end, intervals.stage[place]


def _told_window(run: Run, segment: int) -> Window | None:
    """Return the time of a segment without samples, by its stages; None if that is not known."""
    events = segment_events(run.events, segment)
    ends = [float(str(one["end_s"])) for one in events]
    known = [end for end in ends if np.isfinite(end)]
    return (float(str(events[0]["start_s"])), max(known)) if known else None


# --- traces ---------------------------------------------------------------------------------------


def _nodes(run: Run, traces: Path, intensity: CarbonIntensity) -> Iterator[_Node]:
    """Yield the nodes of all segments that have samples, with their energies."""
    ends: dict[str, float] = {}
    for (segment, name), samples in _samples_of_nodes(traces):
        window = _counted(samples["time_s"].to_numpy(), run.window, ends.get(name, -np.inf))
        ends[name] = max(window[1], ends.get(name, -np.inf))
        node = _Node.of((segment, name), window, run, intensity)
        device = ["device_kind", "device_index", "uuid"]
        for key, own in samples.groupby(device, sort=False, dropna=False):
            node.add(str(key[0]), _curve(own))
        yield node


def _counted(time_s: Floats, told: Window, before_s: float) -> Window:
    """Return the time in unix s that counts of what was sampled: the run's, and not counted `before_s`."""
    begin, end = max(float(time_s.min()), told[0]), min(float(time_s.max()), told[1])
    begin = max(begin, min(before_s, end))
    return (begin, end) if end > begin else (begin, begin)


def _samples_of_nodes(traces: Path) -> Iterator[tuple[tuple[int, str], pd.DataFrame]]:
    """Yield the samples of one node in one segment after the other, in the order of the traces."""
    held: list[pd.DataFrame] = []
    last: tuple[int, str] | None = None
    with opened_parquet(traces, _TRACE_COLUMNS) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=list(_TRACE_COLUMNS)):
            for key, part in _frame(batch).groupby(["segment", "node"], sort=False):
                place = int(str(key[0])), str(key[1])
                if last is not None and place != last:
                    yield last, pd.concat(held)
                    held = []
                held.append(part)
                last = place
    if last is not None:
        yield last, pd.concat(held)


def _frame(batch: pa.RecordBatch) -> pd.DataFrame:
    table = pa.Table.from_batches([batch])
    micros = table["time"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy()
    frame: pd.DataFrame = table.drop_columns("time").to_pandas()
    words = ("node", "device_kind", "uuid", "quantity")
    return frame.assign(time_s=micros / 1e6).astype(dict.fromkeys(words, object))


def _curve(own: pd.DataFrame) -> EnergyCurve:
    """Return the energy curve of a device's samples; flat where its power is not known."""
    time_s, power_w = own["time_s"].to_numpy(), own["power_w"].to_numpy(dtype=np.float64)
    mean = own["quantity"].iloc[0] == MEAN
    longest_s = bridge_s(sampling_period(time_s))
    if mean:
        power_w = np.nan_to_num(power_w)  # the first sample of a counter: nothing was before it
    used = forward(time_s) & np.isfinite(power_w)
    return power_curve(time_s[used], power_w[used], longest_s, mean)
