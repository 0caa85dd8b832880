"""What several tests share: ImageNet in small, and a small campaign without Slurm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from holder_records import starter
from imagenet_files import Official
from status_files import Made

from scalewatt.run_files import run_lock as hold


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
    """No Slurm job, and short pauses where a run is waited for."""
    for name in ("SLURM_JOB_ID", "SLURM_JOBID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(hold, "RECORD_LOOK_S", 0.02)


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts Python code, as `holder_records.starter`."""
    with starter() as run:
        yield run
