"""Archives: a BagIt bag (RFC 8493) in a ZIP file, whose payload is a campaign with its RO-Crate metadata.

An archive may come from anybody: nothing of it is run, nothing is written outside of its folder, and every
file is compared with its SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

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
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError)
"""Errors of zipfile for damaged content, and for kinds of packing that no export uses."""
_EXPECTED = "expected an archive that `scalewatt export` wrote"
_MOST_NAMED = 3
_BLOCK_BYTES = 1 << 20


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
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]
    """Sizes in bytes as the ZIP states them."""
    archive: zipfile.ZipFile

    def unpack(self, targets: Mapping[str, Path]) -> None:
        """Write files to `targets`; InputError for one that differs from its SHA-256."""
        for name, target in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "xb") as out:
                self._copy(name, out)

    def check(self) -> None:
        """Compare every file with its SHA-256; InputError names the first that differs."""
        with open(os.devnull, "wb") as nowhere:
            for name in self.sha256:
                self._copy(name, nowhere)

    def _copy(self, name: str, out: IO[bytes]) -> None:
        digest = hashlib.sha256()
        for block in self._blocks(name):
            digest.update(block)
            out.write(block)
        sha256 = digest.hexdigest()
        if sha256 != self.sha256[name]:
            raise InputError(
                f"{self.path}: {name}: differs from the manifest (SHA-256 {sha256[:12]}…, expected "
                f"{self.sha256[name][:12]}…): the archive is damaged or was changed"
            )

    def _blocks(self, name: str) -> Iterator[bytes]:
        try:
            with self.archive.open(f"{self.info.name}/data/{name}") as source:
                while block := source.read(_BLOCK_BYTES):
                    yield block
        except (*_DAMAGED, OSError) as error:
            raise InputError(f"{self.path}: {name}: is damaged ({error})") from error


@contextmanager
def open_bag(path: Path) -> Iterator[Bag]:
    """Open an archive; InputError for anything else, or if its files are not those of its manifest."""
    try:
        archive = zipfile.ZipFile(path)
    except (*_DAMAGED, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: is not a readable archive ({reason}); {_EXPECTED}") from error
    with archive:
        sizes = {
            entry.filename: entry.file_size for entry in archive.infolist() if not entry.is_dir()
        }
        top = next(iter(sizes), "").partition("/")[0]
        try:
            texts = {
                tag: archive.read(f"{top}/{tag}").decode() for tag in (_DECLARED, _INFO, _SUMS)
            }
            info = _parse_info(texts[_INFO])
            lines = [line.split("  ", 1) for line in texts[_SUMS].splitlines()]
            sha256 = {name.removeprefix("data/"): digest for digest, name in lines}
            if info.name != top:
                raise ValueError(f"{top} is not the folder of {info.name}")
        except (*_DAMAGED, OSError, KeyError) as error:
            raise InputError(f"{path}: is not a bag of a campaign; {_EXPECTED}") from error
        payload = {
            name.removeprefix(f"{top}/data/"): size
            for name, size in sizes.items()
            if name.removeprefix(f"{top}/") not in texts
        }
        outside = (name for name in payload | sha256 if not _is_plain(name))
        _refuse(path, outside, "outside of its folder")
        _refuse(path, sha256.keys() - payload.keys(), "in the manifest, but missing")
        _refuse(path, payload.keys() - sha256.keys(), "not in the manifest")
        yield Bag(path, info, sha256, payload, archive)


def _parse_info(text: str) -> BagInfo:
    pairs = [line.split(": ", 1) for line in text.splitlines()]
    fields = dict(pairs)
    missing = tuple(value for key, value in pairs if key == "Missing")
    return BagInfo(fields["External-Identifier"], int(fields["Runs"]), missing)


def _refuse(path: Path, names: Iterable[str], what: str) -> None:
    if refused := sorted(names):
        raise InputError(f"{path}: {what}: {listed(refused, _MOST_NAMED)}")


def _is_plain(path: str) -> bool:
    """True if a path leads below the archive's folder on any system, and is written in the only way."""
    return not {"", ".", ".."} & set(path.split("/")) and "\\" not in path and ":" not in path


# --- writing --------------------------------------------------------------------------------------


def write_bag(files: Mapping[str, Source], info: BagInfo, out: Path) -> int:
    """Write an archive of `files` by path; return its size in bytes. InputError if it exists already.

    Each file is read once, so that hashes are those of what is packed.
    """
    _check_absent(out)
    with atomic_path(out, lambda: _check_absent(out)) as temporary:
        with zipfile.ZipFile(temporary, "w") as archive:
            written = {
                name: _add(archive, f"{info.name}/data/{name}", source)
                for name, source in sorted(files.items())
            }
            for name, text in _tags(info, written).items():
                _add(archive, f"{info.name}/{name}", text.encode())
        return temporary.stat().st_size


def _tags(info: BagInfo, written: Mapping[str, tuple[str, int]]) -> dict[str, str]:
    """Texts beside the payload, by name."""
    fields = [
        ("External-Identifier", info.name),
        ("Bag-Software-Agent", f"scalewatt {__version__}"),
        ("Payload-Oxum", f"{sum(size for _, size in written.values())}.{len(written)}"),
        ("Runs", str(info.runs)),
        *(("Missing", text) for text in info.missing),
    ]
    return {
        _DECLARED: _DECLARATION,
        _INFO: "".join(f"{key}: {value}\n" for key, value in fields),
        _SUMS: "".join(f"{sha256}  data/{name}\n" for name, (sha256, _) in written.items()),
    }


def _check_absent(out: Path) -> None:
    if out.exists():
        raise InputError(f"{out}: exists already; allowed: another --out, or remove it")


def _add(archive: zipfile.ZipFile, name: str, content: Source) -> tuple[str, int]:
    """Pack a file; return its SHA-256 and its size in bytes."""
    entry = zipfile.ZipInfo(name, _TIME)
    entry.external_attr = 0o100644 << 16
    entry.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
    digest, size = hashlib.sha256(), 0
    opened = BytesIO(content) if isinstance(content, bytes) else content.open("rb")
    with opened as source, archive.open(entry, "w", force_zip64=True) as target:
        while block := source.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            target.write(block)
    return digest.hexdigest(), size
