"""ImageNet in small, for the tests of its preparation."""

from __future__ import annotations

from pathlib import Path

import pytest
from imagenet_files import Official


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
