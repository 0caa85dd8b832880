"""Intervals of estimated energies in the figures breakdown and learning, and tables that have none yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from figure_tables import draw, texts
from matplotlib.axes import Axes
from paper_rows import breakdown_table, learning_table
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


# --- the tables -----------------------------------------------------------------------------------


def test_an_epochs_interval_is_open_by_what_is_estimated_of_it_alone(tmp_path: Path) -> None:
    rows = run_epochs(mixed_run(tmp_path))
    assert [row["energy_kwh"] for row in rows] == pytest.approx([3.3, 5.5])
    for end, factor in (("low", 1 / FACTOR), ("high", FACTOR)):
        found = [row[f"energy_kwh_estimate_{end}"] for row in rows]
        assert found == pytest.approx([3 + 0.3 * factor, 5 + 0.5 * factor])


def test_rows_of_a_breakdown_have_the_interval_of_their_total(tmp_path: Path) -> None:
    rows = breakdown_rows(mixed_run(tmp_path))
    assert sum(row["energy_kwh"] for row in rows) == pytest.approx(5.5)
    for end, factor in (("low", 1 / FACTOR), ("high", FACTOR)):
        (found,) = {row[f"total_kwh_estimate_{end}"] for row in rows}
        assert found == pytest.approx(5 + 0.5 * factor)
        for row in rows:
            own = factor if row["device_kind"] == "cpu" else 1.0
            assert row[f"energy_{end}_kwh"] == pytest.approx(own * row["energy_kwh"])


# --- the figures ----------------------------------------------------------------------------------


def estimated(table: pa.Table, name: str, factor: float) -> pa.Table:
    """A table whose energies are estimated, within × or ÷ a factor."""
    rows = table.to_pylist()
    totals: dict[str, float] = {}
    for row in rows:
        own = totals.get(row["configuration"], 0.0)
        totals[row["configuration"]] = own + row["energy_kwh"]
    for row in rows:
        of_bar = name.startswith("total")
        middle = totals[row["configuration"]] if of_bar else row["energy_kwh"]
        row |= {"energy_origin": "estimated", f"{name}_low": middle / factor}
        row[f"{name}_high"] = middle * factor
    return pa.Table.from_pylist(rows, schema=table.schema)


def pale_bars(axes: Axes) -> list[tuple[float, float]]:
    """The ends of the bars over estimates in a panel."""
    drawn = [one for one in axes.collections if str(one.get_gid()).startswith("estimates")]
    boxes = [path.get_extents() for one in drawn for path in one.get_paths()]
    return [(box.x0, box.x1) for box in boxes]


def test_a_bars_total_has_a_pale_bar_from_end_to_end_of_its_interval() -> None:
    table = estimated(breakdown_table(), "total_kwh_estimate", 1.5)
    figure = draw("breakdown", table)
    ends = {
        (row["total_kwh_estimate_low"], row["total_kwh_estimate_high"]) for row in table.to_pylist()
    }
    found = pale_bars(figure.axes[0])
    assert len(found) == len(set(table["configuration"].to_pylist()))
    for low, high in ends:
        assert any((low, high) == pytest.approx(one) for one in found)
    assert pale_bars(figure.axes[1]) == []
    said = texts(figure)
    assert "Broad pale bars" in said


def test_the_end_of_a_learning_curve_has_a_pale_bar_in_energy_and_none_in_time() -> None:
    table = estimated(learning_table(epochs=3), "energy_kwh_estimate", FACTOR)
    figure = draw("learning", table)
    energy, time = figure.axes[4:]
    found = pale_bars(energy)
    rows = [r for r in table.to_pylist() if (r["phase"], r["epoch"]) == ("finetune", 2)]
    assert len(found) == len({row["configuration"] for row in rows})
    for row in rows:
        ends = (row["energy_kwh_estimate_low"], row["energy_kwh_estimate_high"])
        assert any(ends == pytest.approx(one) for one in found)
    low, high = energy.get_xlim()
    assert all(low <= one[0] and one[1] <= high for one in found)
    assert pale_bars(time) == []
