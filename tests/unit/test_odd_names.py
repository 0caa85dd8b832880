"""Numbers and addresses in options are refused in one line, without passwords."""

from __future__ import annotations

from pathlib import Path

import pytest

from scalewatt.cli import main

SOURCES = {
    "a Zarr store": "https://u:hunter2@127.0.0.1:9/z",
    "files": "https://u:hunter2@127.0.0.1:9/*",
}
ERA5 = (
    '{"name": "era5", "format": "era5", "source": "data_root", "grid": [32, 64], "train_years": '
    '[1979, 1979], "validation_years": [1980, 1980], "test_years": [1981, 1981], '
    '"samples_per_year": 10}'
)


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_password_in_a_source_is_not_shown(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["prepare", "--folder", str(tmp_path / "f"), "--definition", ERA5, "--source", source]
    assert main(asked) == 1
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err
    assert "@127.0.0.1:9/" in err
