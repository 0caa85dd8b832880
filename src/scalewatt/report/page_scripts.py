"""Scripts of pages, each with the hash by which the page's policy allows it and no other."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

_OF_ALL = Path(__file__).with_name("wide_tables.js")


@dataclass(frozen=True)
class Script:
    """A script of a page."""

    text: str

    @property
    def hash(self) -> str:
        """Return its SHA-256 in base 64."""
        return base64.b64encode(hashlib.sha256(self.text.encode()).digest()).decode()


def script_of(*files: Path) -> Script:
    """Return what all pages with tables have, and these files, as one script."""
    return Script("\n".join(file.read_text(encoding="utf-8") for file in (_OF_ALL, *files)))
