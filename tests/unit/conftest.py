"""What several tests share: ImageNet in small, and a small campaign without Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from imagenet_files import Official
from status_files import Made


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
