"""What a run emitted by the carbon intensity of electricity over time, a CSV of `time` and `g_per_kwh`.

Each row of a run's energy table gets the mean intensity over the time of its stage (table CARBON); its energy
times that is what it emitted. A constant file gives exactly its constant. Between segments nothing counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike

from scalewatt.campaign.cluster import CARBON_BOUNDS
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, write_table
from scalewatt.common.tabular_files import csv_rows
from scalewatt.energies.run_inputs import Run, read_planned_run
from scalewatt.energies.stages import Window, segment_events, tile_window
from scalewatt.energies.tables import ENERGY_SCHEMA, METADATA_KEY, EnergyTotals, records
from scalewatt.recordings.terms import J_PER_KWH, Flag, Floats, flag
from scalewatt.recordings.times import UNIX, as_numbers, parse_times, unread
from scalewatt.results.columns import schema
from scalewatt.results.tables.read_table import read_checked, read_columns
from scalewatt.results.tables.table_schema import metadata

TIME, VALUE = "time", "g_per_kwh"
BELOW_AS_KG = 2
"""In kg per kWh every grid lies below; in g per kWh, over the whole life cycle, none does throughout."""
LONGER = 1.01
"""A step longer than the regular one by more than this factor is a gap."""
PLACE = ("segment", "node", "device_kind", "stage")
CARBON = schema("energy-carbon")
"""One row for each of the run's energy table."""


