"""ImageNet's images, decoded, cropped and normalised."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.index import ImageFolderIndex

CHANNEL_MEAN = (0.485, 0.456, 0.406)
CHANNEL_SD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels in 0–1, the customary values."""

Box = tuple[int, int, int, int]
"""Left, upper, right, lower in pixels."""


class ImageNetDataset(Dataset[tuple[torch.Tensor, int]]):
    """Images of one split, decoded, cropped and normalised.

    An item, by the key (epoch, position), is float32 (3, image_size, image_size) and the label.
    `indices` selects and orders images of the split; position counts within them.

    With `augment`: a random part of the image (area `crop_scale` of the whole, aspect 3/4 to 4/3),
    resized and, with `horizontal_flip`, mirrored half of the time. The random numbers depend on
    (seed, epoch, index of the image) and nothing else, so neither on the number of workers or
    ranks nor on any global generator. Without: the shorter side resized to 256/224 of the image
    size, and the central square. Both are pixel for pixel torchvision's transforms, without
    their overhead a call and without the import.
    """

    def __init__(
        self,
        folder: Path | str,
        split: str,
        indices: np.ndarray | None,
        image_size: int,
        augment: bool,
        seed: int,
        crop_scale: tuple[float, float] = (0.5, 1.0),
        horizontal_flip: bool = True,
    ) -> None:
        index = ImageFolderIndex.load(folder, split)
        self.folder = os.fspath(index.folder)
        self.indices = np.arange(len(index.paths)) if indices is None else np.asarray(indices)
        # An array of bytes is one object to share with forked workers, a list is a million.
        self.paths = np.array([os.fsencode(path) for path in index.paths])[self.indices]
        self.labels = index.labels[self.indices]
        self.classes = index.classes
        self.image_size = image_size
        self.augment = augment
        self.seed = seed
        self.crop_scale = tuple(crop_scale)
        self.horizontal_flip = horizontal_flip

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, int]:
        _, position = key
        image = open_image(self._path(position))
        if self.augment:
            box, mirrored = self._random_view(key, image.width, image.height)
            size = (self.image_size, self.image_size)
            image = image.crop(box).resize(size, Image.Resampling.BILINEAR)
            if mirrored:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        else:
            image = central_view(image, self.image_size)
        return to_tensor(image), int(self.labels[position])

    def _path(self, position: int) -> str:
        return os.path.join(self.folder, os.fsdecode(self.paths[position]))

    def _random_view(self, key: tuple[int, int], width: int, height: int) -> tuple[Box, bool]:
        """Return the part of an image of this size that item `key` shows, and whether it is mirrored."""
        epoch, position = key
        rng = np.random.default_rng([self.seed, epoch, int(self.indices[position])])
        box = random_box(width, height, self.crop_scale, rng)
        return box, bool(self.horizontal_flip and rng.random() < 0.5)


def open_image(path: str) -> Image.Image:
    """Return the image in a file, as RGB; InputError naming the file if it cannot be read."""
    try:
        with Image.open(path) as image:
            image.load()
            return image if image.mode == "RGB" else image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: cannot be read as an image ({error})") from error


def random_box(width: int, height: int, scale: tuple[float, ...], rng: np.random.Generator) -> Box:
    """Draw a box (left, upper, right, lower) of random area and aspect inside the image.

    The distribution of torchvision's RandomResizedCrop: ten tries with area uniform in `scale`
    and the logarithm of the aspect uniform, then the largest central box of allowed aspect.
    """
    lowest, highest = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area = width * height * rng.uniform(scale[0], scale[1])
        aspect = math.exp(rng.uniform(lowest, highest))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, upper = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return left, upper, left + w, upper + h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    left, upper = (width - w) // 2, (height - h) // 2
    return left, upper, left + w, upper + h


def central_view(image: Image.Image, size: int) -> Image.Image:
    """Resize the shorter side to size·256/224, then crop the central square."""
    width, height, left, upper = central_geometry(image.width, image.height, size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    return image.crop((left, upper, left + size, upper + size))


def central_geometry(width: int, height: int, size: int) -> tuple[int, int, int, int]:
    """Return the central view's width and height after resizing, then left and upper of the square."""
    shorter = round(size * 256 / 224)
    smallest = min(width, height)
    width, height = (int(shorter * one / smallest) for one in (width, height))
    return width, height, round((width - size) / 2), round((height - size) / 2)


PIXEL_SCALE = (1 / (255 * np.array(CHANNEL_SD))).astype(np.float32)[:, None, None]
PIXEL_OFFSET = (np.array(CHANNEL_MEAN) / np.array(CHANNEL_SD)).astype(np.float32)[:, None, None]
"""A normalised image is pixels · scale − offset; float32 (3, 1, 1)."""


def to_tensor(image: Image.Image) -> torch.Tensor:
    """Return an RGB image as float32 (3, height, width), normalised with ImageNet's mean and sd."""
    pixels = np.asarray(image).transpose(2, 0, 1)
    out = np.empty(pixels.shape, np.float32)
    np.multiply(pixels, PIXEL_SCALE, out=out)
    out -= PIXEL_OFFSET
    return torch.from_numpy(out)
