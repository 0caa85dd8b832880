"""Alternatives to the default loader of ImageNet's batches (`pil`), chosen by the setting `loader`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import Dataset

from scalewatt.datasets.imagenet.imagenet_dataset import (
    PIXEL_OFFSET,
    PIXEL_SCALE,
    ImageNetDataset,
    central_geometry,
    open_image,
)


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
    """Return the image in a file as uint8 (3, height, width); InputError naming the file."""
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
    """Return bytes (…, 3, height, width) as float32, normalised as by `imagenet_dataset.to_tensor`."""
    scale, offset = _scale_and_offset(images.device)
    return images.float().mul_(scale).sub_(offset)


@cache
def _scale_and_offset(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(PIXEL_SCALE).to(device), torch.from_numpy(PIXEL_OFFSET).to(device)


class SyntheticImages(Dataset[tuple[int]]):
    """Labels without images: nothing is read, `RandomImages` makes the images on the device.

    An item is (label,); labels cycle through the classes. The training process makes
    them itself, which is cheaper than to receive them from a worker.
    """

    workers = 0

    def __init__(self, samples: int, classes: int) -> None:
        self.samples, self.classes = samples, classes

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, key: tuple[int, int]) -> tuple[int]:
        return (key[1] % self.classes,)

    @staticmethod
    def collate(items: Sequence[tuple[int]]) -> list[torch.Tensor]:
        """Return the labels of a batch, int64 (n,), as its only part."""
        return [torch.tensor([label for (label,) in items])]


class RandomImages:
    """One batch of random images for every batch size, made once and kept on the device.

    Standard normal, roughly as normalised images: a GPU's power depends on the values.
    """

    def __init__(self, size: int, seed: int, device: torch.device, channels_last: bool) -> None:
        self.size, self.seed, self.device = size, seed, device
        self.format: Any = torch.channels_last if channels_last else torch.contiguous_format
        self._batches: dict[int, torch.Tensor] = {}

    def batch(self, count: int) -> torch.Tensor:
        """Return float32 (count, 3, size, size), the same at every call."""
        if count not in self._batches:
            generator = torch.Generator(self.device).manual_seed(self.seed)
            shape = (count, 3, self.size, self.size)
            images = torch.randn(shape, generator=generator, device=self.device)
            self._batches[count] = images.contiguous(memory_format=self.format)
        return self._batches[count]
