"""Images in a tree of class folders: used where they are, checked, found again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from imagenet_files import Official, prepare

from scalewatt.cli import main
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


def test_a_tree_that_moved_is_found_again_by_its_new_source(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "before")
    marker = prepare(official, tmp_path / "data", str(tmp_path / "before"))
    (tmp_path / "before").rename(tmp_path / "after")
    assert prepare(official, tmp_path / "data", str(tmp_path / "after")) == marker
    assert ImageFolderIndex.load(tmp_path / "data", "val").folder == tmp_path / "after"


def test_prepared_data_from_another_source_are_reported(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "other")
    source, data = {"tree": str(tree)}, tmp_path / "data"
    prepare(official, data, source)
    assert source_warning(data, source) is None
    assert source_warning(data, None) is None
    other = {"tree": str(tmp_path / "other")}
    told = source_warning(data, other)
    assert told is not None
    assert f"was prepared from {source}, the cluster file names {other}" in told
    assert "prepare_imagenet prepare_era5 -R dataset" in told
    prepare(official, data, other)
    assert source_warning(data, other) is None
    assert ImageFolderIndex.load(data, "val").folder == tmp_path / "other"


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


def test_a_name_that_is_no_utf8_is_named(official: Official, tree: Path, tmp_path: Path) -> None:
    image = sorted((tree / "train").rglob("*.JPEG"))[0].relative_to(tree)
    for number, old in enumerate((image, image.parent)):
        place = shutil.copytree(tree, tmp_path / str(number))
        os.rename(place / old, os.fsencode(place / old.parent) + b"/\xe4.JPEG")
        with pytest.raises(InputError, match=r"the name '\\udce4\.JPEG' in it is no UTF-8"):
            prepare(official, tmp_path / "data", str(place))


def test_a_tree_may_lie_in_a_folder_of_any_name(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xe4"))
    shutil.copytree(tree, place)
    prepare(official, tmp_path / "data", str(place))
    assert ImageFolderIndex.load(tmp_path / "data", "val").folder == place


def test_a_data_root_that_cannot_be_created_is_named(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/data: cannot be created \(Not a directory\)"):
        prepare(official, tmp_path / "file" / "data", str(tree))


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


def test_what_was_interrupted_between_two_indices_is_not_prepared(
    official: Official, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    marker = prepare(official, data, {"tree": str(tree)})
    other = {"tree": str(shutil.copytree(tree, tmp_path / "other"))}
    save = ImageFolderIndex.save

    def killed(index: ImageFolderIndex, folder: Path, split: str) -> None:
        if split == "val":
            raise KeyboardInterrupt
        save(index, folder, split)

    with monkeypatch.context() as patched:
        patched.setattr(ImageFolderIndex, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare(official, data, other)
    with pytest.raises(InputError, match="preparation of the dataset is unfinished"):
        content_of_prepared(data)
    assert prepare(official, data, other) == marker


def test_an_index_that_is_not_the_prepared_one_is_named_and_renewed(
    official: Official, tree: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    source = {"tree": str(tree)}
    marker = prepare(official, data, source)
    index = data / "index-train.parquet"
    content = bytearray(index.read_bytes())
    content[len(content) // 2] ^= 1  # as long as before
    index.write_bytes(content)
    with pytest.raises(InputError, match=r"index-train\.parquet: is not the index that"):
        content_of_prepared(data)
    assert prepare(official, data, source) == marker
    assert content_of_prepared(data) == marker["content_sha256"]


def test_a_prepared_folder_needs_no_definition(
    official: Official, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert main(["prepare", "--folder", str(data)]) == 1
    assert "data: is not prepared yet; expected --definition" in capsys.readouterr().err
    marker = prepare(official, data, {"tree": str(tree)})
    assert main(["prepare", "--folder", str(data), "--out", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text()) == marker
