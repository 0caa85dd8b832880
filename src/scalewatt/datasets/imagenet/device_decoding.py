"""The loader `nvjpeg`: workers read the files' bytes, and the device decodes, crops and resizes them.

On a GPU torchvision decodes by nvJPEG, whose pixels differ from Pillow's by a few grey levels; on a CPU by
libjpeg-turbo, whose pixels are the same.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.alternative_loaders import decode
from scalewatt.datasets.imagenet.imagenet_dataset import ImageNetDataset, central_geometry

_COLOURS = ("RGB", "L")
"""Pillow's words for what nvJPEG decodes; the rest is decoded where it is read."""
_END = b"\xff\xd9"
_TAIL = 64
"""How near to its end a whole file says that it ends: cameras add bytes."""


@dataclass(frozen=True)
class View:
    """What is to be seen of one file."""

    path: str
    pixels: tuple[int, int, int] | None
    """Shape of the content where it is pixels, of what the device would not decode; None of a JPEG file."""
    resize: tuple[int, int]
    """Height and width that the part `box` is resized to."""
    box: tuple[int, int, int, int]
    """Left, upper, right, lower of the part of the image."""
    mirrored: bool
    label: int


@dataclass(frozen=True)
class Encoded:
    """Files and what is to be seen of them, in one piece: a tensor of its own takes a file descriptor."""

    content: torch.Tensor
    """uint8, of all files one after the other."""
    lengths: tuple[int, ...]
    """Of the files, in bytes."""
    views: tuple[View, ...]


class JpegBytes(ImageNetDataset):
    """The views of `ImageNetDataset` and `TorchvisionImages`, not decoded yet.

    An item is the content, uint8 (bytes,), and its `View`; a batch is `Encoded`.
    """

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, View]:  # type: ignore[override]
        position = key[1]
        path = self._path(position)
        content = torch.from_numpy(np.fromfile(path, np.uint8))
        size, shape = _jpeg_size(content), None
        if size is None:
            pixels = decode(path)
            size = pixels.shape[2], pixels.shape[1]
            content, shape = pixels.flatten(), (3, *size[::-1])
        width, height = size
        box, mirrored, resize = (0, 0, width, height), False, (self.image_size, self.image_size)
        if self.augment:
            box, mirrored = self._random_view(key, width, height)
        else:
            resize = central_geometry(width, height, self.image_size)[1::-1]
        return content, View(path, shape, resize, box, mirrored, int(self.labels[position]))

    @staticmethod
    def collate(items: Sequence[tuple[torch.Tensor, View]]) -> Encoded:
        """Return the batch."""
        contents, views = zip(*items, strict=True)
        return Encoded(torch.cat(contents), tuple(map(len, contents)), views)


def _jpeg_size(content: torch.Tensor) -> tuple[int, int] | None:
    """Return width and height of a whole JPEG that nvJPEG decodes; None for anything else."""
    data = content.numpy()
    if not data.size or _END not in data[-_TAIL:].tobytes():
        return None
    try:
        with Image.open(io.BytesIO(data.tobytes())) as image:
            known = image.format == "JPEG" and image.mode in _COLOURS
            return image.size if known else None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


def decoded_batch(
    batch: Encoded, image_size: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pixels, uint8 (n, 3, image_size, image_size) on the device, and labels, int64 (n).

    InputError names a file that cannot be decoded.
    """
    contents = batch.content.split(batch.lengths)
    files = [(c, view) for c, view in zip(contents, batch.views, strict=True) if not view.pixels]
    decoded = iter(_decoded(files, device))
    whole = [
        content.view(view.pixels).to(device) if view.pixels else next(decoded)
        for content, view in zip(contents, batch.views, strict=True)
    ]
    seen = [_seen(image, view, image_size) for image, view in zip(whole, batch.views, strict=True)]
    return torch.stack(seen), torch.tensor([view.label for view in batch.views])


def _decoded(
    files: Sequence[tuple[torch.Tensor, View]], device: torch.device
) -> list[torch.Tensor]:
    """Return the pixels of JPEG files, uint8 (3, height, width) each."""
    from torchvision.io import ImageReadMode, decode_jpeg

    if not files:
        return []
    if device.type == "cuda":
        # torchvision decodes on a stream of its own into memory of this one, which may still be read here.
        torch.cuda.current_stream(device).synchronize()
    try:
        contents = [content for content, _ in files]
        return decode_jpeg(contents, mode=ImageReadMode.RGB, device=device)
    except RuntimeError as error:  # it does not say which one: each by itself
        found = [_decoded_alone(content, device) for content, _ in files]
        if len(files) > 1 and all(pixels is None for pixels in found):
            raise InputError(
                f"loader nvjpeg: the device decodes no image of a batch ({error})"
            ) from error
        pairs = zip(found, files, strict=True)
        return [decode(view.path).to(device) if p is None else p for p, (_, view) in pairs]


def _decoded_alone(content: torch.Tensor, device: torch.device) -> torch.Tensor | None:
    """Return the pixels of one JPEG file; None if the device does not decode it."""
    from torchvision.io import ImageReadMode, decode_jpeg

    try:
        return decode_jpeg(content, mode=ImageReadMode.RGB, device=device)
    except RuntimeError:
        return None


def _seen(pixels: torch.Tensor, view: View, image_size: int) -> torch.Tensor:
    """Return the part of an image that a view shows, uint8 (3, image_size, image_size)."""
    left, upper, right, lower = view.box
    if right > pixels.shape[2] or lower > pixels.shape[1]:
        raise InputError(f"{view.path}: is smaller than its header says; expected a whole image")
    part = pixels[:, upper:lower, left:right]
    height, width = view.resize
    # First across, then down, with bytes between: as Pillow and torch's kernel for bytes, which CPUs
    # alone have.
    seen = _resized(_resized(part, part.shape[1], width), height, width)
    upper, left = round((height - image_size) / 2), round((width - image_size) / 2)
    seen = seen[:, upper : upper + image_size, left : left + image_size]
    return seen.flip(2) if view.mirrored else seen


def _resized(pixels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    size = height, width
    exact = functional.interpolate(
        pixels[None].float(), size=size, mode="bilinear", antialias=True
    )[0]
    return exact.round_().clamp_(0, 255).to(torch.uint8)
