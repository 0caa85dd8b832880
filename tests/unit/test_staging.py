"""The packed file and a node's copy of it: the same images, checked, and removed again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from imagenet_files import Official, contents

from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.datasets import node_staging as staging
from scalewatt.datasets import packed_tar as packed_module
from scalewatt.datasets.imagenet.imagenet_dataset import ImageNetDataset
from scalewatt.datasets.imagenet.index import SPLITS, ImageFolderIndex
from scalewatt.datasets.node_staging import PREFIX, remove_staged, stage_images
from scalewatt.datasets.packed_tar import PACKED, PLACES, pack
from scalewatt.datasets.prepare import prepare_dataset

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
    prepare_dataset(official.definition, folder, {"tree": str(tree)})
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
    assert names == [p for s in SPLITS for p in ImageFolderIndex.load(data, s).paths]


def test_an_image_that_changed_since_it_was_indexed_is_named(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    prepare_dataset(official.definition, tmp_path / "data", {"tree": str(tmp_path / "tree")})
    path = tmp_path / "tree" / ImageFolderIndex.load(tmp_path / "data", "val").paths[3]
    path.write_bytes(b"short")
    with pytest.raises(InputError, match=rf"{path.name}: has 5 bytes, \d+ when it was indexed"):
        pack(tmp_path / "data")
    path.unlink()
    with pytest.raises(InputError, match=rf"{path.name}: cannot be read"):
        pack(tmp_path / "data")
    assert not [p for p in (tmp_path / "data").iterdir() if "tar" in p.suffixes or ".tmp" in p.name]


def test_prepare_packs_if_asked(
    official: Official, tree: Path, tmp_path: Path, capsys: Any
) -> None:
    def prepare(definition: dict[str, Any]) -> int:
        return main(
            [
                *("prepare", "--definition", json.dumps(definition), "--pack"),
                *("--folder", str(tmp_path / "d"), "--source", json.dumps({"tree": str(tree)})),
                *("--out", str(tmp_path / "out.json")),
            ]
        )

    assert prepare(WAVES) == 1
    assert "--pack: is for images" in capsys.readouterr().err
    assert prepare(official.definition) == 0
    assert (tmp_path / "d" / PACKED).exists()


# --- staging ------------------------------------------------------------------------------------


def test_all_that_is_staged_is_what_was_indexed(data: Path, tree: Path, scratch: Path) -> None:
    folder = stage_images(data, str(scratch), ALL)
    assert contents(folder) == contents(tree)
    for split in SPLITS:
        one, other = (ImageFolderIndex.load(place, split) for place in (folder, data))
        assert (one.paths, one.classes, one.folder) == (other.paths, other.classes, folder)
        np.testing.assert_array_equal(one.labels, other.labels)
    remove_staged(folder)
    assert list(scratch.iterdir()) == []


def test_positions_of_a_subset_mean_the_same_images_on_the_node(data: Path, scratch: Path) -> None:
    positions = np.array([1, 2, 9, 17])
    folder = stage_images(data, str(scratch), {"train": positions, "val": np.array([0])})
    index = ImageFolderIndex.load(data, "train")
    assert sorted(contents(folder)) == sorted(
        [*(index.paths[p] for p in positions), ImageFolderIndex.load(data, "val").paths[0]]
    )
    here, there = (
        ImageNetDataset(place, "train", positions, 32, True, seed=1) for place in (folder, data)
    )
    for key in ((0, 0), (1, 3)):
        assert torch.equal(here[key][0], there[key][0]) and here[key][1] == there[key][1]
    remove_staged(folder)


def test_variables_are_expanded_on_the_node(
    data: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_DISK", str(scratch))
    folder = stage_images(data, "${NODE_DISK}", {"val": None})
    assert folder.parent == scratch and folder.name.startswith(PREFIX)
    remove_staged(folder)
    monkeypatch.delenv("NODE_DISK")
    with pytest.raises(InputError, match=r"scratch: \$NODE_DISK has no value on "):
        stage_images(data, "$NODE_DISK", ALL)


# --- what is refused ----------------------------------------------------------------------------


def test_a_damaged_image_in_the_packed_file_is_named_and_nothing_stays(
    own: Path, tree: Path, scratch: Path
) -> None:
    name = ImageFolderIndex.load(own, "val").paths[2]
    content = bytearray((own / PACKED).read_bytes())
    content[content.index((tree / name).read_bytes()) + 50] ^= 1
    (own / PACKED).write_bytes(content)
    with pytest.raises(InputError, match=rf"packed\.tar: {name} in it is damaged"):
        stage_images(own, str(scratch), ALL)
    assert list(scratch.iterdir()) == []


def test_a_packed_file_of_other_images_is_refused_and_replaced(
    own: Path, official: Official, scratch: Path, tmp_path: Path
) -> None:
    other = Official.make(classes=4, train=6, side=30)
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    prepare_dataset(other.definition, own, {"tree": str(other.tree(tmp_path / "other"))})
    with pytest.raises(InputError, match="contains other images than are indexed"):
        stage_images(own, str(scratch), ALL)
    pack(own)
    folder = stage_images(own, str(scratch), ALL)
    assert contents(folder) == contents(tmp_path / "other")
    remove_staged(folder)


def test_a_full_disk_is_refused_before_anything_is_written(
    own: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        f_frsize, f_bavail, f_blocks, f_bfree = 4096, 3, 9, 9

    monkeypatch.setattr(staging.os, "statvfs", lambda path: Full)
    with pytest.raises(InputError, match=r"GB are free, the images need 0\.0 GB"):
        stage_images(own, str(scratch), ALL)
    assert list(scratch.iterdir()) == []
    (own / PLACES).unlink()
    monkeypatch.setattr(packed_module.os, "statvfs", lambda path: Full)
    with pytest.raises(InputError, match=r"the packed images need 0\.0 GB"):
        pack(own)


def test_what_staging_did_not_make_is_never_removed(tmp_path: Path, scratch: Path) -> None:
    for name in ("images", f"{PREFIX}mine"):
        (scratch / name).mkdir()
        (scratch / name / "x").touch()
        with pytest.raises(InputError, match="was not created by staging"):
            remove_staged(scratch / name)
        assert (scratch / name / "x").exists()
    remove_staged(scratch / "gone")


HOLD = """
import sys, time
from scalewatt.datasets.node_staging import stage_images
print(stage_images(sys.argv[1], sys.argv[2], {"train": None}), flush=True)
time.sleep(100)
"""


def test_a_killed_process_leaves_nothing_to_the_next_and_a_living_one_keeps_its_own(
    data: Path, scratch: Path
) -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, str(data), str(scratch)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        killed, kept = (Path(holder.stdout.readline().strip()) for holder in holders)  # type: ignore[union-attr]
        holders[0].send_signal(signal.SIGKILL)
        holders[0].wait()
        assert killed.exists()
        here = os.uname().nodename
        others = []  # on a shared disk, whose locks we may not see
        for name in ("othernode-x", f"{here}-2-abcd", f"2-{here}-abcd"):
            others.append(scratch / f"{PREFIX}{name}")
            others[-1].mkdir()
            (others[-1] / ".owner").touch()
        mine = stage_images(data, str(scratch), {"val": None})
        assert sorted(scratch.iterdir()) == sorted([kept, mine, *others])
        assert len(list(kept.rglob("*.JPEG"))) == len(ImageFolderIndex.load(data, "train").paths)
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
    remove_staged(mine)


def test_a_killed_packing_leaves_no_packed_file(
    own: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / PACKED).unlink()
    code = (
        "import os, sys, signal\n"
        "from scalewatt.datasets import packed_tar as packed\n"
        "packed._header = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "packed.pack(sys.argv[1])"
    )
    assert subprocess.run([sys.executable, "-c", code, str(own)]).returncode == -signal.SIGKILL
    assert not (own / PACKED).exists()
    (left,) = own.glob(".packed.*.tmp.tar")
    real = os.statvfs

    def checked(path: Path) -> os.statvfs_result:
        assert not left.exists(), "it may be what fills the disk"
        return real(path)

    monkeypatch.setattr(packed_module.os, "statvfs", checked)
    pack(own)
    assert not list(own.glob(".*.tmp.*"))
    with tarfile.open(own / PACKED) as tar:
        assert len(tar.getnames()) == len(contents(tree))
