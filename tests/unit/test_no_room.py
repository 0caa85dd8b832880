"""Full disks, read-only folders, names that are too long: every command that writes says so in one line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from archived import Project, below, make_project

from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.table_requests import table_definition
from scalewatt.cli import main
from scalewatt.common.schema_validation import PROJECT_ROOT

FOUR = "resnet50-a100-n004-lbs0256-s0020018"
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign with an archive of it; not to be changed."""
    project = make_project(tmp_path_factory.mktemp("made") / "project")
    project.export()
    campaign = load_campaign(project.campaign, load_cluster(project.path / "cluster.yaml"))
    runs = [[run.configuration.id, run.repeat] for run in campaign.runs()]
    definition = {**table_definition(campaign, "figure2", runs), "facility": {}}
    (project.path / "figure2.json").write_text(json.dumps(definition))
    return project


Arguments = Callable[[Project, Path], list[str]]


def _cluster(made: Project) -> list[str]:
    return ["--cluster", str(made.path / "cluster.yaml")]


def _run(made: Project) -> str:
    return str(made.results / "runs" / FOUR / "1")


COMMANDS: dict[str, Arguments] = {
    "export": lambda made, out: [
        *("export", str(made.campaign), *_cluster(made)),
        *("--results", str(made.path / "results"), "--out", str(out / "a.zip")),
    ],
    "import": lambda made, out: [
        *("import", str(made.path / "small.crate.zip")),
        *("--results", str(out / "results"), "--campaigns", str(out / "campaigns")),
    ],
    "figure": lambda made, out: [
        *("figure", "2", "--table", str(made.results / "tables" / "figure2.parquet")),
        *("--out", str(out / "figure2")),
    ],
    "table": lambda made, out: [
        *("table", "--definition", str(made.path / "figure2.json")),
        *("--results", str(made.results), "--out", str(out / "figure2.parquet")),
    ],
    "account": lambda made, out: [
        *("account", _run(made), "--powers", "{}"),
        *("--traces", str(out / "t.parquet"), "--energy", str(out / "e.parquet")),
    ],
    "plan": lambda made, out: [
        *("plan", "--campaign", str(PROJECT_ROOT / "config.yaml")),
        *("--cluster", str(PROJECT_ROOT / "profiles" / "horeka" / "cluster.yaml")),
        *("--model", str(PROJECT_ROOT / "reference" / "scaling_model.json")),
        *("--out", str(out / "plan")),
    ],
    "claims": lambda made, out: ["claims", "--out", str(out / "claims")],
    "pilot": lambda made, out: [
        *("pilot", str(PROJECT_ROOT / "campaigns" / "demo.yaml")),
        *("--out", str(out / "pilot.yaml")),
    ],
    "simulate": lambda made, out: [
        *("simulate", f"{_run(made)}/spec.json", *_cluster(made), "--out", str(out / "run")),
        *("--model", str(PROJECT_ROOT / "reference" / "scaling_model.json")),
    ],
    "prepare": lambda made, out: [
        *("prepare", "--folder", str(out / "data"), "--definition", json.dumps(WAVES)),
    ],
    "run-pages": lambda made, out: [
        *("run-pages", FOUR, "1", "--results", str(out / "results")),
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
    arguments: Arguments, place: Path, made: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    before = below(place)
    message = _said(capsys, arguments(made, place))
    assert str(place) in message
    # But for the mark (.simulating) of a simulation that was broken off.
    assert [path for path in below(place) if path not in before and Path(path).suffix] == []


FOLDERS = {"a folder that is there": "there", "this folder": ".", "the root": "/"}


@pytest.mark.parametrize("out", FOLDERS.values(), ids=FOLDERS)
@pytest.mark.parametrize("name", ["export", "pilot", "table"])
def test_a_folder_in_place_of_a_file_is_refused_by_a_line(
    name: str,
    out: str,
    made: Project,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    arguments = COMMANDS[name](made, tmp_path)
    arguments[-1] = out
    _said(capsys, arguments)
    assert below(tmp_path) == ["there"]
