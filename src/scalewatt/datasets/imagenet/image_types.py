"""Files of images: which they are by name and by content, and how one is written.

Imported by every process of the extraction's pool, so without numpy and its like.
"""

from __future__ import annotations

import os
from pathlib import Path

SUFFIXES = (".jpeg", ".jpg", ".png")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
"""JPEG, and PNG: one of the official images is a PNG by the name of a JPEG."""


def is_image(content: memoryview | bytes) -> bool:
    """Whether it begins as a JPEG or PNG file does."""
    return bytes(content[:8]).startswith(_MAGIC)


def write_file(
    name: Path | str, content: memoryview | bytes, folder_descriptor: int | None = None
) -> None:
    """Write a new file, by its path or by its name in an open folder; none may be there."""
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder_descriptor
    )
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
