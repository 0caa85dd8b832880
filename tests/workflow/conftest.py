"""One finished tiny campaign, shared by the tests that only look at it or copy it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from training import prepare
from workspace import Workspace


@pytest.fixture(scope="session", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured elsewhere on this machine is none of the tests' business, nor theirs of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALEWATT_SAMPLERS", str(tmp_path_factory.mktemp("samplers")))
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny campaign's datasets, prepared."""
    folder = tmp_path_factory.mktemp("data")
    prepare(folder)
    return folder


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The tiny campaign, run to its end by one snakemake."""
    workspace = Workspace.create(tmp_path_factory.mktemp("finished") / "project")
    workspace.done("all")
    return workspace


@pytest.fixture()
def again(finished: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the finished campaign, to be changed."""
    return finished.copy(tmp_path / "project")
