"""ImageNet from where the cluster has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalewatt.datasets.image_index import build_index
from scalewatt.errors import InputError


def prepare_images(definition: dict[str, Any], folder: Path, source: str | None) -> tuple[int, int]:
    """Index the images of both splits; training and validation samples."""
    counts = {}
    wanted = {"train": definition["train_samples"], "val": definition["validation_samples"]}
    for split, expected in wanted.items():
        index = build_index(folder, split)
        counts[split] = len(index.paths)
        for what, found, right in (
            ("images", counts[split], expected),
            ("classes", len(index.classes), definition["classes"]),
        ):
            if found != right:
                raise InputError(
                    f"{folder / split}: has {found} {what}, "
                    f"dataset {definition['name']} has {right}"
                )
    return counts["train"], counts["val"]
