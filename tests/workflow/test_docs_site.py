"""The documentation site: built strictly from README.md and docs/, and self-contained."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from browser import Browser, chromium, headless
from workspace import PROJECT, environment

built = pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="zensical is not installed"
)
pytestmark = pytest.mark.slow


def module() -> ModuleType:
    path = PROJECT / ".ci" / "site" / "lay_out.py"
    spec = importlib.util.spec_from_file_location("lay_out", path)
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def build(folder: Path, change: Callable[[Path], None] = lambda pages: None) -> tuple[int, str]:
    """Build the site in a folder as `make docs` does; its exit code and what it printed."""
    shutil.copy2(PROJECT / "mkdocs.yml", folder)
    pages = folder / "work" / "docs"
    script = PROJECT / ".ci" / "site" / "lay_out.py"
    subprocess.run([sys.executable, script, pages], check=True)
    change(pages)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"],
        cwd=folder, env=environment(), text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    code, said = build(folder)
    assert code == 0, said
    return folder / "site"


@dataclass
class Page(HTMLParser):
    """What a page links to, loads and can be jumped to."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link":
            self.loads.append(given["href"])
        self.loads += [given[name] for name in ("src", "srcset", "data", "poster") if name in given]


def pages(site: Path) -> dict[Path, Page]:
    found = {}
    for path in site.rglob("*.html"):
        found[path] = Page()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


# --- building ------------------------------------------------------------------------------------


@built
def test_the_site_is_built_without_a_warning(site: Path) -> None:
    written = {path.relative_to(site).with_suffix(".md").as_posix() for path in pages(site)}
    assert written - {"404.md"} == {
        place for place in module().places(PROJECT).values() if place.endswith(".md")
    }


@built
def test_a_link_to_a_heading_that_is_not_there_ends_the_build(tmp_path: Path) -> None:
    def break_it(pages: Path) -> None:
        with open(pages / "numbers.md", "a") as page:
            page.write("\n[estimates](energy.md#no-such-heading)\n")

    code, said = build(tmp_path, break_it)
    assert code != 0
    assert "anchor does not exist" in said


def nav_pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from nav_pages(one)


def test_each_page_is_in_the_navigation_once() -> None:
    text = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    pages = [place for place in module().places(PROJECT).values() if place.endswith(".md")]
    assert sorted(nav_pages(nav)) == sorted(pages)
    assert [next(iter(part)) for part in nav] == [
        *("Home", "Get started", "Campaigns", "Measuring", "Results", "Reference", "Contributing")
    ]


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("README.md", "[x](docs/energy.md#estimates)", "[x](energy.md#estimates)"),
        ("README.md", "![f](docs/images/demo-figure4.png)", "![f](images/demo-figure4.png)"),
        ("README.md", "[CITATION.cff](CITATION.cff)", "`CITATION.cff`"),
        ("README.md", "[BSD-3-Clause](LICENSE)", "BSD-3-Clause (`LICENSE`)"),
        ("docs/index.md", "[README](../README.md)", "[README](index.md)"),
        ("docs/tables/runs.md", "[all](../tables.md), [own](#x)", "[all](../tables.md), [own](#x)"),
        ("docs/horeka.md", "[c](../campaigns/demo.yaml)", "c (`campaigns/demo.yaml`)"),
        ("docs/horeka.md", "[a](https://b.example/c)", "[a](https://b.example/c)"),
        ("docs/horeka.md", "```sh\n[c](../LICENSE)\n```", "```sh\n[c](../LICENSE)\n```"),
        ("docs/horeka.md", "| `a\\|b` | c |", "| `a|b` | c |"),
    ],
)
def test_links_of_a_page_are_those_of_the_site(source: str, text: str, expected: str) -> None:
    lay_out = module()
    places = lay_out.places(PROJECT)
    assert lay_out.relinked(text, PROJECT / source, places, PROJECT) == expected


def test_a_folder_with_other_files_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SystemExit, match="has files that are not of the site"):
        module().lay_out(PROJECT, tmp_path)
    assert (tmp_path / "thesis.tex").exists()


# --- what is built -------------------------------------------------------------------------------


@built
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for path, page in pages(site).items():
        assert page.loads, path
        assert not [url for url in page.loads if re.match(r"(\w+:)?//", url)], path
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", path.read_text()), path


@built
def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    found = pages(site)
    for path, page in found.items():
        if path.name == "404.html":  # its links count from a server's root
            continue
        for link in page.links:
            if re.match(r"\w+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), (path, link)
            assert not anchor or anchor in found[target].anchors, (path, link)


SEARCH = """(async () => {
  document.querySelector("[data-md-component=search] button, .md-search__button").click();
  for (let waited = 0; waited < 200; waited++) {
    const root = [document, ...[...document.querySelectorAll("*")].map(e => e.shadowRoot)];
    const all = selector => root.flatMap(r => r ? [...r.querySelectorAll(selector)] : []);
    const [query] = all("input[type=text], input[type=search], input:not([type])");
    if (query && !query.value) {
      query.value = "interval"; query.dispatchEvent(new Event("input", {bubbles: true}));
    }
    const found = all("ol a, li a").map(a => a.getAttribute("href") || "")
      .filter(href => href.includes("?h=interval"));
    if (found.length) return found;
    await new Promise(done => setTimeout(done, 100));
  }
  return [];
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with headless(tmp_path_factory.mktemp("profile")) as started:
        yield started


@built
@pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_the_window_and_ask_nobody(
    site: Path, browser: Browser, width: int, scheme: str
) -> None:
    browser.session = None
    browser.open("about:blank")
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.call("Emulation.setEmulatedMedia", features=[feature])
    browser.resize(width, mobile=width < 500)
    for name in ("index", "tables/runs", "your-campaign"):
        browser.events.clear()
        browser.call("Page.navigate", url=(site / f"{name}.html").as_uri())
        browser.wait_for("Page.loadEventFired")
        colours = browser.evaluate("document.body.dataset.mdColorScheme")
        assert colours == {"light": "default", "dark": "slate"}[scheme]
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert all(url.startswith(("file:", "blob:")) for url in browser.requests()), name
        assert not browser.complaints(), name


@built
@pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)")
def test_the_search_finds_pages_that_are_opened_as_files(site: Path, browser: Browser) -> None:
    browser.session = None
    browser.open((site / "index.html").as_uri())
    assert browser.evaluate(SEARCH)
