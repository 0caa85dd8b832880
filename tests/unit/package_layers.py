"""The package's folders, the layers they stand in, and the picture of them in docs/architecture.md.

    python tests/unit/package_layers.py

draws the picture anew, from the imports in the source; `test_layers.py` tells when that is due.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "src" / "scalewatt"
PICTURE = PROJECT / "docs" / "images" / "architecture.svg"

LAYERS = (
    ("common",),
    ("campaign", "provenance", "slurm"),
    ("run_files", "recordings"),
    ("datasets", "monitoring", "scheduling", "events"),
    ("workloads", "lightning"),
    ("training", "energies"),
    ("execution", "results"),
    ("tracking", "scaling"),
    ("claims", "figures", "notebooks"),
    ("report", "registration", "targets"),
    ("reproduction",),
    ("archive",),
    ("doctor", "comparison"),
    ("cli",),
)
"""From the lowest to the highest. A folder imports from lower layers only.
`events`, `lightning` and `notebooks` are modules."""

HEIGHT = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}


def modules() -> dict[str, Path]:
    """Return each module's file by its dotted name below the package; "" is the package itself."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


MODULES = modules()


def imported_names(path: Path) -> Iterator[str]:
    """Yield the full dotted names that a file imports, lazily or not, of any package."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(name: str) -> set[str]:
    """Return the package's modules that one module imports."""
    found = set()
    for full in imported_names(MODULES[name]):
        first, _, below = full.partition(".")
        if first == "scalewatt":
            found.add(below if below in MODULES else below.rpartition(".")[0])
    return found - {name, ""}


def folder_of(name: str) -> str:
    """Return the top folder of a module."""
    return name.partition(".")[0]


def folder_imports() -> dict[str, set[str]]:
    """Return, for each folder, the folders of lower layers that it imports from."""
    found: dict[str, set[str]] = {folder: set() for folder in HEIGHT}
    for name in MODULES:
        if name:
            found[folder_of(name)] |= {folder_of(other) for other in imported_modules(name)}
    return {
        folder: {other for other in others if HEIGHT[other] < HEIGHT[folder]}
        for folder, others in found.items()
    }


# --- the picture ----------------------------------------------------------------------------------

BOX = (120, 30)
STEP = (150, 62)
MARGIN = 20
WIDTH = 640


def shown_arrows() -> list[tuple[str, str]]:
    """Return the imports between folders that do not follow from others, sorted."""
    direct = folder_imports()

    def behind(folder: str) -> set[str]:
        return direct[folder].union(*map(behind, direct[folder]))

    return sorted(
        (folder, other)
        for folder, others in direct.items()
        for other in others
        if not any(other in behind(third) for third in others - {other})
    )


def places() -> dict[str, tuple[float, float]]:
    """Return the upper left corner of each folder's box, the highest layer on top."""
    found = {}
    for number, layer in enumerate(reversed(LAYERS)):
        left = (WIDTH - STEP[0] * len(layer) + STEP[0] - BOX[0]) / 2
        for column, folder in enumerate(layer):
            found[folder] = (left + column * STEP[0], MARGIN + number * STEP[1])
    return found


def picture() -> str:
    """Return the layers as SVG: a box for each folder, an arrow from importer to imported."""
    at = places()
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH}'
        f' {2 * MARGIN + STEP[1] * (len(LAYERS) - 1) + BOX[1]}" font-family="sans-serif"'
        ' font-size="14">',
        "<title>Folders of the package: an arrow points to what a folder imports</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z" fill="#777"/></marker>',
    ]
    for upper, lower in shown_arrows():
        x1, y1 = at[upper][0] + BOX[0] / 2, at[upper][1] + BOX[1]
        x2, y2 = at[lower][0] + BOX[0] / 2, at[lower][1]
        far = (y2 - y1) / 2
        lines.append(
            f'<path d="M{x1:g} {y1:g}C{x1:g} {y1 + far:g} {x2:g} {y2 - far:g} {x2:g} {y2:g}"'
            ' fill="none" stroke="#777" marker-end="url(#head)"/>'
        )
    for folder, (x, y) in at.items():
        lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="4" fill="#eef3fa"'
            ' stroke="#4a6a94"/>'
            f'<text x="{x + BOX[0] / 2:g}" y="{y + 20:g}" text-anchor="middle">{folder}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
