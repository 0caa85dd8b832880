"""One finished tiny campaign, shared by the tests that only look at it or copy it."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from training import prepare
from workspace import COPIED, PROJECT, TINY, Workspace

from scalewatt.common.files import file_sha256
from scalewatt.provenance.package_lock import installed_versions
from scalewatt.provenance.versions import source_commit


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


def project_hash() -> str:
    """What the finished campaign depends on: the files, as they are copied, the commit and the packages."""
    total = hashlib.sha256(f"{source_commit()} {sys.version} {installed_versions()}".encode())
    for file in sorted(
        f for name in COPIED for f in [PROJECT / name, *(PROJECT / name).rglob("*")]
    ):
        if file.is_file() and not {"__pycache__", "scalewatt.egg-info"} & set(file.parts):
            total.update(f"{file.relative_to(PROJECT)} {file_sha256(file)}".encode())
    total.update(TINY.read_bytes())
    return total.hexdigest()


@pytest.fixture(scope="session")
def finished(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The tiny campaign, run to its end by one snakemake, once for a state of the project; a copy of it."""
    shared = Path(pytestconfig.cache.mkdir("finished"))
    with open(shared / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        original = shared / project_hash()
        if not original.exists():
            for other in shared.glob("*/"):
                shutil.rmtree(other)
            made = Workspace.create(shared / "unfinished")
            made.done("all")
            made.path.rename(original)
        return Workspace(original).copy(tmp_path_factory.mktemp("finished") / "project")


@pytest.fixture()
def again(finished: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the finished campaign, to be changed."""
    return finished.copy(tmp_path / "project")
