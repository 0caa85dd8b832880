"""ImageNet from the official files: everything extracted once, checked, resumed, named if wrong."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
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
from scalewatt.datasets.imagenet import official_tars
from scalewatt.datasets.imagenet.devkit import read_devkit
from scalewatt.datasets.imagenet.index import ImageFolderIndex
from scalewatt.datasets.imagenet.official_tars import EXTRACTING, OFFICIAL_MD5, RECORD, TARS, Tars
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


@pytest.fixture
def data(prepared: Path, tmp_path: Path) -> Path:
    """Extracted images, to harm."""
    return Path(shutil.copytree(prepared, tmp_path / "data"))


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


def without_an_image(own: Official, wnid: str) -> str:
    own.train[wnid].popitem()
    count = own.num_train_images[wnid]
    return rf"img_train\.tar: {wnid}\.tar: has {count - 1} images, the devkit says {count}"


def with_a_page(own: Official, wnid: str) -> str:
    own.train[wnid][f"{wnid}_2.JPEG"] = b"<html>404</html>"
    return rf"{wnid}\.tar: {wnid}_2\.JPEG is no JPEG or PNG image"


def with_an_image_twice(own: Official, wnid: str) -> str:
    own.train[wnid][f"again/{wnid}_2.JPEG"] = image_bytes(3)
    return rf"{wnid}\.tar: has a duplicate {wnid}_2\.JPEG"


@pytest.mark.parametrize("harm", [without_an_image, with_a_page, with_an_image_twice])
def test_a_wrong_class_is_named(
    harm: Callable[[Official, str], str], own: Official, tmp_path: Path, in_process: None
) -> None:
    refused(own, tmp_path, harm(own, sorted(own.train)[1]))


@pytest.mark.parametrize("kind", ["missing", "unknown"])
def test_other_classes_than_the_devkits_are_named(kind: str, own: Official, tmp_path: Path) -> None:
    own.write(tmp_path / "tars")
    inner = {f"{name}.tar": tar_bytes(images) for name, images in own.train.items()}
    odd = sorted(own.train)[1] if kind == "missing" else "n99999999"
    if kind == "missing":
        del inner[f"{odd}.tar"]
    else:
        inner[f"{odd}.tar"] = b""
    (tmp_path / "tars" / TARS["train"]).write_bytes(tar_bytes(inner))
    with pytest.raises(InputError, match=f"class tars are not those of the devkit.*: {odd}"):
        prepare(own, tmp_path / "data", {"tars": str(tmp_path / "tars")})


def test_a_missing_validation_image_is_named(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    own.write(tmp_path / "tars")
    named = {f"ILSVRC2012_val_{i:08d}.JPEG": image_bytes(i) for i in (1, 2, 3, 5, 6)}
    (tmp_path / "tars" / TARS["validation"]).write_bytes(tar_bytes(named))
    with pytest.raises(InputError, match=r"img_val\.tar: images missing: 1 of 6: .*00000004\.JPEG"):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))


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


def test_a_damaged_header_within_a_class_is_named(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    path = own.write(tmp_path / "tars") / TARS["train"]
    content = bytearray(path.read_bytes())
    wnid = sorted(own.train)[1]
    content[content.index(f"{wnid}_2.JPEG".encode()) + 3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"{wnid}\.tar: (has 2 images|cannot be read)"):
        prepare(own, tmp_path / "data", str(tmp_path / "tars"))


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
        f_frsize, f_bavail, f_blocks, f_bfree = real.f_frsize, 3, 9, 9
        f_files, f_favail = 1000, 1000

    monkeypatch.setattr(official_tars.os, "statvfs", lambda path: Full)
    with pytest.raises(InputError, match=r"0\.0 GB are free, the images need 0\.\d GB"):
        prepare(official, tmp_path, {"tars": str(tars)})
    Full.f_bavail, Full.f_favail = 10**9, 20
    with pytest.raises(InputError, match="20 more files are possible, 24 are needed"):
        prepare(official, tmp_path, {"tars": str(tars)})


# --- finished, and changed since -------------------------------------------------------------------


def test_a_finished_folder_needs_no_tars_any_more(
    official: Official, data: Path, tmp_path: Path
) -> None:
    expected = json.loads((data / "manifest.json").read_text())["marker"]
    (tmp_path / "emptied").mkdir()
    nowhere, emptied = str(tmp_path / "nowhere"), str(tmp_path / "emptied")
    for source in ({"tars": nowhere}, {"tars": emptied}, nowhere, emptied, None):
        assert prepare(official, data, source) == expected


def test_an_md5_given_later_is_compared_with_what_was_extracted(
    official: Official, tars: Path, data: Path
) -> None:
    right = md5s(tars)
    message = rf"of MD5 {right['train']}, expected 0{{32}}"
    with pytest.raises(InputError, match=message):
        prepare(official, data, {"tars": str(tars), "md5": right | {"train": "0" * 32}})
    prepare(official, data, {"tars": str(tars), "md5": {k: v.upper() for k, v in right.items()}})


@pytest.mark.parametrize("lost", [("train",), ("val",), ("train", "val")])
def test_a_class_that_was_removed_is_extracted_again(
    lost: tuple[str, ...], official: Official, tars: Path, data: Path, tree: Path, in_process: None
) -> None:
    for split in lost:
        shutil.rmtree(data / split / sorted(official.train)[1])
    prepare(official, data, {"tars": str(tars)})
    assert contents(data) == contents(tree)
    assert not (data / EXTRACTING).exists()


def test_images_of_an_old_tar_are_never_recorded_as_a_new_ones(
    own: Official, data: Path, tmp_path: Path, in_process: None
) -> None:
    wnid = sorted(own.train)[0]
    own.train[wnid][f"{wnid}_2.JPEG"] = image_bytes(4242)
    source = own.write(tmp_path / "other")
    record = (data / RECORD).read_bytes()
    shutil.rmtree(data / "val")
    with pytest.raises(InputError, match=r"tars\.json: train and val were extracted from other"):
        prepare(own, data, {"tars": str(source)})
    assert (data / RECORD).read_bytes() == record and not (data / EXTRACTING).exists()
    shutil.rmtree(data / "train")
    (data / RECORD).unlink()
    prepare(own, data, {"tars": str(source)})
    assert contents(data) == contents(own.tree(tmp_path / "tree"))
    assert json.loads((data / RECORD).read_text())["train"]["md5"] == md5s(source)["train"]


# --- digests and ends -----------------------------------------------------------------------------


def test_a_wrong_digest_is_named_and_its_correction_extracts_nothing_again(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    own.write(tmp_path / "tars")
    source = {"tars": str(tmp_path / "tars"), "md5": {"validation": "0" * 32}}
    data = tmp_path / "data"
    message = rf"img_val\.tar: MD5 is {md5s(tmp_path / 'tars')['validation']}, expected 0{{32}}"
    with pytest.raises(InputError, match=message):
        prepare(own, data, source)
    assert not (data / "val").exists() and not (data / "manifest.json").exists()
    extracted = {path.name: path.stat().st_ino for path in (data / EXTRACTING / "train").iterdir()}
    prepare(own, data, {"tars": source["tars"]})
    assert {path.name: path.stat().st_ino for path in (data / "train").iterdir()} == extracted


def test_what_came_from_a_file_that_was_replaced_is_extracted_again(
    own: Official, tmp_path: Path, in_process: None
) -> None:
    wnid = sorted(own.train)[0]
    name = f"{wnid}_3.JPEG"
    right = own.train[wnid][name]
    tars, data = tmp_path / "tars", tmp_path / "data"
    sums = md5s(own.write(tars))
    own.train[wnid][name] = right[:-1] + b"?"  # no header or count tells
    own.write(tars)
    source = {"tars": str(tars), "md5": {"train": sums["train"]}}
    with pytest.raises(InputError, match=r"img_train\.tar: MD5 is"):
        prepare(own, data, source)
    own.train[wnid][name] = right
    time.sleep(0.01)
    own.write(tars)
    prepare(own, data, source)
    assert (data / "train" / wnid / name).read_bytes() == right


def test_a_killed_extraction_goes_on_and_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    official = Official.make(classes=24, train=60, validation=3, side=64)
    tars, data = official.write(tmp_path / "tars"), tmp_path / "data"
    command = [
        *(sys.executable, "-m", "scalewatt.cli", "prepare", "--folder", str(data)),
        *("--definition", json.dumps(official.definition), "--out", str(tmp_path / "marker.json")),
        *("--source", json.dumps({"tars": str(tars)})),
    ]
    process = subprocess.Popen(command)
    while not (extracted := list((data / EXTRACTING / "train").glob("n*"))):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (data / "train").exists() and not (data / "manifest.json").exists()
    inodes = {path.name: path.stat().st_ino for path in extracted}
    subprocess.run(command, check=True)
    assert contents(data) == contents(official.tree(tmp_path / "tree"))
    assert inodes.items() <= {p.name: p.stat().st_ino for p in (data / "train").iterdir()}.items()
    assert not (data / EXTRACTING).exists()


@pytest.mark.parametrize("after", ["train", "val", RECORD])
def test_a_kill_between_the_last_renames_is_made_good(
    after: str, official: Official, tars: Path, tree: Path, tmp_path: Path, in_process: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    class Killed(BaseException): ...

    def killed(rename: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def renamed(old: Any, new: Any) -> None:
            rename(old, new)
            if tmp_path / after in (Path(new), Path(new).parent):
                raise Killed

        return renamed

    with monkeypatch.context() as patched:
        patched.setattr(official_tars.os, "rename", killed(os.rename))
        patched.setattr(official_tars.os, "replace", killed(os.replace))
        with pytest.raises(Killed):
            prepare(official, tmp_path, {"tars": str(tars)})
    prepare(official, tmp_path, {"tars": str(tars)})
    assert contents(tmp_path) == contents(tree)
    assert (tmp_path / RECORD).exists() and not (tmp_path / EXTRACTING).exists()
