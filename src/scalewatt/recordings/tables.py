"""Tables of samples of any tool, read by a description: a preset of the package, or the user's own YAML.

Presets (`presets/*.yaml`, chosen by the file's heading) and users' files have one form, schema `columns`;
docs/recordings.md explains it. A preset with the key `totals` is read by `recordings.totals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.recordings.block import Recording

Preset = Mapping[str, Any]
"""A description of a table: the content of a preset, or of the user's YAML (then its `name` is csv)."""


@dataclass(frozen=True)
class Options:
    """What a file does not say of itself, and its user may."""

    node: str | None = None
    """Name of the node, where the file names none; else the file's name without its suffixes."""
    time_zone: str | None = None
    """Zone of local times that name none: an IANA name such as Europe/Berlin, or UTC."""
    columns: Path | None = None
    """YAML file that describes the table's columns."""
    run: str | None = None
    """Which run, window or row of a file that holds several; None: what the format's reader says."""


def presets() -> list[Preset]:
    """All presets of the package, each with its `name` (the file's stem), in order of names."""
    raise NotImplementedError


def find_preset(head: str, options: Options) -> Preset | None:
    """Choose the description of a table from its decoded beginning; None if no preset fits.

    A user's YAML (`options.columns`) with `sensors` describes the table whatever it looks like; one without
    adds to the preset that fits (`header` of a file without a heading, `time.period_s`), or to that of its
    key `preset`. Raises InputError for a YAML that the schema does not allow.
    """
    raise NotImplementedError


def read_table(path: Path, preset: Preset, options: Options) -> Recording:
    """Read a table by its description (not one with `totals`). Raises InputError if it does not fit."""
    raise NotImplementedError


def decoded(content: bytes) -> str:
    """Text of UTF-8, of UTF-16 with a byte order mark, else of Latin-1."""
    raise NotImplementedError


def damage_flags(path: Path, rows: int, torn: bool) -> list[dict[str, Any]]:
    """Flag `damaged`: rows left out because they cannot be read, and a last line without an end."""
    raise NotImplementedError
