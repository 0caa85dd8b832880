"""Where the project's files are: in a checkout, or with an installed package."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = not (PACKAGE.parents[1] / "pyproject.toml").is_file()
"""Whether a wheel is installed, with the project's files in its folder `project`; else a checkout."""
PROJECT_ROOT = PACKAGE / "project" if INSTALLED else PACKAGE.parents[1]
"""The folder of config.yaml, config, profiles, campaigns and reference."""


def find_file(name: str | Path) -> Path:
    """Path of a file as a user names it: here, else what came along; as it is where neither exists."""
    # os.path: a name that no file can have is answered too.
    came_along = not os.path.exists(name) and os.path.exists(PROJECT_ROOT / name)
    return PROJECT_ROOT / name if came_along else Path(name)


def project_path(path: Path) -> Path:
    """Name of a file in results: one that came along by its place in the project.

    Where a package is installed tells about a machine, and nothing about the file.
    """
    return path.relative_to(PROJECT_ROOT) if path.is_relative_to(PROJECT_ROOT) else path
