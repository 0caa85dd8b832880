"""ImageNet's folder layout: `train/<class>/<image>` and `val/<class>/<image>`, and its reader."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.utils.data import Dataset

from scalewatt.errors import InputError
from scalewatt.files import write_table

SPLITS = ("train", "val")
SUFFIXES = (".jpeg", ".jpg", ".png")
CHANNEL_MEAN = (0.485, 0.456, 0.406)
CHANNEL_SD = (0.229, 0.224, 0.225)
"""Of ImageNet's pixels in 0–1, the values everybody uses."""


@dataclass(frozen=True)
class ImageFolderIndex:
    """The images of one split: paths relative to `folder`, labels int32, class names by label."""

    folder: Path
    paths: list[str]
    labels: np.ndarray
    classes: list[str]

    @classmethod
    def load(cls, folder: Path | str, split: str) -> ImageFolderIndex:
        """Read what `build_index` wrote."""
        path = index_path(folder, split)
        if not path.exists():
            raise InputError(f"{path}: missing; the data is not prepared")
        table = pq.read_table(path)
        labels = table["label"].to_numpy().astype(np.int32)
        classes = json.loads(table.schema.metadata[b"classes"])
        return cls(Path(folder), table["path"].to_pylist(), labels, classes)


def index_path(folder: Path | str, split: str) -> Path:
    """Where the index of a split is."""
    return Path(folder) / f"index-{split}.parquet"


def build_index(folder: Path | str, split: str) -> ImageFolderIndex:
    """Find all images of a split and write its index, sorted by class and then name."""
    folder = Path(folder)
    root = folder / split
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; expected {split}/<class>/<image> below {folder}")
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = sorted(n for n in os.listdir(root / name) if n.lower().endswith(SUFFIXES))
        if not images:
            raise InputError(f"{root / name}: no images ({', '.join(SUFFIXES)}) in this class")
        paths += [f"{split}/{name}/{image}" for image in images]
        labels += [label] * len(images)
    table = pa.table({"path": pa.array(paths, pa.string()), "label": pa.array(labels, pa.int32())})
    write_table(
        table.replace_schema_metadata({"classes": json.dumps(classes)}), index_path(folder, split)
    )
    return ImageFolderIndex(folder, paths, np.array(labels, np.int32), classes)


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
        epoch, position = key
        image = self._open(position)
        if self.augment:
            rng = np.random.default_rng([self.seed, epoch, int(self.indices[position])])
            image = self._random_view(image, rng)
        else:
            image = central_view(image, self.image_size)
        return to_tensor(image), int(self.labels[position])

    def _open(self, position: int) -> Image.Image:
        path = os.path.join(self.folder, os.fsdecode(self.paths[position]))
        try:
            with Image.open(path) as image:
                return image.convert("RGB")
        except OSError as error:
            raise InputError(f"{path}: cannot be read as an image ({error})") from error

    def _random_view(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        box = random_box(image.width, image.height, self.crop_scale, rng)
        size = (self.image_size, self.image_size)
        image = image.crop(box).resize(size, Image.Resampling.BILINEAR)
        if self.horizontal_flip and rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image


def random_box(
    width: int, height: int, scale: tuple[float, ...], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """A box (left, upper, right, lower) of random area and aspect inside the image.

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
    shorter = round(size * 256 / 224)
    factor = shorter / min(image.size)
    width, height = (
        shorter if length == min(image.size) else int(length * factor) for length in image.size
    )
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, upper = round((width - size) / 2), round((height - size) / 2)
    return image.crop((left, upper, left + size, upper + size))


_SCALE = (1 / (255 * np.array(CHANNEL_SD))).astype(np.float32)[:, None, None]
_OFFSET = (np.array(CHANNEL_MEAN) / np.array(CHANNEL_SD)).astype(np.float32)[:, None, None]


def to_tensor(image: Image.Image) -> torch.Tensor:
    """An RGB image as float32 (3, height, width), normalised with ImageNet's mean and sd."""
    pixels = np.asarray(image).transpose(2, 0, 1)
    out = np.empty(pixels.shape, np.float32)
    np.multiply(pixels, _SCALE, out=out)
    out -= _OFFSET
    return torch.from_numpy(out)
