"""The page of `scalewatt compare` in a real browser: at every width, light and dark, by the keyboard."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium, headless

from scalewatt.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from archived import make_project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
WIDTHS = (390, 1280, 1920)
INK = "getComputedStyle(document.body).color"
PAPER = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page of a simulated campaign and its archive, opened."""
    folder = tmp_path_factory.mktemp("compare")
    project = make_project(folder / "project")
    archive, out = project.export(), folder / "page.html"
    assert main(["compare", str(project.results), str(archive), "--html", str(out)]) == 0
    shutil.rmtree(project.path)  # the page needs nothing but itself
    (folder / "profile").mkdir()
    with headless(folder / "profile") as browser:
        yield browser.open(out.as_uri())


def luma(colour: str) -> float:
    """How light a colour `rgb(r, g, b)` is, from 0 to 255."""
    red, green, blue = (float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_width_and_follows_the_readers_colours(
    page: Browser, width: int, scheme: str
) -> None:
    page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    page.resize(width, mobile=width < 600)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = (luma(page.evaluate(one)) for one in (INK, PAPER))
    assert ink < 80 < 200 < paper if scheme == "light" else paper < 80 < 200 < ink
    assert page.complaints() == [] and page.requests() == []


def test_each_mark_lies_within_its_scale_and_equal_trainings_lie_on_1(page: Browser) -> None:
    page.resize(1280)
    marks = page.evaluate(
        "Array.from(document.querySelectorAll('.mark'), m => { const s = m.getBoundingClientRect(),"
        " d = m.querySelector('b').getBoundingClientRect();"
        " return (d.left + d.width / 2 - s.left) / s.width; })"
    )
    assert len(marks) >= 10 and all(abs(at - 0.5) < 0.01 for at in marks)


def test_links_and_tables_are_reached_by_the_keyboard_alone(page: Browser) -> None:
    reached = set()
    for _ in range(60):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        reached.add(
            page.evaluate(
                "document.activeElement.getAttribute('href')?.slice(0, 8) ??"
                " document.activeElement.getAttribute('aria-label')"
            )
        )
    assert {"#summary", "#differe", "data:tex", "Run time", "Energy per sample"} <= reached
