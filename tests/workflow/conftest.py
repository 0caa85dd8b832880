"""What tests of the workflow share: prepared data, and a finished campaign to be changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from workspace import TINY, Workspace

from scalewatt.campaign.load import load_campaign
from scalewatt.data.prepared import prepare_dataset


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
    for name, definition in load_campaign(TINY).datasets().items():
        prepare_dataset(definition, folder / name, None)
    return folder


@pytest.fixture()
def again(finished_workspace: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the finished campaign, to be changed."""
    return finished_workspace.copy(tmp_path / "project")


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The small campaign that is simulated, of which nothing was made."""
    return Workspace.planned(tmp_path_factory.mktemp("simulated") / "project")


@pytest.fixture(scope="session")
def played(pytestconfig: pytest.Config) -> Workspace:
    """The small campaign, simulated to its end, for tests that read it."""
    return Workspace.kept(Path(pytestconfig.cache.mkdir("simulated")), Workspace.simulated)
