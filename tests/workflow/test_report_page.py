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
from scalewatt.claims.reference_tables import INCONSISTENCY, NOT_TESTABLE, TESTED, listed_claims
from scalewatt.report.build_report import write_report
from scalewatt.report.definition import report_definition

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
WIDTHS = (390, 1280, 1920)
HORIZON = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the paper's campaign: 175 made runs, with claims."""
    folder, campaign = tmp_path_factory.mktemp("large"), paper()
    results = write_results(folder / "results", campaign, made_runs(campaign))
    verdicts = (*TESTED, NOT_TESTABLE, INCONSISTENCY)
    claims = listed_claims()
    values = ("0.5", "0.45", "-3", "12", "none")
    rows = [(c.id, verdicts[n % 5], values[n // 5 % 5]) for n, c in enumerate(claims)]
    write_claims(results, rows)
    cluster = load_cluster(Path(__file__).parents[2] / "config/horeka.yaml")
    write_report(results, folder / "report.html", report_definition(campaign, cluster, []))
    return folder / "report.html"


@pytest.fixture(scope="module")
def small(
    finished_workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """The report of a finished campaign, opened."""
    with headless(tmp_path_factory.mktemp("profile")) as opened:
        yield opened.open((finished_workspace.results / "report.html").as_uri())


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


def test_the_report_of_a_finished_campaign_works_by_itself(small: Browser) -> None:
    looked_at(small)
    claims = small.evaluate("document.querySelectorAll('#claims tbody tr').length")
    assert claims == len(listed_claims())


@pytest.mark.long
def test_the_report_of_the_papers_size_works_by_itself(browser: Browser) -> None:
    looked_at(browser)


def test_a_series_is_hidden_and_shown_by_its_button(small: Browser) -> None:
    shown = "Array.from(document.querySelectorAll('#figure6 [data-series=images-full] use')"
    shown += ", u => u.getBoundingClientRect().width > 0)"
    toggle = "document.querySelector('#figure6 .legend button')"
    assert all(small.evaluate(shown)) and small.evaluate(shown)
    small.evaluate(f"{toggle}.focus()")
    small.press_enter()
    assert not any(small.evaluate(shown))
    assert small.evaluate(f"{toggle}.getAttribute('aria-pressed')") == "false"
    small.press_enter()
    assert all(small.evaluate(shown))


def test_every_point_of_a_figure_says_what_it_is(finished_workspace: Workspace) -> None:
    results = finished_workspace.path / "results" / "tiny"
    text = (results / "report.html").read_text(encoding="utf-8")
    for name in ("figure2", "figure3", "figure4", "figure6", "figure7"):
        drawn = text.partition(f'<figure id="{name}">')[2].partition("</figure>")[0]
        points = pd.read_csv(results / "figures" / f"{name}.csv").dropna(subset=["x", "y"])
        assert 0 < drawn.count("<title>") <= len(points)
        assert drawn.count("<title>") >= len(points) - 2, "a lone speed-up is not drawn"


def test_it_prints_every_head_again_on_each_page_of_a_table(browser: Browser) -> None:
    browser.call("Emulation.setEmulatedMedia", media="print")
    shown = "getComputedStyle(document.querySelector('nav')).display"
    assert browser.evaluate(shown) == "none"
    browser.call("Emulation.setEmulatedMedia", media="")
    pdf = browser.call("Page.printToPDF", preferCSSPageSize=True)["data"]
    assert base64.b64decode(pdf).startswith(b"%PDF")
    folded = (
        "Array.from(document.querySelectorAll('details:not(#specifications)')).every(d => d.open)"
    )
    assert browser.evaluate(folded), "what is folded is not printed"
