"""The packed file and a node's copy of it: the same images, checked, and removed again."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from imagenet_files import Official, contents

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.data.imagenet import SPLITS, ImageFolderIndex
from scalewatt.data.images import ImageNetDataset
from scalewatt.data.node_copy import PACKED, copy_images, pack
from scalewatt.data.prepared import prepare_dataset

ALL = {"train": None, "val": None}
WAVES = {
    "name": "waves", "format": "era5", "source": "embedded", "grid": [16, 32],
    "samples_per_year": 21, "train_years": [1979, 1979], "validation_years": [1980, 1980],
    "test_years": [1981, 1981],
}  # fmt: skip


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
def own(data: Path, tmp_path: Path) -> Path:
    """A copy to harm."""
    return Path(shutil.copytree(data, tmp_path / "own"))


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


# --- packing ------------------------------------------------------------------------------------


def test_the_packed_file_is_a_tar_that_anybody_can_read(
    data: Path, tree: Path, tmp_path: Path
) -> None:
    with tarfile.open(data / PACKED, "r:") as tar:
        names = tar.getnames()
    subprocess.run(["tar", "-xf", str(data / PACKED), "-C", str(tmp_path)], check=True)
    assert contents(tmp_path) == contents(tree)
    assert names[1:] == [p for s in SPLITS for p in ImageFolderIndex.load(data, s).paths]


def test_an_image_that_changed_since_it_was_indexed_is_named(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    prepare_dataset(official.definition, tmp_path / "data", str(tmp_path / "tree"))
    path = tmp_path / "tree" / ImageFolderIndex.load(tmp_path / "data", "val").paths[3]
    path.write_bytes(b"short")
    with pytest.raises(InputError, match=rf"{path.name}: has 5 bytes, \d+ when it was indexed"):
        pack(tmp_path / "data")
    path.unlink()
    with pytest.raises(InputError, match=rf"{path.name}: cannot be read"):
        pack(tmp_path / "data")
    assert not [p for p in (tmp_path / "data").iterdir() if "tar" in p.suffixes or ".tmp" in p.name]


def test_prepare_packs_images_if_asked(
    official: Official, tree: Path, tmp_path: Path, capsys: Any
) -> None:
    options = ["--folder", str(tmp_path), "--source", str(tree), "--pack"]
    assert main(["prepare", "--definition", json.dumps(WAVES), *options]) == 1
    assert "--pack: is for images" in capsys.readouterr().err
    assert main(["prepare", "--definition", json.dumps(official.definition), *options]) == 0
    (tmp_path / PACKED).unlink()
    assert main(["prepare", "--folder", str(tmp_path), "--pack"]) == 0
    assert (tmp_path / PACKED).exists()


# --- staging ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted", [ALL, {"train": np.array([1, 2, 9, 17]), "val": np.array([0])}, {"val": None}]
)
def test_what_is_wanted_is_staged_at_the_positions_of_the_index(
    wanted: dict[str, np.ndarray | None], data: Path, tree: Path, scratch: Path
) -> None:
    leftover = scratch / "scalewatt-run" / "train" / "leftover"
    leftover.parent.mkdir(parents=True)
    leftover.write_text("of a killed start")
    folder = copy_images(data, str(scratch), "run", wanted)
    expected: dict[str, bytes] = {}
    for split, positions in wanted.items():
        index, staged = (ImageFolderIndex.load(place, split) for place in (data, folder))
        assert (staged.paths, staged.classes, staged.folder) == (index.paths, index.classes, folder)
        np.testing.assert_array_equal(staged.labels, index.labels)
        chosen = np.array(index.paths)[slice(None) if positions is None else positions]
        expected |= {path: (tree / path).read_bytes() for path in chosen}
        here, elsewhere = (
            ImageNetDataset(place, split, positions, 32, True, seed=1) for place in (folder, data)
        )
        assert torch.equal(here[1, 0][0], elsewhere[1, 0][0])
    assert contents(folder) == expected


# --- what is refused ----------------------------------------------------------------------------


def test_a_packed_file_that_is_cut_off_or_of_other_images_is_refused_and_replaced(
    own: Path, scratch: Path, tmp_path: Path
) -> None:
    content = (own / PACKED).read_bytes()
    (own / PACKED).write_bytes(content.rstrip(b"\0")[:-1])
    with pytest.raises(InputError, match=r"packed\.tar: has \d+ bytes, not \d+; create it with"):
        copy_images(own, str(scratch), "run", ALL)
    other = Official.make(classes=4, train=6, side=30)
    prepare_dataset(other.definition, own, str(other.tree(tmp_path / "other")))
    with pytest.raises(InputError, match="contains other images than are indexed"):
        copy_images(own, str(scratch), "run", ALL)
    assert list(scratch.iterdir()) == []
    pack(own)
    assert contents(copy_images(own, str(scratch), "run", ALL)) == contents(tmp_path / "other")


def test_a_full_disk_is_refused_before_anything_is_written(
    own: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=9000))
    with pytest.raises(InputError, match=r"GB are free, the images need 0\.0 GB"):
        copy_images(own, str(scratch), "run", ALL)
    assert list(scratch.iterdir()) == []
    (own / PACKED).unlink()
    with pytest.raises(InputError, match=r"the packed images need 0\.0 GB"):
        pack(own)
