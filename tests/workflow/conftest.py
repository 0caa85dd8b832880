"""One finished tiny campaign, shared by the tests that only look at it or copy it."""

from __future__ import annotations

import fcntl
import os
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
    """The tiny campaign, run to its end by one snakemake, once for all workers; each has a copy."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    original, is_done = shared / "original", shared / "original.done"
    with open(shared / "original.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_done.exists():
            Workspace.create(original).done("all")
            is_done.touch()
    return Workspace(original).copy(tmp_path_factory.mktemp("finished") / "project")


@pytest.fixture()
def again(finished: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the finished campaign, to be changed."""
    return finished.copy(tmp_path / "project")
