"""ImageNet from the official files: everything extracted once, checked, resumed, named if wrong."""

from __future__ import annotations

import errno
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
from imagenet_files import Official, contents, image_bytes, md5s, tar_bytes

from scalewatt.datasets import image_extraction, image_pool, image_source, image_tars
from scalewatt.datasets.devkit import read_devkit
from scalewatt.datasets.image_index import ImageFolderIndex
from scalewatt.datasets.image_tars import EXTRACTING, OFFICIAL_MD5, RECORD, TARS, Tars
from scalewatt.datasets.prepare import prepare_dataset
from scalewatt.errors import InputError


@pytest.fixture(scope="module")
def official() -> Official:
    return Official.make()


@pytest.fixture(scope="module")
def tars(official: Official, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return official.write(tmp_path_factory.mktemp("tars"))


@pytest.fixture(scope="module")
def tree(official: Official, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return official.tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do the pool's work in this process: the same code, without starting others."""

    class Here:
        def __init__(self, **_: Any) -> None: ...

        def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
            from concurrent.futures import Future

            future: Future[Any] = Future()
            try:
                future.set_result(work(*arguments))
            except Exception as error:
                future.set_exception(error)
            return future

        def shutdown(self, **_: Any) -> None: ...

    monkeypatch.setattr(image_pool, "ProcessPoolExecutor", Here)


def prepare(official: Official, folder: Path, source: Any = None) -> dict[str, Any]:
    return prepare_dataset(official.definition, folder, source)


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


def test_validation_images_go_to_the_class_that_the_devkit_says(
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


def test_the_digests_are_recorded_with_whose_word_they_were_held_against(
    official: Official, tars: Path, tmp_path: Path, in_process: None
) -> None:
    sums = md5s(tars)
    prepare(official, tmp_path, {"tars": str(tars), "md5": {"train": sums["train"].upper()}})
    record = json.loads((tmp_path / RECORD).read_text())
    assert {kind: entry["md5"] for kind, entry in record.items()} == sums
    checked = [record[kind]["md5_checked"] for kind in ("train", "validation", "devkit")]
    assert checked == ["given", "unchecked", "unchecked"]


def test_the_whole_imagenet_is_held_against_the_official_digests() -> None:
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


def test_a_finished_folder_needs_no_tars_any_more(
    official: Official, prepared: Path, tmp_path: Path
) -> None:
    shutil.copytree(prepared, tmp_path / "data")
    gone = {"tars": str(tmp_path / "nowhere")}
    marker = prepare(official, tmp_path / "data", gone)
    assert marker == json.loads((prepared / "manifest.json").read_text())["marker"]


# --- a tree in place ----------------------------------------------------------------------------


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


def test_a_tree_that_is_gone_is_named(official: Official, tree: Path, tmp_path: Path) -> None:
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
        (_remove_class, r"val: has 4 images, dataset photos has 6"),
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


# --- what is refused ----------------------------------------------------------------------------


@pytest.fixture
def own(official: Official, tmp_path: Path) -> Official:
    """A copy to harm."""
    return Official(
        {wnid: dict(images) for wnid, images in official.train.items()},
        list(official.validation),
        dict(official.num_train_images),
    )


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
    message = rf"img_train\.tar: {wnid}\.tar: holds {count - 1} images .*the devkit says {count}"
    refused(own, tmp_path, message)


def test_two_bad_classes_are_both_named(own: Official, tmp_path: Path, in_process: None) -> None:
    first, second, _ = sorted(own.train)
    own.train[first].popitem()
    own.train[second]["more.JPEG"] = image_bytes(7)
    refused(own, tmp_path, rf"{first}\.tar: holds .*; .*{second}\.tar: holds ")


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
    refused(own, tmp_path, rf"{wnid}\.tar: holds {wnid}_2\.JPEG twice")


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
    real = image_extraction.write_file

    def full(name: Any, *rest: Any) -> None:
        if str(name).startswith(last):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(name, *rest)

    monkeypatch.setattr(image_extraction, "write_file", full)
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
    for truth, message in ((b"1\n4\n", "line 2 is '4'"), (None, "holds no data/ILSVRC2012_val")):
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
    with pytest.raises(InputError, match="holds neither ILSVRC2012_img_train"):
        prepare(own, tmp_path / "data", str(tmp_path))


@pytest.mark.parametrize("source", [{"zarr": "x"}, {"files": ["x"]}])
def test_a_source_of_era5_is_refused(source: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected \{tars: FOLDER\} or \{tree: FOLDER\}"):
        image_source.find_source(tmp_path, source)


def test_images_of_others_are_not_taken_for_extracted(
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


# --- digests ------------------------------------------------------------------------------------


def test_a_wrong_digest_is_named_and_nothing_counts_as_prepared(
    own: Official, tmp_path: Path, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.write(tmp_path / "tars")
    source = {"tars": str(tmp_path / "tars"), "md5": {"validation": "0" * 32}}
    data = tmp_path / "data"
    message = rf"img_val\.tar: MD5 is {md5s(tmp_path / 'tars')['validation']}, expected 0{{32}}"
    for again in (False, True):
        if again:  # it is remembered, so that no hour is spent to learn it again
            monkeypatch.setattr(image_pool, "md5_of", None)
        with pytest.raises(InputError, match=message):
            prepare(own, data, source)
        assert not (data / "val").exists() and not (data / "manifest.json").exists()
    prepare(own, data, {"tars": source["tars"]})  # the digest in the cluster file was the wrong one
    assert (data / "val").exists()


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
    source = {"tars": str(tars), "md5": sums}
    with pytest.raises(InputError, match=r"img_train\.tar: MD5 is"):
        prepare(own, data, {"tars": str(tars), "md5": {"train": sums["train"]}})
    own.train[wnid][name] = right
    time.sleep(0.01)
    own.write(tars)
    prepare(own, data, source | {"md5": {"train": sums["train"]}})
    assert (data / "train" / wnid / name).read_bytes() == right


# --- killed -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> tuple[Official, Path]:
    """Enough classes for a kill in the middle."""
    official = Official.make(classes=24, train=60, validation=3, side=64)
    return official, official.write(tmp_path_factory.mktemp("larger"))


def command(official: Official, tars: Path, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "scalewatt.cli", "prepare"),
        *("--definition", json.dumps(official.definition), "--folder", str(folder)),
        *("--source", json.dumps({"tars": str(tars)}), "--out", str(folder / "marker.json")),
    ]


def kill_in_the_middle(official: Official, tars: Path, folder: Path) -> dict[str, int]:
    """Kill an extraction once a few classes are there; inode of each that is."""
    process = subprocess.Popen(command(official, tars, folder), stderr=subprocess.DEVNULL)
    done = folder / EXTRACTING / "train"
    while process.poll() is None and len(list(done.glob("n*"))) < 3:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return {path.name: path.stat().st_ino for path in done.glob("n*")}


def test_a_killed_extraction_goes_on_and_ends_as_an_undisturbed_one(
    larger: tuple[Official, Path], tmp_path: Path
) -> None:
    official, tars = larger
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finished = kill_in_the_middle(official, tars, killed)
    assert 3 <= len(finished) < 24, "it must be killed in the middle"
    assert not (killed / "train").exists() and not (killed / "manifest.json").exists()
    subprocess.run(command(official, tars, killed), check=True)
    subprocess.run(command(official, tars, whole), check=True)
    assert contents(killed) == contents(whole)
    assert (killed / "marker.json").read_bytes() == (whole / "marker.json").read_bytes()
    inodes = {name: (killed / "train" / name).stat().st_ino for name in finished}
    assert inodes == finished, "finished classes are not extracted again"
    assert not (killed / EXTRACTING).exists()


@pytest.mark.parametrize("after", ["train", "val", RECORD])
def test_a_kill_between_the_last_renames_is_made_good(
    after: str, official: Official, tars: Path, tree: Path, tmp_path: Path, in_process: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    class Killed(BaseException): ...

    def killed(rename: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def renamed(old: Any, new: Any) -> None:
            rename(old, new)
            if Path(new) == tmp_path / after:
                raise Killed

        return renamed

    with monkeypatch.context() as patched:
        patched.setattr(image_tars.os, "rename", killed(os.rename))
        patched.setattr(image_tars.os, "replace", killed(os.replace))
        with pytest.raises(Killed):
            prepare(official, tmp_path, {"tars": str(tars)})
    prepare(official, tmp_path, {"tars": str(tars)})
    assert contents(tmp_path) == contents(tree)
    assert (tmp_path / RECORD).exists() and not (tmp_path / EXTRACTING).exists()
