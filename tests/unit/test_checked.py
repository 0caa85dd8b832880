"""A table that is read back is what was written; a file that is none is refused by one sentence."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table_with_csv
from scalewatt.results.tables.frames import read_checked
from scalewatt.results.tables.table_schema import CONFIGURATIONS

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


def written(path: Path, *rows: Row, schema: pa.Schema = RUNS, **said: Any) -> Path:
    """A table as the project writes it; `path` chooses Parquet or CSV of the two."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    table = table.replace_schema_metadata({b"scalewatt": json.dumps(said).encode()})
    write_table_with_csv(table, path.with_suffix(".parquet"))
    return path


BOTH = pytest.mark.parametrize("name", ["runs.parquet", "runs.csv"])


def refusal(path: Path, schema: pa.Schema = RUNS) -> str:
    with pytest.raises(InputError) as caught:
        read_checked(path, schema)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert "expected" in message
    return message.removeprefix(f"{path}: ")


# --- what is right is read as it is ---------------------------------------------------------------


@BOTH
def test_a_table_as_it_was_written_is_read_back(tmp_path: Path, name: str) -> None:
    for rows in ([], [run(), run(repeat=2, energy_kwh=None, compile=True, metric_last=0.0)]):
        checked = read_checked(written(tmp_path / name, *rows, campaign="made"), RUNS)
        assert checked.to_pylist() == rows
        assert checked.schema.equals(RUNS)
    if name.endswith(".parquet"):
        assert json.loads(checked.schema.metadata[b"scalewatt"]) == {"campaign": "made"}


def test_columns_more_or_in_another_order_do_no_harm(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([run()], schema=RUNS).select(RUNS.names[::-1])
    path = tmp_path / "runs.parquet"
    pq.write_table(table.append_column("mine", pa.array(["note"])), path)
    assert read_checked(path, RUNS).to_pylist() == [run()]


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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.parquet"
        written(path, *(run(**row, repeat=i) for i, row in enumerate(rows, 1)))
        tables = [read_checked(path.with_suffix(end), RUNS) for end in (".parquet", ".csv")]
        assert tables[0].to_pylist() == tables[1].to_pylist()


# --- what is refused ------------------------------------------------------------------------------


@BOTH
def test_a_file_that_is_not_there_or_no_table_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert "does not exist" in refusal(path)
    path.write_bytes(b"\x00\xff no table")
    refusal(path)


@given(st.data())
def test_a_torn_file_is_refused(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "runs.parquet", run(), run(repeat=2))
        whole = path.read_bytes()
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        refusal(path)


@BOTH
def test_missing_columns_are_named(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, run(), schema=RUNS.remove(0).remove(0))
    assert "lacks the column configuration, repeat)" in refusal(path)
    assert "campaign, configuration, model, …" in refusal(path, CONFIGURATIONS)


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    words = RUNS.set(3, pa.field("energy_kwh", pa.string()))
    path = written(tmp_path / "runs.parquet", run(energy_kwh="much"), schema=words)
    assert "much" in refusal(path)
    assert "much" in refusal(path.with_suffix(".csv"))
