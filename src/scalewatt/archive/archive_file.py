"""Read an archive, a ZIP file or a folder, and write one.

Nothing is trusted before it is checked. The same content gives the same bytes.
"""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from scalewatt.archive.ro_crate import METADATA
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path
from scalewatt.common.schema_validation import shown
from scalewatt.reproduction.manifests import (
    BLOCK,
    MANIFEST,
    ArchiveManifest,
    Entry,
    Given,
    digest,
    entry_of,
    is_plain,
    parse_archive_manifest,
)
from scalewatt.results.text.number_format import count

MOST_FILES = 1_000_000
MOST_MANIFEST = 256 << 20
"""Bytes of manifest.json that are read."""
_MOST_RATIO = 1100
"""Of the files' size to the archive's: deflate reaches 1032, where files do not share their bytes."""
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Errors of zipfile for damaged content, and for kinds of compression that no export uses."""


@dataclass(frozen=True)
class Opened:
    """The files of an archive by path, with their sizes in bytes as it states them."""

    path: Path
    sizes: dict[str, int]
    archive: zipfile.ZipFile | None
    """None of a folder."""

    @contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file's content; InputError if it cannot be read."""
        try:
            with self.archive.open(name) if self.archive else open(self.path / name, "rb") as one:
                yield one
        except _DAMAGED as error:
            raise InputError(f"{self.path}: {name}: is damaged ({error})") from error
        except OSError as error:
            raise InputError(
                f"{self.path}: {name}: cannot be read ({error.strerror or error})"
            ) from error

    def blocks(self, name: str, most: int) -> Iterator[bytes]:
        """Yield a file's content, at most `most` bytes; without catching errors of the caller."""
        with self.stream(name) as source:
            while most > 0 and (block := source.read(min(BLOCK, most))):
                yield block
                most -= len(block)


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Open an archive, a ZIP file or the folder of its content. InputError names what is not allowed."""
    if os.path.isdir(path):  # unlike pathlib's it takes any name
        if not os.path.isfile(path / MANIFEST):  # before all that is in some other folder is listed
            raise InputError(
                f"{path}: has no {MANIFEST}; expected an archive that `scalewatt export` wrote"
            )
        yield Opened(path, _sizes_of_folder(path), None)
        return
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError("it is no plain file")
        archive = zipfile.ZipFile(path)
    except (*_DAMAGED, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: is not a readable archive ({reason}); expected what `scalewatt export` wrote"
        ) from error
    with archive:
        yield Opened(path, _sizes_of_zip(path, archive), archive)


def _sizes_of_zip(path: Path, archive: zipfile.ZipFile) -> dict[str, int]:
    members = archive.infolist()
    if len(members) > MOST_FILES:
        raise InputError(f"{path}: has {len(members)} files; allowed: at most {MOST_FILES}")
    sizes: dict[str, int] = {}
    lower: set[str] = set()
    for one in members:
        name = one.orig_filename
        if name.endswith("/") and one.file_size == 0 and is_plain(name[:-1]):
            continue  # a folder, as other programs write when they pack files
        mode = one.external_attr >> 16
        if not is_plain(name) or name != one.filename:
            raise InputError(
                f"{path}: {shown(name)}; allowed: relative paths of files without '..'"
            )
        if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
            raise InputError(f"{path}: {name}: is a link or not a plain file; allowed: plain files")
        if one.flag_bits & 0x1:
            raise InputError(f"{path}: {name}: is encrypted; allowed: plain files")
        if name.lower() in lower:
            raise InputError(f"{path}: {name}: is a duplicate; allowed: each file once")
        lower.add(name.lower())
        sizes[name] = one.file_size
    if sum(sizes.values()) > _MOST_RATIO * (packed := path.stat().st_size):
        raise InputError(
            f"{path}: {sum(sizes.values())} bytes in a file of {packed}; allowed: at most "
            f"{_MOST_RATIO} times as many, which no compression of files reaches"
        )
    return sizes


def _sizes_of_folder(path: Path) -> dict[str, int]:
    sizes = {}
    for folder, _, names in os.walk(path):
        for name in names:
            one = Path(folder, name)
            relative = one.relative_to(path).as_posix()
            if one.is_symlink() or not one.is_file():
                raise InputError(f"{path}: {relative}: is a link or not a plain file")
            sizes[relative] = one.stat().st_size
    return sizes


def read_manifest(one: Opened) -> ArchiveManifest:
    """Return the archive's manifest, after comparing its files with those in the archive.

    Their content is not compared yet: InputError for missing and unknown files and for other sizes.
    """
    for name in (MANIFEST, METADATA):
        if name not in one.sizes:
            raise InputError(
                f"{one.path}: has no {name}; expected an archive that `scalewatt export` wrote"
            )
    if one.sizes[MANIFEST] > MOST_MANIFEST:
        raise InputError(f"{one.path}: {MANIFEST}: is larger than {MOST_MANIFEST} bytes")
    if one.sizes[METADATA] > MOST_MANIFEST:
        raise InputError(f"{one.path}: {METADATA}: is larger than {MOST_MANIFEST} bytes")
    with one.stream(MANIFEST) as stream:
        manifest = parse_archive_manifest(stream.read(MOST_MANIFEST), f"{one.path}: {MANIFEST}")
    there, named = one.sizes.keys() - {MANIFEST}, manifest.files.keys()
    _refuse(one.path, named - there, "missing, though its manifest names")
    _refuse(one.path, there - named, "too many, as its manifest does not name")
    for name, entry in manifest.files.items():
        if one.sizes[name] != entry.bytes:
            raise InputError(
                f"{one.path}: {name}: has {one.sizes[name]} bytes; its manifest says {entry.bytes}"
            )
    return manifest


def _refuse(path: Path, names: set[str], what: str) -> None:
    if names:
        shown_names = ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
        them = "it" if len(names) == 1 else "them"
        raise InputError(f"{path}: {count(len(names), 'file')} {what} {them}: {shown_names}")


def check_content(one: Opened, manifest: ArchiveManifest) -> None:
    """Compare the content of every file with its SHA-256; InputError names the first that differs."""
    for name, entry in manifest.files.items():
        with one.stream(name) as stream:
            _check(one, name, entry, digest(stream, entry.bytes))


def write_content(one: Opened, manifest: ArchiveManifest, targets: dict[str, Path]) -> None:
    """Write files to `targets` by path in the archive, each compared with its SHA-256."""
    for name, target in targets.items():
        entry = manifest.files[name]
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as out:
            for block in one.blocks(name, entry.bytes + 1):
                out.write(block)
        with open(target, "rb") as written:
            _check(one, name, entry, digest(written))


def _check(one: Opened, name: str, wanted: Entry, found: Entry) -> None:
    if found != wanted:
        raise InputError(
            f"{one.path}: {name}: differs from the manifest (SHA-256 {found.sha256[:12]}…, expected "
            f"{wanted.sha256[:12]}…): the archive is damaged or was changed"
        )


# --- writing --------------------------------------------------------------------------------------

_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time in ZIP: the time of writing is not part of the content."""
_READABLE = 0o100644 << 16
_UNIX = 3
_PACKED = (".parquet", ".png", ".pdf")
"""Suffixes of files that are already compressed."""


