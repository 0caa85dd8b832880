"""Numbers in tables that nothing has: refused by row and column, before anything is computed of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived import Project, make_project

from scalewatt.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign; not to be changed."""
    return make_project(tmp_path_factory.mktemp("made") / "project")


def _filled(path: Path, names: list[str], value: float) -> None:
    """Put a value into every row of a table's columns, in place of all that is not null."""
    table = pq.read_table(path)
    for name in names:
        at = table.column_names.index(name)
        table = table.set_column(
            at,
            table.schema.field(at),
            [pa.array([value] * len(table), table.schema.field(at).type)],
        )
    pq.write_table(table, path)


def _floats(path: Path) -> list[str]:
    schema = pq.read_schema(path)
    return [field.name for field in schema if field.type == pa.float64()]


Command = Callable[[Project], list[str]]
COMMANDS: dict[str, tuple[str, Command]] = {
    "claims": (
        "configurations",
        lambda p: [
            *("claims", "--results", str(p.results), "--campaign", str(p.campaign)),
            *("--cluster", str(p.path / "cluster.yaml")),
        ],
    ),
    "claims on runs": (
        "runs",
        lambda p: [
            *("claims", "--results", str(p.results), "--campaign", str(p.campaign)),
            *("--cluster", str(p.path / "cluster.yaml")),
        ],
    ),
    "calibrate": (
        "configurations",
        lambda p: ["calibrate", str(p.results), "--out", str(p.path / "model.json")],
    ),
    "figure": (
        "figure2",
        lambda p: [
            *("figure", "2", "--table", str(p.results / "tables" / "figure2.parquet")),
            *("--out", str(p.path / "figure2")),
        ],
    ),
}


@pytest.mark.parametrize(("table", "command"), COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("value", [1e300, -1e300, 1e101, float("inf"), float("nan")])
def test_a_number_beyond_all_measure_is_refused_by_row_and_column(
    table: str,
    command: Command,
    value: float,
    made: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = made.copy(tmp_path / "project")
    path = project.results / "tables" / f"{table}.parquet"
    _filled(path, _floats(path), value)
    assert main(command(project)) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"scalewatt: error: {path}: row 1: ") and message.count("\n") == 1
