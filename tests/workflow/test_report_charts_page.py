"""The report's charts in a real browser: by mouse, by keyboard alone, in the dark, and without scripts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, chromium, headless
from report_results import demo, made_runs, write_results

from scalewatt.campaign.cluster import load_cluster
from scalewatt.report.build_report import write_report
from scalewatt.report.report_request import parse_definition, report_definition

pytest.importorskip("vl_convert", reason="vl-convert, which has the charts' script, is not there")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
AXE = os.environ.get("SCALEWATT_AXE")
WIDTHS = (390, 1280, 1920)
FIGURE = "document.getElementById('figure2')"
PLOT = f"{FIGURE}.querySelector('.plot')"
MARKS = f"{PLOT}.querySelectorAll('.mark-symbol path').length"
NUMBERS = f"Array.from({PLOT}.querySelectorAll('.role-axis-label text'), t => t.textContent).sort().join()"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the demo's campaign with made runs."""
    folder, campaign = tmp_path_factory.mktemp("made"), demo()
    results = write_results(folder, campaign, made_runs(campaign))
    cluster = load_cluster(Path(__file__).parents[2] / "profiles/local/cluster.yaml")
    given = report_definition(campaign, cluster, [], False)
    write_report(results, folder / "report.html", parse_definition(given))
    return folder / "report.html"


@pytest.fixture()
def page(made: Path, tmp_path: Path) -> Iterator[Browser]:
    """The report, opened at its second figure."""
    with headless(tmp_path) as opened:
        opened.open(made.as_uri()).resize(1280)
        show(opened)
        yield opened


def show(page: Browser) -> None:
    page.evaluate(f"{FIGURE}.scrollIntoView()")
    page.until(f"{FIGURE}.querySelector('.chart').dataset.drawn")


def show_all(page: Browser) -> None:
    """Scroll to all charts, which are drawn when they are near."""
    for name in page.evaluate(
        "Array.from(document.querySelectorAll('.chart'), c => c.dataset.chart)"
    ):
        page.evaluate(f"document.getElementById('{name}').scrollIntoView()")
        page.until(f"document.querySelector('#{name} .chart').dataset.drawn")


def focus(page: Browser, selector: str) -> None:
    """Press Tab until what a selector finds in the figure has the focus."""
    for _ in range(150):
        if page.evaluate(f"document.activeElement === {FIGURE}.querySelector({selector!r})"):
            return
        page.press("Tab")
    raise AssertionError(f"is never reached by Tab: {selector}")


def near(page: Browser) -> None:
    """Put the focus on the link of the contents that leads to the figure."""
    page.evaluate("document.querySelector('nav a[href=\"#figure2\"]').focus()")
    page.press("Enter")


# --- everywhere -----------------------------------------------------------------------------------


