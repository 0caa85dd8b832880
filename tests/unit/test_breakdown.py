"""The energy breakdown: its table adds up to the runs' energy, and its bars show the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from figure_tables import any_table, as_table, draw, plotted, rows_of_runs, words
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from run_files import NAME, WHOLE, absent, make_run, make_spec, part, run_row

from scalewatt.common.files import write_table
from scalewatt.figures import breakdown as figure_module
from scalewatt.figures import style
from scalewatt.figures.figure_data import drawable
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.frames import to_frame
from scalewatt.results.tables.idle import IDLE
from scalewatt.results.tables.run_row import RunFiles

Row = dict[str, Any]


def run_of(results: Path, repeat: int, energy: list[Row], **spec: Any) -> RunFiles:
    return make_run(results, energy, spec=make_spec(repeat=repeat, **spec))


def idle_table(results: Path, **watts: float) -> None:
    """Idle powers of a node with two GPUs, two sockets and one memory."""
    devices = {"gpu": 2, "cpu": 2, "ram": 1}
    rows = [
        dict.fromkeys(IDLE.names)
        | {"device": "local", "device_kind": kind, "devices": devices[kind], "mean_w": power}
        | {"mean_per_device_w": power / devices[kind], "energy_origin": "measured"}
        for kind, power in watts.items()
    ]
    write_table(pa.Table.from_pylist(rows, IDLE), results / "tables" / "idle.parquet")


def total(rows: list[Row], column: str = "energy_kwh") -> float:
    return sum(row[column] for row in rows)


# --- the table ------------------------------------------------------------------------------------

JOULES = st.floats(0, 1e12)


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(*[JOULES] * 4), min_size=1, max_size=3), st.booleans())
def test_a_configurations_rows_add_up_to_the_energy_of_its_runs(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[float, ...]], paper: bool
) -> None:
    results = tmp_path_factory.mktemp("results")
    files = [
        run_of(
            results,
            repeat,
            [
                part("gpu", "train", 10, a, devices=2),
                part("gpu", "stage_data", 5, b, devices=2),
                part("cpu", "train", 10, c, node="n2"),
                part("cpu", "validate", 5, d, segment=1),
                absent("ram", "train", 10),
            ],
            protocol="paper" if paper else "corrected",
        )
        for repeat, (a, b, c, d) in enumerate(runs, 1)
    ]
    energies = [run_row(each)["energy_kwh"] for each in files]
    rows = rows_of_runs("breakdown", results, files)
    assert total(rows) == pytest.approx(sum(energies) / len(energies), rel=1e-9)
    assert ("stage_data" in {row["stage"] for row in rows}) is not paper


@pytest.mark.parametrize("figure", ["breakdown", "learning"])
@pytest.mark.parametrize("runs", [0, 2])
def test_without_a_run_that_counts_a_figure_has_no_rows(
    tmp_path: Path, figure: str, runs: int
) -> None:
    files = [run_of(tmp_path, repeat, WHOLE) for repeat in range(1, runs + 1)]
    left_out = [{"configuration": NAME, "repeat": f.repeat, "reason": "noise"} for f in files]
    assert rows_of_runs(figure, tmp_path, files, excluded=left_out) == []


def test_the_idle_baseline_adds_up_to_that_of_the_run(tmp_path: Path) -> None:
    idle_table(tmp_path, gpu=100.0, cpu=80.0, ram=10.0)
    file = run_of(tmp_path, 1, WHOLE)
    rows = rows_of_runs("breakdown", tmp_path, [file], idle=True)
    row = run_row(file, "made", Facility(), tmp_path / "tables" / "idle.parquet")
    assert total(rows, "idle_energy_kwh") == pytest.approx(row["idle_energy_kwh"])
    assert rows[0]["idle_energy_kwh"] == pytest.approx(100 * 3000 / 3.6e6)


def test_a_stage_that_one_repeat_lacks_counts_as_nothing_in_it(tmp_path: Path) -> None:
    with_checkpoint = [part("gpu", "train", 10, 3.6e6), part("gpu", "checkpoint", 1, 3.6e6)]
    files = [
        run_of(tmp_path, 1, with_checkpoint),
        run_of(tmp_path, 2, [part("gpu", "train", 10, 3.6e6)]),
    ]
    result = {row["stage"]: row["energy_kwh"] for row in rows_of_runs("breakdown", tmp_path, files)}
    assert result == {"train": pytest.approx(1.0), "checkpoint": pytest.approx(0.5)}


def test_a_run_without_known_energy_makes_the_configurations_unknown(tmp_path: Path) -> None:
    unknown = [part("gpu", "train", 10, None), part("cpu", "train", 10, 3.6e6)]
    files = [run_of(tmp_path, 1, unknown), run_of(tmp_path, 2, WHOLE)]
    rows = rows_of_runs("breakdown", tmp_path, files)
    for column in ("energy_kwh", "energy_share", "discarded_energy_kwh"):
        assert {row[column] for row in rows} == {None}


def test_a_configuration_of_which_nothing_was_recorded_has_a_row_that_says_so(
    tmp_path: Path,
) -> None:
    nothing = [absent(kind, "train", 10) for kind in ("gpu", "cpu", "ram")]
    (row,) = rows_of_runs("breakdown", tmp_path, [run_of(tmp_path, 1, nothing)])
    assert row["configuration"] == NAME
    assert row["device_kind"] is row["energy_kwh"] is None


# --- the figure -----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [180, 88])
def test_the_bars_are_as_long_as_the_energies_of_the_table(width: int) -> None:
    table = any_table("breakdown", width_mm=width)
    figure = draw("breakdown", table)
    drawn = boxes(figure, "pieces")
    assert sum(box.width for box in drawn) == pytest.approx(sum(table["energy_kwh"].to_pylist()))
    assert len(drawn) == plotted("breakdown", table).num_rows == table.num_rows
    assert figure.get_figwidth() * style.MM_PER_INCH == pytest.approx(width)


def test_energy_that_is_not_known_is_said_and_never_a_bar_of_length_zero() -> None:
    nothing = dict.fromkeys(("energy_kwh", "energy_share", "idle_energy_kwh"))
    rows = any_table("breakdown").to_pylist()
    table = as_table([row | nothing if row["gpus"] == 1 else row for row in rows], "breakdown")
    assert "energy not known" in words(draw("breakdown", table))
    assert plotted("breakdown", table).num_rows < table.num_rows


def boxes(figure: Figure, gid: str) -> list[Any]:
    """Extents of all boxes of the first panel that have this id."""
    drawn = [each for each in figure.axes[0].collections if each.get_gid() == gid]
    return [path.get_extents() for each in drawn for path in each.get_paths()]


@pytest.mark.parametrize("kind", ["interval", "sd", "population_sd", "none"])
def test_a_repeated_total_has_the_error_bar_that_was_asked_for(kind: str) -> None:
    bars = figure_module.bars_of(drawable(to_frame(any_table("breakdown"))), kind)
    repeated = bars[bars["n_repeats"] > 1]
    assert bars["bar_low"].notna().sum() == (0 if kind == "none" else len(repeated))
    if kind == "sd":
        halves = repeated["bar_high"] - repeated["total_kwh"]
        assert halves.tolist() == pytest.approx(repeated["total_kwh_sd"].tolist())


def test_the_idle_baseline_of_each_kind_is_as_long_as_its_energy() -> None:
    table = any_table("breakdown")
    width = sum(box.width for box in boxes(draw("breakdown", table), "idle"))
    assert width == pytest.approx(sum(table["idle_energy_kwh"].to_pylist()))
