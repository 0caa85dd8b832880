"""Files are there whole or not at all."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from scalewatt.common.errors import InputError
from scalewatt.common.files import (
    Check,
    atomic_path,
    read_json,
    waiting_lock,
    write_json,
    write_table,
    write_table_with_csv,
    write_text,
)


def test_a_file_appears_only_when_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "a.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert path.read_text() == "new"
    assert os.listdir(path.parent) == ["a.txt"]


def test_a_failed_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:
        temporary.write_text("ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


WRITERS: dict[str, Callable[[Path, Check], None]] = {
    "text": lambda path, check: write_text(path, "new", check),
    "json": lambda path, check: write_json(path, {}, check),
    "table": lambda path, check: write_table(pa.table({"a": [1]}), path, check),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_file_that_may_not_be_replaced_any_more_stays(
    tmp_path: Path, write: Callable[[Path, Check], None]
) -> None:
    path = tmp_path / "a"
    path.write_text("another's, by now")

    def check() -> None:
        assert [each.stat().st_size > 0 for each in tmp_path.iterdir()] == [True, True], (
            "written first"
        )
        raise InputError("is held by another")

    with pytest.raises(InputError, match="held by another"):
        write(path, check)
    assert path.read_text() == "another's, by now"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_without_a_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"mine")
    with pytest.raises(OSError, match="taken"):
        write_text(tmp_path / "taken" / "a.txt", "text")
    assert (tmp_path / "taken").read_bytes() == b"mine"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_json_that_is_none_is_refused_and_the_old_file_stays(value: object, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises((ValueError, TypeError)):
        write_json(path, {"a": value})
    assert read_json(path) == {"a": 1}


def test_the_csv_beside_a_table_has_the_same_values_and_missing_is_empty(tmp_path: Path) -> None:
    table = pa.table({"name": ["a", 'b "quoted", with a comma'], "energy_j": [0.1, None]})
    write_table_with_csv(table, tmp_path / "a.parquet")
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.parquet"]
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["name", "energy_j"], ["a", "0.1"], ['b "quoted", with a comma', ""]]


def test_what_cannot_be_locked_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be locked"), waiting_lock(tmp_path / "file/a", ""):
        pass
