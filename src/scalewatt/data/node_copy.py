"""A node's copy of the images that a run reads: a tar for each split, unpacked once a node.

The tars lie beside the indices, are named by the content of the data, and have the images in the index's
order. Where each image is follows from the sizes in the index, so that a run of a subset reads no more.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import require_space, waiting_lock
from scalewatt.data.imagenet import SPLITS, ImageFolderIndex
from scalewatt.data.prepared import content_of_prepared

BLOCK = tarfile.BLOCKSIZE
THREADS, IMAGES_AT_ONCE = 16, 512


def packed_images(folder: Path, split: str) -> Path:
    """Tar of a prepared folder's images of a split; it exists only when complete."""
    return folder / f"packed-{content_of_prepared(folder)[:12]}-{split}.tar"


def check_packed(folder: Path) -> None:
    """Raise InputError if the images of a prepared folder are not packed."""
    for split in SPLITS:
        if not (path := packed_images(folder, split)).exists():
            command = shlex.join(["scalewatt", "prepare", "--folder", str(folder), "--pack"])
            raise InputError(f"{path}: missing; create it with: {command}")


def _starts(index: ImageFolderIndex) -> np.ndarray:
    """Where each image begins in the tar, after a header of one block."""
    sizes = BLOCK + _rounded_up(index.sizes, BLOCK)
    return np.cumsum(sizes) - sizes + BLOCK


def _rounded_up(sizes: np.ndarray, block: int) -> np.ndarray:
    return -(-sizes // block) * block


def pack(folder: Path) -> None:
    """Put the indexed images of a prepared folder into tars, unless that was done.

    InputError names an image that has another size than in the index, or says that the disk is too small.
    """
    with waiting_lock(folder / ".lock", f"{folder}: another process works here; waiting for it"):
        for split in SPLITS:
            if (packed := packed_images(folder, split)).exists():
                continue
            index = ImageFolderIndex.load(folder, split)
            size = int(_rounded_up(index.sizes, BLOCK).sum()) + BLOCK * len(index.paths)
            require_space(folder, size, str(folder), "the packed images")
            building = folder / ".packed.tar.partial"
            with tarfile.open(building, "w", format=tarfile.GNU_FORMAT) as tar:
                for path, size, start in zip(index.paths, index.sizes, _starts(index), strict=True):
                    content, member = (index.folder / path).read_bytes(), tarfile.TarInfo(path)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                    if tar.offset != start + _rounded_up(size, BLOCK):
                        text = "is not as indexed, or its name is too long"
                        raise InputError(f"{index.folder / path}: {text}")
            os.replace(building, packed)


def copy_images(folder: Path, scratch: str, name: str, subsets: Mapping[str, np.ndarray]) -> Path:
    """Unpack images of a prepared folder to the folder `name` below `scratch`, for a dataset to read.

    `subsets` has the positions by split, of a split without them all are copied. Positions and labels stay
    the same, other images are absent. Variables ($TMPDIR) are expanded here, on the node. What an earlier
    start of the run has left is replaced; the caller removes the copy in the end. InputError if scratch is
    missing or too small, or the packed images are missing.
    """
    check_packed(folder)
    base, host = Path(os.path.expanduser(os.path.expandvars(scratch))), os.uname().nodename
    if "$" in str(base) or not (base.is_dir() and os.access(base, os.W_OK | os.X_OK)):
        raise InputError(f"scratch: {base} is not a writable folder on {host}")
    copy = base.absolute() / f"scalewatt-{name}"
    shutil.rmtree(copy, ignore_errors=True)
    indices = {split: ImageFolderIndex.load(folder, split) for split in SPLITS}
    rows_of = {s: subsets.get(s, np.arange(len(index.paths))) for s, index in indices.items()}
    sizes = np.concatenate([index.sizes[rows_of[split]] for split, index in indices.items()])
    needed = int(_rounded_up(sizes, os.statvfs(base).f_frsize).sum())
    advice = "; name another folder, or leave scratch out"
    require_space(base, needed, f"scratch: {base} on {host}", "the images", advice)
    try:
        for split, index in indices.items():
            rows = rows_of[split]
            for class_ in index.classes:
                (copy / split / class_).mkdir(parents=True)
            unpack = partial(_unpack, packed_images(folder, split), copy, index, _starts(index))
            with ThreadPoolExecutor(THREADS) as threads:
                list(threads.map(unpack, np.array_split(rows, 1 + len(rows) // IMAGES_AT_ONCE)))
            replace(index, folder=copy).save(copy, split)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise
    return copy


def _unpack(
    packed: Path, copy: Path, index: ImageFolderIndex, starts: np.ndarray, rows: np.ndarray
) -> None:
    with open(packed, "rb", buffering=0) as file:
        for row in rows:
            content = os.pread(file.fileno(), int(index.sizes[row]), int(starts[row]))
            (copy / index.paths[row]).write_bytes(content)
