"""Intervals of estimated energies in the tables of the figures breakdown and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from run_files import NAME, epochs, make_run, part

from scalewatt.common.files import write_table
from scalewatt.energies.tables import BOUNDS, EPOCHS_SCHEMA
from scalewatt.results.figures.breakdown_table import breakdown
from scalewatt.results.figures.learning_table import run_epochs
from scalewatt.results.tables.frames import records
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.run_row import Facility, RunFiles, run_record, runs_of

Row = dict[str, Any]
FACTOR = 5.4
KWH = 3.6e6


def bounded(row: Row, factor: float = FACTOR) -> Row:
    """A row whose energy is estimated, within × or ÷ a factor."""
    ends = zip(BOUNDS, (1 / factor, factor), strict=True)
    return row | {name: row["energy_j"] * f for name, f in ends} | {"energy_origin": "estimated"}


def epoch_row(epoch: int | None, stage: str, kind: str, kwh: float) -> Row:
    named: Row = {"configuration": NAME, "repeat": 1, "epoch": epoch, "stage": stage}
    more: Row = {"device_kind": kind, "node_s": 10.0}
    more |= dict.fromkeys(("energy_j", *BOUNDS), kwh * KWH)
    return named | more | {"energy_origin": "measured"}


def mixed_run(results: Path) -> RunFiles:
    """GPUs measured, 1 kWh at the start and 2 in each of two epochs; CPUs estimated, a tenth of that."""
    parts: list[Row] = []
    energy: list[Row] = []
    for kind, share in (("gpu", 1.0), ("cpu", 0.1)):
        rows = [part(kind, "startup", 10, share * KWH), part(kind, "train", 20, 4 * share * KWH)]
        own = [epoch_row(None, "startup", kind, share)]
        own += [epoch_row(epoch, "train", kind, 2 * share) for epoch in (0, 1)]
        energy += [bounded(row) for row in rows] if kind == "cpu" else rows
        parts += [bounded(row) for row in own] if kind == "cpu" else own
    files = make_run(results, energy, history=epochs([40.0, 30.0]))
    write_table(pa.Table.from_pylist(parts, EPOCHS_SCHEMA), files.epochs)
    return files


def breakdown_rows(file: RunFiles) -> list[Row]:
    configurations = configurations_of(runs_of([run_record(file, "made", None)], Facility(), None))
    series = [{"name": "s", "label": "s", "points": [{"configuration": NAME}]}]
    definition = {"figure": "breakdown", "series": series, "runs": [[NAME, 1]]}
    return records(breakdown(definition, configurations, file.results))


def test_an_epochs_interval_is_open_by_what_is_estimated_of_it_alone(tmp_path: Path) -> None:
    rows = records(run_epochs(mixed_run(tmp_path)))
    assert [row["energy_kwh"] for row in rows] == pytest.approx([3.3, 5.5])
    for end, factor in (("low", 1 / FACTOR), ("high", FACTOR)):
        ends = [row[f"energy_kwh_estimate_{end}"] for row in rows]
        assert ends == pytest.approx([3 + 0.3 * factor, 5 + 0.5 * factor])


def test_rows_of_a_breakdown_have_the_interval_of_their_total(tmp_path: Path) -> None:
    rows = breakdown_rows(mixed_run(tmp_path))
    assert sum(row["energy_kwh"] for row in rows) == pytest.approx(5.5)
    for end, factor in (("low", 1 / FACTOR), ("high", FACTOR)):
        (total,) = {row[f"total_kwh_estimate_{end}"] for row in rows}
        assert total == pytest.approx(5 + 0.5 * factor)
        for row in rows:
            expected_factor = factor if row["device_kind"] == "cpu" else 1.0
            assert row[f"energy_{end}_kwh"] == pytest.approx(expected_factor * row["energy_kwh"])
