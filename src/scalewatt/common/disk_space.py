"""Whether a file system is full, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path

from scalewatt.run_files.attempt_log import NO_ROOM

ROOM_BYTES = 1 << 16
"""A file system with less room than this is full: not even the notes of a segment fit."""


def has_room(folder: Path) -> bool:
    """Whether the file system of `folder` has room for a few notes; true where it cannot be asked."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize >= ROOM_BYTES


def full_text(folder: Path) -> str:
    """What to say of a full file system."""
    return (
        f"{NO_ROOM} of {folder}; the checkpoint before is whole: make room and start the run again"
    )
