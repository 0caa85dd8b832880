"""What is wrong in a table that is read back is named, with the file and the row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table_with_csv
from scalewatt.results.figures.figure_schema import POINTS
from scalewatt.results.tables.read_table import (
    POINT_KEY,
    RUN_KEY,
    check_table,
    read_checked,
)
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.results.tables.table_schema import CONFIGURATIONS
from scalewatt.results.tables.value_ranges import metric_range, value_range

Row = dict[str, Any]
RUNS = pa.schema(
    [
        ("configuration", pa.string()),
        ("repeat", pa.int32()),
        ("gpus", pa.int32()),
        ("energy_kwh", pa.float64()),
        ("compile", pa.bool_()),
        ("metric_name", pa.string()),
        ("metric_last", pa.float64()),
    ]
)


def run(**changes: Any) -> Row:
    return {
        "configuration": "resnet50, large",
        "repeat": 1,
        "gpus": 4,
        "energy_kwh": 1.5,
        "compile": None,
        "metric_name": "top1_error_percent",
        "metric_last": 25.0,
    } | changes


def point(**changes: Any) -> Row:
    row: Row = dict.fromkeys(POINTS.names)
    row |= {"figure": "figure2", "panel": "A", "series": "line", "configuration": "c1", "gpus": 1}
    return row | {"energy_origin": "measured", "y_name": "energy_kwh", "y": 1.0} | changes


def written(path: Path, *rows: Row, schema: pa.Schema = RUNS, **said: Any) -> Path:
    """A table as the project writes it; `path` chooses Parquet or CSV of the two."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    table = table.replace_schema_metadata({b"scalewatt": json.dumps(said).encode()})
    write_table_with_csv(table, path.with_suffix(".parquet"))
    return path


BOTH = pytest.mark.parametrize("name", ["runs.parquet", "runs.csv"])


