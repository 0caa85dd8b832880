"""Images in a tree of class folders: used where they are, checked, found again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from imagenet_files import Official, prepare

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.index import SPLITS, ImageFolderIndex
from scalewatt.datasets.imagenet.official_tars import TARS
from scalewatt.datasets.prepared_check import content_of_prepared, source_warning


def test_a_tree_elsewhere_is_never_written_to(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    before = sorted(tree.rglob("*"))
    prepare(official, tmp_path, {"tree": str(tree)})
    assert sorted(tree.rglob("*")) == before
    assert not (tmp_path / "train").exists()


def test_missing_prepared_data_are_reported_and_never_trained_on(tmp_path: Path) -> None:
    told = source_warning(tmp_path / "data", None)
    assert told is not None
    assert "data: has no prepared dataset any more; prepare it again" in told
    with pytest.raises(InputError, match=r"has no prepared dataset .*-R dataset"):
        content_of_prepared(tmp_path / "data")


def test_a_missing_tree_is_named(official: Official, tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    prepare(official, tmp_path / "data", {"tree": str(tmp_path / "tree")})
    shutil.rmtree(tmp_path / "tree")
    with pytest.raises(InputError, match=r"tree/train: no such folder"):
        prepare(official, tmp_path / "data", {"tree": str(tmp_path / "tree")})


def _remove_class(tree: Path, wnid: str) -> None:
    shutil.rmtree(tree / "val" / wnid)


def _empty_class(tree: Path, wnid: str) -> None:
    for path in (tree / "train" / wnid).iterdir():
        path.unlink()


def _empty_image(tree: Path, wnid: str) -> None:
    next((tree / "train" / wnid).glob("*_2.JPEG")).write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_remove_class, r"tree: 1 classes are in only one of train and val; {} is missing in val"),
        (_empty_class, r"train/{}: no images .* in this class"),
        (_empty_image, r"train/{}: 1 of \d images are empty files, first {}_2\.JPEG"),
    ],
)
def test_what_a_tree_lacks_is_named(
    harm: Callable[[Path, str], None],
    message: str,
    official: Official,
    tree: Path,
    tmp_path: Path,
) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    wnid = sorted(official.train)[1]
    harm(tmp_path / "tree", wnid)
    with pytest.raises(InputError, match=message.replace("{}", wnid)):
        prepare(official, tmp_path / "data", str(tmp_path / "tree"))
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_hidden_files_and_folders_of_a_tree_are_no_images_and_no_classes(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    for split in SPLITS:
        image = next((tmp_path / "tree" / split).rglob("*.JPEG"))
        image.with_name(f"._{image.name}").write_bytes(b"\0\5\x16\7 of a Mac")
        image.with_name(".DS_Store").write_bytes(b"\0")
        image.with_name(f".{image.name}.x7Ab2c").write_bytes(b"of rsync")
        (image.parents[1] / ".thumbnails").mkdir()
        (image.parents[1] / ".thumbnails" / "0.JPEG").write_bytes(image.read_bytes())
    given = prepare(official, tmp_path / "given", str(tree))
    assert prepare(official, tmp_path / "found", str(tmp_path / "tree")) == given
    for split in SPLITS:
        found = ImageFolderIndex.load(tmp_path / "found", split)
        assert found.paths == ImageFolderIndex.load(tmp_path / "given", split).paths


def test_with_the_devkit_beside_it_a_trees_classes_are_checked_one_by_one(
    official: Official, tree: Path, tars: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    shutil.copy(tars / TARS["devkit"], tmp_path / "tree")
    prepare(official, tmp_path / "data", str(tmp_path / "tree"))
    wnid = sorted(official.train)[2]
    next((tmp_path / "tree" / "train" / wnid).iterdir()).unlink()
    wanted = official.num_train_images[wnid]
    message = rf"train: 1 classes: {wnid} has {wanted - 1} of {wanted} images"
    with pytest.raises(InputError, match=message):
        prepare(official, tmp_path / "new", str(tmp_path / "tree"))


def test_a_class_in_one_split_only_is_named(official: Official, tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    wnid = sorted(official.train)[0]
    (tmp_path / "tree" / "val" / wnid).rename(tmp_path / "tree" / "val" / "n00000001")
    with pytest.raises(InputError, match=r"2 classes are in only one .* n00000001 is missing in t"):
        prepare(official, tmp_path / "data", str(tmp_path / "tree"))


def test_a_tree_without_training_images_is_named(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "tree")
    prepare(official, tmp_path / "data", {"tree": str(tmp_path / "tree")})
    shutil.rmtree(tmp_path / "tree" / "train")
    for source in ({"tree": str(tmp_path / "tree")}, str(tmp_path / "tree")):
        with pytest.raises(InputError, match=r"tree/train: no such folder"):
            prepare(official, tmp_path / "data", source)


# --- what a training holds against the folder ---------------------------------------------------


def indices(folder: Path) -> dict[str, bytes]:
    return {split: (folder / f"index-{split}.parquet").read_bytes() for split in SPLITS}


@pytest.mark.parametrize("split", SPLITS)
def test_a_refused_tree_changes_nothing_that_is_prepared(
    split: str, official: Official, tree: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    marker = prepare(official, data, {"tree": str(tree)})
    before = indices(data)
    other = official.tree(tmp_path / "other")
    next((other / split).rglob("*_1.JPEG" if split == "train" else "*.JPEG")).unlink()
    with pytest.raises(InputError, match=rf"other/{split}: has \d+ images"):
        prepare(official, data, {"tree": str(other)})
    assert indices(data) == before
    assert content_of_prepared(data) == marker["content_sha256"]