def test_charts_stand_in_place_of_the_drawings_at_every_width_in_light_and_in_the_dark(
    page: Browser,
) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        for width in WIDTHS:
            page.resize(width, mobile=width < 600)
            show_all(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            plots = "Array.from(document.querySelectorAll('.plot'))"
            drawn = f"{plots}.every(p => p.querySelector('svg, canvas').getBoundingClientRect().width > 200)"
            assert page.until(drawn)
            inside = f"{plots}.every(p => p.getBoundingClientRect().right <= {width})"
            assert page.evaluate(inside)
        stroke = f"{PLOT}.querySelector('.mark-symbol path').getAttribute('stroke')"
        colours.add(page.until(stroke))
    assert len(colours) == 2, "series have a colour for the dark"
    assert page.complaints() == [] and page.requests() == []
    images = "Array.from(document.querySelectorAll('.live img'), i => i.checkVisibility())"
    assert not any(page.evaluate(images))


def test_caption_data_and_values_stay_beside_a_chart(page: Browser) -> None:
    show_all(page)
    captions = "Array.from(document.querySelectorAll('figcaption'), c => c.checkVisibility())"
    shown = page.evaluate(captions)
    assert len(shown) > 3 and all(shown)
    assert page.evaluate(f"{FIGURE}.querySelector('figcaption a[download]').checkVisibility()")
    values = f"{FIGURE}.querySelector('details.values')"
    assert page.evaluate(f"{values}.checkVisibility()")
    page.evaluate(f"{values}.open = true")
    assert page.evaluate(f"{values}.querySelectorAll('tbody tr').length") > 3


def test_in_print_the_drawings_stand_again(page: Browser) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.evaluate(f"{FIGURE}.querySelector('img').checkVisibility()")
    assert not page.evaluate(f"{FIGURE}.querySelector('.chart').checkVisibility()")


def test_without_scripts_the_drawings_and_tables_stand(made: Path, tmp_path: Path) -> None:
    plain = made.read_text(encoding="utf-8").replace("script-src", "script-src 'none'; x-src")
    (tmp_path / "plain.html").write_text(plain, encoding="utf-8")
    (tmp_path / "profile").mkdir()
    with headless(tmp_path / "profile") as opened:
        opened.open((tmp_path / "plain.html").as_uri())
        assert opened.evaluate(f"{FIGURE}.querySelector('img').checkVisibility()")
        assert not opened.evaluate(f"{FIGURE}.querySelector('.chart').checkVisibility()")
        assert opened.evaluate(f"{FIGURE}.querySelector('details summary').checkVisibility()")


# --- the keyboard ---------------------------------------------------------------------------------


def test_by_the_keyboard_alone_a_series_goes_and_comes_back(page: Browser) -> None:
    before = page.evaluate(MARKS)
    near(page)
    focus(page, "input[type=checkbox]")
    page.press(" ")
    assert page.evaluate(f"{FIGURE}.querySelector('input').checked") is False
    page.until(f"{MARKS} < {before}")
    page.press(" ")
    page.until(f"{MARKS} === {before}")


def test_by_the_keyboard_alone_a_chart_is_zoomed_and_reset(page: Browser) -> None:
    before = page.evaluate(NUMBERS)
    near(page)
    focus(page, "[data-zoom=in]")
    page.press("Enter")
    page.until(f"{NUMBERS} !== {before!r}")
    focus(page, "[data-zoom=reset]")
    page.press("Enter")
    page.until(f"{NUMBERS} === {before!r}")
    focus(page, ".plot")
    page.press("+")
    page.until(f"{NUMBERS} !== {before!r}")
    page.press("0")
    page.until(f"{NUMBERS} === {before!r}")
    page.press("ArrowRight")
    page.until(f"{NUMBERS} !== {before!r}")


def test_a_value_of_the_table_beside_leads_to_the_row_of_its_configuration(page: Browser) -> None:
    page.evaluate(f"{FIGURE}.querySelector('details').open = true")
    page.evaluate(f"{FIGURE}.querySelector('details td a').click()")
    row = page.until("document.querySelector('tr:target')?.id")
    assert row == page.evaluate(f"{FIGURE}.querySelector('details td a').hash.slice(1)")


# --- the mouse ------------------------------------------------------------------------------------


def told_at(page: Browser, marks: str, place: int) -> dict[str, Any]:
    """Point at a mark; what the page tells of it, and where it is."""
    box = f"{marks}[{place}].getBoundingClientRect()"
    x, y = page.evaluate(f"[{box}.left + {box}.width / 2, {box}.top + {box}.height / 2]")
    for step in (-40, -2, 0):
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + step, y=y)
    tip = "document.querySelector('#vg-tooltip-element.visible')"
    page.until(f"{tip} !== null")
    rows = f"Array.from({tip}.querySelectorAll('tr'), r => [r.cells[0].textContent, r.cells[1].textContent])"
    return {"x": x, "y": y, **dict(page.evaluate(rows))}


def test_a_point_tells_its_values_and_interval_and_leads_to_its_row(page: Browser) -> None:
    figure = "document.getElementById('figure4')"  # of which some runs are repeated
    page.evaluate(f"{figure}.scrollIntoView()")
    page.until(f"{figure}.querySelector('.chart').dataset.drawn")
    energies = f"{figure}.querySelectorAll('.plot')[2]"
    page.evaluate(f"{energies}.scrollIntoView({{block: 'center'}})")
    marks = f"Array.from({energies}.querySelectorAll('.mark-symbol path'))"
    told = [told_at(page, marks, place) for place in range(page.evaluate(f"{marks}.length"))]
    found = next(one for one in told if one["95 % t interval"] != "none")
    assert {"series", "point", "energy is", "runs"} <= set(found)
    value = float(next(text for name, text in found.items() if name.startswith("Energy")))
    low, high = map(float, found["95 % t interval"].split(" to "))
    assert low < value < high
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=found["x"], y=found["y"], button="left",
                  clickCount=1)  # fmt: skip
    row = page.until("document.querySelector('tr:target')?.id")
    size = found["point"].removeprefix("n = ").split(", LBS ")
    assert f"-n{int(size[0]):03}-lbs{int(size[1]):04}-" in row


# --- accessibility --------------------------------------------------------------------------------


@pytest.mark.skipif(not AXE, reason="SCALEWATT_AXE does not name axe-core's axe.min.js")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(page: Browser, scheme: str, width: int) -> None:
    page.prefer(scheme)
    page.resize(width, mobile=width < 600)
    show_all(page)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.evaluate(Path(str(AXE)).read_text(encoding="utf-8") + "; 0")
    found = json.loads(
        page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations.map("
            "v => [v.impact, v.id, v.nodes.length, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))])))"
        )
    )
    assert [one for one in found if one[0] in ("serious", "critical")] == []
