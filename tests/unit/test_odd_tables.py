"""Tables with counts, intervals or metadata that cannot be, and what else figures do not depend on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived import Project, make_project

from scalewatt.cli import main

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign; not to be changed."""
    return make_project(tmp_path_factory.mktemp("made") / "project")


def described(text: str) -> Change:
    """Return a change that stores another text with a table."""
    return lambda table: table.replace_schema_metadata({"scalewatt": text})


DAMAGED: dict[str, tuple[list[Change], str]] = {
    "metadata that are cut": ([described("{")], "is no readable Parquet file"),
}


@pytest.mark.parametrize(("changes", "words"), DAMAGED.values(), ids=DAMAGED)
def test_no_figure_is_drawn_of_a_table_with(
    changes: list[Change],
    words: str,
    made: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pq.read_table(made.results / "tables" / "figure2.parquet")
    for change in changes:
        table = change(table)
    path = tmp_path / "figure2.parquet"
    pq.write_table(table, path)
    assert main(["figure", "2", "--table", str(path), "--out", str(tmp_path / "f")]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"scalewatt: error: {path}: ") and words in err
    assert not list(tmp_path.glob("f.*"))


OUTPUTS = {
    "one file for both": ("{out}/x.parquet", "{out}/x.parquet", "is named twice"),
    "a run's own history": ("{out}/t.parquet", "{run}/history.parquet", "is a file of the run"),
    "a run's own stages": (
        "{run}/../1/events.parquet",
        "{out}/e.parquet",
        "is a file of the run",
    ),
}


@pytest.mark.parametrize(("traces", "energy", "words"), OUTPUTS.values(), ids=OUTPUTS)
def test_accounting_overwrites_no_other_table_with(
    traces: str,
    energy: str,
    words: str,
    made: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = made.copy(tmp_path / "project")
    run = next(project.results.glob("runs/*/1"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    into = [one.format(out=tmp_path, run=run) for one in (traces, energy)]
    asked = ["account", str(run), "--powers", "{}", "--traces", into[0], "--energy", into[1]]
    assert main(asked) == 1
    assert words in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert not list(tmp_path.glob("*.parquet"))
