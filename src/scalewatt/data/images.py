"""Images of ImageNet, decoded, cropped and normalised, by the settings `protocol` and `loader`.

The random numbers of an image depend on (seed, epoch, index of the image) and nothing else, so neither on the
number of workers or ranks nor on any global generator.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from torch.utils.data import Dataset

from scalewatt.common.errors import InputError
from scalewatt.data.imagenet import ImageFolderIndex

CHANNEL_MEAN = (0.485, 0.456, 0.406)
CHANNEL_SD = (0.229, 0.224, 0.225)
"""Customary mean and sd of ImageNet's pixels in 0–1."""

Box = tuple[int, int, int, int]
"""Left, upper, right, lower in pixels."""


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
        """Draw the part of an image of this size that item `key` shows, and whether it is mirrored."""
        epoch, position = key
        rng = np.random.default_rng([self.seed, epoch, int(self.indices[position])])
        box = random_box(width, height, self.crop_scale, rng)
        return box, bool(self.horizontal_flip and rng.random() < 0.5)


def open_image(path: str) -> Image.Image:
    """Read the image in a file as RGB, whatever its format; InputError naming the file if that fails."""
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
    """Width and height of the central view after resizing, then left and upper of the square."""
    shorter = round(size * 256 / 224)
    smallest = min(width, height)
    width, height = (int(shorter * side / smallest) for side in (width, height))
    return width, height, round((width - size) / 2), round((height - size) / 2)


PIXEL_SCALE = (1 / (255 * np.array(CHANNEL_SD))).astype(np.float32)[:, None, None]
PIXEL_OFFSET = (np.array(CHANNEL_MEAN) / np.array(CHANNEL_SD)).astype(np.float32)[:, None, None]
"""A normalised image is pixels · scale − offset; float32 (3, 1, 1)."""


def to_tensor(image: Image.Image) -> torch.Tensor:
    """Normalise an RGB image with ImageNet's mean and sd, to float32 (3, height, width)."""
    pixels = np.asarray(image).transpose(2, 0, 1)
    out = np.empty(pixels.shape, np.float32)
    np.multiply(pixels, PIXEL_SCALE, out=out)
    out -= PIXEL_OFFSET
    return torch.from_numpy(out)


class AuthorsImages(ImageNetDataset):
    """Augmented images by torchvision's transforms, each on its own, as in the code of the paper."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        from torchvision import transforms

        flip = [transforms.RandomHorizontalFlip()] if self.horizontal_flip else []
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(self.image_size, scale=self.crop_scale),
                *flip,
                transforms.ToTensor(),
                transforms.Normalize(CHANNEL_MEAN, CHANNEL_SD),
            ]
        )

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, int]:
        if not self.augment:
            return super().__getitem__(key)
        epoch, position = key
        image = open_image(self._path(position))
        words = [self.seed, epoch, int(self.indices[position])]
        # The transforms draw from torch's generator, which is the training's where no worker loads.
        with torch.random.fork_rng(devices=[]):
            seed = np.random.SeedSequence(words).generate_state(1, np.uint64)[0]
            torch.default_generator.manual_seed(int(seed))
            return self.transform(image), int(self.labels[position])


class TorchvisionImages(ImageNetDataset):
    """The same views of the same images as bytes, which `normalised` finishes on the device.

    An item is uint8 (3, image_size, image_size) and the label. Files are decoded by
    `torchvision.io.decode_jpeg`, whose pixels are Pillow's; what that refuses (a PNG named as
    a JPEG, a truncated file) goes to Pillow, which reads it or reports the error. The resizing is
    torch's antialiased bilinear kernel for bytes, which torchvision's `resize` ends in; it is
    called directly because torchvision 0.22 turns bytes into floats first on a processor with
    AVX-512. It differs from Pillow's by one grey level at most. Bytes are a quarter of float32 to
    stack, to send between processes and to copy to the device.
    """

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, int]:
        position = key[1]
        pixels = decode(self._path(position))
        height, width = pixels.shape[1:]
        size = self.image_size
        if self.augment:
            (left, upper, right, lower), mirrored = self._random_view(key, width, height)
            pixels = _resized(pixels[:, upper:lower, left:right], size, size)
            if mirrored:
                pixels = pixels.flip(2)
        else:
            width, height, left, upper = central_geometry(width, height, size)
            pixels = _resized(pixels, height, width)
            pixels = pixels[:, upper : upper + size, left : left + size]
        return pixels, int(self.labels[position])


def decode(path: str) -> torch.Tensor:
    """Read the image in a file as uint8 (3, height, width); InputError naming the file if that fails."""
    from torchvision.io import ImageReadMode, decode_jpeg

    try:
        return decode_jpeg(torch.from_numpy(np.fromfile(path, np.uint8)), mode=ImageReadMode.RGB)
    except (OSError, RuntimeError):
        pixels = np.array(open_image(path))
        return torch.from_numpy(pixels).permute(2, 0, 1)


def _resized(pixels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    return functional.interpolate(
        pixels[None], size=(height, width), mode="bilinear", antialias=True
    )[0]


def normalised(images: torch.Tensor) -> torch.Tensor:
    """Normalise bytes (…, 3, height, width) as `to_tensor` does, to float32."""
    scale, offset = _scale_and_offset(images.device)
    return images.float().mul_(scale).sub_(offset)


@cache
def _scale_and_offset(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(PIXEL_SCALE).to(device), torch.from_numpy(PIXEL_OFFSET).to(device)


@cache
def random_images(
    count: int, size: int, seed: int, device: torch.device, channels_last: bool
) -> torch.Tensor:
    """Make a batch of random images, float32 (count, 3, size, size); later calls give the same tensor.

    Standard normal, roughly as normalised images: a GPU's power depends on the values.
    """
    generator = torch.Generator(device).manual_seed(seed)
    images = torch.randn((count, 3, size, size), generator=generator, device=device)
    layout: Any = torch.channels_last if channels_last else torch.contiguous_format
    return images.contiguous(memory_format=layout)
