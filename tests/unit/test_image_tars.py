"""ImageNet from the official files: everything extracted once, checked, resumed, named if wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from imagenet_files import Official, contents, image_bytes, md5s, prepare, tar_bytes

from scalewatt.common.errors import InputError
from scalewatt.data import imagenet
from scalewatt.data.imagenet import TARS, ImageFolderIndex
from scalewatt.data.prepared import prepare_dataset


@pytest.fixture(scope="module")
def prepared(official: Official, tars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(official, folder, str(tars))
    return folder


# --- what comes out -----------------------------------------------------------------------------


def test_every_image_of_the_tars_is_extracted_as_it_is_and_as_a_tree_has_it(
    prepared: Path, official: Official, tars: Path, tree: Path, tmp_path: Path
) -> None:
    assert contents(prepared) == contents(tree)
    assert not list(prepared.glob(".extracting*"))
    marker = json.loads((prepared / "manifest.json").read_text())["marker"]
    for folder, source in [(tmp_path / "a", str(tree)), (tmp_path / "b", str(tree))]:
        assert prepare(official, folder, source) == marker
        index = ImageFolderIndex.load(folder, "train")
        assert (index.folder, index.paths) == (tree, ImageFolderIndex.load(prepared, "train").paths)


# --- what is refused ----------------------------------------------------------------------------


def write_tar(path: Path, official: Official, **changes: bytes) -> None:
    """Write the training tar again, with other class tars."""
    inner = {wnid: tar_bytes(images) for wnid, images in official.train.items()} | changes
    path.write_bytes(tar_bytes({f"{wnid}.tar": tar for wnid, tar in inner.items() if tar}))


def lacks_an_image(official: Official, tars: Path) -> str:
    wnid = sorted(official.train)[1]
    images = dict(list(official.train[wnid].items())[1:])
    write_tar(tars / TARS["train"], official, **{wnid: tar_bytes(images)})
    return f"{wnid} has {len(images)} images, the devkit says {len(images) + 1}"


def lacks_a_class(official: Official, tars: Path) -> str:
    wnid = sorted(official.train)[1]
    write_tar(tars / TARS["train"], official, **{wnid: b""})
    return f"classes differ from the devkit: {wnid}"


def has_a_damaged_header(official: Official, tars: Path) -> str:
    content = bytearray((tars / TARS["train"]).read_bytes())
    wnid = sorted(official.train)[1]
    content[content.index(f"{wnid}_2.JPEG".encode()) + 3] ^= 0xFF
    (tars / TARS["train"]).write_bytes(content)
    return f"{wnid} has 2 images"


def has_another_validation_image(official: Official, tars: Path) -> str:
    (tars / TARS["val"]).write_bytes(tar_bytes({"a.JPEG": image_bytes(1)}))
    return r"img_val\.tar: a\.JPEG is not an image of the devkit"


def is_missing(official: Official, tars: Path) -> str:
    (tars / TARS["val"]).unlink()
    return r"img_val\.tar: missing; expected ILSVRC2012_img_train.*, or train/<class>/<image>"


HARM = [
    lacks_an_image, lacks_a_class, has_a_damaged_header, has_another_validation_image, is_missing,
]  # fmt: skip


@pytest.mark.parametrize("harm", HARM)
def test_what_is_wrong_in_the_files_is_named(
    harm: Callable[[Official, Path], str], official: Official, tmp_path: Path
) -> None:
    tars, data = official.write(tmp_path / "tars"), tmp_path / "data"
    with pytest.raises(InputError, match=harm(official, tars)) as caught:
        prepare(official, data, str(tars))
    assert "\n" not in str(caught.value)
    assert not [name for name in ("manifest.json", "train", "val") if (data / name).exists()]


@pytest.mark.parametrize("part", [0.97, 0.5, 0.001])
@pytest.mark.parametrize("kind", list(TARS))
def test_a_truncated_file_is_named(
    kind: str, part: float, official: Official, tmp_path: Path
) -> None:
    path = official.write(tmp_path / "tars") / TARS[kind]
    content = path.read_bytes().rstrip(b"\0")
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(InputError, match=TARS[kind].replace(".", r"\.")):
        prepare(official, tmp_path / "data", str(tmp_path / "tars"))
    assert not (tmp_path / "data" / "manifest.json").exists()


@pytest.mark.parametrize("key", ["classes", "train_samples", "validation_samples"])
def test_a_devkit_of_another_dataset_is_refused_before_anything_is_extracted(
    key: str, official: Official, tars: Path, tmp_path: Path
) -> None:
    message = rf"devkit_t12\.tar\.gz: has \d+ {key}, dataset photos 77"
    with pytest.raises(InputError, match=message):
        prepare_dataset(official.definition | {key: 77}, tmp_path, str(tars))
    assert not list(tmp_path.glob(".extracting*"))


# --- digests and ends -----------------------------------------------------------------------------


def make_official(official: Official, tars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take these tars for those of the full ImageNet."""
    numbers = tuple(official.definition[key] for key in imagenet.NUMBERS)
    monkeypatch.setattr(imagenet, "OFFICIAL_NUMBERS", numbers)
    monkeypatch.setattr(imagenet, "OFFICIAL_MD5", md5s(tars))


def test_images_of_a_wrong_digest_are_not_used_and_extracted_again_from_the_right_file(
    official: Official, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tars, data = official.write(tmp_path / "tars"), tmp_path / "data"
    make_official(official, tars, monkeypatch)
    right = (tars / TARS["train"]).read_bytes()
    wnid = sorted(official.train)[0]
    image = official.train[wnid][f"{wnid}_3.JPEG"]
    wrong = right.replace(image, image[:-1] + b"?")  # no header or count tells
    (tars / TARS["train"]).write_bytes(wrong)
    with pytest.raises(InputError, match=r"img_train\.tar: MD5 is .*, expected .*"):
        prepare(official, data, str(tars))
    assert [path.name for path in data.iterdir()] == [".lock"]
    (tars / TARS["train"]).write_bytes(right)
    prepare(official, data, str(tars))
    assert (data / "train" / wnid / f"{wnid}_3.JPEG").read_bytes() == image


def test_what_a_killed_extraction_left_is_not_used(
    official: Official, tars: Path, tree: Path, tmp_path: Path
) -> None:
    half = tmp_path / ".extracting" / "train" / "n01440000"
    half.mkdir(parents=True)
    (half / "half.JPEG").write_bytes(b"half")
    prepare(official, tmp_path, str(tars))
    assert contents(tmp_path) == contents(tree)
    assert not (tmp_path / ".extracting").exists()
