"""Images as torchvision's transforms show them, by random numbers of their item alone; synthetic ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torchvision import transforms

from scalewatt.common.errors import InputError
from scalewatt.data.imagenet import ImageFolderIndex, find_images
from scalewatt.data.images import (
    CHANNEL_MEAN,
    CHANNEL_SD,
    AuthorsImages,
    ImageNetDataset,
    open_image,
)

SIZE = 48
KEYS = [(epoch, position) for epoch in range(8) for position in range(6)]
KINDS = pytest.mark.parametrize("kind", [ImageNetDataset, AuthorsImages])
NORMALISE = [transforms.ToTensor(), transforms.Normalize(CHANNEL_MEAN, CHANNEL_SD)]


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
    find_images(root, "train").save(root, "train")
    return root


def data(
    kind: type[ImageNetDataset], folder: Path, indices: Any = None, **options: Any
) -> ImageNetDataset:
    return kind(folder, "train", indices, SIZE, **{"augment": True, "seed": 3, **options})


# --- views ----------------------------------------------------------------------------------------


def test_the_central_view_is_torchvisions_resize_and_center_crop(folder: Path) -> None:
    views = [transforms.Resize(round(SIZE * 256 / 224)), transforms.CenterCrop(SIZE)]
    expected = transforms.Compose([*views, *NORMALISE])
    images, paths = (
        data(ImageNetDataset, folder, augment=False),
        ImageFolderIndex.load(folder, "train").paths,
    )
    for position, path in enumerate(paths):
        view = expected(Image.open(folder / path).convert("RGB"))
        torch.testing.assert_close(images[0, position][0], view, rtol=0, atol=2e-6)


def test_the_authors_images_are_those_of_torchvisions_transforms(folder: Path) -> None:
    """By the seed of an item: the same crop, mirror image and pixels, and the generator left alone."""
    views = [
        transforms.RandomResizedCrop(SIZE, scale=(0.5, 1.0)),
        transforms.RandomHorizontalFlip(),
    ]
    expected = transforms.Compose([*views, *NORMALISE])
    images, paths = data(AuthorsImages, folder), ImageFolderIndex.load(folder, "train").paths
    for epoch, position in KEYS:
        before = torch.get_rng_state()
        image, label = images[epoch, position]
        assert torch.equal(torch.get_rng_state(), before)
        words = [3, epoch, position]
        torch.manual_seed(int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]))
        assert torch.equal(image, expected(Image.open(folder / paths[position]).convert("RGB")))
        assert label == position // 3


@KINDS
def test_augmentation_depends_on_seed_epoch_and_image_only(
    folder: Path, kind: type[ImageNetDataset]
) -> None:
    images = data(kind, folder)
    first = images[0, 4][0]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(first, data(kind, folder, np.array([3, 4]))[0, 1][0])
    assert not torch.equal(first, images[1, 4][0])
    assert not torch.equal(first, data(kind, folder, seed=6)[0, 4][0])
    assert torch.equal(torch.get_rng_state(), before)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("RGB", {"format": "JPEG"}),
        ("RGB", {"format": "JPEG", "progressive": True, "subsampling": 0}),
        ("RGB", {"format": "JPEG", "keep_rgb": True}),
        ("RGB", {"format": "JPEG", "exif": {0x0112: 6}}),  # a rotation, which Pillow ignores
        ("L", {"format": "JPEG"}),
        ("CMYK", {"format": "JPEG"}),
        ("RGB", {"format": "PNG"}),
        ("RGBA", {"format": "PNG"}),
        ("P", {"format": "PNG"}),
        ("P", {"format": "GIF"}),
    ],
)
def test_every_kind_of_file_is_read_as_rgb(
    tmp_path: Path, photo: Image.Image, mode: str, options: dict[str, Any]
) -> None:
    if "exif" in options:
        exif = Image.Exif()
        exif.update(options["exif"])
        options = options | {"exif": exif}
    path = tmp_path / "x.JPEG"
    photo.resize((101, 67)).convert(mode).save(path, **options)
    image = open_image(str(path))
    assert (image.mode, image.size) == ("RGB", (101, 67))
    expected = photo.resize((101, 67)).convert("L" if mode == "L" else "RGB").convert("RGB")
    assert np.abs(np.asarray(image, int) - np.asarray(expected, int)).mean() < 30


def test_an_image_of_more_than_8_bits_is_refused_rather_than_cut_off(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 64 * 64).astype(np.uint16).reshape(64, 64)
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    with pytest.raises(InputError, match=r"deep\.png: has more than 8 bits a channel; convert"):
        open_image(str(tmp_path / "deep.png"))


@KINDS
@pytest.mark.parametrize("content", [None, b"", b"\xff\xd8 nothing", b"torn JPEG", b"torn PNG"])
def test_a_file_without_a_full_image_is_named(
    tmp_path: Path, folder: Path, kind: type[ImageNetDataset], content: bytes | None
) -> None:
    path = tmp_path / "train" / "n0" / "bad.JPEG"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"an image when it was prepared")
    find_images(tmp_path, "train").save(tmp_path, "train")
    path.unlink()
    if content is not None:
        photos = {b"torn JPEG": "n0/4.JPEG", b"torn PNG": "n1/5.JPEG"}
        torn = content in photos
        path.write_bytes(
            (folder / "train" / photos[content]).read_bytes()[:-800] if torn else content
        )
    with pytest.raises(InputError, match=r"train/n0/bad\.JPEG: cannot be read as an image") as e:
        data(kind, tmp_path)[0, 0]
    assert "\n" not in str(e.value)
