"""Photos like ImageNet's without a download: parts of the two photos that scikit-learn ships.

For what loading costs, not for what a network learns: a class is a number. ImageNet's training images are
1,281,167 files in 147.9 GB of tars (image-net.org), 115 kB each; most are 500 pixels long. These have such
sizes, by a grain as of a sensor and by JPEG's quality.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from scalewatt.common.errors import InputError
from scalewatt.common.processes import die_with
from scalewatt.datasets.imagenet.index import SPLITS, build_index

SIZES = ((500, 375), (500, 375), (500, 333), (375, 500))
"""Width and height in pixels, in turn."""
QUALITY = 95
GRAIN = 8.0
"""Standard deviation in grey levels; with QUALITY it makes files of ImageNet's mean size."""
_PART = 256
"""Photos that a process writes at a time."""


def write_photos(folder: Path | str, definition: dict[str, Any]) -> None:
    """Write train/ and val/ with the definition's numbers of photos, and their indices.

    The same definition gives the same files with the same Pillow.
    """
    counts = dict(
        zip(SPLITS, (definition["train_samples"], definition["validation_samples"]), strict=True)
    )
    if min(counts.values()) < definition["classes"]:
        raise InputError(
            f"dataset {definition['name']}: {definition['classes']} classes of {counts['train']} and"
            f" {counts['val']} photos; allowed: at most as many classes as photos of a split"
        )
    parts = [
        (split, first, min(first + _PART, count))
        for split, count in counts.items()
        for first in range(0, count, _PART)
    ]
    write = partial(_write_part, os.fspath(folder), definition["classes"])
    processes = min(len(parts), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(processes, get_context("spawn"), die_with, (os.getpid(),)) as pool:
        list(pool.map(write, parts))
    for split in SPLITS:
        build_index(folder, split)


def _write_part(folder: str, classes: int, part: tuple[str, int, int]) -> None:
    split, first, last = part
    for number in range(first, last):
        path = Path(folder) / split / f"n{number % classes:08d}" / f"photo_{number:07d}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(split, number).save(path, "JPEG", quality=QUALITY)


def photo(split: str, number: int) -> Image.Image:
    """Return one of a split's photos."""
    rng = np.random.default_rng([SPLITS.index(split), number])
    whole = _whole()[int(rng.integers(2))]
    size = SIZES[number % len(SIZES)]
    scale = rng.uniform(0.6, 1.0) * min(whole.width / size[0], whole.height / size[1])
    width, height = int(size[0] * scale), int(size[1] * scale)
    left = int(rng.integers(whole.width - width + 1))
    upper = int(rng.integers(whole.height - height + 1))
    part = whole.crop((left, upper, left + width, upper + height))
    pixels = np.asarray(part.resize(size, Image.Resampling.BICUBIC), np.float32)
    grain = rng.normal(0, GRAIN, (*pixels.shape[:2], 1)).astype(np.float32)
    return Image.fromarray(np.clip(pixels + grain, 0, 255).astype(np.uint8))


@cache
def _whole() -> list[Image.Image]:
    from sklearn.datasets import load_sample_images

    return [Image.fromarray(pixels) for pixels in load_sample_images().images]
