"""Full disks, read-only folders, names that are too long: every command that writes says so in one line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archived import Project, below

from scalewatt.cli import main
from scalewatt.common.project_files import PROJECT_ROOT

WAVES = {
    "name": "waves",
    "format": "era5",
    "source": "embedded",
    "grid": [16, 32],
    "train_years": [1979, 1979],
    "validation_years": [1980, 1980],
    "test_years": [1981, 1981],
    "samples_per_year": 120,
}


def _mounted(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.fixture(scope="module", params=["full", "read-only"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder on a file system of its own, on which nothing can be written."""
    folder = tmp_path_factory.mktemp("place")
    options = "ro,size=64k" if request.param == "read-only" else "size=64k"
    if not _mounted(folder, options):
        pytest.skip("a file system cannot be mounted here: needs root, and leave to mount")
    try:
        if request.param == "full":
            with open(folder / "filler", "wb", buffering=0) as file:
                while True:
                    try:
                        file.write(bytes(4096))
                    except OSError:
                        break
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, timeout=20)


Arguments = Callable[[Project, Path], list[str]]


def _cluster(made: Project) -> list[str]:
    return ["--site", str(made.path / "cluster.yaml")]


COMMANDS: dict[str, Arguments] = {
    "export": lambda made, out: [
        *("export", str(made.campaign), *_cluster(made)),
        *("--results", str(made.path / "results"), "--out", str(out / "a.zip")),
    ],
    "plan": lambda made, out: [
        *("plan", "--campaign", str(PROJECT_ROOT / "campaigns/paper.yaml")),
        *("--site", str(PROJECT_ROOT / "config" / "horeka.yaml")),
        *("--model", str(PROJECT_ROOT / "reference" / "scaling_model.json")),
        *("--out", str(out / "plan")),
    ],
    "prepare": lambda made, out: [
        *("prepare", "--folder", str(out / "data"), "--definition", json.dumps(WAVES)),
    ],
}


def _said(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    assert main(arguments) == 1
    message = capsys.readouterr().err
    assert message.startswith("scalewatt: error: "), message
    assert message.count("\n") == 1 and len(message) < 1500, message
    return message


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_where_nothing_can_be_written_a_command_says_so(
    arguments: Arguments,
    place: Path,
    simulated_project: Project,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = below(place)
    message = _said(capsys, arguments(simulated_project, place))
    assert str(place) in message
    # But for locks, and the mark (.simulating) of a simulation that was broken off.
    left = [path for path in below(place) if path not in before]
    assert {Path(path).suffix for path in left} <= {"", ".lock"}
