"""ImageNet's folder layout, `train/<class>/<image>` and `val/<class>/<image>`, as an index."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.datasets.image_extraction import SUFFIXES
from scalewatt.errors import InputError
from scalewatt.files import write_table

SPLITS = ("train", "val")
_LISTING_THREADS = 16
"""Folders listed at once: a shared file system answers slowly, but many at a time."""


@dataclass(frozen=True)
class ImageFolderIndex:
    """The images of one split: paths relative to `folder`, labels int32, class names by label."""

    folder: Path
    paths: list[str]
    labels: np.ndarray
    classes: list[str]
    sizes: np.ndarray | None = None
    """int64, in bytes; None where the index was written without."""

    @classmethod
    def load(cls, folder: Path | str, split: str) -> ImageFolderIndex:
        """Read what `build_index` wrote; `folder` of the result is where the images are."""
        path = index_path(folder, split)
        if not path.exists():
            raise InputError(f"{path}: missing; the data is not prepared")
        table = pq.read_table(path)
        labels = table["label"].to_numpy().astype(np.int32)
        sizes = table["bytes"].to_numpy() if "bytes" in table.column_names else None
        classes = json.loads(table.schema.metadata[b"classes"])
        elsewhere = table.schema.metadata.get(b"folder")
        root = Path(os.fsdecode(elsewhere)) if elsewhere else Path(folder)
        return cls(root, table["path"].to_pylist(), labels, classes, sizes)

    def counts(self) -> dict[str, int]:
        """Number of images of each class."""
        counts = np.bincount(self.labels, minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    def save(self, folder: Path | str, split: str) -> None:
        """Write the index to `folder`; it says where the images are unless they are there."""
        columns = {"path": pa.array(self.paths, pa.string()), "label": pa.array(self.labels)}
        if self.sizes is not None:
            columns["bytes"] = pa.array(self.sizes, pa.int64())
        metadata = {"classes": json.dumps(self.classes)}
        if self.folder != Path(folder):
            metadata["folder"] = os.path.abspath(self.folder)
        write_table(pa.table(columns).replace_schema_metadata(metadata), index_path(folder, split))

    def sha256(self) -> str:
        """Digest over the images' paths and sizes; the same wherever they are."""
        if self.sizes is None:
            raise InputError(f"{self.folder}: the index has no sizes; prepare the data again")
        digest = hashlib.sha256()
        for path, size in zip(self.paths, self.sizes.tolist(), strict=True):
            digest.update(f"{path}\0{size}\n".encode())
        return digest.hexdigest()


def index_path(folder: Path | str, split: str) -> Path:
    """Where the index of a split is."""
    return Path(folder) / f"index-{split}.parquet"


def build_index(
    folder: Path | str, split: str, images: Path | str | None = None
) -> ImageFolderIndex:
    """Find all images of a split below `images` (default: `folder`) and write its index to `folder`.

    They are sorted by class and then name. A class without images, or with an empty one, is named.
    """
    source = Path(folder if images is None else images)
    root = source / split
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; expected {split}/<class>/<image> below {source}")
    try:
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        with ThreadPoolExecutor(_LISTING_THREADS) as threads:
            listed = list(threads.map(_images, [root / name for name in classes]))
    except OSError as error:
        raise InputError(f"{error.filename or root}: cannot be read ({error.strerror})") from error
    paths = [
        f"{split}/{name}/{image}"
        for name, images_ in zip(classes, listed, strict=True)
        for image, _ in images_
    ]
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), [len(each) for each in listed])
    sizes = np.array([size for each in listed for _, size in each], np.int64)
    index = ImageFolderIndex(source, paths, labels, classes, sizes)
    index.save(folder, split)
    return index


def _images(folder: Path) -> list[tuple[str, int]]:
    """Name and bytes of every image of a class, sorted."""
    found = sorted(
        (entry.name, entry.stat().st_size)
        for entry in os.scandir(folder)
        if entry.name.lower().endswith(SUFFIXES)
    )
    if not found:
        raise InputError(f"{folder}: no images ({', '.join(SUFFIXES)}) in this class")
    empty = [name for name, size in found if size == 0]
    if empty:
        raise InputError(
            f"{folder}: {len(empty)} of {len(found)} images are empty files, first {empty[0]}"
        )
    return found
