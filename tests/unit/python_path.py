"""Modules that processes of a test are to find first."""

from __future__ import annotations

import os
from pathlib import Path


def first_on_path(folder: Path) -> str:
    """PYTHONPATH with a folder before what is on it, where the project itself may be."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
