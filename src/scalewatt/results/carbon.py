"""What a run emitted by the carbon intensity of electricity over time, a CSV of `time` and `g_per_kwh`.

Each row of a run's energy table gets the mean intensity over the time of its stage (table CARBON); its energy
times that is what it emitted. A constant file gives exactly its constant. Between segments nothing counts.
"""

from __future__ import annotations

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
from scalewatt.energies.account import Run
from scalewatt.energies.stages import Window, segment_events, tile_window
from scalewatt.energies.tables import ENERGY_SCHEMA, EnergyTotals
from scalewatt.recordings.terms import J_PER_KWH, Flag, Floats, flag
from scalewatt.recordings.times import UNIX, as_numbers, parse_times
from scalewatt.results.columns import schema
from scalewatt.results.tables.read_table import opened_parquet, read_checked
from scalewatt.results.tables.table_schema import metadata, with_metadata

TIME, VALUE = "time", "g_per_kwh"
BELOW_AS_KG = 2
"""In kg per kWh every grid lies below; in g per kWh, over the whole life cycle, none does throughout."""
_TOLERANCE = 0.01
"""By which share a step may differ from the usual one."""
PLACE = ["segment", "node", "device_kind", "stage"]
CARBON = schema("energy-carbon")
"""One row for each of the run's energy table."""


# --- the intensity over time ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CarbonIntensity:
    """Grams of CO₂e for each kWh: `g_per_kwh[i]` counts from `edges_s[i]` to `edges_s[i + 1]`."""

    edges_s: Floats
    """Unix times in s, increasing, (m + 1,)."""
    g_per_kwh: Floats
    """(m,); NaN where it is not known."""

    def mean(self, start_s: ArrayLike, end_s: ArrayLike) -> Floats:
        """Return the mean g/kWh from one time to a later one, both in s; NaN where it is not covered."""
        start, end = (np.asarray(time, dtype=np.float64) for time in (start_s, end_s))
        known = np.isfinite(self.g_per_kwh)
        # Sums of what differs from one value: a constant file gives exactly its constant.
        reference = float(self.g_per_kwh[known][0])
        more = self._sum(np.where(known, self.g_per_kwh - reference, 0.0), start, end)
        unknown_s = self._sum(np.where(known, 0.0, 1.0), start, end)
        outside = (start < self.edges_s[0]) | (end > self.edges_s[-1]) | (unknown_s > 0)
        return np.where(outside, np.nan, reference + more / (end - start))

    def _sum(self, values: Floats, start: Floats, end: Floats) -> Floats:
        """Return the integral of values, one for each step, from one time to another."""
        sums = np.concatenate(([0.0], np.cumsum(values * np.diff(self.edges_s))))
        return np.asarray(np.interp(end, self.edges_s, sums) - np.interp(start, self.edges_s, sums))


def read_intensity(path: Path) -> CarbonIntensity:
    """Return the carbon intensity in g CO₂e/kWh that a file has at regular times.

    InputError, with the line, if it cannot be read or lacks a column, a time has no zone or is not a step
    after the one before, or a value is no number or beyond what a cluster file's value may be; and if all
    look like kg/kWh.
    """
    table = pd.DataFrame.from_dict(csv_rows(path), orient="index", dtype=str)
    if len(table) < 2 or not {TIME, VALUE} <= set(table):
        raise InputError(
            f"{path}: has {len(table)} rows of {', '.join(map(str, table))[:120]}; expected two or more, "
            f"with the columns {TIME} and {VALUE}"
        )
    time_s, g_per_kwh = _times(path, table[TIME]), _values(path, table[VALUE])
    return CarbonIntensity(np.append(time_s, 2 * time_s[-1] - time_s[-2]), g_per_kwh)


def _times(path: Path, texts: pd.Series) -> Floats:
    """Return unix times in s, (n,), each a step after the one before."""
    stamps = parse_times(texts, UTC)
    seconds = stamps.seconds if stamps and stamps.clock == UNIX else np.full(len(texts), np.nan)
    unknown = np.flatnonzero(~np.isfinite(seconds))
    if unknown.size:
        at = unknown[0]
        raise InputError(
            f"{path}: line {texts.index[at]}: time '{texts.iloc[at][:40]}'; allowed: unix seconds, or dates "
            "with a zone such as 2026-01-31T12:00:00Z, in one form"
        )
    step = np.diff(seconds)
    usual = float(np.median(step))
    back, unusual = step <= 0, abs(step - usual) > _TOLERANCE * usual
    odd = np.flatnonzero(back if back.any() else unusual)
    if odd.size:
        at = odd[0]
        raise InputError(
            f"{path}: line {texts.index[at + 1]}: {step[at]:g} s after the row before, where the usual step "
            f"is {usual:g} s; expected regular times, with an empty value where it is not known"
        )
    return seconds


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
    if not np.isfinite(g_per_kwh).any():
        raise InputError(f"{path}: has no value; expected g CO2e per kWh")
    if 0 < (largest := np.nanmax(g_per_kwh)) < BELOW_AS_KG:
        raise InputError(
            f"{path}: its largest value is {largest:g}, as of kg per kWh; expected g CO2e per kWh of the "
            f"whole life cycle, a value of {BELOW_AS_KG} or more, or all 0"
        )
    return g_per_kwh


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
    run = Run.of(folder, {})
    rows = read_checked(energy, ENERGY_SCHEMA).to_pandas()
    recorded = _recorded_windows(traces)
    pairs = rows[["segment", "stage"]].drop_duplicates()
    means = [
        _mean(_stages(run, segment, recorded.get(segment)), stage, intensity)
        for segment, stage in pairs.itertuples(index=False, name=None)
    ]
    rows = rows.merge(pairs.assign(carbon_g_per_kwh=means), on=["segment", "stage"], how="left")
    cover = {"begin_s": float(intensity.edges_s[0]), "end_s": float(intensity.edges_s[-1])}
    facts = {"file": file.name, "sha256": file_sha256(file), "source": source, **cover}
    table = pa.Table.from_pandas(rows[CARBON.names], schema=CARBON, preserve_index=False)
    write_table(with_metadata(table, facts), out)


def _recorded_windows(traces: Path) -> dict[int, Window]:
    """Return the first and the last time of each segment's samples in unix s."""
    columns = ["segment", "time"]
    with opened_parquet(traces, columns) as file:
        samples = file.read(columns=columns)
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


def emitted(energy: Path, totals: EnergyTotals) -> tuple[float | None, list[Flag]]:
    """Return CO2e in g that a run emitted, without the overhead of the site, and flags of why it is null.

    By the table next to its energy table, whose sums are `totals`. InputError if it is damaged.
    """
    table = read_checked(carbon_path(energy), CARBON)
    used = totals.in_scope[totals.in_scope["energy_j"].fillna(0) != 0]
    used = used.merge(table.to_pandas()[[*PLACE, "carbon_g_per_kwh"]], on=PLACE, how="left")
    if used["carbon_g_per_kwh"].isna().any():
        facts = metadata(table)
        ends = (datetime.fromtimestamp(facts[name], UTC) for name in ("begin_s", "end_s"))
        cover = " to ".join(f"{end:%Y-%m-%d %H:%M} UTC" for end in ends)
        detail = f"{facts['file']}, {cover}: energy was used outside of it, or it is not known when"
        return None, [flag("carbon_unknown", None, detail)]
    grams = (used["energy_j"] / J_PER_KWH * used["carbon_g_per_kwh"]).sum()
    return (float(grams) if totals.joules() is not None else None), []
