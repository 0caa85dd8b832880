"""A cluster's file of carbon intensity: every command that reads the cluster file misses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from campaign_files import DEMO, LOCAL, Refused, edited, write_yaml

from scalewatt.cli import main

SIMULATE = LOCAL.parent / "config" / "simulate.yaml"
GOOD = "time,g_per_kwh\n1795000000,300\n1795003600,400\n"
CUT_OFF = "time,g_per_kwh\n1795000000,300\n1795003600\n"


def content(file: Path | str, of: Path = LOCAL) -> dict[str, Any]:
    return edited({("carbon_intensity",): {"file": str(file), "source": "a test"}}, of)


def site(folder: Path, file: Path | str) -> Path:
    folder.mkdir(exist_ok=True)
    return write_yaml(folder / "cluster.yaml", content(file))


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    return Refused(tmp_path, capsys, monkeypatch)


COMMANDS = {
    "plan": ("plan", "--campaign", str(DEMO)),
    "status": ("status", "--campaign", str(DEMO)),
    "advise": ("advise", "--campaign", str(DEMO), "--slowdown", "10"),
    "exclude": ("exclude", "--campaign", str(DEMO)),
    "export": ("export", str(DEMO)),
    "doctor": ("doctor",),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_file_that_is_not_there_is_named_by_every_command(
    command: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = site(tmp_path / "mine", "data/grid.csv")
    assert main([*command, "--site", str(given)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{given}: carbon_intensity.file: data/grid.csv is not a file" in err
    assert "expected a CSV file of g CO2e per kWh over time" in err
    assert err.endswith(f", its path from {tmp_path}\n")


def test_a_campaign_is_refused_for_a_row_that_is_cut_off(refused: Refused) -> None:
    grid = refused.folder / "grid.csv"
    grid.write_text(CUT_OFF)
    given = site(refused.folder, grid)
    message = refused.message(DEMO, "--site", given)
    assert f"{grid}: line 3: cells: 1" in message
    grid.write_text(GOOD)
    assert main(["campaign", str(DEMO), "--site", str(given)]) == 0
