"""Images of ImageNet, decoded, cropped and normalised, by the settings `protocol` and `loader`.

The random numbers of an image depend on (seed, epoch, index of the image) and nothing else, so neither on the
number of workers or ranks nor on any global generator.
"""

from __future__ import annotations

import math
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.transforms import functional

from scalewatt.common.errors import InputError
from scalewatt.data.imagenet import ImageFolderIndex

CHANNEL_MEAN = (0.485, 0.456, 0.406)
CHANNEL_SD = (0.229, 0.224, 0.225)
"""Customary mean and sd of ImageNet's pixels in 0–1."""


class ImageNetDataset(Dataset[tuple[torch.Tensor, int]]):
    """Images of a split in one pass over their pixels, which are those of torchvision's transforms.

    An item, by the key (epoch, position), is float32 (3, image_size, image_size) and the label.
    `indices` selects and orders images of the split; position counts within them.

    With `augment`: a random part of the image (area `crop_scale` of the whole, aspect 3/4 to 4/3),
    resized and, with `horizontal_flip`, mirrored half of the time. Without: the shorter side resized
    to 256/224 of the image size, and the central square.
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
        self.image_size, self.augment, self.seed = image_size, augment, seed
        self.crop_scale, self.horizontal_flip = tuple(crop_scale), horizontal_flip

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, int]:
        path = os.path.join(self.folder, os.fsdecode(self.paths[key[1]]))
        words = [self.seed, key[0], int(self.indices[key[1]])]  # of what is random in an item
        return self.view(path, words), int(self.labels[key[1]])

    def view(self, path: str, words: list[int]) -> torch.Tensor:
        """Image of a file as it is trained or evaluated on."""
        image, size = open_image(path), self.image_size
        if self.augment:
            rng = np.random.default_rng(words)
            box = random_box(image.width, image.height, self.crop_scale, rng)
            image = image.crop(box).resize((size, size), Image.Resampling.BILINEAR)
            if self.horizontal_flip and rng.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        else:
            image = functional.resize(image, round(size * 256 / 224))
            image = functional.center_crop(image, size)
        return to_tensor(image)


def open_image(path: str) -> Image.Image:
    """Read the image in a file as RGB, whatever its format; InputError naming the file if that fails."""
    try:
        with Image.open(path) as image:
            image.load()
            if image.mode[0] in "IF":  # PIL would cut off what exceeds 255
                raise InputError(f"{path}: has more than 8 bits a channel; convert it to 8")
            return image if image.mode == "RGB" else image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: cannot be read as an image ({error})") from error


def random_box(
    width: int, height: int, scale: tuple[float, ...], rng: np.random.Generator
) -> tuple[int, int, int, int]:
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


PIXEL_SCALE = (1 / (255 * np.array(CHANNEL_SD))).astype(np.float32)[:, None, None]
PIXEL_OFFSET = (np.array(CHANNEL_MEAN) / np.array(CHANNEL_SD)).astype(np.float32)[:, None, None]
"""A normalised image is pixels · scale − offset; float32 (3, 1, 1)."""


def to_tensor(image: Image.Image) -> torch.Tensor:
    """Normalise an RGB image with ImageNet's mean and sd, to float32 (3, height, width)."""
    out = np.multiply(np.asarray(image).transpose(2, 0, 1), PIXEL_SCALE, order="C")
    out -= PIXEL_OFFSET
    return torch.from_numpy(out)


class AuthorsImages(ImageNetDataset):
    """Augmented images by torchvision's transforms, each on its own, as in the code of the paper."""

    def view(self, path: str, words: list[int]) -> torch.Tensor:
        """Image of a file as it is trained or evaluated on."""
        image = open_image(path)
        # The transforms draw from torch's generator, which is the training's where no worker loads.
        with torch.random.fork_rng(devices=[]):
            seed = np.random.SeedSequence(words).generate_state(1, np.uint64)[0]
            torch.default_generator.manual_seed(int(seed))
            return self._transform(image)

    @cached_property
    def _transform(self) -> Any:
        return transforms.Compose(
            [
                transforms.RandomResizedCrop(self.image_size, scale=self.crop_scale),
                *([transforms.RandomHorizontalFlip()] if self.horizontal_flip else []),
                transforms.ToTensor(),
                transforms.Normalize(CHANNEL_MEAN, CHANNEL_SD),
            ]
        )
