"""ImageNet from the official files: everything extracted once, checked, resumed, named if wrong."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from imagenet_files import (
    Official,
    contents,
    extract_in_this_process,
    image_bytes,
    md5s,
    prepare,
    tar_bytes,
)

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet import official_tars as image_tars
from scalewatt.datasets.imagenet import tar_extraction
from scalewatt.datasets.imagenet.devkit import read_devkit
from scalewatt.datasets.imagenet.index import ImageFolderIndex
from scalewatt.datasets.imagenet.official_tars import EXTRACTING, OFFICIAL_MD5, RECORD, TARS, Tars
from scalewatt.datasets.imagenet.sources import find_source
from scalewatt.datasets.prepare import prepare_dataset


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    extract_in_this_process(monkeypatch)


@pytest.fixture(scope="module")
def prepared(official: Official, tars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Extracted by the real pool."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(official, folder, {"tars": str(tars)})
    return folder


# --- what comes out -----------------------------------------------------------------------------


def test_every_image_of_the_tars_is_extracted_as_it_is(prepared: Path, tree: Path) -> None:
    assert contents(prepared) == contents(tree)
    assert not (prepared / EXTRACTING).exists()


def test_validation_images_go_to_their_class_in_the_devkit(
    prepared: Path, official: Official
) -> None:
    for number, (wnid, content) in enumerate(official.validation, 1):
        path = prepared / "val" / wnid / f"ILSVRC2012_val_{number:08d}.JPEG"
        assert path.read_bytes() == content


def test_the_devkits_groups_are_no_classes(tars: Path, official: Official) -> None:
    devkit = read_devkit(tars / TARS["devkit"])
    assert devkit.train_images == official.num_train_images
    assert list(devkit.train_images) == sorted(official.train)
    assert devkit.validation == [wnid for wnid, _ in official.validation]


def test_tars_and_a_tree_give_the_same_marker(
    prepared: Path, official: Official, tree: Path, tmp_path: Path
) -> None:
    marker = json.loads((prepared / "manifest.json").read_text())["marker"]
    for source in (str(tree), {"tree": str(tree)}):
        folder = tmp_path / str(len(str(source)))
        assert prepare(official, folder, source) == marker
        index = ImageFolderIndex.load(folder, "train")
        assert index.folder == tree
        assert index.paths == ImageFolderIndex.load(prepared, "train").paths


def test_the_digests_are_recorded_with_the_origin_of_the_expected_ones(
    official: Official, tars: Path, tmp_path: Path, in_process: None
) -> None:
    sums = md5s(tars)
    prepare(official, tmp_path, {"tars": str(tars), "md5": {"train": sums["train"].upper()}})
    record = json.loads((tmp_path / RECORD).read_text())
    assert {kind: entry["md5"] for kind, entry in record.items()} == sums
    checked = [record[kind]["md5_checked"] for kind in ("train", "validation", "devkit")]
    assert checked == ["given", "unchecked", "unchecked"]


def test_the_whole_imagenet_is_compared_with_the_official_digests() -> None:
    whole = {"train_samples": 1_281_167, "validation_samples": 50_000, "classes": 1000}
    given = Tars(Path("x"), {"devkit": "AB"})
    assert given.expected_md5("train", whole) == (OFFICIAL_MD5["train"], "official")
    assert given.expected_md5("devkit", whole) == ("ab", "given")
    assert given.expected_md5("train", whole | {"classes": 999}) == (None, "unchecked")


@pytest.mark.parametrize("given", [True, False])
def test_tars_are_found_in_the_data_root_itself_or_by_a_path(
    given: bool, official: Official, tars: Path, tree: Path, tmp_path: Path, in_process: None
) -> None:
    folder = tmp_path / "data"
    if not given:
        shutil.copytree(tars, folder)
    prepare(official, folder, str(tars) if given else None)
    assert contents(folder) == contents(tree)


def test_other_tar_formats_are_read_too(
    official: Official, tars: Path, tree: Path, tmp_path: Path, in_process: None
) -> None:
    shutil.copytree(tars, tmp_path / "tars")
    inner = {
        f"./{'deep/' * 30}{wnid}.tar": tar_bytes(
            {f"{wnid}/{'x' * 120}/{name}": image for name, image in images.items()},
            tarfile.PAX_FORMAT,
        )
        for wnid, images in official.train.items()
    }
    (tmp_path / "tars" / TARS["train"]).write_bytes(tar_bytes(inner))
    prepare(official, tmp_path / "out", {"tars": str(tmp_path / "tars")})
    assert contents(tmp_path / "out") == contents(tree)


# --- what is refused ----------------------------------------------------------------------------


@pytest.fixture
def own(official: Official) -> Official:
    return official.copy()


def refused(own: Official, folder: Path, message: str, definition: Any = None) -> None:
    own.write(folder / "tars")
    with pytest.raises(InputError, match=message) as caught:
        prepare_dataset(
            definition or own.definition, folder / "data", {"tars": str(folder / "tars")}
        )
    assert "\n" not in str(caught.value)
    assert not (folder / "data" / "manifest.json").exists()
    assert not (folder / "data" / "train").exists() and not (folder / "data" / "val").exists()


def test_a_class_with_missing_images_is_named(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    wnid = sorted(own.train)[1]
    own.train[wnid].popitem()
    count = own.num_train_images[wnid]
    message = rf"img_train\.tar: {wnid}\.tar: has {count - 1} images .*the devkit says {count}"
    refused(own, tmp_path, message)


def test_two_bad_classes_are_both_named(own: Official, tmp_path: Path, in_process: None) -> None:
    first, second, _ = sorted(own.train)
    own.train[first].popitem()
    own.train[second]["more.JPEG"] = image_bytes(7)
    refused(own, tmp_path, rf"{first}\.tar: has .*; .*{second}\.tar: has ")


def test_a_missing_and_an_unknown_class_are_named(own: Official, tmp_path: Path) -> None:
    wnid = sorted(own.train)[1]
    images = own.train.pop(wnid)
    definition = own.definition | {"classes": 3}
    kept = own.train | {wnid: images}

    def write(train: dict[str, dict[str, bytes]], message: str) -> None:
        whole = Official(kept, own.validation, own.num_train_images)
        folder = tmp_path / str(len(train))
        whole.write(folder / "tars")
        inner = {f"{name}.tar": tar_bytes(each) for name, each in train.items()}
        (folder / "tars" / TARS["train"]).write_bytes(tar_bytes(inner))
        with pytest.raises(InputError, match=message):
            prepare_dataset(definition, folder / "data", {"tars": str(folder / "tars")})

    write(own.train, rf"class tars missing: 1 of 3: {wnid}")
    write(kept | {"n99999999": images}, "class tars not in the devkit: 1 of 3: n99999999")


def test_a_member_that_is_no_image_is_named(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    wnid = sorted(own.train)[2]
    own.train[wnid][f"{wnid}_2.JPEG"] = b"<html>404</html>"
    refused(own, tmp_path, rf"{wnid}\.tar: {wnid}_2\.JPEG is no JPEG or PNG image")


def test_a_missing_validation_image_is_named(own: Official, tmp_path: Path) -> None:
    own.write(tmp_path / "tars")
    named = {f"ILSVRC2012_val_{i:08d}.JPEG": b"" for i in (1, 2, 3, 5, 6)}
    (tmp_path / "tars" / TARS["validation"]).write_bytes(tar_bytes(named))
    with pytest.raises(InputError, match=r"img_val\.tar: images missing: 1 of 6: .*00000004\.JPEG"):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))


def test_an_image_twice_is_named(own: Official, tmp_path: Path, in_process: None) -> None:
    wnid = sorted(own.train)[0]
    own.train[wnid][f"again/{wnid}_2.JPEG"] = image_bytes(3)
    refused(own, tmp_path, rf"{wnid}\.tar: has a duplicate {wnid}_2\.JPEG")


@pytest.mark.parametrize("part", [0.97, 0.5, 0.001])
@pytest.mark.parametrize("kind", list(TARS))
def test_a_truncated_file_is_named(
    kind: str, part: float, own: Official, tmp_path: Path, in_process: None
) -> None:
    path = own.write(tmp_path / "tars") / TARS[kind]
    content = path.read_bytes().rstrip(b"\0")
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(InputError, match=TARS[kind].replace(".", r"\.")):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_a_damaged_header_is_named_with_its_place(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    path = own.write(tmp_path / "tars") / TARS["train"]
    content = bytearray(path.read_bytes())
    wnid = sorted(own.train)[1]
    place = content.index(f"{wnid}_2.JPEG".encode())
    content[place + 3] ^= 0xFF
    path.write_bytes(content)
    message = rf"{wnid}\.tar: no tar header at byte \d+, after {wnid}_1\.JPEG .*damaged"
    with pytest.raises(InputError, match=message):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))


def test_a_class_tar_that_is_cut_inside_a_whole_one_is_named(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    path = own.write(tmp_path / "tars") / TARS["train"]
    wnid = sorted(own.train)[0]
    whole = {f"{name}.tar": tar_bytes(images) for name, images in own.train.items()}
    whole[f"{wnid}.tar"] = whole[f"{wnid}.tar"][: 512 * 9 + 100]
    path.write_bytes(tar_bytes(whole))
    with pytest.raises(InputError, match=rf"{wnid}\.tar: ends within {wnid}_\d\.JPEG, \d+ bytes"):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))


def test_a_disk_that_fills_up_is_named_and_what_is_finished_is_kept(
    own: Official, tmp_path: Path, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write(tmp_path / "tars")
    last = sorted(own.train)[2]
    real = tar_extraction.write_file

    def full(name: Any, *rest: Any) -> None:
        if str(name).startswith(last):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(name, *rest)

    monkeypatch.setattr(tar_extraction, "write_file", full)
    with pytest.raises(InputError, match="the extraction stopped: No space left on device"):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))
    kept = sorted(path.name for path in (tmp_path / "data" / EXTRACTING / "train").iterdir())
    assert kept == sorted(own.train)[:2]
    assert not list((tmp_path / "data" / EXTRACTING).glob(".partial*"))


@pytest.mark.parametrize("key", ["classes", "train_samples", "validation_samples"])
def test_a_devkit_of_another_dataset_is_refused_before_anything_is_extracted(
    key: str, own: Official, tmp_path: Path
) -> None:
    definition = own.definition | {key: 77}
    refused(
        own, tmp_path, rf"devkit_t12\.tar\.gz: says {key} \d+, dataset photos has 77", definition
    )
    assert not (tmp_path / "data" / EXTRACTING).exists()


def test_a_ground_truth_that_is_no_class_is_named(own: Official, tmp_path: Path) -> None:
    own.write(tmp_path / "tars")
    path = tmp_path / "tars" / TARS["devkit"]
    with tarfile.open(path) as tar:
        meta = tar.extractfile("ILSVRC2012_devkit_t12/data/meta.mat").read()  # type: ignore[union-attr]
    for truth, message in ((b"1\n4\n", "line 2 is '4'"), (None, "has no data/ILSVRC2012_val")):
        members = {"ILSVRC2012_devkit_t12/data/meta.mat": meta}
        if truth:
            name = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
            members[name] = truth
        path.write_bytes(gzip.compress(tar_bytes(members)))
        with pytest.raises(InputError, match=message):
            read_devkit(path)
    members = {"data/meta.mat": b"no", "data/ILSVRC2012_validation_ground_truth.txt": b""}
    path.write_bytes(gzip.compress(tar_bytes(members)))
    with pytest.raises(InputError, match=r"meta\.mat: cannot be read"):
        read_devkit(path)


def test_files_that_are_not_there_are_named(own: Official, tmp_path: Path) -> None:
    own.write(tmp_path / "tars")
    (tmp_path / "tars" / TARS["validation"]).unlink()
    with pytest.raises(InputError, match=r"img_val\.tar: missing; expected ILSVRC2012_img_train"):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))
    with pytest.raises(InputError, match="has neither ILSVRC2012_img_train"):
        prepare(own, tmp_path / "data", str(tmp_path))


@pytest.mark.parametrize("source", [{"zarr": "x"}, {"files": ["x"]}])
def test_a_source_of_era5_is_refused(source: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected \{tars: FOLDER\} or \{tree: FOLDER\}"):
        find_source(tmp_path, source)


def test_a_folder_with_tars_and_one_split_alone_is_no_tree(
    official: Official, tars: Path, tmp_path: Path
) -> None:
    shutil.copytree(tars, tmp_path / "both")
    (tmp_path / "both" / "val").mkdir()
    assert find_source(tmp_path, str(tmp_path / "both")) == Tars(tmp_path / "both", {})
    (tmp_path / "both" / "train").mkdir()
    assert find_source(tmp_path, str(tmp_path / "both")) == tmp_path / "both"


def test_other_images_are_not_regarded_as_extracted(
    official: Official, tars: Path, tmp_path: Path
) -> None:
    (tmp_path / "train" / "n01").mkdir(parents=True)
    with pytest.raises(InputError, match="train: exists and was not extracted"):
        prepare(official, tmp_path, {"tars": str(tars)})


def test_a_disk_that_is_too_small_is_refused_before_extraction(
    official: Official, tars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)

    class Full:
        f_frsize, f_bavail, f_files, f_favail = real.f_frsize, 3, 1000, 1000

    monkeypatch.setattr(image_tars.os, "statvfs", lambda path: Full)
    with pytest.raises(InputError, match=r"0\.0 GB are free, the images need 0\.\d GB"):
        prepare(official, tmp_path, {"tars": str(tars)})
    Full.f_bavail, Full.f_favail = 10**9, 20
    with pytest.raises(InputError, match="20 more files are possible, 24 are needed"):
        prepare(official, tmp_path, {"tars": str(tars)})
