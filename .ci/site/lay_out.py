"""Lay out the pages of the documentation site: README.md becomes its home, docs/ stays as it is.

    python .ci/site/lay_out.py FOLDER

Links between pages are those of the site; a link to any other file of the repository becomes that
file's name, for the site has no copy of it. `make docs` then builds the site from FOLDER.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RENAMED = {
    "README.md": "index.md",
    "docs/index.md": "documents.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages whose place on the site is not their place below docs/."""

ASSETS = ("iframe-worker.js", "extra.css")
"""Files beside this one that the pages load."""

_FENCE = re.compile(r"(^ *```.*?^ *```[ ]*$)", re.MULTILINE | re.DOTALL)
_CODE_IN_TABLE = re.compile(r"^\|.*`.*\\\|.*`.*$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def places(root: Path) -> dict[Path, str]:
    """Map each file that the site shows to its place there."""
    files = [path for path in sorted((root / "docs").rglob("*")) if path.is_file()]
    below_docs = {path: path.relative_to(root / "docs").as_posix() for path in files}
    return below_docs | {root / name: place for name, place in RENAMED.items()}


def relinked(text: str, source: Path, places: Mapping[Path, str], root: Path) -> str:
    """Rewrite the links of one page; code blocks stay as they are."""

    def link(match: re.Match[str]) -> str:
        image, label, target, anchor = match.groups(default="")
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        file = Path(os.path.normpath(source.parent / target))
        if file in places:
            here = Path(places[source]).parent
            return f"{image}[{label}]({os.path.relpath(places[file], here)}{anchor})"
        name = file.relative_to(root).as_posix()
        bare = label.strip("`")
        return f"`{name}`" if name.endswith(bare) else f"{label} (`{name}`)"

    parts = _FENCE.split(text)
    parts[::2] = [bars(_LINK.sub(link, part)) for part in parts[::2]]
    return "".join(parts)


def bars(text: str) -> str:
    r"""Take the backslash of `\|` in code within a table, which the site would show."""

    def row(match: re.Match[str]) -> str:
        return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), match[0])

    return _CODE_IN_TABLE.sub(row, text)


def lay_out(root: Path, folder: Path) -> None:
    """Write all pages and images of the site to a folder, in place of those of last time.

    A folder with anything else in it is refused (SystemExit).
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / ASSETS[0]).exists():
        raise SystemExit(f"{folder}: has files that are not of the site; expected: an empty folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ASSETS:  # first: by these it is known as the site's, also after an interruption
        shutil.copyfile(Path(__file__).with_name(name), folder / name)
    known = places(root)
    for source, place in known.items():
        written = folder / place
        written.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text = relinked(source.read_text(encoding="utf-8"), source, known, root)
            written.write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(source, written)


if __name__ == "__main__":
    lay_out(ROOT, Path(sys.argv[1]))
