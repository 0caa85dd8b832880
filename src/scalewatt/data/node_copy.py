"""A node's copy of the images that a run reads: one tar for all, unpacked once a node.

`packed.tar` beside the indices has the images in their order. Where each begins follows from the sizes in
the indices, so that a run of a subset reads no more than that.
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
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import require_space
from scalewatt.data.imagenet import SPLITS, ImageFolderIndex
from scalewatt.data.prepared import content_of_prepared

PACKED = "packed.tar"
CONTENT = "content"
"""First member: the SHA-256 of the prepared content, and where the last image ends."""
BLOCK = tarfile.BLOCKSIZE
THREADS, IMAGES_AT_ONCE = 16, 512


def _indices(folder: Path | str) -> dict[str, ImageFolderIndex]:
    return {split: ImageFolderIndex.load(folder, split) for split in SPLITS}


def _images(indices: dict[str, ImageFolderIndex]) -> pd.DataFrame:
    """`path`, `bytes` and `offset` in the tar of all images, by split and position."""
    images = pd.concat(
        {split: pd.DataFrame({"path": i.paths, "bytes": i.sizes}) for split, i in indices.items()}
    )
    # Each member has a header of one block; the first one is not an image.
    blocks = _rounded_up(images["bytes"], BLOCK)
    return images.assign(offset=2 * BLOCK + (blocks + BLOCK).cumsum() - blocks)


def _rounded_up(sizes: Any, block: int) -> Any:
    return -(-sizes // block) * block


# --- packing --------------------------------------------------------------------------------------


def pack(data_folder: Path | str) -> Path:
    """Put the indexed images of a prepared folder into one tar, unless that was done; its path.

    InputError names an image that is gone or has another size than in the index, or says that the
    disk is too small.
    """
    folder = Path(data_folder)
    with waiting_lock(folder / ".lock", f"{folder}: another process works here; waiting for it"):
        if _difference(folder):
            _pack(folder)
    return folder / PACKED


def _pack(folder: Path) -> None:
    indices = _indices(folder)
    images, source = _images(indices), indices["train"].folder
    end = int(images["offset"].iloc[-1] + images["bytes"].iloc[-1])
    require_space(folder, end, str(folder), "the packed images")
    building = folder / f".{PACKED}.partial"
    with (
        tarfile.open(building, "w", format=tarfile.GNU_FORMAT) as tar,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        _add(tar, CONTENT, f"{content_of_prepared(folder)} {end}".encode())
        for first in range(0, len(images), IMAGES_AT_ONCE):
            part = images[first : first + IMAGES_AT_ONCE]
            contents = threads.map(partial(_read_image, source), part["path"], part["bytes"])
            for path, offset, content in zip(part["path"], part["offset"], contents, strict=True):
                _add(tar, path, content)
                if tar.offset - _rounded_up(len(content), BLOCK) != offset:
                    raise InputError(f"{source / path}: name is too long for a tar; shorten it")
    os.replace(building, folder / PACKED)


def _add(tar: tarfile.TarFile, path: str, content: bytes) -> None:
    header = tarfile.TarInfo(path)
    header.size = len(content)
    tar.addfile(header, io.BytesIO(content))


def _read_image(source: Path, path: str, size: int) -> bytes:
    try:
        content = (source / path).read_bytes()
    except OSError as error:
        raise InputError(f"{source / path}: cannot be read ({error.strerror})") from error
    if len(content) != size:
        raise InputError(
            f"{source / path}: has {len(content)} bytes, {size} when it was indexed; "
            "prepare the data again"
        )
    return content


def check_packed(data_folder: Path | str) -> None:
    """Raise InputError if the packed images of a prepared folder are missing, cut off or others."""
    folder = Path(data_folder)
    if difference := _difference(folder):
        command = shlex.join(["scalewatt", "prepare", "--folder", str(folder), "--pack"])
        raise InputError(f"{folder / PACKED}: {difference}; create it with: {command}")


def _difference(folder: Path) -> str | None:
    """Difference of the packed images from the prepared ones; None without one."""
    path = folder / PACKED
    if not path.exists():
        return "missing"
    with path.open("rb") as file:
        first = file.read(2 * BLOCK)[BLOCK:].rstrip(b"\0").decode(errors="replace")
    content, _, end = first.partition(" ")
    if content != content_of_prepared(folder):
        return "contains other images than are indexed"
    size = path.stat().st_size
    return None if size >= int(end) else f"has {size} bytes, not {int(end)}"


# --- a node's copy --------------------------------------------------------------------------------


def copy_images(
    data_folder: Path | str, scratch: str, name: str, wanted: Mapping[str, np.ndarray | None]
) -> Path:
    """Unpack images to the folder `name` below `scratch`, for `ImageFolderIndex.load`.

    `wanted` has the positions by split, None for all of it; positions and labels stay the same, images
    not wanted are absent. Variables ($TMPDIR) are expanded here, on the node. What an earlier start
    of the run has left in the folder is replaced; the caller removes it in the end. InputError if scratch
    is missing or too small, or the packed images are; nothing stays behind then.
    """
    check_packed(data_folder)
    base, packed = _scratch_folder(scratch), Path(data_folder, PACKED)
    folder, indices = base / f"scalewatt-{name}", _indices(data_folder)
    shutil.rmtree(folder, ignore_errors=True)
    images = _images(indices)
    images = pd.concat(
        [images.loc[s].iloc[slice(None) if rows is None else rows] for s, rows in wanted.items()]
    )
    needed = int(_rounded_up(images["bytes"], os.statvfs(base).f_frsize).sum())
    where = f"scratch: {base} on {os.uname().nodename}"
    require_space(base, needed, where, "the images", "; name another folder, or leave scratch out")

    starts = range(0, len(images), IMAGES_AT_ONCE)
    parts = [images[first : first + IMAGES_AT_ONCE] for first in starts]
    try:
        for parent in {os.path.dirname(path) for path in images["path"]}:
            (folder / parent).mkdir(parents=True)
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(partial(_unpack, packed, folder), parts))
        for split, index in indices.items():
            replace(index, folder=folder).save(folder, split)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(f"{folder}: cannot be filled from {packed} ({error})") from error
        raise
    return folder


def _scratch_folder(scratch: str) -> Path:
    path, host = os.path.expanduser(os.path.expandvars(scratch)), os.uname().nodename
    if "$" in path:
        raise InputError(f"scratch: {path} has no value on {host}; set the variable")
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"scratch: {path} on {host} is not a writable folder")
    return Path(os.path.abspath(path))


def _unpack(packed: Path, folder: Path, images: pd.DataFrame) -> None:
    with open(packed, "rb", buffering=0) as file:
        for path, size, offset in images.itertuples(index=False):
            (folder / path).write_bytes(os.pread(file.fileno(), size, offset))
