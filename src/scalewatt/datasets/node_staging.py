"""A node's own copy of the images that a run reads, unpacked from the packed file.

Each copy has a folder of its own on the node's scratch, which names the process that created it, so that
the next one recognises and removes what a killed one left behind. A folder's name ends in a random
part; the part before names the node.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_content, require_space, write_json
from scalewatt.common.processes import has_ended, this_process
from scalewatt.datasets.imagenet.index import SPLITS, ImageFolderIndex
from scalewatt.datasets.packed_tar import Packed, how_to_pack, load_packed

PREFIX = "scalewatt-staged-"
_OWNER = ".owner"
_READ_BYTES, _GAP_BYTES = 8 << 20, 64 << 10
"""Images of one read: at most so many bytes, with gaps of at most so many."""

Places = list[tuple[str, int, int, int]]
"""Path, offset, bytes and CRC-32 of images, by ascending offset."""


def stage_images(
    data_folder: Path | str, scratch: str, wanted: Mapping[str, np.ndarray | None]
) -> Path:
    """Unpack images to a new folder below `scratch`; return it, for `ImageFolderIndex.load`.

    `wanted` has the positions by split, None for all of it; positions and labels stay the
    same, images not wanted are absent. Variables ($TMPDIR) are expanded here, on the node.
    Raises InputError if scratch is missing or too small and where the packed file is missing,
    damaged, or of other images; nothing stays behind then. `remove_staged` removes it.
    """
    base = _scratch_folder(scratch)
    indices = {split: ImageFolderIndex.load(data_folder, split) for split in SPLITS}
    packed = load_packed(data_folder, indices)
    places = sorted(_places(packed, indices, wanted), key=lambda place: place[1])
    _remove_left_behind(base)
    _check_space(base, places)
    folder = _own_folder(base)
    try:
        _unpack(packed.path, places, folder)
        for split, index in indices.items():
            own = ImageFolderIndex(folder, index.paths, index.labels, index.classes, index.sizes)
            own.save(folder, split)
    except BaseException:
        remove_staged(folder)
        raise
    return folder


def remove_staged(folder: Path | str) -> None:
    """Remove what `stage_images` created; InputError for any other folder."""
    folder = Path(folder)
    if not folder.exists():
        return
    if not folder.name.startswith(PREFIX) or not (folder / _OWNER).is_file():
        raise InputError(f"{folder}: was not created by staging; nothing is removed")
    shutil.rmtree(folder, ignore_errors=True)


# --- the folder ---------------------------------------------------------------------------------


def _scratch_folder(scratch: str) -> Path:
    path = os.path.expanduser(os.path.expandvars(scratch))
    host = os.uname().nodename
    if "$" in path:
        raise InputError(f"scratch: {path} has no value on {host}; set the variable")
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        raise InputError(f"scratch: {path} on {host} is not a writable folder")
    return Path(os.path.abspath(path))


def _own_folder(base: Path) -> Path:
    """Create a folder that names this process as its owner."""
    folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=base))
    write_json(folder / _OWNER, this_process())
    return folder


def _remove_left_behind(base: Path) -> None:
    """Remove the folders of this node's processes that have ended, and no others.

    Other nodes' may be there where scratch is shared: node `a-b` is not node `a`.
    """
    for folder in base.glob(f"{_prefix()}*"):
        owner = read_content(folder / _OWNER)
        same_node = folder.name.rpartition("-")[0] + "-" == _prefix()
        if same_node and isinstance(owner, dict) and has_ended(owner):
            shutil.rmtree(folder, ignore_errors=True)


def _prefix() -> str:
    return f"{PREFIX}{os.uname().nodename}-"


def _check_space(base: Path, places: Places) -> None:
    block = os.statvfs(base).f_frsize
    needed = sum(-(-size // block) * block for _, _, size, _ in places)
    where = f"scratch: {base} on {os.uname().nodename}"
    require_space(base, needed, where, "the images", "; name another folder, or leave scratch out")


# --- unpacking ----------------------------------------------------------------------------------


def _places(
    packed: Packed,
    indices: dict[str, ImageFolderIndex],
    wanted: Mapping[str, np.ndarray | None],
) -> Iterator[tuple[str, int, int, int]]:
    for split, positions in wanted.items():
        index = indices[split]
        chosen = range(len(index.paths)) if positions is None else positions.tolist()
        for position in chosen:
            offset, size, checksum = packed.places[split][position].tolist()
            yield index.paths[position], offset, size, checksum


def _unpack(path: Path, places: Places, folder: Path) -> None:
    for parent in sorted({os.path.dirname(name) for name, *_ in places}):
        (folder / parent).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            for _ in threads.map(partial(_unpack_run, descriptor, path, folder), _runs(places)):
                pass
    except OSError as error:
        raise InputError(f"{folder}: cannot be filled from {path} ({error.strerror})") from error
    finally:
        os.close(descriptor)


def _runs(places: Places) -> Iterator[Places]:
    """Yield the images that one read fetches together."""
    run: Places = []
    for place in places:
        end = run[-1][1] + run[-1][2] if run else 0
        if run and (place[1] - end > _GAP_BYTES or place[1] - run[0][1] > _READ_BYTES):
            yield run
            run = []
        run.append(place)
    if run:
        yield run


def _unpack_run(descriptor: int, path: Path, folder: Path, run: Places) -> None:
    start = run[0][1]
    content = memoryview(_read(descriptor, start, run[-1][1] + run[-1][2] - start))
    for name, offset, size, checksum in run:
        image = content[offset - start : offset - start + size]
        if len(image) != size or zlib.crc32(image) != checksum:
            raise InputError(
                f"{path}: {name} in it is damaged; remove the file, then {how_to_pack(path.parent)}"
            )
        with open(folder / name, "xb") as file:
            file.write(image)


def _read(descriptor: int, offset: int, size: int) -> bytes:
    parts = []
    while size and (part := os.pread(descriptor, size, offset)):
        parts.append(part)
        offset, size = offset + len(part), size - len(part)
    return b"".join(parts)
