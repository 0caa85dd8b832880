"""The page of a campaign's status in a real browser: it loads itself again and keeps one's place."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from accessibility import serious_findings
from browser import Browser, chromium, headless

from scalewatt.report.status.outlook import outlook
from scalewatt.report.status.status_page import Writing, status_page

sys.path.append(str(Path(__file__).parents[1] / "unit"))

from status_files import CAMPAIGN, ONE, Made, everything

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="there is no chromium (Debian: chromium)"),
]
HOSTILE = "<script>document.title = 'broken'</script>"
EVERY_S = 1.0
PATIENCE_S = 30.0


def campaign_in(folder: Path) -> Made:
    """Runs in four states in several series, one of them failed with a hostile log."""
    images = CAMPAIGN["series"]["images"]  # type: ignore[index]
    names = [f"images-with-a-rather-long-name-{n}" for n in range(12)]
    made = Made.create(
        folder,
        series=dict.fromkeys(names, images),
        figures={"figure2": {"series": names}},
        energy_budget_kwh=0.4,
    )
    everything(made)
    log = made.work_folder(ONE, 2) / "train.log"
    log.write_text("".join(f"line {n} {HOSTILE}\n" for n in range(30)) + "x" * 400 + "\n")
    return made


def write(made: Made, out: Path, writing: Writing) -> Path:
    """Write the page beside and rename it, as the command does."""
    status = made.status()
    beside = out.with_suffix(".tmp")
    beside.write_text(status_page(status, outlook(status, None), writing))
    beside.rename(out)
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return campaign_in(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def page(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A page that is not written again, opened."""
    out = write(made, made.folder / "status.html", Writing())
    with headless(tmp_path_factory.mktemp("profile")) as opened:
        yield opened.open(out.as_uri())


def test_a_log_with_a_script_is_a_text(page: Browser) -> None:
    assert page.evaluate("document.title").startswith("1 of 4 – made")
    assert HOSTILE in page.evaluate("document.querySelector('pre').textContent")
    assert page.evaluate("document.scripts.length") == 1
    assert page.complaints() == []
    assert page.requests() == []


@pytest.mark.parametrize("width", (390, 1280, 1920))
@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_at_every_width_and_in_both_schemes_it_fits_and_can_be_read(
    page: Browser, width: int, scheme: str
) -> None:
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=media)
    page.resize(width, mobile=width < 600)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 25, 28)"
    )
    bars = "Array.from(document.querySelectorAll('progress'), one => one.offsetWidth)"
    assert min(page.evaluate(bars)) >= 60


@pytest.mark.parametrize("scheme", ("light", "dark"))
def test_axe_finds_nothing_serious(page: Browser, scheme: str) -> None:
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=media)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert serious_findings(page) == []


def until(page: Browser, expression: str) -> None:
    """Wait until an expression is true on the page, whichever load of it."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            if page.evaluate(expression):
                return
        except AssertionError:  # between two loads there is no page
            pass
        assert time.monotonic() < end, expression
        time.sleep(0.1)


def test_it_loads_itself_again_and_keeps_place_folds_and_pause_until_it_ends(
    tmp_path: Path,
) -> None:
    made = campaign_in(tmp_path)
    out = write(made, tmp_path / "status.html", Writing(EVERY_S))
    (tmp_path / "profile").mkdir()
    with headless(tmp_path / "profile") as page:
        page.open(out.as_uri())
        page.resize(800, 400)
        assert page.evaluate("document.getElementById('age').textContent").endswith(" ago")
        fold = f"document.getElementById('failure-{ONE}-2')"
        page.evaluate(
            "document.getElementById('pause').click();"
            f"{fold}.open = false; document.getElementById('all-runs').open = true;"
            "scrollTo(0, 300); window.first = true"
        )
        time.sleep(2.5 * EVERY_S)
        assert page.evaluate("window.first") is True, "a page that is paused stays"
        assert page.evaluate("document.getElementById('pause').textContent") == "Go on"
        made.publish(ONE, 2)
        write(made, out, Writing(EVERY_S))
        page.evaluate("document.getElementById('pause').click()")
        until(page, "document.title.startsWith('2 of 4') && document.readyState === 'complete'")
        assert page.evaluate("scrollY") == 300
        assert page.evaluate("document.getElementById('all-runs').open") is True
        write(made, out, Writing(ended="all runs are done"))
        until(page, "document.body.innerText.includes('This page is no longer updated')")
        page.evaluate("window.last = true")
        time.sleep(2.5 * EVERY_S)
        assert page.evaluate("window.last") is True, "the last page stays"
        assert page.requests() == []


def test_a_page_whose_writer_is_gone_says_so(made: Made, tmp_path: Path) -> None:
    out = write(made, tmp_path / "status.html", Writing(EVERY_S))
    page_text = out.read_text()
    written = f'data-written="{page_text.partition("data-written=")[2].split(chr(34))[1]}"'
    out.write_text(page_text.replace(written, f'data-written="{time.time() - 3600}"'))
    (tmp_path / "profile").mkdir()
    with headless(tmp_path / "profile") as page:
        page.open(out.as_uri())
        assert page.evaluate("document.getElementById('stale').hidden") is False
        said = page.evaluate("document.getElementById('stale').textContent")
        assert "the command that writes it may have ended" in said
        assert page.evaluate("document.getElementById('age').textContent") == ", 60 min ago"
        page.evaluate("document.getElementById('pause').click()")
        assert page.evaluate("document.getElementById('stale').hidden"), "paused: old as it should"
