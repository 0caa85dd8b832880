"""What the report shows of figures on small screens: stacked panels, and the small print as text."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pyarrow as pa
import pytest
from figure_tables import as_table
from hypothesis import given
from hypothesis import strategies as st
from report_results import SVG, demo, made_runs, write_results

from scalewatt.figures.output.small_print import write_captions
from scalewatt.report.build_report import write_report
from scalewatt.report.pictures.small_screens import small_screen
from scalewatt.report.report_inputs import MOST_SVG_BYTES
from scalewatt.report.report_request import Definition
from scalewatt.results.figures.figure_schema import POINTS
from scalewatt.results.tables.frames import to_frame

PRINT = ["Energy of a_b, 95 % × 2 ± 1 & n₀ <4>.", "1. of *two* – [nothing] else."]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results with figure 2 in all its forms."""
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "figure2.stacked.svg").write_text(SVG.format("stacked"))
    write_captions(PRINT, tmp_path / "figures" / "figure2")
    return tmp_path


def table(small_print: bool) -> pa.Table:
    options = {"small_print": small_print}
    return to_frame(as_table([], POINTS, figure=2, options=options))


def test_a_small_screen_has_the_stacked_drawing_and_the_small_print(folder: Path) -> None:
    found = small_screen(folder, "figure2", table(True))
    assert found.stacked is not None
    drawing = base64.b64decode(found.stacked.removeprefix("data:image/svg+xml;base64,"))
    assert b">stacked<" in drawing
    assert list(found.small_print) == PRINT and found.in_drawing
    assert not small_screen(folder, "figure2", table(False)).in_drawing


@given(st.lists(st.text("ab1 _*`[]()<>#|~&$\\.-+!×±₂–", min_size=1).map(str.strip), max_size=3))
def test_the_small_print_is_read_as_it_was_written(sentences: list[str]) -> None:
    from tempfile import TemporaryDirectory

    sentences = [one for one in sentences if one]
    with TemporaryDirectory() as name:
        (Path(name) / "figures").mkdir()
        write_captions(sentences, Path(name) / "figures" / "figure2")
        assert list(small_screen(Path(name), "figure2", None).small_print) == sentences


def test_results_of_an_earlier_version_have_the_wide_drawing_alone(tmp_path: Path) -> None:
    found = small_screen(tmp_path, "figure2", table(True))
    assert (found.stacked, found.small_print) == (None, ())


def test_what_the_caption_says_is_not_said_again(folder: Path) -> None:
    found = small_screen(folder, "figure2", table(True), f"Two series. {PRINT[0]} No run.")
    assert list(found.small_print) == PRINT[1:]


def test_a_large_drawing_is_not_embedded_twice(folder: Path) -> None:
    large = SVG.format("a" * MOST_SVG_BYTES)
    (folder / "figures" / "figure2.stacked.svg").write_text(large)
    assert small_screen(folder, "figure2", table(True)).stacked is None


def page_of(folder: Path) -> str:
    write_report(folder, folder / "report.html", Definition("demo", figures=("figure2", "figure3")))
    return (folder / "report.html").read_text()


def test_the_page_has_both_drawings_and_the_small_print_where_it_is_not_seen(folder: Path) -> None:
    write_results(folder, demo(), made_runs(demo()))
    page = page_of(folder)
    second, third = (
        page.split(f'<figure id="figure{n}">')[1].split("</figure>")[0] for n in (2, 3)
    )
    wide, stacked = re.findall(r'<img (class="stacked" )?src="(data:[^"]+)" alt="([^"]+)">', second)
    assert (wide[0], stacked[0]) == ("", 'class="stacked" ')
    assert stacked[1] == small_screen(folder, "figure2", None).stacked != wide[1]
    assert stacked[2] == wide[2], "one of the two is seen, and described"
    assert 'class="small-print on-small-screens"' in second and "n₀ &lt;4&gt;." in second
    assert "stacked" not in third and "small-print" not in third
