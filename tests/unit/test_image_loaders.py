"""Images as bytes show what Pillow shows; synthetic ones need no files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from sklearn.datasets import load_sample_images
from torch.utils.data import DataLoader

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.alternative_loaders import (
    RandomImages,
    SyntheticImages,
    TorchvisionImages,
    decode,
    normalised,
)
from scalewatt.datasets.imagenet.imagenet_dataset import ImageNetDataset, open_image, to_tensor
from scalewatt.datasets.imagenet.index import build_index

SIZE = 48
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    return Image.fromarray(load_sample_images().images[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photo: Image.Image) -> Path:
    """Six photos of unlike sizes, one grey, one CMYK, one a PNG by another name."""
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    sizes = [(120, 90), (90, 120), (61, 200), (64, 64), (333, 250), (75, 75)]
    modes = ["RGB", "RGB", "RGB", "L", "CMYK", "RGB"]
    for number, (size, mode) in enumerate(zip(sizes, modes, strict=True)):
        left, upper = int(rng.integers(200)), int(rng.integers(100))
        image = photo.crop((left, upper, left + 400, upper + 300)).resize(size).convert(mode)
        path = root / "train" / f"n{number % 2}" / f"{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, "PNG" if number == 5 else "JPEG", quality=90)
    build_index(root, "train")
    return root


def data(kind: type[ImageNetDataset], folder: Path, augment: bool = True) -> ImageNetDataset:
    return kind(folder, "train", None, SIZE, augment, seed=3)


KEYS = [(epoch, position) for epoch in range(8) for position in range(6)]


@pytest.mark.parametrize("augment", [True, False])
def test_bytes_show_the_views_that_pillow_shows(folder: Path, augment: bool) -> None:
    pillows, ours = data(ImageNetDataset, folder, augment), data(TorchvisionImages, folder, augment)
    levels = torch.tensor([255 * sd for sd in (0.229, 0.224, 0.225)])[:, None, None]
    mirrored = 0
    for key in KEYS:
        expected, label = pillows[key]
        found, own_label = ours[key]
        assert found.dtype == torch.uint8 and found.shape == (3, SIZE, SIZE)
        assert label == own_label
        difference = ((normalised(found) - expected) * levels).abs()
        assert difference.max() < 1.5 and difference.mean() < 0.3
        flipped = ((normalised(found.flip(2)) - expected) * levels).abs()
        assert flipped.mean() > 1, "a mirror image must not pass for the image"
        mirrored += pillows._random_view(key, 64, 64)[1]
    assert 8 < mirrored < 40


def test_random_images_are_the_same_in_every_update() -> None:
    images = RandomImages(8, 3, CPU, False)
    assert images.batch(4) is images.batch(4)
    assert torch.equal(images.batch(4), RandomImages(8, 3, CPU, False).batch(4))


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"format": "JPEG"}),
        ("RGB", {"format": "JPEG", "progressive": True, "subsampling": 0}),
        ("RGB", {"format": "JPEG", "keep_rgb": True}),
        ("L", {"format": "JPEG"}),
        ("CMYK", {"format": "JPEG"}),
        ("RGB", {"format": "PNG"}),
        ("RGBA", {"format": "PNG"}),
        ("P", {"format": "PNG"}),
        ("P", {"format": "GIF"}),
    ],
)
def test_every_kind_of_file_has_pillows_pixels(
    tmp_path: Path, photo: Image.Image, mode: str, options: dict[str, Any]
) -> None:
    path = tmp_path / "x.JPEG"
    photo.resize((101, 67)).convert(mode).save(path, **options)
    expected = torch.from_numpy(np.array(open_image(str(path)))).permute(2, 0, 1)
    assert torch.equal(decode(str(path)), expected)


def test_a_rotation_in_the_exif_data_is_ignored_as_by_pillow(
    tmp_path: Path, photo: Image.Image
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "x.JPEG"
    photo.resize((60, 40)).save(path, exif=exif)
    assert decode(str(path)).shape == (3, 40, 60)


@pytest.mark.parametrize("kind", [ImageNetDataset, TorchvisionImages])
@pytest.mark.parametrize("content", [b"", b"\xff\xd8 nothing", b"GIF89a", b"torn", b"torn PNG"])
def test_a_file_without_a_whole_image_is_named(
    tmp_path: Path, folder: Path, kind: type[ImageNetDataset], content: bytes
) -> None:
    if content.startswith(b"torn"):
        whole = folder / "train" / ("n1/5.JPEG" if b"PNG" in content else "n0/4.JPEG")
        content = whole.read_bytes()[:-800]
    (tmp_path / "train" / "n0").mkdir(parents=True)
    bad = tmp_path / "train" / "n0" / "bad.JPEG"
    bad.write_bytes(b"whole when it was prepared")
    build_index(tmp_path, "train")
    bad.write_bytes(content)
    with pytest.raises(InputError, match=r"train/n0/bad\.JPEG: cannot be read as an image") as e:
        data(kind, tmp_path)[0, 0]
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("kind", [ImageNetDataset, TorchvisionImages])
def test_a_missing_file_is_named(folder: Path, kind: type[ImageNetDataset]) -> None:
    one = data(kind, folder)
    one.folder = "/nowhere"
    with pytest.raises(InputError, match=r"/nowhere/train/n0/0\.JPEG: cannot be read"):
        one[0, 0]


@given(arrays.arrays(np.uint8, (5, 7, 3)))
def test_bytes_are_normalised_on_the_device_bit_for_bit_as_images_are(pixels: np.ndarray) -> None:
    found = normalised(torch.from_numpy(pixels).permute(2, 0, 1)[None])
    assert found.dtype == torch.float32
    assert torch.equal(found[0], to_tensor(Image.fromarray(pixels)))


def test_normalising_keeps_the_channels_last() -> None:
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    found = normalised(images.contiguous(memory_format=torch.channels_last))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert normalised(images).is_contiguous()


def test_batches_are_bytes_and_do_not_depend_on_workers(folder: Path) -> None:
    loaded = []
    for workers in (0, 2):
        loader = DataLoader(
            data(TorchvisionImages, folder), batch_size=4, sampler=KEYS[:12], num_workers=workers
        )
        loaded.append(list(loader))
    for (images, labels), (others, other_labels) in zip(*loaded, strict=True):
        assert images.dtype == torch.uint8 and images.shape == (4, 3, SIZE, SIZE)
        assert labels.dtype == torch.int64
        assert torch.equal(images, others) and torch.equal(labels, other_labels)


def test_global_random_numbers_are_left_alone(folder: Path) -> None:
    torch.manual_seed(0)
    expected = torch.get_rng_state()
    data(TorchvisionImages, folder)[0, 0]
    RandomImages(8, 0, CPU, channels_last=False).batch(3)
    assert torch.equal(torch.get_rng_state(), expected)


@given(st.integers(1, 50), st.integers(1, 9), st.data())
def test_synthetic_batches_are_the_labels_of_their_positions(
    samples: int, classes: int, drawn: st.DataObject
) -> None:
    images = SyntheticImages(samples, classes)
    positions = drawn.draw(st.lists(st.integers(0, samples - 1), min_size=1, max_size=9))
    loader = DataLoader(
        images,
        batch_sampler=[[(4, position) for position in positions]],
        collate_fn=images.collate,
    )
    [[labels]] = list(loader)
    assert len(images) == samples and images.workers == 0
    assert labels.dtype == torch.int64
    assert labels.tolist() == [position % classes for position in positions]


def test_random_images_are_made_once_for_each_batch_size_and_by_their_seed() -> None:
    images = RandomImages(16, 5, CPU, channels_last=False)
    first = images.batch(6)
    assert first.shape == (6, 3, 16, 16) and first.dtype == torch.float32
    assert images.batch(4).shape == (4, 3, 16, 16)
    assert images.batch(6) is first
    assert torch.equal(RandomImages(16, 5, CPU, channels_last=False).batch(6), first)
    assert not torch.equal(RandomImages(16, 6, CPU, channels_last=False).batch(6), first)
    assert abs(first.mean()) < 0.1 and abs(first.std() - 1) < 0.1


def test_random_images_have_the_layout_asked_for() -> None:
    last = RandomImages(16, 5, CPU, channels_last=True).batch(2)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last, RandomImages(16, 5, CPU, channels_last=False).batch(2))
