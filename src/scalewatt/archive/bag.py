"""Archives: a BagIt bag (RFC 8493) in a ZIP file, whose payload is a campaign with its RO-Crate metadata.

An archive may come from anybody: nothing of it is run, nothing is written outside of its folder, and every
file is compared with its SHA-256.
"""

from __future__ import annotations

import hashlib
import shutil
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
from scalewatt.common.files import atomic_path, file_sha256
from scalewatt.results.text.number_format import listed

Given = Path | bytes
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


@dataclass(frozen=True)
class BagInfo:
    """What bag-info.txt says of an archive."""

    name: str
    runs: int
    traces: bool
    missing: tuple[str, ...] = ()
    """What the campaign asks for and the archive has not, in words."""
    scalewatt: str = __version__


@dataclass(frozen=True)
class Bag:
    """An open archive, its paths below the payload's folder."""

    path: Path
    info: BagInfo
    sha256: Mapping[str, str]
    sizes: Mapping[str, int]
    """Sizes in bytes as the ZIP states them."""
    archive: zipfile.ZipFile

    def write(self, targets: Mapping[str, Path]) -> None:
        """Write files to `targets`; InputError for one that differs from its SHA-256."""
        for name, target in targets.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._reading(name) as source, open(target, "xb") as out:
                shutil.copyfileobj(source, out)
            self._check(name, file_sha256(target))

    def check(self) -> None:
        """Compare every file with its SHA-256; InputError names the first that differs."""
        for name in self.sha256:
            found = hashlib.sha256()
            with self._reading(name) as source:
                while block := source.read(1 << 20):
                    found.update(block)
            self._check(name, found.hexdigest())

    @contextmanager
    def _reading(self, name: str) -> Iterator[IO[bytes]]:
        try:
            source = self.archive.open(f"{self.info.name}/data/{name}")
        except (*_DAMAGED, OSError) as error:
            raise InputError(f"{self.path}: {name}: is damaged ({error})") from error
        with source:
            try:
                yield source
            except _DAMAGED as error:
                raise InputError(f"{self.path}: {name}: is damaged ({error})") from error

    def _check(self, name: str, sha256: str) -> None:
        if sha256 != self.sha256[name]:
            raise InputError(
                f"{self.path}: {name}: differs from the manifest (SHA-256 {sha256[:12]}…, expected "
                f"{self.sha256[name][:12]}…): the archive is damaged or was changed"
            )


@contextmanager
def opened(path: Path) -> Iterator[Bag]:
    """Open an archive; InputError for anything else, and where its files are not those of its manifest."""
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
                name: archive.read(f"{top}/{name}").decode() for name in (_DECLARED, _INFO, _SUMS)
            }
            info = _parse_info(texts[_INFO])
            lines = [line.split("  ", 1) for line in texts[_SUMS].splitlines()]
            sha256 = {name.removeprefix("data/"): digest for digest, name in lines}
            if info.name != top:
                raise ValueError(f"{top} is not the folder of {info.name}")
        except (*_DAMAGED, OSError, KeyError) as error:
            raise InputError(f"{path}: is not a bag of a campaign; {_EXPECTED}") from error
        payload = {
            name: size for name, size in sizes.items() if name not in {f"{top}/{t}" for t in texts}
        }
        found = {name.removeprefix(f"{top}/data/"): size for name, size in payload.items()}
        _refuse(
            path, (name for name in found | sha256 if not _is_plain(name)), "outside of its folder"
        )
        _refuse(path, sha256.keys() - found.keys(), "in the manifest, but missing")
        _refuse(path, found.keys() - sha256.keys(), "not in the manifest")
        yield Bag(path, info, sha256, found, archive)


def _parse_info(text: str) -> BagInfo:
    pairs = [line.split(": ", 1) for line in text.splitlines()]
    fields = dict(pairs)
    return BagInfo(
        fields["External-Identifier"],
        int(fields["Runs"]),
        fields["Traces"] == "yes",
        tuple(value for key, value in pairs if key == "Missing"),
        fields["Bag-Software-Agent"].removeprefix("scalewatt "),
    )


def _refuse(path: Path, names: Iterable[str], what: str) -> None:
    if found := sorted(names):
        raise InputError(f"{path}: {what}: {listed(found, _MOST_NAMED)}")


def _is_plain(path: str) -> bool:
    """True if a path leads to a place below the archive on any system, written in the only way."""
    return not {"", ".", ".."} & set(path.split("/")) and "\\" not in path and ":" not in path


# --- writing --------------------------------------------------------------------------------------


def write_bag(files: Mapping[str, Given], info: BagInfo, out: Path) -> int:
    """Write an archive of `files` by path; return its size in bytes. InputError if it exists already."""
    _check_absent(out)
    sums = sha256_of(files)
    size = sum(map(_size, files.values()))
    fields = [
        ("External-Identifier", info.name),
        ("Bag-Software-Agent", f"scalewatt {info.scalewatt}"),
        ("Payload-Oxum", f"{size}.{len(files)}"),
        ("Runs", str(info.runs)),
        ("Traces", "yes" if info.traces else "no"),
        *(("Missing", each) for each in info.missing),
    ]
    tags = {
        _DECLARED: _DECLARATION,
        _INFO: "".join(f"{key}: {value}\n" for key, value in fields),
        _SUMS: "".join(f"{digest}  data/{name}\n" for name, digest in sums.items()),
    }
    content: dict[str, Given] = {name: text.encode() for name, text in tags.items()}
    content |= {f"data/{name}": files[name] for name in sums}
    with atomic_path(out, lambda: _check_absent(out)) as temporary:
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, given in content.items():
                _add(archive, f"{info.name}/{name}", given)
        if changed := [name for name, digest in sha256_of(files).items() if digest != sums[name]]:
            raise InputError(
                f"{listed(changed, _MOST_NAMED)}: changed meanwhile; export again when nothing writes"
            )
        return temporary.stat().st_size


def sha256_of(files: Mapping[str, Given]) -> dict[str, str]:
    """SHA-256 of each file by path, sorted."""
    return {
        name: hashlib.sha256(given).hexdigest() if isinstance(given, bytes) else file_sha256(given)
        for name, given in sorted(files.items())
    }


def _size(given: Given) -> int:
    return len(given) if isinstance(given, bytes) else given.stat().st_size


def _check_absent(out: Path) -> None:
    if out.exists():
        raise InputError(f"{out}: exists already; allowed: another --out, or remove it")


def _add(archive: zipfile.ZipFile, name: str, given: Given) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.external_attr = 0o100644 << 16
    entry.compress_type = zipfile.ZIP_STORED if name.endswith(_PACKED) else zipfile.ZIP_DEFLATED
    entry.file_size = _size(given)  # what decides whether it needs ZIP64
    content = BytesIO(given) if isinstance(given, bytes) else given.open("rb")
    with content as source, archive.open(entry, "w") as target:
        shutil.copyfileobj(source, target)
