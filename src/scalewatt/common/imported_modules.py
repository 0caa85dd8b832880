"""Modules of the package that a module imports, by their source and without importing anything.

They are inputs of the workflow's rules: mended code of an energy or a figure reaches finished runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_IMPORT = re.compile(r"^[ \t]*from scalewatt([\w.]*) import (\([^)]*\)|[^\n]*)", re.M)


def modules_behind(*names: str, package: Path) -> list[Path]:
    """Files of these modules and of all that they import, lazily or not, sorted.

    `package` is the folder of the package scalewatt. A name is dotted below the package
    (`energies.account`).
    """
    files: set[Path] = set()
    waiting = _files(package.joinpath(*name.split(".")) for name in names)
    while waiting:
        file = waiting.pop()
        files.add(file)
        waiting |= _imported(file, package) - files
    return sorted(files)


@cache
def _imported(file: Path, package: Path) -> set[Path]:
    """Files of the modules that one file imports, or imports objects of."""
    files: set[Path] = set()
    for module, words in _IMPORT.findall(file.read_text(encoding="utf-8")):
        stem = package.joinpath(*module.split("."))
        files |= _files([stem, *(stem / word for word in re.findall(r"\w+", words))])
    return files


def _files(stems: Iterable[Path]) -> set[Path]:
    paths = (path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py"))
    return {path for path in paths if path.is_file()}
