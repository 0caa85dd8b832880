"""What was made with care is taken: checks refuse what is wrong, and nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewatt.archive.import_archive import _check_room
from scalewatt.common.errors import InputError
from scalewatt.common.rated_powers import check_rated_powers
from scalewatt.common.tabular_files import csv_rows
from scalewatt.reproduction.manifests import ArchiveManifest, Entry


@pytest.mark.parametrize(
    "text", ["path,model,,\na,b,,\n", "path,model,\na,b,\n", "path,model, ,\na,b\n"]
)
def test_empty_columns_at_the_end_of_a_csv_file_are_no_columns(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert csv_rows(path) == [(f"{path}: line 2", {"path": "a", "model": "b"})]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("path,model,,\na,b,,c\n", 'column "" stands there twice'),
        ("path,model,\na,b,\nc,d,,e\n", "line 3: expected 3 cells"),
        ("path,model\na\n", "line 2: expected 2 cells"),
        (",,\na,b,c\n", "is empty"),
    ],
)
def test_cells_without_a_column_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        csv_rows(path)


def test_parts_without_rated_powers_may_be_null_or_empty() -> None:
    for nothing in (None, {}):
        check_rated_powers(dict.fromkeys(("cpu", "gpu", "ram"), nothing), "--powers")


def test_an_import_needs_room_for_the_campaigns_file_only_where_campaigns_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}
    monkeypatch.setattr(
        "scalewatt.archive.import_archive.require_space",
        lambda folder, needed, where, what: asked.update({where: needed}),
    )
    files = {
        "campaigns/a.yaml": 3000,
        "campaigns/a.imported.json": 500,
        "results/a/report.html": 10**9,
    }
    manifest = ArchiveManifest(
        "a", "campaign", {name: Entry("0" * 64, size) for name, size in files.items()}
    )
    _check_room(tmp_path / "a.zip", manifest, tmp_path / "results", tmp_path / "campaigns")
    total = sum(files.values())
    assert asked == {str(tmp_path / "results"): total, str(tmp_path / "campaigns"): 3500}
