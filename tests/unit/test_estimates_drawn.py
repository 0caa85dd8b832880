"""Intervals of estimated energies in the figures breakdown and learning, and tables that have none yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from figure_tables import any_table, draw, texts
from matplotlib.axes import Axes
from paper_rows import breakdown_table, learning_table
from run_files import NAME, epochs, make_run, part

from scalewatt.common.files import write_table
from scalewatt.energies.accounting.energy_schema import BOUNDS, EPOCHS_SCHEMA
from scalewatt.figures.draw_figure import draw_figure
from scalewatt.results.figures.breakdown_table import breakdown
from scalewatt.results.figures.figure_schema import LATER, SCHEMAS
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
    more = {"device_kind": kind, "node_s": 10.0, "energy_j": kwh * KWH}
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


@pytest.mark.parametrize("origin", ["measured", "estimated"])
def test_without_a_known_interval_an_epoch_has_none(tmp_path: Path, origin: str) -> None:
    energy = [part("gpu", "train", 20, 4 * KWH, origin=origin)]
    files = make_run(tmp_path, energy, history=epochs([40.0]))
    row = epoch_row(0, "train", "gpu", 4) | {"energy_origin": origin}
    write_table(pa.Table.from_pylist([row], EPOCHS_SCHEMA), files.epochs)
    (found,) = run_epochs(files)
    assert found["energy_kwh"] == pytest.approx(4)
    assert found["energy_kwh_estimate_low"] is found["energy_kwh_estimate_high"] is None


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
    assert "Broad pale bars" in said and "Beyond the axis" not in said


def test_an_interval_that_would_squeeze_the_bars_is_cut_and_its_end_is_stated() -> None:
    table = estimated(breakdown_table(), "total_kwh_estimate", FACTOR)
    figure = draw("breakdown", table)
    totals = [row["total_kwh_estimate_high"] / FACTOR for row in table.to_pylist()]
    assert figure.axes[0].get_xlim()[1] < 2.5 * max(totals)
    assert f"Beyond the axis, up to {FACTOR * max(totals):.3g} kWh: resnet50-" in texts(figure)


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
    assert "They are at the ends of curves alone." in texts(figure)


@pytest.mark.parametrize(("name", "made"), [("breakdown", breakdown_table), ("learning", None)])
def test_measured_energies_have_no_pale_bar(name: str, made: Any) -> None:
    figure = draw(name, made() if made else learning_table(epochs=3))
    assert not any(pale_bars(axes) for axes in figure.axes)
    assert "pale" not in texts(figure)


# --- tables of earlier versions -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["figure2", "breakdown", "learning"])
def test_a_table_without_the_later_columns_is_drawn_as_one_that_has_none_known(
    name: str, tmp_path: Path
) -> None:
    made = {"breakdown": breakdown_table, "learning": lambda: learning_table(epochs=2)}
    table = made[name]() if name in made else any_table(2)
    assert len(LATER[name]) == {"breakdown": 4}.get(name, 2) and set(LATER[name]) <= set(
        SCHEMAS[name].names
    )
    pq.write_table(table, tmp_path / "new.parquet")
    pq.write_table(table.drop_columns(list(LATER[name])), tmp_path / "old.parquet")
    drawn = [
        draw_figure(name, tmp_path / f"{age}.parquet", tmp_path / age / "figure")
        for age in ("new", "old")
    ]
    for new, old in zip(*drawn, strict=True):
        assert new.read_bytes() == old.read_bytes()
