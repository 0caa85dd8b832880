"""What several tests share: ImageNet in small, a small campaign without Slurm, a script's run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from archived import Project, make_project
from campaign_files import Refused
from imagenet_files import Official
from script_marks import forget
from status_files import Made

from scalewatt import events


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    """Campaign and cluster files that are refused."""
    return Refused(tmp_path, capsys, monkeypatch)


@pytest.fixture(scope="session")
def simulated_project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished campaign of two simulated runs; not to be changed."""
    return make_project(tmp_path_factory.mktemp("simulated") / "project")


@pytest.fixture
def project(simulated_project: Project, tmp_path: Path) -> Project:
    """A copy of it."""
    return simulated_project.copy(tmp_path / "project")


@pytest.fixture(scope="module")
def official() -> Official:
    """A few classes in the official structure."""
    return Official.make()


@pytest.fixture(scope="module")
def tars(official: Official, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with its three files."""
    return official.write(tmp_path_factory.mktemp("tars"))


@pytest.fixture(scope="module")
def tree(official: Official, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images, unpacked."""
    return official.tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """The campaign on a machine without Slurm."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    return Made.create(tmp_path)


@pytest.fixture
def outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job of Slurm's is around the tests."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOBID", raising=False)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of rank 0 of a run's first segment; handlers of signals are put back."""
    monkeypatch.setenv(events.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(events.SEGMENT_VARIABLE, "0")
    monkeypatch.setenv(events.STOP_VARIABLE, str(tmp_path / "stop"))
    (tmp_path / "script").mkdir()
    monkeypatch.setenv(events.WORK_VARIABLE, str(tmp_path / "script"))
    forget(monkeypatch)
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)
