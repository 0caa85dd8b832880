"""Archives: a BagIt bag (RFC 8493) in a ZIP file, whose payload is a campaign with its RO-Crate metadata.

An archive may come from anybody: nothing of it is run, nothing is written outside of its folder, and every
file is compared with its SHA-256.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

from scalewatt import __version__
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path
from scalewatt.results.text.number_format import listed

Source = Path | bytes
"""Where a file's content is: on disk, or here."""
_DECLARATION = "BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"
_DECLARED, _INFO, _SUMS = "bagit.txt", "bag-info.txt", "manifest-sha256.txt"
_PACKED = (".parquet", ".png", ".pdf")
"""Suffixes of files that are already compressed."""
_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time in ZIP: the time of writing is not part of the content."""
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError)
"""Errors of zipfile for damaged content, and for kinds of packing that no export uses."""
_EXPECTED = "expected an archive that `scalewatt export` wrote"
_MOST_NAMED = 3
_BLOCK_BYTES = 1 << 20


class Packed(NamedTuple):
    """Hash and size of a file in an archive."""

    sha256: str
    size: int


@dataclass(frozen=True)
class BagInfo:
    """The content of bag-info.txt."""

    name: str
    """The campaign's."""
    runs: int
    missing: tuple[str, ...] = ()
    """What the campaign asks for and the archive lacks, in words."""


@dataclass(frozen=True)
class Bag:
    """An open archive; its paths are below the payload's folder."""

    path: Path
    info: BagInfo
    files: Mapping[str, Packed]
    """Files by path, with their hashes by the manifest and their sizes by the ZIP."""
    archive: zipfile.ZipFile

    def copy(self, name: str, out: IO[bytes]) -> None:
        """Write a file to `out`; InputError if it is damaged, or differs from its SHA-256."""
        try:
            with self.archive.open(f"{self.info.name}/data/{name}") as source:
                sha256 = _copy(source, out).sha256
        except _DAMAGED as error:
            raise InputError(f"{self.path}: {name}: is damaged ({error})") from error
        if sha256 != self.files[name].sha256:
            raise InputError(
                f"{self.path}: {name}: differs from the manifest: the archive is damaged or was changed"
            )


def _copy(source: IO[bytes], target: IO[bytes]) -> Packed:
    digest, size = hashlib.sha256(), 0
    while block := source.read(_BLOCK_BYTES):
        digest.update(block)
        size += len(block)
        target.write(block)
    return Packed(digest.hexdigest(), size)


@contextmanager
def open_bag(path: Path) -> Iterator[Bag]:
    """Open an archive; InputError for anything else, or if its files are not those of its manifest."""
    try:
        archive = zipfile.ZipFile(path)
    except (*_DAMAGED, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: is not a readable archive ({reason}); {_EXPECTED}") from error
    with archive:
        sizes = {e.filename: e.file_size for e in archive.infolist() if not e.is_dir()}
        top = next(iter(sizes), "").partition("/")[0]
        try:
            tags = {tag: archive.read(f"{top}/{tag}").decode() for tag in (_DECLARED, _INFO, _SUMS)}
            pairs = [line.split(": ", 1) for line in tags[_INFO].splitlines()]
            fields, missing = dict(pairs), tuple(value for key, value in pairs if key == "Missing")
            info = BagInfo(fields["External-Identifier"], int(fields["Runs"]), missing)
            lines = [line.split("  ", 1) for line in tags[_SUMS].splitlines()]
            sha256 = {name.removeprefix("data/"): digest for digest, name in lines}
            if info.name != top:
                raise ValueError(f"{top} is not the folder of {info.name}")
        except (*_DAMAGED, OSError) as error:
            raise InputError(f"{path}: is not a bag of a campaign; {_EXPECTED}") from error
        names = {name.removeprefix(f"{top}/"): size for name, size in sizes.items()}
        payload = {k.removeprefix("data/"): v for k, v in names.items() if k not in tags}
        outside = (name for name in payload | sha256 if not _is_plain(name))
        _refuse(path, outside, "outside of its folder")
        _refuse(path, sha256.keys() - payload.keys(), "in the manifest, but missing")
        _refuse(path, payload.keys() - sha256.keys(), "not in the manifest")
        files = {name: Packed(sha256[name], size) for name, size in payload.items()}
        yield Bag(path, info, files, archive)


def _refuse(path: Path, names: Iterable[str], what: str) -> None:
    if refused := sorted(names):
        raise InputError(f"{path}: {what}: {listed(refused, _MOST_NAMED)}")


def _is_plain(path: str) -> bool:
    """True if a path leads below the archive's folder on any system, and is written in the only way."""
    return not {"", ".", ".."} & set(path.split("/")) and "\\" not in path and ":" not in path


# --- writing --------------------------------------------------------------------------------------


def write_bag(
    files: Mapping[str, Source],
    info: BagInfo,
    out: Path,
    metadata: tuple[str, Callable[[Mapping[str, Packed]], bytes]],
) -> int:
    """Write an archive of `files` by path; return its size in bytes. InputError if it exists already.

    Each file is read once, so that hashes are those of what is packed. `metadata`: path and content of a
    file that describes all others.
    """
    _check_absent(out)
    with atomic_path(out, lambda: _check_absent(out)) as temporary:
        with zipfile.ZipFile(temporary, "w") as archive:
            payload = f"{info.name}/data"
            packed = {n: _add(archive, f"{payload}/{n}", s) for n, s in sorted(files.items())}
            name, describe = metadata
            packed[name] = _add(archive, f"{payload}/{name}", describe(packed))
            for tag, text in _tags(info, packed).items():
                _add(archive, f"{info.name}/{tag}", text.encode())
        return temporary.stat().st_size


def _tags(info: BagInfo, packed: Mapping[str, Packed]) -> dict[str, str]:
    """Texts beside the payload, by name."""
    fields = [
        ("External-Identifier", info.name),
        ("Bag-Software-Agent", f"scalewatt {__version__}"),
        ("Payload-Oxum", f"{sum(file.size for file in packed.values())}.{len(packed)}"),
        ("Runs", str(info.runs)),
        *(("Missing", text) for text in info.missing),
    ]
    return {
        _DECLARED: _DECLARATION,
        _INFO: "".join(f"{key}: {value}\n" for key, value in fields),
        _SUMS: "".join(f"{file.sha256}  data/{name}\n" for name, file in packed.items()),
    }


def _check_absent(out: Path) -> None:
    if out.exists():
        raise InputError(f"{out}: exists already; allowed: another --out, or remove it")


def _add(archive: zipfile.ZipFile, name: str, content: Source) -> Packed:
    """Pack a file."""
    entry = zipfile.ZipInfo(name, _TIME)
    entry.external_attr = 0o100644 << 16
    entry.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
    opened = BytesIO(content) if isinstance(content, bytes) else content.open("rb")
    with opened as source, archive.open(entry, "w", force_zip64=True) as target:
        return _copy(source, target)
