"""The documentation site: built strictly from README.md and docs/, and self-contained."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workspace import PROJECT, run_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs zensical"),
]


def build(folder: Path, broken: str = "") -> tuple[int, str]:
    """Build the site in a folder as `make docs` does; its exit code and what it printed."""
    shutil.copy2(PROJECT / "mkdocs.yml", folder)
    pages = folder / "work" / "docs"
    subprocess.run([sys.executable, PROJECT / ".ci" / "site" / "lay_out.py", pages], check=True)
    with open(pages / "numbers.md", "a") as page:
        page.write(broken)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return run_process(command, cwd=folder)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    code, output = build(tmp_path)
    assert code == 0, output
    site = tmp_path / "site"
    written = {path.relative_to(site).with_suffix(".md") for path in site.rglob("*.html")}
    pages = {path.relative_to(PROJECT / "docs") for path in (PROJECT / "docs").rglob("*.md")}
    assert pages - {Path("index.md")} <= written
    elsewhere = re.compile(
        r"""(?:(?<!a )src|srcset|url\(|@import|<link[^>]*href)\W{1,3}(?:https?:)?//"""
    )
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not elsewhere.search(path.read_text(encoding="utf-8")), path


def test_a_link_to_a_heading_that_is_not_there_ends_the_build(tmp_path: Path) -> None:
    code, output = build(tmp_path, "\n[estimates](guide/energy.md#no-such-heading)\n")
    assert code != 0
    assert "anchor does not exist" in output