def refusal(path: Path, schema: pa.Schema = RUNS, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read_checked(path, schema, **options)
    said = str(caught.value)
    assert said.startswith(f"{path}: ") and "\n" not in said
    assert "expected" in said
    return said.removeprefix(f"{path}: ")


# --- what is right is read as it is ---------------------------------------------------------------


@BOTH
def test_a_table_as_it_was_written_is_read_back(tmp_path: Path, name: str) -> None:
    rows = [run(), run(repeat=2, energy_kwh=None, compile=True, metric_last=0.0)]
    found = read_checked(written(tmp_path / name, *rows), RUNS, unique=RUN_KEY)
    assert found.to_pylist() == rows
    assert found.schema.equals(RUNS)


def test_the_metadata_of_a_parquet_file_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.parquet", run(), campaign="made")
    stored = read_checked(path, RUNS).schema.metadata[b"scalewatt"]
    assert json.loads(stored) == {"campaign": "made"}


@BOTH
def test_a_table_without_rows_is_none_the_worse(tmp_path: Path, name: str) -> None:
    assert len(read_checked(written(tmp_path / name), RUNS, unique=RUN_KEY)) == 0


def test_columns_more_or_in_another_order_do_no_harm(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([run()], schema=RUNS).select(RUNS.names[::-1])
    path = tmp_path / "runs.parquet"
    pq.write_table(table.append_column("mine", pa.array(["note"])), path)
    assert read_checked(path, RUNS).to_pylist() == [run()]


def test_a_spreadsheets_numbers_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    head = ",".join(RUNS.names)
    path.write_text(f"\ufeff{head}\r\na,1.0,4.0,2,TRUE,top1_error_percent,25\r\n", encoding="utf-8")
    assert read_checked(path, RUNS).to_pylist() == [
        run(configuration="a", energy_kwh=2.0, compile=True)
    ]


def test_numbers_of_another_width_and_dictionaries_fit(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([run()], schema=RUNS)
    wide = table.set_column(2, "gpus", table["gpus"].cast(pa.int64()))
    coded = wide.set_column(0, "configuration", wide["configuration"].dictionary_encode())
    pq.write_table(coded, tmp_path / "runs.parquet")
    assert read_checked(tmp_path / "runs.parquet", RUNS).to_pylist() == [run()]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "configuration": st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1),
                "gpus": st.integers(1, 2**31 - 1),
                "energy_kwh": st.none() | st.floats(0, 1e9),
                "compile": st.none() | st.booleans(),
            }
        ),
        max_size=4,
    )
)  # fmt: skip
def test_csv_and_parquet_say_the_same(rows: list[Row]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.parquet"
        written(path, *(run(**row, repeat=i) for i, row in enumerate(rows, 1)))
        tables = [read_checked(path.with_suffix(end), RUNS) for end in (".parquet", ".csv")]
        assert tables[0].to_pylist() == tables[1].to_pylist()


# --- files and columns ----------------------------------------------------------------------------


@BOTH
def test_a_file_that_is_not_there_or_no_table_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert "does not exist" in refusal(path)
    path.write_bytes(b"\x00\xff no table")
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: "):
        read_checked(path, RUNS)


@BOTH
@pytest.mark.parametrize("rows", [0, 1])
def test_missing_columns_are_named(tmp_path: Path, name: str, rows: int) -> None:
    fields = [f for f in RUNS if f.name not in ("repeat", "energy_kwh")]
    fields.append(pa.field("energy_kw", pa.float64()))
    row = {key: value for key, value in run().items() if key in RUNS.names} | {"energy_kw": 1.0}
    del row["repeat"], row["energy_kwh"]
    path = written(tmp_path / name, *[row] * rows, schema=pa.schema(fields))
    said = refusal(path)
    assert said.startswith("lacks the columns repeat, energy_kwh; it has energy_kw")
    assert "did you mean 'energy_kwh'?" in said


@BOTH
def test_of_many_missing_columns_the_first_are_named_and_all_are_counted(
    tmp_path: Path, name: str
) -> None:
    path = written(tmp_path / name, schema=pa.schema([RUNS.field(0)]))
    said = refusal(path)
    first = ", ".join(RUNS.names[1:4])
    assert said.startswith(f"lacks the columns {first}, … ({len(RUNS.names) - 1} columns); ")


def test_a_line_with_too_few_cells_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(",".join(RUNS.names) + "\na,1\n")
    with pytest.raises(InputError, match=r"runs\.csv: line 2: expected 7 cells"):
        read_checked(path, RUNS)


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("energy_kwh", pa.array([None, "1.5"]), "row 2: column energy_kwh is of type string"),
        ("configuration", pa.array([1.0, 2.0]), "row 1: column configuration is of type double"),
        ("repeat", pa.array([1.0, 1.5]), "row 2: repeat is 1.5; expected a whole number"),
        ("gpus", pa.array([2**40, 1]), f"row 1: gpus is {2**40}; expected a whole number"),
        ("compile", pa.array(["yes", None]), "row 1: column compile is of type string"),
    ],
)
def test_a_column_of_another_type_is_named(
    tmp_path: Path, column: str, values: pa.Array, said: str
) -> None:
    table = pa.Table.from_pylist([run(), run(repeat=2)], schema=RUNS)
    table = table.set_column(RUNS.names.index(column), column, values)
    pq.write_table(table, tmp_path / "runs.parquet")
    assert refusal(tmp_path / "runs.parquet").startswith(said)


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("energy_kwh", "1,5", "a number"),
        ("energy_kwh", "n/a", "a number"),
        ("repeat", "1.5", "a whole number"),
        ("repeat", "99999999999", "a whole number"),
        ("repeat", "inf", "a whole number"),
        ("compile", "maybe", "true or false"),
    ],
)
def test_a_cell_that_is_no_value_of_its_column_is_named(
    tmp_path: Path, column: str, cell: str, expected: str
) -> None:
    path = tmp_path / "runs.csv"
    cells = [run(), run(repeat=2)]
    table = pa.Table.from_pylist([{k: str(v) for k, v in row.items()} for row in cells])
    index = table.column_names.index(column)
    table = table.set_column(index, column, pa.array([*table[column].to_pylist()[:1], cell]))
    table = table.set_column(table.column_names.index("compile"), "compile", pa.array(["", ""])) \
        if column != "compile" else table.set_column(index, column, pa.array(["true", cell]))  # fmt: skip
    pc.write_csv(table, path)
    assert refusal(path).startswith(f"row 2: {column} is '{cell}'; expected {expected}")


# --- rows -----------------------------------------------------------------------------------------


@BOTH
def test_a_run_that_is_there_twice_is_named_with_both_rows(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, run(), run(repeat=2), run())
    said = refusal(path, unique=RUN_KEY)
    assert said.startswith(
        "row 3 stands for the same as row 1: configuration resnet50, large, repeat 1"
    )
    assert len(read_checked(path, RUNS)) == 3  # nobody asked


@BOTH
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("column", ["energy_kwh", "metric_last"])
def test_a_number_that_is_none_is_named(
    tmp_path: Path, name: str, value: float, column: str
) -> None:
    path = written(tmp_path / name, run(), run(repeat=2, **{column: value}))
    said = {"nan": "NaN"}.get(str(value), "infinite")
    assert refusal(path).startswith(f"row 2: {column} is {said}; expected a number")


@BOTH
@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("top1_error_percent", 100.5, "top1_error_percent is 0 to 100"),
        ("top1_error_percent", -0.5, "top1_error_percent is 0 to 100"),
        ("z500_rmse_m2_s2", -1.0, "z500_rmse_m2_s2 is 0 or more"),
    ],
)
def test_a_metric_out_of_its_range_is_named(
    tmp_path: Path, name: str, metric: str, value: float, said: str
) -> None:
    bad = run(repeat=2, metric_name=metric, metric_last=value)
    path = written(tmp_path / name, run(), bad)
    assert refusal(path).startswith(f"row 2: metric_last is {value:g}, but {said}")


