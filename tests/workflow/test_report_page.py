"""The report in a real browser: it works by itself, at every width, and asks nobody for anything."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from browser import Browser, chromium, headless
from report_results import made_runs, paper, write_claims, write_results
from workspace import Workspace

from scalewatt.campaign.cluster import load_cluster
from scalewatt.claims.reference_tables import listed_claims
from scalewatt.report.build_report import write_report
from scalewatt.report.definition import report_definition

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
WIDTHS = (390, 1280, 1920)
HORIZON = "document.documentElement.scrollWidth"
RUNS = "document.querySelector('#runs table')"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the paper's campaign: 175 made runs, with claims."""
    folder, campaign = tmp_path_factory.mktemp("large"), paper()
    results = write_results(folder / "results", campaign, made_runs(campaign))
    verdicts = ("reproduced", "not_reproduced", "unresolved", "not_testable", "inconsistency")
    claims = listed_claims()
    values = ("0.5", "0.45", "-3", "12", "none")
    rows = [(c.id, verdicts[n % 5], values[n // 5 % 5]) for n, c in enumerate(claims)]
    write_claims(results, rows)
    cluster = load_cluster(Path(__file__).parents[2] / "config/horeka.yaml")
    write_report(results, folder / "report.html", report_definition(campaign, cluster, []))
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The large report, opened."""
    with headless(tmp_path_factory.mktemp("profile")) as opened:
        yield opened.open(large.as_uri())


def looked_at(page: Browser) -> None:
    """What holds for every report that is opened."""
    assert page.complaints() == []
    assert page.requests() == []
    drawn = (
        "Array.from(document.querySelectorAll('figure svg'), s => s.getBoundingClientRect().width)"
    )
    widths = page.evaluate(drawn)
    assert widths and all(width > 0 for width in widths)
    links = "Array.from(document.querySelectorAll('a'), a => a.getAttribute('href'))"
    for link in page.evaluate(links):
        if link.startswith("#"):
            assert page.evaluate(f"document.getElementById({link[1:]!r}) !== null"), link
        else:
            assert link.startswith(("tables/", "figures/")), link
    for width in WIDTHS:
        page.resize(width, mobile=width < 600)
        assert page.evaluate(HORIZON) <= width


def test_the_report_of_a_finished_campaign_works_by_itself(
    finished_workspace: Workspace, tmp_path: Path
) -> None:
    report = finished_workspace.path / "results" / "tiny" / "report.html"
    with headless(tmp_path) as page:
        looked_at(page.open(report.as_uri()))
        assert page.evaluate("document.querySelectorAll('#claims tbody tr').length") == len(
            listed_claims()
        )


@pytest.mark.long
def test_the_report_of_the_papers_size_works_by_itself(browser: Browser) -> None:
    looked_at(browser)


def column(page: Browser, name: str) -> list[str]:
    """The cells of a column of the table of runs, as they stand."""
    heads = page.evaluate(f"Array.from({RUNS}.tHead.rows[0].cells, c => c.textContent)")
    cell = f"r.cells[{heads.index(name)}].textContent"
    return page.evaluate(f"Array.from({RUNS}.tBodies[0].rows, r => {cell})")


def energies(page: Browser) -> list[float]:
    """The energies of runs, as they stand."""
    return [float(text.replace("\u202f", "")) for text in column(page, "Energy (kWh)")]


def click_head(page: Browser, name: str) -> str:
    """Click a head of the table of runs; how it says that it is sorted."""
    head = f"Array.from({RUNS}.tHead.rows[0].cells).find(c => c.textContent === {name!r})"
    page.evaluate(f"{head}.querySelector('button').click()")
    return page.evaluate(f"{head}.getAttribute('aria-sort')")


def test_a_click_on_a_head_sorts_by_numbers_and_a_second_one_the_other_way(
    browser: Browser,
) -> None:
    assert click_head(browser, "Energy (kWh)") == "ascending"
    up = energies(browser)
    assert len(up) == 175 and up == sorted(up)
    assert click_head(browser, "Energy (kWh)") == "descending"
    assert energies(browser) == sorted(up, reverse=True)
    assert click_head(browser, "Configuration") == "ascending"
    names = column(browser, "Configuration")
    assert names == sorted(names)
    sorted_heads = f"{RUNS}.querySelectorAll('[aria-sort]').length"
    assert browser.evaluate(sorted_heads) == 1


def test_missing_values_are_last_in_both_directions(browser: Browser) -> None:
    for _ in range(2):
        heads = "Array.from(document.querySelectorAll('#metrics th button'))"
        browser.evaluate(f"{heads}.find(b => b.textContent.startsWith('Persistence')).click()")
        cells = "r.cells[5].textContent"
        rows = "Array.from(document.querySelectorAll('#metrics tbody tr')"
        shown = browser.evaluate(f"{rows}, r => {cells})")
        assert set(shown[:25]) == {"240"} and set(shown[25:]) == {"–"}


def test_texts_with_decimals_and_signs_are_sorted_as_numbers(browser: Browser) -> None:
    table = "document.querySelector('#claims-reproduced table')"
    head = f"Array.from({table}.tHead.rows[0].cells).find(c => c.textContent === 'Found')"
    browser.evaluate(f"{head}.querySelector('button').click()")
    cells = f"Array.from({table}.tBodies[0].rows, r => r.cells[{head}.cellIndex].textContent)"
    order = list(dict.fromkeys(browser.evaluate(cells)))
    assert order == ["-3", "0.45", "0.5", "12", "none"]


def test_heads_are_reached_and_worked_by_the_keyboard(browser: Browser) -> None:
    browser.evaluate("document.querySelector('#scaling th button').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter",
                     windowsVirtualKeyCode=13, text="\r" if kind == "keyDown" else "")  # fmt: skip
    head = "document.querySelector('#scaling th')"
    assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"


def test_a_series_is_hidden_and_shown_by_its_button(
    finished_workspace: Workspace, tmp_path: Path
) -> None:
    report = finished_workspace.path / "results" / "tiny" / "report.html"
    shown = "Array.from(document.querySelectorAll('#figure6 [data-series=images-full] use')"
    shown += ", u => u.getBoundingClientRect().width > 0)"
    toggle = "document.querySelector('#figure6 .legend button')"
    with headless(tmp_path) as page:
        page.open(report.as_uri())
        assert all(page.evaluate(shown)) and page.evaluate(shown)
        page.evaluate(f"{toggle}.focus()")
        page.press("Enter")
        assert not any(page.evaluate(shown))
        assert page.evaluate(f"{toggle}.getAttribute('aria-pressed')") == "false"
        page.press("Enter")
        assert all(page.evaluate(shown))


def test_every_point_of_a_figure_says_what_it_is(finished_workspace: Workspace) -> None:
    results = finished_workspace.path / "results" / "tiny"
    text = (results / "report.html").read_text(encoding="utf-8")
    for name in ("figure2", "figure3", "figure4", "figure6", "figure7"):
        drawn = text.partition(f'<figure id="{name}">')[2].partition("</figure>")[0]
        points = pd.read_csv(results / "figures" / f"{name}.csv").dropna(subset=["x", "y"])
        assert 0 < drawn.count("<title>") <= len(points)
        assert drawn.count("<title>") >= len(points) - 2, "a lone speed-up is not drawn"


def test_a_link_to_a_folded_part_opens_it(browser: Browser) -> None:
    state = "document.querySelector('#claims-inconsistency > details').open"
    assert browser.evaluate(state) is False
    browser.evaluate("location.hash = '#claims-inconsistency'")
    browser.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    assert browser.evaluate(state) is True


def test_it_prints_every_head_again_on_each_page_of_a_table(browser: Browser) -> None:
    browser.call("Emulation.setEmulatedMedia", media="print")
    shown = "getComputedStyle(document.querySelector('nav')).display"
    assert browser.evaluate(shown) == "none"
    heads = "getComputedStyle(document.querySelector('th button')).display"
    assert browser.evaluate(heads) == "contents", "Chromium repeats no head with a button in it"
    browser.call("Emulation.setEmulatedMedia", media="")
    pdf = browser.call("Page.printToPDF", preferCSSPageSize=True)["data"]
    assert base64.b64decode(pdf).startswith(b"%PDF")
    folded = (
        "Array.from(document.querySelectorAll('details:not(#specifications)')).every(d => d.open)"
    )
    assert browser.evaluate(folded), "what is folded is not printed"
