"""Write the ZIP file of an archive: the same content gives the same bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO

from scalewatt.archive.ro_crate import METADATA
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path
from scalewatt.reproduction.manifests import BLOCK, MANIFEST, ArchiveManifest, Given, entry_of

_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time in ZIP: the time of writing is not part of the content."""
_READABLE = 0o100644 << 16
_UNIX = 3
_PACKED = (".parquet", ".png", ".pdf")
"""Suffixes of files that are already compressed."""


def write_archive(files: Mapping[str, Given], manifest: ArchiveManifest, out: Path) -> int:
    """Write an archive of `files` by path, with its manifest; return its size in bytes.

    InputError where it exists already, or a file no longer matches the manifest.
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
    with _opened(given) as source, archive.open(info, "w") as target:
        while block := source.read(BLOCK):
            target.write(block)
    if name in manifest.files and entry_of(given) != wanted:
        raise InputError(f"{name}: was changed meanwhile; export again when nothing writes to it")


@contextmanager
def _opened(given: Given) -> Iterator[IO[bytes]]:
    if isinstance(given, bytes):
        yield BytesIO(given)
        return
    with open(given, "rb") as stream:
        yield stream
