"""Breakdown, learning curves and Pareto fronts of the paper's size in print, at both widths."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import paper_rows
import pytest
from figure_tables import draw
from matplotlib.backends.backend_agg import FigureCanvasAgg
from test_figure_style import seen_texts

from scalewatt.figures import style

NAMES = ("breakdown", "learning", "pareto")
WIDTHS = sorted(style.PRESETS)


@cache
def drawn(name: str, width_mm: int) -> tuple[Any, list[tuple[Any, Any]]]:
    """The figure, laid out, with the box of every text that is seen."""
    more = {"epochs": 3} if name == "learning" else {}
    table = getattr(paper_rows, f"{name}_table")(width_mm=width_mm, **more)
    figure = draw(name, table)
    canvas = FigureCanvasAgg(figure)
    with style.applied(width_mm):
        canvas.draw()
    boxes = [(text, text.get_window_extent(canvas.get_renderer())) for text in seen_texts(figure)]
    return figure, boxes


each = pytest.mark.parametrize(("name", "width"), [(name, w) for name in NAMES for w in WIDTHS])


@each
def test_every_text_is_on_the_page_and_at_least_6_points(name: str, width: int) -> None:
    figure, texts = drawn(name, width)
    for text, box in texts:
        assert text.get_fontsize() >= 6, text.get_text()
        assert box.x0 > -1 and box.x1 < figure.bbox.width + 1, text.get_text()
        assert box.y0 > -1 and box.y1 < figure.bbox.height + 1, text.get_text()


def legends(figure: Any) -> list[Any]:
    return [*figure.legends, *(one for part in figure.subfigs for one in part.legends)]


@each
def test_no_legend_covers_data_or_notes(name: str, width: int) -> None:
    figure, _ = drawn(name, width)
    boxes = [legend.get_window_extent() for legend in legends(figure)]
    assert boxes
    for axes in figure.axes:
        assert not any(box.overlaps(axes.bbox.padded(-1)) for box in boxes)
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    notes = figure._supxlabel.get_window_extent()
    lowest = min(axes.xaxis.label.get_window_extent().y0 for axes in figure.axes)
    assert notes.y1 <= lowest + 1


@each
def test_tick_labels_do_not_touch_each_other(name: str, width: int) -> None:
    figure, texts = drawn(name, width)
    boxes = {id(text): box for text, box in texts}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            own = [boxes[id(t.label1)] for t in axis.get_major_ticks() if id(t.label1) in boxes]
            # Lines of text touch where their letters do not.
            assert not any(a.overlaps(b.padded(-2)) for a, b in combinations(own, 2))