def test_a_metric_of_ones_own_may_be_anything(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.parquet", run(metric_name="log_likelihood", metric_last=-300.0))
    assert len(read_checked(path, RUNS)) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("top5_error_percent", (0, 100)),
        ("accuracy_percent", (0, 100)),
        ("relative_error_percent", (0, float("inf"))),
        ("mae", (0, float("inf"))),
        ("log_error", (-float("inf"), float("inf"))),
        ("change_percent", (-float("inf"), float("inf"))),
        ("reward", (-float("inf"), float("inf"))),
        ("", (-float("inf"), float("inf"))),
    ],
)
def test_a_metrics_name_says_what_it_may_be(name: str, expected: tuple[float, float]) -> None:
    assert metric_range(name) == expected


def test_the_metric_of_a_figures_point_is_named_in_its_metadata(tmp_path: Path) -> None:
    rows = [point(y_name="metric_last", y=120.0), point(panel="C", y=500.0)]
    path = written(
        tmp_path / "figure2.parquet", *rows, schema=POINTS, metric_name="top1_error_percent"
    )
    assert refusal(path, POINTS).startswith("row 1: metric_last is 120, but top1_error_percent")
    path = written(tmp_path / "figure2.parquet", *rows, schema=POINTS, metric_name="mine")
    assert len(read_checked(path, POINTS)) == 2


@BOTH
def test_a_row_that_does_not_say_what_it_is_about_is_named(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, run(), run(configuration=None))
    assert refusal(path).startswith("row 2: configuration is empty")


# --- origins --------------------------------------------------------------------------------------


def test_points_of_a_series_may_differ_in_origin(tmp_path: Path) -> None:
    rows = [
        point(),
        point(energy_origin="published"),
        point(energy_origin=None, configuration="c2"),
        point(energy_origin="estimated", configuration="c3"),
        point(series="other", energy_origin="estimated"),
    ]
    path = written(tmp_path / "figure2.parquet", *rows, schema=POINTS)
    assert len(read_checked(path, POINTS, unique=POINT_KEY)) == 5


def impossible(column: str, value: float) -> pa.Table:
    return pa.table({column: [1.0, value, None]})


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("energy_kwh", -5.0, "0 or more"),
        ("energy_j", 1e90, "3.6e+18 at most"),
        ("gpu_energy_kwh_mean", -1e-3, "0 or more"),
        ("energy_kwh_sd", -1.0, "0 or more"),
        ("net_energy_kwh", 1e90, "1e+12 at most"),
        ("mean_gpu_power_w", -300.0, "0 or more"),
        ("p_gpuh_kw", 1e30, "1e+09 at most"),
        ("coverage", 1.5, "1 at most"),
        ("gpu_energy_share", -0.1, "0 or more"),
        ("runtime_s", -1.0, "0 or more"),
    ],
)
def test_an_energy_power_or_time_that_cannot_be_is_named_with_its_row(
    column: str, value: float, expected: str
) -> None:
    with pytest.raises(
        InputError, match=re.escape(f"t: row 2: {column} is {value:g}; expected: ")
    ) as caught:
        check_table("t", impossible(column, value))
    assert str(caught.value).endswith(expected)


@pytest.mark.parametrize(
    "column",
    ["net_energy_kwh", "energy_kwh_low", "extra_energy_kwh", "low_w", "difference", "metric_last"],
)
def test_what_may_be_negative_is_taken(column: str) -> None:
    check_table("t", impossible(column, -0.5))


def test_an_impossible_energy_is_refused_in_a_figures_points(tmp_path: Path) -> None:
    path = written(tmp_path / "figure2.csv", point(), point(panel="B", y=-4.0), schema=POINTS)
    with pytest.raises(InputError, match="row 2: energy_kwh is -4; expected: 0 or more"):
        read_checked(path, POINTS)


INTERVALS = sorted(
    name.removesuffix("_low") for name in CONFIGURATIONS.names if name.endswith("_low")
)


@pytest.mark.parametrize("column", INTERVALS)
@given(data=st.data())
@settings(max_examples=20)
def test_the_interval_of_any_repeats_that_can_be_is_taken(column: str, data: st.DataObject) -> None:
    low, high = value_range(column)
    value = st.floats(max(low, -1e3), min(high, 1e3))
    summary = summarise(data.draw(st.lists(value, min_size=2, max_size=4)))
    for part in ("mean", "sd", "low", "high"):
        check_table("t", pa.table({f"{column}_{part}": [getattr(summary, part)]}))
