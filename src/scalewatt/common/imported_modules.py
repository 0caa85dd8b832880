"""Which modules of the package a module imports, found in the source without importing anything."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_IMPORT = re.compile(
    r"^[ \t]*(?:from (scalewatt[\w.]*) import (\([^)]*\)|[^\n]*)|import (scalewatt[\w.]*))", re.M
)


def modules_behind(*names: str, package: Path) -> list[Path]:
    """Return the files of these modules and of all that they import, lazily or not, sorted.

    `package` is the folder of the package scalewatt, whose files are looked at. A name is dotted
    below the package (`energies.accounting.account`); ValueError if there is none.
    """
    found: set[Path] = set()
    wanted = [_file_of(f"scalewatt.{name}", package) for name in names]
    if None in wanted:
        raise ValueError(f"no module of scalewatt: {names[wanted.index(None)]}")
    while wanted:
        path = wanted.pop()
        if path is not None and path not in found:
            found.add(path)
            wanted += _imported_by(path, package)
    return sorted(found)


@cache
def _imported_by(path: Path, package: Path) -> list[Path]:
    """Return the package's own modules that one file imports, with their packages' `__init__`."""
    names: set[str] = set()
    for module, imported, plain in _IMPORT.findall(path.read_text(encoding="utf-8")):
        names.add(module or plain)
        names |= {f"{module}.{word}" for word in re.findall(r"\w+", imported) if module}
    parents = {name.rsplit(".", depth)[0] for name in names for depth in range(name.count("."))}
    files = (_file_of(name, package) for name in sorted(names | parents))
    return [file for file in files if file is not None]


def _file_of(name: str, package: Path) -> Path | None:
    place = package.joinpath(*name.split(".")[1:])
    return next((p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()), None)
