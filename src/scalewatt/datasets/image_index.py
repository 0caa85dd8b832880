"""ImageNet's folder layout, `train/<class>/<image>` and `val/<class>/<image>`, as an index."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.errors import InputError
from scalewatt.files import write_table

SPLITS = ("train", "val")
SUFFIXES = (".jpeg", ".jpg", ".png")


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
