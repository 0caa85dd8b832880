"""The embedded handwriting scans: real images in ImageNet's folder layout, prepared once."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.index import ImageFolderIndex
from scalewatt.datasets.prepare import prepare_dataset

DEFINITION = {
    "name": "scans",
    "format": "imagenet",
    "source": "embedded",
    "train_samples": 120,
    "validation_samples": 40,
    "classes": 10,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scans")
    return folder, prepare_dataset(DEFINITION, folder, None)


def test_the_scans_are_in_imagenets_layout_in_the_wanted_numbers(prepared):
    folder, _ = prepared
    assert len(list(folder.glob("train/n*/*.JPEG"))) == 120
    assert len(list(folder.glob("val/n*/*.JPEG"))) == 40
    index = ImageFolderIndex.load(folder, "train")
    assert index.classes == [f"n{digit:07d}d" for digit in range(10)]
    assert index.paths == sorted(index.paths) and index.labels.dtype == np.int32
    assert set(np.bincount(index.labels)) <= {11, 12, 13}  # 120 · (174 … 183)/1797
    assert not list(folder.glob(".building-*"))


def test_an_image_shows_the_scan_that_its_name_says(prepared):
    folder, _ = prepared
    digits = load_digits()
    path = next(folder.glob("val/n0000007d/*.JPEG"))
    number = int(path.stem.removeprefix("scan_"))
    image = Image.open(path)
    assert digits.target[number] == 7 and image.size == (40, 40) and image.mode == "RGB"
    small = np.asarray(image.convert("L").resize((8, 8), Image.Resampling.BOX)).ravel()
    assert np.corrcoef(small, digits.data[number])[0, 1] > 0.95


def test_no_scan_is_both_in_training_and_in_validation(prepared):
    folder, _ = prepared
    names = [{p.name for p in folder.glob(f"{split}/*/*")} for split in ("train", "val")]
    assert not names[0] & names[1]


def test_a_lost_image_or_an_interrupted_build_is_repeated(tmp_path):
    marker = prepare_dataset(DEFINITION, tmp_path, None)
    next(tmp_path.glob("train/*/*")).unlink()
    (tmp_path / ".building-old").mkdir()
    assert prepare_dataset(DEFINITION, tmp_path, None) == marker
    assert len(list(tmp_path.glob("train/*/*"))) == 120
    assert not (tmp_path / ".building-old").exists()


def test_other_images_are_never_replaced(tmp_path):
    (tmp_path / "train" / "n01440764").mkdir(parents=True)
    with pytest.raises(InputError, match="train, which is not from an embedded dataset"):
        prepare_dataset(DEFINITION, tmp_path, None)
    assert (tmp_path / "train" / "n01440764").exists()


def test_more_scans_than_there_are_is_refused(tmp_path):
    with pytest.raises(InputError, match="1797"):
        prepare_dataset(DEFINITION | {"train_samples": 1790}, tmp_path, None)
