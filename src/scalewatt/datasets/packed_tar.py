"""All indexed images in one uncompressed tar, with their offsets.

`packed.tar` is an ordinary tar file; `packed.parquet` says where each image's bytes are, in the
order of the indices, with their CRC-32.
"""

from __future__ import annotations

import json
import os
import shlex
import tarfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import atomic_path, parse_json, require_space, write_at, write_table
from scalewatt.datasets.imagenet.index import SPLITS, ImageFolderIndex

BLOCK = tarfile.BLOCKSIZE
PACKED, PLACES = "packed.tar", "packed.parquet"
_IMAGES_AT_ONCE = 500
_NAME_IN_HEADER = 100


@dataclass(frozen=True)
class Packed:
    """A packed file, and for each split offset and bytes (int64) and CRC-32 (uint32) of its images."""

    path: Path
    places: dict[str, np.ndarray]
    """(images, 3) by split, in the order of the split's index."""


def pack(data_folder: Path | str) -> Path:
    """Create the packed file of a prepared folder unless there is a current one; return its path.

    InputError names an image that is gone or has another size than in the index, or says that the
    disk is too small.
    """
    folder = Path(data_folder)
    indices = {split: ImageFolderIndex.load(folder, split) for split in SPLITS}
    with waiting_lock(
        folder / ".packed.lock", f"{folder}: another process packs the images; waiting for it"
    ):
        digests = {split: index.sha256() for split, index in indices.items()}
        if _described(folder) != (digests, _size(folder / PACKED)):
            _remove_left_behind(folder)
            _write_packed(folder, indices, digests)
    return folder / PACKED


def load_packed(data_folder: Path | str, indices: dict[str, ImageFolderIndex]) -> Packed:
    """Open the packed file of a prepared folder; InputError if it is missing, cut off or of other images."""
    folder = Path(data_folder)
    _check(folder, indices)
    table = pq.read_table(folder / PLACES)
    rows = np.stack([table[name].to_numpy() for name in ("offset", "bytes", "crc32")], axis=1)
    ends = np.cumsum([len(indices[split].paths) for split in SPLITS])[:-1]
    return Packed(folder / PACKED, dict(zip(SPLITS, np.split(rows, ends), strict=True)))


def check_packed(data_folder: Path | str) -> None:
    """Raise InputError if the packed file of a prepared folder is missing, cut off or of other images."""
    folder = Path(data_folder)
    if _described(folder) is None:  # known without reading the indices
        raise InputError(f"{folder / PACKED}: missing; {how_to_pack(folder)}")
    _check(folder, {split: ImageFolderIndex.load(folder, split) for split in SPLITS})


def how_to_pack(data_folder: Path | str) -> str:
    """Return how a packed file is created, for a message."""
    command = shlex.join(["scalewatt", "prepare", "--folder", str(data_folder), "--pack"])
    return f"create it with: {command}"


def _check(folder: Path, indices: dict[str, ImageFolderIndex]) -> None:
    described = _described(folder)
    if described is None:
        raise InputError(f"{folder / PACKED}: missing; {how_to_pack(folder)}")
    digests, size = described
    if {split: index.sha256() for split, index in indices.items()} != digests:
        raise InputError(
            f"{folder / PACKED}: contains other images than are indexed; {how_to_pack(folder)}"
        )
    if size != (found := _size(folder / PACKED)):
        raise InputError(
            f"{folder / PACKED}: has {found} bytes, expected {size}; {how_to_pack(folder)}"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _described(folder: Path) -> tuple[dict[str, str], int] | None:
    """Return the digests of the indices and the size of the tar that `packed.parquet` belongs to."""
    if not (folder / PLACES).exists():
        return None
    metadata = pq.read_schema(folder / PLACES).metadata
    return parse_json(metadata[b"indices"]), int(metadata[b"bytes"])


# --- packing ------------------------------------------------------------------------------------


def _remove_left_behind(folder: Path) -> None:
    """Remove what killed processes wrote; the caller has the lock."""
    for path in (*folder.glob(".packed.*.tmp.tar"), *folder.glob(".packed.*.tmp.parquet")):
        path.unlink(missing_ok=True)


def _write_packed(
    folder: Path, indices: dict[str, ImageFolderIndex], digests: dict[str, str]
) -> None:
    names = [path for index in indices.values() for path in index.paths]
    sizes = np.concatenate([index.sizes for index in indices.values()])
    headers = np.array([_header_bytes(name) for name in names], np.int64)
    steps = headers + -(-sizes // BLOCK) * BLOCK
    offsets = np.cumsum(steps) - steps + headers
    total = int(steps.sum()) + 2 * BLOCK
    require_space(folder, total, str(folder), "the packed images")
    source = indices[SPLITS[0]].folder
    starts = range(0, len(names), _IMAGES_AT_ONCE)
    with atomic_path(folder / PACKED) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.ftruncate(descriptor, total)
            chunks = [slice(start, start + _IMAGES_AT_ONCE) for start in starts]
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
                work = partial(_pack_images, descriptor, source, names, offsets, sizes)
                checksums = np.concatenate(list(threads.map(work, chunks)))
        finally:
            os.close(descriptor)
    table = pa.table({"offset": offsets, "bytes": sizes, "crc32": checksums})
    facts = {"indices": json.dumps(digests), "bytes": str(total)}
    write_table(table.replace_schema_metadata(facts), folder / PLACES)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _header_bytes(name: str) -> int:
    short = len(name.encode("utf-8", "surrogateescape")) < _NAME_IN_HEADER
    return BLOCK if short else len(_header(name, 0))


def _pack_images(
    descriptor: int,
    source: Path,
    names: list[str],
    offsets: np.ndarray,
    sizes: np.ndarray,
    part: slice,
) -> np.ndarray:
    """Write some images to their places; their CRC-32."""
    checksums = []
    for name, offset, size in zip(
        names[part], offsets[part].tolist(), sizes[part].tolist(), strict=True
    ):
        try:
            content = (source / name).read_bytes()
        except OSError as error:
            raise InputError(f"{source / name}: cannot be read ({error.strerror})") from error
        if len(content) != size:
            raise InputError(
                f"{source / name}: has {len(content)} bytes, {size} when it was indexed; "
                "prepare the data again"
            )
        header = _header(name, size)
        write_at(descriptor, header + content, offset - len(header))
        checksums.append(zlib.crc32(content))
    return np.array(checksums, np.uint32)
