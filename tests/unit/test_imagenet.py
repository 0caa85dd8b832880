"""Images in a tree of class folders: indexed where they are, checked, and held against the manifest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from imagenet_files import Official, prepare

from scalewatt.common.errors import InputError
from scalewatt.data.imagenet import SPLITS, ImageFolderIndex
from scalewatt.data.prepared import content_of_prepared, prepare_dataset


@pytest.fixture
def own_tree(tree: Path, tmp_path: Path) -> Path:
    """A tree to harm."""
    return Path(shutil.copytree(tree, tmp_path / "tree"))


def test_labels_follow_the_sorted_class_folders(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    prepare(official, tmp_path, str(tree))
    index = ImageFolderIndex.load(tmp_path, "val")
    assert index.classes == sorted(official.train) and index.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert index.paths == sorted(p.relative_to(tree).as_posix() for p in tree.glob("val/*/*"))
    assert index.sizes.tolist() == [(tree / path).stat().st_size for path in index.paths]


def test_hidden_files_and_folders_of_a_tree_are_no_images_and_no_classes(
    official: Official, tree: Path, own_tree: Path, tmp_path: Path
) -> None:
    for split in SPLITS:
        image = next((own_tree / split).rglob("*.JPEG"))
        image.with_name(f"._{image.name}").write_bytes(b"\0\5\x16\7 of a Mac")
        image.with_name(f".{image.name}.x7Ab2c").write_bytes(b"of rsync")
        (image.parents[1] / ".thumbnails").mkdir()
        (image.parents[1] / ".thumbnails" / "0.JPEG").write_bytes(image.read_bytes())
    marker = prepare(official, tmp_path / "a", str(tree))
    assert prepare(official, tmp_path / "b", str(own_tree)) == marker


# --- what is refused ------------------------------------------------------------------------------


def lacks_a_class(tree: Path, wnid: str) -> str:
    shutil.rmtree(tree / "val" / wnid)
    return rf"tree: {wnid} is missing in val \(such classes: 1\)"


def has_an_empty_image(tree: Path, wnid: str) -> str:
    next((tree / "train" / wnid).glob("*_2.JPEG")).write_bytes(b"")
    return rf"train/{wnid}/{wnid}_2\.JPEG: empty file \(in its class: 1\)"


def lacks_an_image(tree: Path, wnid: str) -> str:
    next((tree / "train" / wnid).glob("*_2.JPEG")).unlink()
    return "tree/train: has 17 images of 3 classes; photos has 18 images of 3 classes"


def lacks_a_split(tree: Path, wnid: str) -> str:
    shutil.rmtree(tree / "train")
    return "tree/ILSVRC2012_img_train.tar: missing; expected .*, or train/<class>/<image>"


HARM = [lacks_a_class, has_an_empty_image, lacks_an_image, lacks_a_split]


@pytest.mark.parametrize("harm", HARM)
def test_a_wrong_tree_is_named_and_changes_nothing_that_is_prepared(
    harm: Callable[[Path, str], str], official: Official, tree: Path, own_tree: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    marker = prepare(official, data, str(tree))
    message = harm(own_tree, sorted(official.train)[1])
    for folder, source in [(tmp_path / "new", str(own_tree)), (data, str(own_tree))]:
        with pytest.raises(InputError, match=message):
            prepare(official, folder, source)
    assert not (tmp_path / "new" / "manifest.json").exists()
    assert content_of_prepared(data) == marker["content_sha256"]
    assert ImageFolderIndex.load(data, "train").folder == tree


# --- prepared, and changed since ------------------------------------------------------------------


def test_a_prepared_tree_is_refused_for_another_definition(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    prepare(official, tmp_path, str(tree))
    with pytest.raises(InputError, match=r"was prepared for .*; name another folder"):
        prepare_dataset(official.definition | {"name": "others"}, tmp_path, str(tree))


def test_data_that_are_gone_are_never_trained_on(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    prepare(official, data, str(tree))
    shutil.rmtree(data)
    with pytest.raises(InputError, match=r"data: .*prepare it again.* -R dataset"):
        content_of_prepared(data)
