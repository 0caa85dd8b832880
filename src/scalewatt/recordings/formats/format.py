"""What a reader of another tool's recordings is, and what its user may have to tell it."""

from __future__ import annotations

import codecs
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.recordings.series import Recording, SensorSeries

HEAD_BYTES = 1 << 16
_HDF5 = b"\x89HDF\r\n\x1a\n"

TOTAL_ONLY = "total_only"
"""Flag of a series that stands for one total: a counter of two samples, at the begin (0 J) and the end."""
UNKNOWN_TOTAL = "unreadable"
"""Flag of a total that is not above 0 J, or is no number: it is unknown."""
TORN_END = "damaged"
"""Flag of a recording whose last line or record is cut off, and left out."""


def decoded(content: bytes) -> str:
    """Return UTF-8 text, or UTF-16 with a byte order mark, as Windows' shell redirects into files."""
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if marked else "utf-8-sig", errors="replace")


@dataclass(frozen=True)
class Options:
    """What a file does not say of itself, and its user may."""

    node: str | None = None
    """Name of the node, where the file names none; else the file's name without its suffixes."""
    time_zone: str | None = None
    """Zone of local times that name none: an IANA name such as Europe/Berlin, or UTC."""
    columns: Path | None = None
    """YAML file that names the columns of a generic CSV."""
    run: str | None = None
    """Which run, window or row of a file that holds several; None: what the format's reader says."""


NO_OPTIONS = Options()


@dataclass(frozen=True)
class Head:
    """The beginning of a file, by which its format is told."""

    path: Path
    begin: bytes
    """Up to HEAD_BYTES."""

    @classmethod
    def of(cls, path: Path) -> Head:
        """Read a file's beginning. Raises InputError where that cannot be done."""
        try:
            if not path.is_file():
                raise InputError(f"{path}: is no regular file; expected a recording")
            with path.open("rb") as file:
                return cls(path, file.read(HEAD_BYTES))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error

    @property
    def is_hdf5(self) -> bool:
        """Return True if the file begins like an HDF5 file."""
        return self.begin.startswith(_HDF5)

    @cached_property
    def text(self) -> str:
        """Return the beginning as text, without a byte order mark; what is no text is replaced."""
        return decoded(self.begin)

    @cached_property
    def lines(self) -> list[str]:
        """Return the lines of the beginning that are not empty; none of a binary file.

        A binary file has a NUL in its first line; in a later one it was left by a disk that was full.
        """
        lines = [line for line in self.text.splitlines() if line.strip()]
        if self.is_hdf5 or "\0" in "".join(lines[:1]):
            return []
        return [line for line in lines if "\0" not in line]


@dataclass(frozen=True)
class Format:
    """One format: its name, how a file of it is told by its content, and how it is read.

    `read` returns one recording in unix seconds (or with `t0_known` False, seconds from the first
    sample), and raises InputError for a file that is damaged beyond its readable part.
    """

    name: str
    """As it stands in tables and messages, such as "nvidia-smi"."""
    recognises: Callable[[Head], bool]
    read: Callable[[Path, Options], Recording]
    holds_runs: bool = False
    """True if a file may hold several runs, windows or steps, of which `Options.run` names one."""
    records: bool = True
    """False of what a tool writes beside its recordings: told by its content, and refused with the reason."""


def number(text: str) -> float:
    """Return the finite number that a text is; NaN for any other."""
    try:
        found = float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan


def listed(names: Iterable[str], most: int = 10) -> str:
    """Return names in a message, not more than can be read."""
    found = list(names)
    more = f", and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(name[:60] for name in found[:most]) + more


def node_of(path: Path, options: Options) -> str:
    """Return the name of the node that a file without one is of: the user's, or the file's own name."""
    return options.node or path.name.split(".")[0] or os.fspath(path)


def total_series(like: SensorSeries) -> SensorSeries:
    """Return a series as totals; ValueError unless it is a counter of two samples in order of time.

    The one way in which a total without samples enters: its energy counts, its stages are too short
    to resolve, and its power over time is one mean. A total of NaN J is unknown.
    """
    if like.quantity != "counter" or like.time_s.size != 2 or not like.time_s[0] < like.time_s[1]:
        raise ValueError(f"{like.sensor}: is no total; expected a counter of two samples")
    return replace(like, totals=True)
