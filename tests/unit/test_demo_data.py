"""The demo's data: real images in ImageNet's layout, and fields that travel; the same every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from scalewatt.data.imagenet import ImageFolderIndex
from scalewatt.data.prepared import prepare_dataset

SCANS: dict[str, Any] = {
    "name": "scans", "format": "imagenet", "source": "embedded",
    "train_samples": 120, "validation_samples": 40, "classes": 10,
}  # fmt: skip
WAVES: dict[str, Any] = {
    "name": "waves", "format": "era5", "source": "embedded", "grid": [16, 32], "samples_per_year": 10,
    "train_years": [1979, 1980], "validation_years": [1981, 1981], "test_years": [1982, 1982],
}  # fmt: skip


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scans")
    prepare_dataset(SCANS, folder, None)
    return folder


# --- scans ----------------------------------------------------------------------------------------


def test_the_scans_are_in_imagenets_layout_and_in_one_split_each(scans: Path) -> None:
    names = {
        split: {path.name for path in scans.glob(f"{split}/n*/*.JPEG")}
        for split in ("train", "val")
    }
    assert (len(names["train"]), len(names["val"])) == (120, 40)
    assert not names["train"] & names["val"]
    index = ImageFolderIndex.load(scans, "train")
    assert index.classes == [f"n{digit:07d}d" for digit in range(10)]
    assert index.paths == sorted(index.paths) and index.labels.dtype == np.int32
    assert set(np.bincount(index.labels)) <= {11, 12, 13}  # 120 · (174 … 183)/1797


def test_an_image_shows_the_scan_that_its_name_says(scans: Path) -> None:
    digits = load_digits()
    path = next(scans.glob("val/n0000007d/*.JPEG"))
    number = int(path.stem.removeprefix("scan_"))
    image = Image.open(path)
    assert digits.target[number] == 7 and image.size == (40, 40) and image.mode == "RGB"
    small = np.asarray(image.convert("L").resize((8, 8), Image.Resampling.BOX)).ravel()
    assert np.corrcoef(small, digits.data[number])[0, 1] > 0.95


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("definition", "lost"), [(SCANS, "index-val.parquet"), (WAVES, "1980.h5")])
def test_what_is_lost_or_broken_off_is_made_again_and_the_same(
    definition: dict[str, Any], lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("scalewatt.data.prepared.write_json", broken_off)
        with pytest.raises(KeyboardInterrupt):
            prepare_dataset(definition, tmp_path, None)
    assert not (tmp_path / "manifest.json").exists()
    marker = prepare_dataset(definition, tmp_path, None)
    (tmp_path / lost).unlink()
    assert prepare_dataset(definition, tmp_path, None) == marker
    assert (tmp_path / lost).exists()