def write_archive(files: Mapping[str, Given], manifest: ArchiveManifest, out: Path) -> int:
    """Write an archive of `files` by path, with its manifest; return its size in bytes.

    InputError if it exists already, or a file no longer matches the manifest.
    """
    _check_absent(out)
    content = {**files, MANIFEST: manifest.text().encode()}
    first = [METADATA, MANIFEST]
    names = [*first, *sorted(content.keys() - set(first))]
    with atomic_path(out, lambda: _check_absent(out)) as temporary:
        with zipfile.ZipFile(temporary, "w") as archive:
            for name in names:
                _add(archive, name, content[name], manifest)
        return temporary.stat().st_size


def _check_absent(out: Path) -> None:
    if out.exists():
        raise InputError(f"{out}: exists already; allowed: another --out, or remove it")


def _add(archive: zipfile.ZipFile, name: str, given: Given, manifest: ArchiveManifest) -> None:
    info = zipfile.ZipInfo(name, _TIME)
    info.external_attr, info.create_system = _READABLE, _UNIX
    stored = name.endswith(_PACKED)
    info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    wanted = manifest.files.get(name) or entry_of(given)
    info.file_size = wanted.bytes  # what decides whether it needs ZIP64
    content = BytesIO(given) if isinstance(given, bytes) else given.open("rb")
    with content as source, archive.open(info, "w") as target:
        while block := source.read(BLOCK):
            target.write(block)
    if name in manifest.files and entry_of(given) != wanted:
        raise InputError(f"{name}: was changed meanwhile; export again when nothing writes to it")
