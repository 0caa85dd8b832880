"""Free space of file systems, and messages about a full one."""

from __future__ import annotations

import os
from pathlib import Path

from scalewatt.common.errors import InputError

NO_ROOM = "no space is left on the file system"
"""Part of every reason that reports a full disk."""
ROOM_BYTES = 1 << 16
"""A file system with less room than this is full: not even the notes of a segment fit."""


def has_room(folder: Path) -> bool:
    """Return True if the file system of `folder` has room for a few notes, or cannot be asked."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize >= ROOM_BYTES


def full_text(folder: Path) -> str:
    """Return the message about a full file system."""
    return (
        f"{NO_ROOM} of {folder}; the checkpoint before is whole: make room and start the run again"
    )


def require_space(folder: Path, needed_bytes: int, where: str, what: str, advice: str = "") -> None:
    """Raise InputError, beginning with `where`, unless `what` of this size fits beside `folder`."""
    found = os.statvfs(folder)
    if needed_bytes > (free := found.f_bavail * found.f_frsize):
        raise InputError(
            f"{where}: {free / 1e9:.1f} GB are free, {what} need {needed_bytes / 1e9:.1f} GB{advice}"
        )
