"""The carbon intensity that a run met: a mean over time for each row of its energy table.

A row's energy, as it was accounted for, times its mean is what it emitted; a constant file gives exactly its
constant. Between segments nothing counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from scalewatt.common.files import file_sha256, write_table
from scalewatt.energies.run_inputs import Run, read_planned_run
from scalewatt.energies.stages import Window, segment_events, tile_window
from scalewatt.energies.tables import ENERGY_SCHEMA, METADATA_KEY
from scalewatt.results.carbon.carbon_table import CARBON, PLACE
from scalewatt.results.carbon.intensity import CarbonIntensity
from scalewatt.results.carbon.intensity_files import read_intensity
from scalewatt.results.tables.read_table import read_checked, read_columns

Row = dict[str, Any]


def write_carbon(
    folder: Path, traces: Path, energy: Path, file: Path, source: str, out: Path
) -> None:
    """Write the table CARBON of a run folder, from its traces, its energy table and a file of intensity.

    `source` says where the file comes from. InputError if one of the files is damaged.
    """
    intensity = read_intensity(file)
    run = Run.of(folder, read_planned_run(folder / "spec.json"), {})
    rows = read_checked(energy, ENERGY_SCHEMA).to_pylist()
    found = carbon_rows(run, rows, recorded_windows(traces), intensity)
    begin, end = intensity.cover_s
    facts = {
        "file": intensity.name,
        "sha256": file_sha256(file),
        "source": source,
        "begin_s": begin,
        "end_s": end,
    }
    schema = CARBON.with_metadata({METADATA_KEY: json.dumps(facts).encode()})
    write_table(pa.Table.from_pylist(found, schema=schema), out)


def recorded_windows(traces: Path) -> dict[int, Window]:
    """Return the first and the last time of each segment's samples in unix s."""
    samples = read_columns(traces, ["segment", "time"])
    ends = samples.group_by("segment").aggregate([("time", "min"), ("time", "max")])
    begin, end = (
        ends[name].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy() / 1e6
        for name in ("time_min", "time_max")
    )
    return dict(zip(ends["segment"].to_pylist(), zip(begin, end, strict=True), strict=True))


def carbon_rows(
    run: Run, rows: Sequence[Row], recorded: Mapping[int, Window], intensity: CarbonIntensity
) -> list[Row]:
    """Return the rows of CARBON for the `rows` of a run's energy table; `recorded`: segments' windows."""
    segments = {row["segment"] for row in rows}
    stages = {number: _stages(run, number, recorded.get(number)) for number in segments}
    return [
        {name: row[name] for name in ("configuration", "repeat", *PLACE)}
        | {"carbon_g_per_kwh": _mean(stages[row["segment"]], row["stage"], intensity)}
        for row in rows
    ]


def _stages(run: Run, segment: int, recorded: Window | None) -> pd.DataFrame | None:
    """Stages of a segment, without samples from its stamps; None if no time is known."""
    events = segment_events(run.events, segment)
    if recorded is not None:
        begin, end = run.window_of(recorded)
        return tile_window(events, (max(recorded[0], begin), min(recorded[1], end)))[0]
    known = events["end_s"][events["end_s"] < np.inf]
    return tile_window(events, (events["start_s"].min(), known.max()))[0] if len(known) else None


def _mean(stages: pd.DataFrame | None, stage: str, intensity: CarbonIntensity) -> float | None:
    """Mean g/kWh over a stage's time, over all of the segment's where the stage has none."""
    if stages is None:
        return None
    stages = stages[stages["end_s"] > stages["start_s"]]
    if (stages["stage"] == stage).any():
        stages = stages[stages["stage"] == stage]
    if stages.empty:
        return None
    start_s, end_s = stages["start_s"].to_numpy(), stages["end_s"].to_numpy()
    mean = float(np.average(intensity.mean(start_s, end_s), weights=end_s - start_s))
    return mean if np.isfinite(mean) else None