# --- the intensity over time ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CarbonIntensity:
    """Grams of CO₂e for each kWh: `g_per_kwh[i]` counts from `edges_s[i]` to `edges_s[i + 1]`."""

    edges_s: Floats
    """Unix times in s, increasing, (m + 1,)."""
    g_per_kwh: Floats
    """(m,); NaN in a gap."""

    @property
    def cover_s(self) -> tuple[float, float]:
        """Return the unix times in s of its begin and end, gaps between included."""
        return float(self.edges_s[0]), float(self.edges_s[-1])

    def mean(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the mean g/kWh from one time to a later one, both in s; NaN where it is not covered."""
        start, end = (np.asarray(time, dtype=np.float64) for time in (start_s, end_s))
        known = np.isfinite(self.g_per_kwh)
        # Sums of what differs from one value: a constant file gives exactly its constant.
        reference = float(self.g_per_kwh[known][0])
        beyond = self._sum(np.where(known, self.g_per_kwh - reference, 0.0), start, end)
        gaps_s = self._sum(np.where(known, 0.0, 1.0), start, end)
        outside = (start < self.edges_s[0]) | (end > self.edges_s[-1]) | (gaps_s > 0)
        with np.errstate(invalid="ignore"):  # of no time
            return np.where(outside, np.nan, reference + beyond / (end - start))

    def _sum(self, values: Floats, start: Floats, end: Floats) -> Floats:
        """Return the integral of values, one for each step, from one time to another."""
        sums = np.concatenate(([0.0], np.cumsum(values * np.diff(self.edges_s))))
        return np.asarray(np.interp(end, self.edges_s, sums) - np.interp(start, self.edges_s, sums))


def intensity_of_times(time_s: Floats, g_per_kwh: Floats) -> CarbonIntensity:
    """Return the intensity of rows in order of time, (n,) with n ≥ 2; NaN for a value that is not known.

    A value counts until the next row, but no longer than the regular step, which is the median: beyond
    it is a gap. The last row counts as long as the step before it. Gaps at either end are cut off.
    """
    step = np.diff(time_s)
    regular = float(np.median(step))
    end_s = time_s + np.where(
        np.append(step, 0.0) > LONGER * regular, regular, np.append(step, 0.0)
    )
    end_s[-1] = time_s[-1] + (end_s[-2] - time_s[-2])
    gaps = np.flatnonzero(time_s[1:] > end_s[:-1])
    edges = np.append(np.insert(time_s, gaps + 1, end_s[gaps]), end_s[-1])
    values = np.insert(g_per_kwh, gaps + 1, np.nan)
    known = np.flatnonzero(np.isfinite(values))
    first, last = (known[0], known[-1] + 1) if known.size else (0, 0)
    return CarbonIntensity(edges[first : last + 1], values[first:last])


def read_intensity(path: Path) -> CarbonIntensity:
    """Return the carbon intensity in g CO₂e/kWh that a file has.

    InputError, with the line, if it cannot be read or lacks a column, a row has more or fewer cells than
    there are columns, a time has no zone or is not later than the one before, or a value is no number or
    beyond what a cluster file's value may be; and if all look like kg/kWh.
    """
    table = pd.DataFrame.from_dict(csv_rows(path), orient="index", dtype=str)
    if len(table) < 2:
        raise InputError(f"{path}: rows: {len(table)}; expected two or more, in order of time")
    if not {TIME, VALUE} <= set(table):
        raise InputError(
            f"{path}: has the columns {', '.join(map(str, table))[:120]}; expected a CSV file with the "
            f"columns {TIME} and {VALUE}"
        )
    time_s = _times(path, table[TIME])
    intensity = intensity_of_times(time_s, _values(path, table[VALUE]))
    if not intensity.g_per_kwh.size:
        raise InputError(f"{path}: has no value; expected g CO2e per kWh against time")
    return intensity


def _times(path: Path, texts: pd.Series) -> Floats:
    """Return unix times in s, (n,), each after the one before."""
    stamps = parse_times(texts, UTC)
    if stamps is None or stamps.clock != UNIX:
        raise InputError(
            f"{path}: line {texts.index[0]}: time '{texts.iloc[0][:40]}'; allowed: unix seconds, or dates "
            "with a zone such as 2026-01-31T12:00:00Z or 2026-01-31T13:00:00+01:00"
        )
    time_s = stamps.seconds
    unknown = np.flatnonzero(~np.isfinite(time_s))
    if unknown.size:
        raise InputError(
            f"{path}: line {texts.index[unknown[0]]}: a time cannot be read{unread(texts, time_s)}; "
            "expected all in the form of the first, with a zone"
        )
    back = np.flatnonzero(np.diff(time_s) <= 0)
    if back.size:
        at = int(back[0]) + 1
        raise InputError(
            f"{path}: line {texts.index[at]}: {_stamp(time_s[at])} is not after "
            f"{_stamp(time_s[at - 1])}; expected rows in order of time, each once"
        )
    return time_s


def _values(path: Path, texts: pd.Series) -> Floats:
    """Return g/kWh, (n,), NaN for empty cells."""
    g_per_kwh = as_numbers(texts)
    least, most = CARBON_BOUNDS
    wrong = (texts.to_numpy() != "") & ~((g_per_kwh >= least) & (g_per_kwh <= most))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{path}: line {texts.index[at]}: {texts.iloc[at][:40]!r} g per kWh; allowed: {least} to "
            f"{most}, with a point for decimals, or nothing where it is not known"
        )
    largest = np.max(g_per_kwh, initial=0.0, where=np.isfinite(g_per_kwh))
    if 0 < largest < BELOW_AS_KG:
        raise InputError(
            f"{path}: its largest value is {largest:g}, as of kg per kWh; expected g CO2e per kWh of the "
            f"whole life cycle, a value of {BELOW_AS_KG} or more, or all 0"
        )
    return g_per_kwh


def _stamp(time_s: float) -> str:
    """Return a unix time in s as UTC, to the minute or, where it has such, the second."""
    moment = datetime.fromtimestamp(time_s, UTC)
    return f"{moment:%Y-%m-%d %H:%M{':%S' if moment.second else ''}} UTC"


# --- a run's table ----------------------------------------------------------------------------------


def carbon_path(energy: Path) -> Path:
    """Return where the table lies: next to the run's energy table, <repeat>.carbon.parquet."""
    return energy.with_suffix(".carbon.parquet")


def write_carbon(
    folder: Path, traces: Path, energy: Path, file: Path, source: str, out: Path
) -> None:
    """Write the table CARBON of a run folder, from its traces, its energy table and a file of intensity.

    `source` says where the file comes from. InputError if one of the files is damaged.
    """
    intensity = read_intensity(file)
    run = Run.of(folder, read_planned_run(folder / "spec.json"), {})
    rows = read_checked(energy, ENERGY_SCHEMA).to_pandas()
    recorded = _recorded_windows(traces)
    means = {
        (segment, stage): _mean(_stages(run, segment, recorded.get(segment)), stage, intensity)
        for segment, stage in set(zip(rows["segment"], rows["stage"], strict=True))
    }
    pairs = zip(rows["segment"], rows["stage"], strict=True)
    rows["carbon_g_per_kwh"] = pd.Series([means[pair] for pair in pairs], dtype="float64")
    cover = dict(zip(("begin_s", "end_s"), intensity.cover_s, strict=True))
    facts = {"file": file.name, "sha256": file_sha256(file), "source": source, **cover}
    schema = CARBON.with_metadata({METADATA_KEY: json.dumps(facts).encode()})
    table = pa.Table.from_pandas(rows[CARBON.names], schema=CARBON, preserve_index=False)
    write_table(table.cast(schema), out)


def _recorded_windows(traces: Path) -> dict[int, Window]:
    """Return the first and the last time of each segment's samples in unix s."""
    samples = read_columns(traces, ["segment", "time"])
    ends = samples.group_by("segment").aggregate([("time", "min"), ("time", "max")])
    begin, end = (
        ends[name].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() / 1e6
        for name in ("time_min", "time_max")
    )
    return dict(zip(ends["segment"].to_pylist(), zip(begin, end, strict=True), strict=True))


def _stages(run: Run, segment: int, recorded: Window | None) -> pd.DataFrame | None:
    """Return stages of a segment, without samples from its stamps; None if no time is known."""
    events = segment_events(run.events, segment)
    if recorded is not None:
        begin, end = run.window_of(recorded)
        return tile_window(events, (max(recorded[0], begin), min(recorded[1], end)))[0]
    known = events["end_s"][events["end_s"] < np.inf]
    return tile_window(events, (events["start_s"].min(), known.max()))[0] if len(known) else None


def _mean(stages: pd.DataFrame | None, stage: str, intensity: CarbonIntensity) -> float:
    """Return mean g/kWh over a stage's time, over all of the segment's where the stage has none; or NaN."""
    if stages is None:
        return np.nan
    stages = stages[stages["end_s"] > stages["start_s"]]
    if (stages["stage"] == stage).any():
        stages = stages[stages["stage"] == stage]
    if stages.empty:
        return np.nan
    start_s, end_s = stages["start_s"].to_numpy(), stages["end_s"].to_numpy()
    return float(np.average(intensity.mean(start_s, end_s), weights=end_s - start_s))


@dataclass(frozen=True)
class Emitted:
    """What a run emitted by a file of carbon intensity, without the overhead of the site."""

    grams: float | None = None
    """CO2e in g; null if the energy is, or a part of it lies outside of the file's cover."""
    flags: tuple[Flag, ...] = ()


def emitted(energy: Path, totals: EnergyTotals) -> Emitted:
    """Return what a run emitted, by the table next to its energy table, whose sums are `totals`.

    InputError if it is damaged.
    """
    table = read_checked(carbon_path(energy), CARBON)
    means = {
        tuple(row[name] for name in PLACE): row["carbon_g_per_kwh"] for row in table.to_pylist()
    }
    grams = 0.0
    for row in records(totals.in_scope):
        if not row["energy_j"]:
            continue
        mean = means.get(tuple(row[name] for name in PLACE))
        if mean is None:
            facts = metadata(table)
            cover = " to ".join(_stamp(facts[name]) for name in ("begin_s", "end_s"))
            detail = (
                f"{facts['file']}, {cover}: energy was used outside of it, or it is not known when"
            )
            return Emitted(flags=(flag("carbon_unknown", None, detail),))
        grams += row["energy_j"] / J_PER_KWH * mean
    return Emitted(grams if totals.total_j is not None else None)
