"""Photos that are made where none are at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.generated_photos import SIZES, write_photos
from scalewatt.datasets.imagenet.index import ImageFolderIndex
from scalewatt.datasets.prepare import prepare_dataset

IMAGENET_BYTES = 147_897_477_120 / 1_281_167
"""Of the tars of its training images, as image-net.org has them."""


def definition(**changes: Any) -> dict[str, Any]:
    counts = {"train_samples": 48, "validation_samples": 8, "classes": 4}
    return {"name": "photos", "format": "imagenet", "source": "generated", **counts, **changes}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("photos")
    prepare_dataset(definition(), made, None)
    return made


def test_photos_have_imagenets_sizes_in_pixels_and_bytes(folder: Path) -> None:
    index = ImageFolderIndex.load(folder, "train")
    assert index.sizes is not None and len(index.paths) == 48
    assert np.mean(index.sizes) == pytest.approx(IMAGENET_BYTES, rel=0.1)
    seen = set()
    for path in index.paths:
        with Image.open(folder / path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            seen.add(image.size)
    assert seen == set(SIZES)


def test_every_class_is_in_both_splits(folder: Path) -> None:
    for split, each in (("train", 12), ("val", 2)):
        index = ImageFolderIndex.load(folder, split)
        assert set(index.counts().values()) == {each} and len(index.classes) == 4


def test_no_two_photos_are_alike_and_they_are_the_same_anywhere(
    folder: Path, tmp_path: Path
) -> None:
    again = prepare_dataset(definition(), tmp_path, None)
    assert again == prepare_dataset(definition(), folder, None), "by the content's SHA-256"
    paths = [path for split in ("train", "val") for path in (folder / split).rglob("*.JPEG")]
    assert len({path.read_bytes() for path in paths}) == 56


def test_more_classes_than_photos_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="9 classes of 48 and 8 photos"):
        write_photos(tmp_path, definition(classes=9))
