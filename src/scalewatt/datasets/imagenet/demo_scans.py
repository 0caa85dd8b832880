"""Real images in ImageNet's layout without a download: scikit-learn's handwriting scans.

1797 scans of handwritten digits, 8 × 8 pixels (E. Alpaydin and C. Kaynak, Optical Recognition of
Handwritten Digits, UCI Machine Learning Repository, 1998, CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.datasets.imagenet.subsets import stratified_subset

SIZE = 40  # pixels; the model crops to its own size


def write_scans(folder: Path | str, definition: dict[str, Any]) -> None:
    """Write train/ and val/ with the definition's numbers of images, and their indices.

    The split is stratified and always the same.
    """
    from PIL import Image
    from sklearn.datasets import load_digits

    from scalewatt.datasets.imagenet.index import SPLITS, build_index

    digits = load_digits()
    chosen = _split(digits.target, definition)
    for split, indices in zip(SPLITS, chosen, strict=True):
        for index in indices:
            digit = digits.target[index]
            pixels = np.uint8(np.round(digits.images[index] * (255 / 16)))
            path = Path(folder) / split / f"n{digit:07d}d" / f"scan_{index:04d}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
            image.convert("RGB").save(path, "JPEG", quality=95)
        build_index(folder, split)


def _split(labels: np.ndarray, definition: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the training and of the validation scans."""
    train, validation = definition["train_samples"], definition["validation_samples"]
    classes = len(np.unique(labels))
    if train + validation > len(labels) or min(train, validation) < classes:
        raise InputError(
            f"dataset {definition['name']}: train_samples {train} and validation_samples "
            f"{validation} must be at least {classes} each, and {len(labels)} together at most"
        )
    if definition["classes"] != classes:
        raise InputError(
            f"dataset {definition['name']}: classes is {definition['classes']}, "
            f"the scans have {classes}"
        )
    training = stratified_subset(labels, train, seed=0)
    rest = np.setdiff1d(np.arange(len(labels)), training)
    return training, rest[stratified_subset(labels[rest], validation, seed=0)]
