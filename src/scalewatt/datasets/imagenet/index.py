"""ImageNet's folder layout, `train/<class>/<image>` and `val/<class>/<image>`, as an index."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json, write_table

SPLITS = ("train", "val")
SUFFIXES = (".jpeg", ".jpg", ".png")
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
    """int64, in bytes; None if the index was written without."""

    @classmethod
    def load(cls, folder: Path | str, split: str) -> ImageFolderIndex:
        """Read what `build_index` wrote; `folder` of the result is where the images are."""
        path = _existing(folder, split)
        table = pq.read_table(path, page_checksum_verification=True)
        labels = table["label"].to_numpy().astype(np.int32)
        sizes = table["bytes"].to_numpy() if "bytes" in table.column_names else None
        classes = parse_json(table.schema.metadata[b"classes"])
        root = _images_folder(table.schema, folder)
        return cls(root, table["path"].to_pylist(), labels, classes, sizes)

    def counts(self) -> dict[str, int]:
        """Count the images of each class."""
        counts = np.bincount(self.labels, minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    def save(self, folder: Path | str, split: str) -> None:
        """Write the index to `folder`; it says where the images are unless they are there."""
        columns = {"path": pa.array(self.paths, pa.string()), "label": pa.array(self.labels)}
        if self.sizes is not None:
            columns["bytes"] = pa.array(self.sizes, pa.int64())
        metadata: dict[str, str | bytes] = {"classes": json.dumps(self.classes)}
        if self.folder != Path(folder):
            metadata["folder"] = os.fsencode(os.path.abspath(self.folder))
        write_table(pa.table(columns).replace_schema_metadata(metadata), index_path(folder, split))

    def sha256(self) -> str:
        """Return a digest of the images' paths and sizes; the same wherever they are."""
        if self.sizes is None:
            raise InputError(f"{self.folder}: the index has no sizes; prepare the data again")
        digest = hashlib.sha256()
        for path, size in zip(self.paths, self.sizes.tolist(), strict=True):
            digest.update(f"{path}\0{size}\n".encode())
        return digest.hexdigest()


def index_path(folder: Path | str, split: str) -> Path:
    """Return the path of a split's index."""
    return Path(folder) / f"index-{split}.parquet"


def indexed_folder(folder: Path | str, split: str) -> Path:
    """Return the folder of a split's images, by its index in `folder`."""
    return _images_folder(pq.read_schema(_existing(folder, split)), folder)


def classes_are_there(folder: Path | str, split: str) -> bool:
    """Return True if there is a folder for each class of a split's index."""
    schema = pq.read_schema(_existing(folder, split))
    root = _images_folder(schema, folder) / split
    classes = set(parse_json(schema.metadata[b"classes"]))
    return root.is_dir() and classes <= set(os.listdir(root))


def _existing(folder: Path | str, split: str) -> Path:
    path = index_path(folder, split)
    if not path.exists():
        raise InputError(f"{path}: missing; the data is not prepared")
    return path


def _images_folder(schema: pa.Schema, folder: Path | str) -> Path:
    elsewhere = schema.metadata.get(b"folder")
    return Path(os.fsdecode(elsewhere)) if elsewhere else Path(folder)


def build_index(folder: Path | str, split: str) -> ImageFolderIndex:
    """Find all images of a split below `folder` and write its index there."""
    index = find_images(folder, split)
    index.save(folder, split)
    return index


def find_images(folder: Path | str, split: str) -> ImageFolderIndex:
    """Find all images of a split below `folder`, sorted by class and then name; nothing is written.

    Hidden files and folders are neither: a Mac leaves `._name.JPEG` beside every image that it copies.
    InputError names a class without images or with an empty one, and a name that is no UTF-8.
    """
    source = Path(folder)
    root = source / split
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; expected {split}/<class>/<image> below {source}")
    try:
        classes = sorted(entry.name for entry in _visible(root) if entry.is_dir())
        _check_names(root, classes)
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
    return ImageFolderIndex(source, paths, labels, classes, sizes)


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder without hidden ones."""
    return [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]


def _images(folder: Path) -> list[tuple[str, int]]:
    """Return name and size of every image of a class, sorted."""
    found = sorted(
        (entry.name, entry.stat().st_size)
        for entry in _visible(folder)
        if entry.name.lower().endswith(SUFFIXES)
    )
    if not found:
        raise InputError(f"{folder}: no images ({', '.join(SUFFIXES)}) in this class")
    _check_names(folder, (name for name, _ in found))
    empty = [name for name, size in found if size == 0]
    if empty:
        raise InputError(
            f"{folder}: {len(empty)} of {len(found)} images are empty files, first {empty[0]}"
        )
    return found


def _check_names(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{folder}: the name {name!r} in it is no UTF-8; rename it") from error
