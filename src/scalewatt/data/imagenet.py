"""ImageNet as train/<class>/<image> and val/<class>/<image>: an index, subsets, and the official files."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.files import require_space, write_table
from scalewatt.common.termination import say

SPLITS = ("train", "val")
SUFFIXES = (".jpeg", ".jpg", ".png")
TARS = {
    "train": "ILSVRC2012_img_train.tar",
    "val": "ILSVRC2012_img_val.tar",
    "devkit": "ILSVRC2012_devkit_t12.tar.gz",
}
NUMBERS = ("train_samples", "validation_samples", "classes")
OFFICIAL_NUMBERS = (1_281_167, 50_000, 1000)
OFFICIAL_MD5 = {
    "train": "1d675b47d978889d74fa0da5fadfb00e",
    "val": "29b22e2961454d5413ddabcf34fc5622",
    "devkit": "fa75699e90414af021442c21a62c3abf",
}
EXTRACTING = ".extracting"
LISTING_THREADS = 16
"""Folders listed at once: a shared file system answers slowly, but many at a time."""


@dataclass(frozen=True)
class ImageFolderIndex:
    """Images of a split: paths <split>/<class>/<image> in `folder`, labels int32, sizes in bytes."""

    folder: Path
    paths: list[str]
    labels: np.ndarray
    sizes: np.ndarray

    @property
    def classes(self) -> list[str]:
        """Classes by label."""
        return list(dict.fromkeys(path.split("/")[1] for path in self.paths))

    @classmethod
    def load(cls, folder: Path | str, split: str) -> ImageFolderIndex:
        """Read the index of a prepared folder; the images may be in another one."""
        table = pq.read_table(Path(folder) / f"index-{split}.parquet")
        images = os.fsdecode(table.schema.metadata.get(b"folder", b"")) or folder
        labels = table["label"].to_numpy().astype(np.int32)
        return cls(Path(images), table["path"].to_pylist(), labels, table["bytes"].to_numpy())

    def save(self, folder: Path | str, split: str) -> None:
        """Write the index to `folder`, with the folder of the images if they are in another one."""
        images = b"" if self.folder == Path(folder) else os.fsencode(self.folder.absolute())
        table = pa.table({"path": self.paths, "label": self.labels, "bytes": self.sizes})
        table = table.replace_schema_metadata({"folder": images})
        write_table(table, Path(folder) / f"index-{split}.parquet")


def find_images(folder: Path | str, split: str) -> ImageFolderIndex:
    """Index the images of a split below `folder`, sorted by class and then name; nothing is written.

    Hidden files and folders do not count: a Mac leaves `._name.JPEG` beside every image that it copies.
    InputError names a class without images, or with an empty one.
    """
    root = Path(folder) / split
    classes = sorted(path for path in root.glob("[!.]*") if path.is_dir())
    with ThreadPoolExecutor(LISTING_THREADS) as threads:
        listed = list(threads.map(_images_of_class, classes))
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), [len(images) for images in listed])
    sizes = {f"{split}/{path}": size for images in listed for path, size in images.items()}
    return ImageFolderIndex(Path(folder), [*sizes], labels, np.array([*sizes.values()], np.int64))


def _images_of_class(folder: Path) -> dict[str, int]:
    """Bytes of every image of a class by <class>/<image>, sorted."""
    try:
        images = {
            f"{folder.name}/{entry.name}": entry.stat().st_size
            for entry in os.scandir(folder)
            if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".")
        }
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error
    if not images:
        raise InputError(f"{folder}: no images ({', '.join(SUFFIXES)}) in this class")
    if empty := sorted(path for path, size in images.items() if size == 0):
        raise InputError(f"{folder.parent / empty[0]}: empty file (in its class: {len(empty)})")
    return dict(sorted(images.items()))


def stratified_subset(labels: np.ndarray, total: int, seed: int) -> np.ndarray:
    """Choose `total` samples stratified by class: sorted indices (int64), nested by `total`.

    Samples are shuffled within their class; the j-th of a class of c samples comes at (j + 1/2)/c. The
    subset is a prefix of that order, and has the share of each class within a sample where classes are of
    similar size. (Largest remainders are exact, but not nested.)
    """
    labels = np.asarray(labels)
    if not 0 <= total <= len(labels):
        raise ValueError(f"a subset of {len(labels)} samples cannot have {total} samples")
    keys = np.random.default_rng(seed).random(len(labels))
    in_class = np.lexsort((keys, labels))
    _, first, counts = np.unique(labels[in_class], return_index=True, return_counts=True)
    rank = np.arange(len(labels)) - np.repeat(first, counts)
    position = (rank + 0.5) / np.repeat(counts, counts)
    order = np.lexsort((keys[in_class], position))
    return np.sort(in_class[order[:total]])


def subset_positions(folder: Path | str, spec: RunSpec) -> dict[str, np.ndarray]:
    """Positions (int64, ascending) of the subsets that a run reads, by split; empty if it reads all."""
    if spec.dataset_fraction == "1":
        return {}
    totals = {"train": spec.dataset_samples or 0, "val": spec.validation_samples or 0}
    return {
        split: stratified_subset(ImageFolderIndex.load(folder, split).labels, total, spec.seed or 0)
        for split, total in totals.items()
    }


def prepare_images(
    definition: dict[str, Any], folder: Path, source: str | None
) -> dict[str, ImageFolderIndex]:
    """Extract the tars if that is the source; checked indices by split, not yet written.

    Without a source the tars, or the tree, are in `folder`. A tree elsewhere is read where it is, and
    nothing is written there.
    """
    images = Path(source or folder)
    if not _is_tree(images):
        if not _is_tree(folder):  # as it is once they are extracted
            try:
                extract_tars(images, definition, folder)
            finally:
                shutil.rmtree(folder / EXTRACTING, ignore_errors=True)
        images = folder
    indices = {split: find_images(images, split) for split in SPLITS}
    train, val = (set(index.classes) for index in indices.values())
    if alone := sorted(train ^ val):
        lacking = f"{alone[0]} is missing in {'val' if alone[0] in train else 'train'}"
        raise InputError(f"{images}: {lacking} (such classes: {len(alone)})")
    for split, key in zip(SPLITS, NUMBERS, strict=False):
        present = f"{len(indices[split].paths)} images of {len(train)} classes"
        needed = f"{definition[key]} images of {definition['classes']} classes"
        if present != needed:
            raise InputError(f"{images / split}: has {present}; {definition['name']} has {needed}")
    return indices


def _is_tree(folder: Path) -> bool:
    return all((folder / split).is_dir() for split in SPLITS)


def extract_tars(source: Path, definition: dict[str, Any], folder: Path) -> None:
    """Extract train/ and val/ into `folder` from the official files in `source`.

    They appear when all classes are complete and, for the full ImageNet, the MD5 are right. InputError
    names what is missing, damaged or of another number or digest than expected.
    """
    tars = {kind: source / name for kind, name in TARS.items()}
    if missing := [path for path in tars.values() if not path.is_file()]:
        expected = f"{', '.join(TARS.values())}, or train/<class>/<image> and val/<class>/<image>"
        raise InputError(f"{missing[0]}: missing; expected {expected}")
    # What the devkit says must be what the campaign defines, before anything is extracted.
    train, val = read_devkit(tars["devkit"])
    numbers = (sum(train.values()), len(val), len(train))
    for key, number in zip(NUMBERS, numbers, strict=True):
        if number != definition[key]:
            expected = f"dataset {definition['name']} {definition[key]}"
            raise InputError(f"{tars['devkit']}: has {number} {key}, {expected}")
    if present := [folder / split for split in SPLITS if (folder / split).exists()]:
        raise InputError(f"{present[0]}: would be extracted from {source}; remove it")
    root = folder / EXTRACTING
    shutil.rmtree(root, ignore_errors=True)  # of an extraction that was killed
    root.mkdir()
    size = sum(tars[split].stat().st_size for split in SPLITS)
    require_space(root, size, str(root), "the images", "; name another data root")

    # Each class is a tar within the training tar, and a job of its own.
    say(f"{folder}: extracting {len(train)} classes from {source}")
    with _reading(tars["train"]), tarfile.open(tars["train"]) as tar:
        members = {Path(member.name).stem: member for member in tar if member.isfile()}
    if odd := sorted(members.keys() ^ train.keys()):
        raise InputError(f"{tars['train']}: classes differ from the devkit: {', '.join(odd[:5])}")
    md5 = OFFICIAL_MD5 if numbers == OFFICIAL_NUMBERS else {}
    threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        # A digest reads a whole file and takes longest, so it begins first.
        digests = {kind: threads.submit(file_md5, tars[kind]) for kind in md5}
        counts = {
            wnid: threads.submit(extract, tars["train"], member, root / "train" / wnid, {})
            for wnid, member in members.items()
        }
        counts["val"] = threads.submit(extract, tars["val"], None, root / "val", val)
        for name, number in {**train, "val": len(val)}.items():
            if (extracted := counts[name].result()) != number:
                path = tars["val" if name == "val" else "train"]
                raise InputError(f"{path}: {name} has {extracted} images, the devkit says {number}")
        for kind, digest in digests.items():
            if digest.result() != md5[kind]:
                raise InputError(f"{tars[kind]}: MD5 is {digest.result()}, expected {md5[kind]}")
    finally:
        threads.shutdown(cancel_futures=True)
    for split in SPLITS:
        os.rename(root / split, folder / split)


def read_devkit(path: Path) -> tuple[dict[str, int], dict[str, str]]:
    """Number of training images by class (WordNet id), and class of each validation image by its name.

    Only synsets without children are classes; the others are their groups in WordNet.
    """
    from scipy.io import loadmat

    try:
        content = io.BytesIO(gzip.decompress(path.read_bytes()))  # with its checksum
        with tarfile.open(fileobj=content) as tar:
            files = {Path(m.name).name: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]
        synsets = loadmat(io.BytesIO(files["meta.mat"]), squeeze_me=True)["synsets"]
        classes = [row for row in np.atleast_1d(synsets) if int(row["num_children"]) == 0]
        wnids = {str(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in classes}
        truth = files["ILSVRC2012_validation_ground_truth.txt"].decode().split()
        train = {str(row["WNID"]): int(row["num_train_images"]) for row in classes}
        names = (f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, len(truth) + 1))
        return train, {name: wnids[number] for name, number in zip(names, truth, strict=True)}
    except Exception as error:  # of many kinds, by what is damaged
        raise InputError(f"{path}: cannot be read as ILSVRC2012's devkit ({error!r})") from error


@contextmanager
def _reading(tar_path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{tar_path}: cannot be read as a tar file ({error})") from error


def extract(
    tar_path: Path, member: tarfile.TarInfo | None, out: Path, classes: dict[str, str]
) -> int:
    """Extract the images of a tar, or of its `member`, to `out` or its `classes` by name; their number."""
    for folder in {out, *(out / wnid for wnid in classes.values())}:
        folder.mkdir(parents=True, exist_ok=True)
    with _reading(tar_path), tarfile.open(tar_path) as outer:
        file = outer.extractfile(member) if member else None
        with tarfile.open(fileobj=file) if file else outer as images:
            for image in filter(tarfile.TarInfo.isfile, images):
                name = Path(image.name).name
                if classes and name not in classes:
                    raise InputError(f"{tar_path}: {name} is not an image of the devkit")
                path = out / classes.get(name, "") / name
                path.write_bytes(images.extractfile(image).read())  # type: ignore[union-attr]
    return sum(len(files) for *_, files in os.walk(out))


def file_md5(path: Path) -> str:
    """MD5 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
