"""A node's copy of the images that a run reads: one tar for all, unpacked once a node.

`packed.tar` beside the indices has the images in their order, and `packed.parquet` where the bytes of each
begin, so that a run of a subset unpacks no more than that.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import require_space, write_table
from scalewatt.data.imagenet import SPLITS, ImageFolderIndex
from scalewatt.data.prepared import content_of_prepared

PACKED, OFFSETS = "packed.tar", "packed.parquet"
THREADS, IMAGES_AT_ONCE = 16, 512

Indices = dict[str, ImageFolderIndex]


def _indices(folder: Path | str) -> Indices:
    return {split: ImageFolderIndex.load(folder, split) for split in SPLITS}


def _images(indices: Indices) -> pd.DataFrame:
    """`path` and `bytes` of all images by split and position, in the order of the tar."""
    return pd.concat(
        {split: pd.DataFrame({"path": i.paths, "bytes": i.sizes}) for split, i in indices.items()}
    )


def _rounded_up(sizes: pd.Series, block: int) -> pd.Series:
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
            _pack(folder, _indices(folder))
    return folder / PACKED


def _pack(folder: Path, indices: Indices) -> None:
    images = _images(indices)
    size = int((_rounded_up(images["bytes"], tarfile.BLOCKSIZE) + tarfile.BLOCKSIZE).sum())
    require_space(folder, size, str(folder), "the packed images")
    building = folder / f".{PACKED}.partial"
    read = partial(_read_image, indices["train"].folder)
    ends = []
    with (
        tarfile.open(building, "w", format=tarfile.GNU_FORMAT) as tar,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        for first in range(0, len(images), IMAGES_AT_ONCE):
            part = images[first : first + IMAGES_AT_ONCE]
            for header, content in threads.map(read, part["path"], part["bytes"]):
                tar.addfile(header, io.BytesIO(content))
                ends.append(tar.offset)
    os.replace(building, folder / PACKED)
    facts = {
        "content": content_of_prepared(folder),
        "bytes": str((folder / PACKED).stat().st_size),
    }
    offsets = ends - _rounded_up(images["bytes"], tarfile.BLOCKSIZE)
    table = pa.table({"offset": offsets.to_numpy()})
    write_table(table.replace_schema_metadata(facts), folder / OFFSETS)


def _read_image(source: Path, path: str, size: int) -> tuple[tarfile.TarInfo, bytes]:
    try:
        content = (source / path).read_bytes()
    except OSError as error:
        raise InputError(f"{source / path}: cannot be read ({error.strerror})") from error
    if len(content) != size:
        raise InputError(
            f"{source / path}: has {len(content)} bytes, {size} when it was indexed; "
            "prepare the data again"
        )
    header = tarfile.TarInfo(path)
    header.size = size
    return header, content


def check_packed(data_folder: Path | str) -> None:
    """Raise InputError if the packed images of a prepared folder are missing, cut off or others."""
    folder = Path(data_folder)
    if difference := _difference(folder):
        command = shlex.join(["scalewatt", "prepare", "--folder", str(folder), "--pack"])
        raise InputError(f"{folder / PACKED}: {difference}; create it with: {command}")


def _difference(folder: Path) -> str | None:
    """Difference of the packed images from the prepared ones; None without one."""
    if not (folder / PACKED).exists() or not (folder / OFFSETS).exists():
        return "missing"
    facts = pq.read_schema(folder / OFFSETS).metadata
    if facts[b"content"].decode() != content_of_prepared(folder):
        return "contains other images than are indexed"
    size, expected = (folder / PACKED).stat().st_size, int(facts[b"bytes"])
    return None if size == expected else f"has {size} bytes, not {expected}"


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

    offsets = pq.read_table(Path(data_folder, OFFSETS))["offset"].to_numpy()
    images = _images(indices).assign(offset=offsets)
    images = pd.concat(
        [images.loc[s].iloc[slice(None) if rows is None else rows] for s, rows in wanted.items()]
    )
    needed = int(_rounded_up(images["bytes"], os.statvfs(base).f_frsize).sum())
    where = f"scratch: {base} on {os.uname().nodename}"
    require_space(base, needed, where, "the images", "; name another folder, or leave scratch out")

    starts = range(0, len(images), IMAGES_AT_ONCE)
    parts = [images[first : first + IMAGES_AT_ONCE] for first in starts]
    try:
        for parent in sorted({os.path.dirname(path) for path in images["path"]}):
            (folder / parent).mkdir(parents=True)
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(partial(_unpack, packed, folder), parts))
        for split, i in indices.items():
            ImageFolderIndex(folder, i.paths, i.labels, i.classes, i.sizes).save(folder, split)
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
