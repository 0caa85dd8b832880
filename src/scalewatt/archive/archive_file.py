"""Read an archive, a ZIP file or a folder, and write one.

An archive may come from anybody: nothing of it is run, nothing is written outside of its place, and every
file is compared with its SHA-256. The same content gives the same bytes.
"""

from __future__ import annotations

import shutil
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
from scalewatt.results.text.number_format import listed

_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
"""Errors of zipfile for damaged content, and for kinds of packing that no export uses."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class Opened:
    """The files of an archive by path, with their sizes in bytes as it states them."""

    path: Path
    sizes: dict[str, int]
    archive: zipfile.ZipFile | None
    """None of a folder."""

    @contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file's content; InputError if it is damaged."""
        try:
            source = self.archive.open(name) if self.archive else (self.path / name).open("rb")
        except (*_DAMAGED, OSError) as error:
            raise InputError(f"{self.path}: {name}: cannot be read ({error})") from error
        with source:
            try:
                yield source
            except _DAMAGED as error:
                raise InputError(f"{self.path}: {name}: is damaged ({error})") from error


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Open an archive, a ZIP file or the folder of its content; InputError for anything else."""
    expected = "expected an archive that `scalewatt export` wrote"
    if path.is_dir():
        if not (path / MANIFEST).is_file():  # before all that is in some other folder is listed
            raise InputError(f"{path}: has no {MANIFEST}; {expected}")
        files = [file for file in path.rglob("*") if file.is_file()]
        sizes = {file.relative_to(path).as_posix(): file.stat().st_size for file in files}
        yield Opened(path, sizes, None)
        return
    try:
        archive = zipfile.ZipFile(path)
    except (*_DAMAGED, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: is not a readable archive ({reason}); {expected}") from error
    with archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        yield Opened(path, {member.filename: member.file_size for member in members}, archive)


def read_manifest(one: Opened) -> ArchiveManifest:
    """Return the archive's manifest, after comparing its files with those in the archive.

    Their content is not compared yet: InputError for missing and unknown files, for paths that lead outside,
    and for other sizes.
    """
    for name in (MANIFEST, METADATA):
        if name not in one.sizes:
            raise InputError(
                f"{one.path}: has no {name}; expected an archive that `scalewatt export` wrote"
            )
    with one.stream(MANIFEST) as stream:
        manifest = parse_archive_manifest(stream.read(), f"{one.path}: {MANIFEST}")
    there, named = one.sizes.keys() - {MANIFEST}, manifest.files.keys()
    other = {name for name in there & named if one.sizes[name] != manifest.files[name].bytes}
    outside = {name for name in there | named if not is_plain(name)}
    _refuse(one.path, outside, "outside of the archive's folder")
    _refuse(one.path, named - there, "in the manifest, but missing")
    _refuse(one.path, there - named, "not in the manifest")
    _refuse(one.path, other, "of another size than in the manifest")
    return manifest


def _refuse(path: Path, names: set[str], what: str) -> None:
    if names:
        raise InputError(f"{path}: {what}: {listed(sorted(names), _MOST_NAMED)}")


def check_content(one: Opened, manifest: ArchiveManifest) -> None:
    """Compare the content of every file with its SHA-256; InputError names the first that differs."""
    for name, entry in manifest.files.items():
        with one.stream(name) as stream:
            _check(one, name, entry, digest(stream))


def write_content(one: Opened, manifest: ArchiveManifest, targets: dict[str, Path]) -> None:
    """Write files to `targets` by path in the archive, each compared with its SHA-256."""
    for name, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        with one.stream(name) as source, open(target, "xb") as out:
            shutil.copyfileobj(source, out, BLOCK)
        _check(one, name, manifest.files[name], entry_of(target))


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
