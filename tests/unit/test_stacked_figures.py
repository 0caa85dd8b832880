"""Figures for phones: panels one below the other, in words that can be read."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise
from typing import Any

import pytest
from cost_rows import frame, h100_rows
from figure_tables import draw
from matplotlib.backends.backend_agg import FigureCanvasAgg
from test_figure_style import seen_texts
from test_small_print import NAMES, table_of

from scalewatt.figures import style
from scalewatt.figures.draw_figure import _for_a_phone
from scalewatt.figures.output.small_print import without_small_print
from scalewatt.results.figures.figure_schema import COST_PER_SAMPLE
from scalewatt.results.tables.frames import to_table

PHONE_PX = 366
"""What a phone of 390 pixels has beside the margins of the report."""
LEAST_PX = 10.5


def narrow_table(name: str) -> Any:
    """A table of the paper's size with the width of a phone."""
    if name == "cost_per_sample":
        return to_table(_for_a_phone(frame(h100_rows())), COST_PER_SAMPLE)
    return table_of(name, width_mm=style.STACKED.width_mm)


@cache
def drawn(name: str) -> tuple[Any, list[tuple[Any, Any]]]:
    """The stacked figure, laid out, with the box of every text that is seen."""
    figure = without_small_print(draw(name, narrow_table(name), again=True))
    canvas = FigureCanvasAgg(figure)
    with style.applied(style.STACKED.width_mm):
        canvas.draw()
    renderer = canvas.get_renderer()
    return figure, [(one, one.get_window_extent(renderer)) for one in seen_texts(figure)]


each = pytest.mark.parametrize("name", [*NAMES, "cost_per_sample"])


@each
def test_panels_are_one_below_the_other(name: str) -> None:
    boxes = [axes.bbox for axes in drawn(name)[0].axes]
    assert len(boxes) > 1
    assert all(above.y0 > below.y1 for above, below in pairwise(boxes))


@each
def test_a_phone_shows_every_word_large_enough(name: str) -> None:
    figure, texts = drawn(name)
    px_of_a_point = PHONE_PX / (style.STACKED.width_mm / style.MM_PER_INCH * 72)
    for text, box in texts:
        assert text.get_fontsize() * px_of_a_point >= LEAST_PX, text.get_text()
        assert box.x0 > -1 and box.x1 < figure.bbox.width + 1, text.get_text()
        assert box.y0 > -1 and box.y1 < figure.bbox.height + 1, text.get_text()


@each
def test_panels_take_the_screens_width(name: str) -> None:
    figure, _ = drawn(name)
    assert all(axes.bbox.width > 0.45 * figure.bbox.width for axes in figure.axes)


@each
def test_axes_labels_and_legends_do_not_cover_each_other(name: str) -> None:
    figure, _ = drawn(name)
    boxes = [
        label.get_window_extent()
        for axes in figure.axes
        if axes.axison
        for label in (axes.xaxis.label, axes.yaxis.label)
        if label.get_text()
    ]
    parts = [figure, *figure.subfigs]
    boxes += [legend.get_window_extent() for part in parts for legend in part.legends]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@each
def test_a_phones_figure_has_no_small_print(name: str) -> None:
    assert drawn(name)[0].small_print is None and drawn(name)[0].sentences


def test_a_table_of_a_wide_figure_stays_as_it_is() -> None:
    wide = frame(h100_rows())
    assert _for_a_phone(wide).attrs["options"]["width_mm"] == style.STACKED.width_mm
    assert "width_mm" not in wide.attrs.get("options", {})
