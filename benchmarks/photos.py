"""JPEGs like ImageNet's, for the benchmarks: parts of two photos that scikit-learn ships."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images

from scalewatt.datasets.imagenet.index import build_index

SIZE = (500, 375)
"""Width and height that ImageNet has most of."""


def write_photos(folder: Path, splits: dict[str, int], classes: int) -> float:
    """Write so many photos of each split in ImageFolder's layout, and the index; their mean bytes."""
    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    rng = np.random.default_rng(0)
    sizes = []
    for split, count in splits.items():
        for number in range(count):
            photo = photos[rng.integers(len(photos))]
            width, height = rng.integers(400, photo.width), rng.integers(300, photo.height)
            left, upper = rng.integers(photo.width - width), rng.integers(photo.height - height)
            box = (int(left), int(upper), int(left + width), int(upper + height))
            image = photo.crop(box).resize(SIZE, Image.Resampling.BICUBIC)
            path = folder / split / f"n{number % classes:08d}" / f"{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, quality=95)
            sizes.append(path.stat().st_size)
        build_index(folder, split)
    return float(np.mean(sizes))
