"""The packed file and a node's copy of it: the same images, checked, and removed again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from imagenet_files import Official, contents

from scalewatt.common.errors import InputError
from scalewatt.data.imagenet import SPLITS, ImageFolderIndex
from scalewatt.data.images import ImageNetDataset
from scalewatt.data.node_copy import copy_images, pack, packed_images
from scalewatt.data.prepared import prepare_dataset

ALL: dict[str, np.ndarray] = {}


@pytest.fixture(scope="module")
def official() -> Official:
    return Official.make(classes=4, train=6)


@pytest.fixture(scope="module")
def data(official: Official, tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder whose images are in a tree elsewhere, packed."""
    folder = tmp_path_factory.mktemp("data")
    prepare_dataset(official.definition, folder, str(tree))
    pack(folder)
    return folder


@pytest.fixture
def harmed(data: Path, tmp_path: Path) -> Path:
    """A copy to harm."""
    return Path(shutil.copytree(data, tmp_path / "harmed"))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


# --- packing ------------------------------------------------------------------------------------


def test_the_packed_files_are_tars_that_anybody_can_read(
    data: Path, tree: Path, tmp_path: Path
) -> None:
    for split in SPLITS:
        tar = packed_images(data, split)
        with tarfile.open(tar, "r:") as opened:
            assert opened.getnames() == ImageFolderIndex.load(data, split).paths
        subprocess.run(["tar", "-xf", str(tar), "-C", str(tmp_path)], check=True)
    assert contents(tmp_path) == contents(tree)


# --- staging ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [ALL, {"train": np.array([1, 2, 9, 17]), "val": np.array([0])}])
def test_what_is_wanted_is_staged_at_the_positions_of_the_index(
    wanted: dict[str, np.ndarray], data: Path, tree: Path, scratch: Path
) -> None:
    leftover = scratch / "scalewatt-run" / "train" / "leftover"
    leftover.parent.mkdir(parents=True)
    leftover.write_text("of a killed start")
    folder = copy_images(data, str(scratch), "run", wanted)
    expected: dict[str, bytes] = {}
    for split in SPLITS:
        positions = wanted.get(split)
        index, staged = (ImageFolderIndex.load(parent, split) for parent in (data, folder))
        assert (staged.paths, staged.classes, staged.folder) == (index.paths, index.classes, folder)
        np.testing.assert_array_equal(staged.labels, index.labels)
        chosen = np.array(index.paths)[slice(None) if positions is None else positions]
        expected |= {path: (tree / path).read_bytes() for path in chosen}
        here, elsewhere = (
            ImageNetDataset(parent, split, positions, 32, True, seed=1) for parent in (folder, data)
        )
        assert torch.equal(here[1, 0][0], elsewhere[1, 0][0])
    assert contents(folder) == expected


# --- what is refused ----------------------------------------------------------------------------


def test_packed_files_of_other_images_are_not_used(
    harmed: Path, scratch: Path, tmp_path: Path
) -> None:
    other = Official.make(classes=4, train=6, side=30)
    (harmed / "manifest.json").unlink()
    prepare_dataset(other.definition, harmed, str(other.tree(tmp_path / "other")))
    with pytest.raises(InputError, match=r"packed-\w+-train\.tar: missing; create it with"):
        copy_images(harmed, str(scratch), "run", ALL)
    assert list(scratch.iterdir()) == []
    pack(harmed)
    assert contents(copy_images(harmed, str(scratch), "run", ALL)) == contents(tmp_path / "other")


def test_a_full_disk_is_refused_before_anything_is_written(
    harmed: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=9000))
    with pytest.raises(InputError, match=r"GB are free, the images need 0\.0 GB"):
        copy_images(harmed, str(scratch), "run", ALL)
    assert list(scratch.iterdir()) == []
    block = os.statvfs(scratch).f_frsize
    sizes = ImageFolderIndex.load(harmed, "train").sizes
    one_split = int((-(-sizes // block) * block).sum())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=one_split))
    with pytest.raises(InputError, match="the images need"):
        copy_images(harmed, str(scratch), "run", ALL)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=9000))
    packed_images(harmed, "train").unlink()
    with pytest.raises(InputError, match=r"the packed images need 0\.0 GB"):
        pack(harmed)
