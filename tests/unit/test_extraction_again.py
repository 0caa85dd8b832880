"""An extraction that was ended, or whose tars or folders changed: it goes on, or says what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
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
)

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet import official_tars as image_tars
from scalewatt.datasets.imagenet import tar_extraction
from scalewatt.datasets.imagenet.official_tars import EXTRACTING, RECORD
from scalewatt.datasets.imagenet.tar_extraction import ClassTask, Part, run_tasks


@pytest.fixture
def own(official: Official) -> Official:
    return official.copy()


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    extract_in_this_process(monkeypatch)


@pytest.fixture(scope="module")
def finished(official: Official, tars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    prepare(official, folder, {"tars": str(tars)})
    return folder


@pytest.fixture
def data(finished: Path, tmp_path: Path) -> Path:
    """Extracted images, to harm."""
    return Path(shutil.copytree(finished, tmp_path / "data"))


def other_tars(official: Official, folder: Path) -> tuple[Official, Path]:
    """Tars of the same counts, of which the one for training has another image."""
    other = official.copy()
    wnid = sorted(other.train)[0]
    other.train[wnid][f"{wnid}_2.JPEG"] = image_bytes(4242)
    return other, other.write(folder)


# --- finished -----------------------------------------------------------------------------------


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
    wrong = right | {"train": "0" * 32}
    message = r"data/train come from a ILSVRC2012_img_train\.tar of MD5 {}, expected 0{{32}}"
    for manifest in (True, False):
        if not manifest:
            (data / "manifest.json").unlink()
        with pytest.raises(InputError, match=message.format(right["train"])):
            prepare(official, data, {"tars": str(tars), "md5": wrong})
    upper = {kind: md5.upper() for kind, md5 in right.items()}
    prepare(official, data, {"tars": str(tars), "md5": upper})


def test_an_md5_says_nothing_about_images_from_elsewhere(
    official: Official, tars: Path, tree: Path, tmp_path: Path
) -> None:
    shutil.copytree(tree, tmp_path / "data")
    prepare(official, tmp_path / "data", None)
    with pytest.raises(InputError, match=r"tars\.json: missing, so .* cannot be checked against"):
        prepare(official, tmp_path / "data", {"tars": str(tars), "md5": md5s(tars)})


@pytest.mark.parametrize("lost", [("train",), ("val",), ("train", "val")])
@pytest.mark.parametrize("without", [None, "val", "train"])
def test_a_class_that_was_removed_is_extracted_again(
    without: str | None, lost: tuple[str, ...], official: Official, tars: Path, data: Path,
    tree: Path, in_process: None,
) -> None:  # fmt: skip
    for split in lost:
        shutil.rmtree(data / split / sorted(official.train)[1])
    if without:
        shutil.rmtree(data / without)
    prepare(official, data, {"tars": str(tars)})
    assert contents(data) == contents(tree)
    assert not (data / EXTRACTING).exists()


def test_a_changed_class_is_named_and_extracted_again_once_removed(
    official: Official, tars: Path, data: Path, tree: Path, in_process: None
) -> None:
    first, second, _ = sorted(official.train)
    next((data / "train" / first).iterdir()).unlink()
    shutil.rmtree(data / "train" / second)
    (data / "manifest.json").unlink()
    message = rf"train/{first}: has \d files, expected \d; .* remove the folder to extract it again"
    with pytest.raises(InputError, match=message):
        prepare(official, data, {"tars": str(tars)})
    shutil.rmtree(data / "train" / first)
    prepare(official, data, {"tars": str(tars)})
    assert contents(data) == contents(tree)


def test_tars_in_the_data_root_itself_replace_a_class_that_was_removed(
    official: Official, tars: Path, tree: Path, tmp_path: Path, in_process: None
) -> None:
    shutil.copytree(tars, tmp_path / "data")
    prepare(official, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "train" / sorted(official.train)[0])
    (tmp_path / "data" / "manifest.json").unlink()
    prepare(official, tmp_path / "data")
    assert contents(tmp_path / "data") == contents(tree)


def test_images_of_an_old_tar_are_never_recorded_as_a_new_ones(
    official: Official, data: Path, tmp_path: Path, in_process: None
) -> None:
    other, source = other_tars(official, tmp_path / "other")
    record = (data / RECORD).read_bytes()
    shutil.rmtree(data / "val")
    with pytest.raises(
        InputError, match=r"data/train: was extracted from another ILSVRC2012_img_t"
    ):
        prepare(other, data, {"tars": str(source)})
    assert (data / RECORD).read_bytes() == record and not (data / EXTRACTING).exists()
    shutil.rmtree(data / "train")
    prepare(other, data, {"tars": str(source)})
    assert contents(data) == contents(other.tree(tmp_path / "tree"))
    assert json.loads((data / RECORD).read_text())["train"]["md5"] == md5s(source)["train"]


@pytest.mark.parametrize("kind", ["a digest", "a class"])
@pytest.mark.timeout(120)
def test_what_fails_ends_the_extraction_beside_an_endless_digest(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_extraction.os, "sched_getaffinity", lambda process: {0, 1})
    for name, size in (("endless", 1 << 40), ("small", 1)):  # a hole: it takes no disk, but hours
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)
    digests = {"train": tmp_path / "endless"}
    root, tasks = tmp_path, []

    def refuse(kind: str, md5: str) -> None:
        raise InputError(f"wrong {kind}")

    if kind == "a digest":
        digests |= {"devkit": tmp_path / "small"}
        expected = "wrong devkit"
    else:
        part = Part("part", 0, 512)
        task = ClassTask(str(digests["train"]), "train", "n1", part, 1)
        root, tasks = tmp_path / "small", [task]
        expected = "the extraction stopped: Not a directory"
    with pytest.raises(InputError, match=expected):
        run_tasks(root, tasks, digests, refuse)


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
            monkeypatch.setattr(tar_extraction, "md5_of", None)
        with pytest.raises(InputError, match=message):
            prepare(own, data, source)
        assert not (data / "val").exists() and not (data / "manifest.json").exists()
    monkeypatch.undo()
    extract_in_this_process(monkeypatch)
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


def command(official: Official, tars: Path, folder: Path, *python: str) -> list[str]:
    return [
        *(sys.executable, *(python or ("-m", "scalewatt.cli")), "prepare"),
        *("--definition", json.dumps(official.definition), "--folder", str(folder)),
        *("--source", json.dumps({"tars": str(tars)}), "--out", str(folder / "marker.json")),
    ]


KILLED = """
import os, signal, sys
from concurrent.futures import Future, ProcessPoolExecutor
from scalewatt.cli import main
from scalewatt.datasets.imagenet import tar_extraction

class Few(ProcessPoolExecutor):
    classes = 0

    def submit(self, work, *arguments):
        Few.classes += work is tar_extraction.extract_class
        if Few.classes > 5:
            return Future()  # never begun
        future = super().submit(work, *arguments)
        if Few.classes == 5:
            future.add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        return future

tar_extraction.ProcessPoolExecutor = Few
main(sys.argv[1:])
"""


def kill_in_the_middle(official: Official, tars: Path, folder: Path) -> dict[str, int]:
    """Kill an extraction when the fifth class is there; inode of each that is."""
    ended = subprocess.run(command(official, tars, folder, "-c", KILLED), stderr=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL
    done = folder / EXTRACTING / "train"
    return {path.name: path.stat().st_ino for path in done.glob("n*")}


def test_a_killed_extraction_resumes_and_ends_as_an_undisturbed_one(
    larger: tuple[Official, Path], tmp_path: Path
) -> None:
    official, tars = larger
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finished = kill_in_the_middle(official, tars, killed)
    assert 1 <= len(finished) <= 5, "it must be killed in the middle"
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
