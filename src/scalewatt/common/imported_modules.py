"""Which modules of the package a module imports, by their source and without importing anything.

They are inputs of the workflow's rules: mended code of an energy or a figure reaches finished runs.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_IMPORT = re.compile(
    r"^[ \t]*(?:from (scalewatt[\w.]*) import (\([^)]*\)|[^\n]*)|import (scalewatt[\w.]*))", re.M
)


def modules_behind(*names: str, package: Path) -> list[Path]:
    """Files of these modules and of all that they import, lazily or not, sorted.

    `package` is the folder of the package scalewatt. A name is dotted below the package
    (`energies.account`); ValueError if there is none.
    """
    wanted = [_file_of(f"scalewatt.{name}", package) for name in names]
    if None in wanted:
        raise ValueError(f"no module of scalewatt: {names[wanted.index(None)]}")
    found: set[Path] = set()
    while wanted:
        path = wanted.pop()
        if path is not None and path not in found:
            found.add(path)
            wanted += [_file_of(name, package) for name in _imports(path)]
    return sorted(found)


@cache
def _imports(path: Path) -> set[str]:
    """Modules of the package that one file imports, and the packages that they are in."""
    names: set[str] = set()
    for module, imported, plain in _IMPORT.findall(path.read_text(encoding="utf-8")):
        names.add(module or plain)
        names |= {f"{module}.{word}" for word in re.findall(r"\w+", imported) if module}
    return names | {
        name.rsplit(".", depth)[0] for name in names for depth in range(name.count("."))
    }


@cache
def _file_of(name: str, package: Path) -> Path | None:
    stem = package.joinpath(*name.split(".")[1:])
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.is_file()), None)
