"""How figures look: readable in grey and in print, at both widths, with chosen error bars."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import matplotlib.text
import numpy as np
import pandas as pd
import pytest
from figure_tables import any_table, as_table, draw, power_table, words
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from scalewatt.figures import style
from scalewatt.figures.figure_data import drawn_origins, series_origins

WIDTHS = sorted(style.PRESETS)


@cache
def drawn(number: int, width_mm: int) -> Any:
    """The figure of the paper's size, laid out, with the box of every text that is seen."""
    figure = draw(f"figure{number}", any_table(number, width_mm=width_mm))
    canvas = FigureCanvasAgg(figure)
    with style.applied(width_mm):
        canvas.draw()
    return figure, [
        (text, text.get_window_extent(canvas.get_renderer())) for text in seen_texts(figure)
    ]


def seen_texts(figure: Any) -> list[Any]:
    """All texts but the labels that matplotlib keeps for ticks beyond an axis' ends."""
    unseen = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            for tick in axis.get_major_ticks():
                if not (axes.axison and low <= tick.get_loc() <= high):
                    unseen |= {id(tick.label1), id(tick.label2)}
    result = figure.findobj(matplotlib.text.Text)
    return [t for t in result if t.get_text().strip() and t.get_visible() and id(t) not in unseen]


# --- colours --------------------------------------------------------------------------------------


def linear(colour: str) -> Any:
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: Any) -> Any:
    """CIE L*a*b* (D65) of linear RGB."""
    xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    f = np.where(f > 0.2069, f, 7.787 * xyz / [0.9505, 1.0, 1.089] + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# Machado, Oliveira and Fernandes 2009: no cones of one kind.
VISION = {
    "common": np.eye(3),
    "protan": np.array(
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]
    ),
    "deutan": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
    "tritan": np.array(
        [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]
    ),
}


@pytest.mark.parametrize("vision", VISION)
def test_any_two_colours_differ_for_every_colour_vision(vision: str) -> None:
    seen = [lab(VISION[vision] @ linear(colour)) for colour in style.COLOURS]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15


def test_any_two_colours_differ_in_grey_and_from_paper() -> None:
    lightness = [lab(linear(colour))[0] for colour in style.COLOURS]
    assert min(abs(a - b) for a, b in combinations(lightness, 2)) > 7
    assert max(lightness) < 75


def test_series_that_share_a_colour_differ_in_marker_and_line() -> None:
    looks = [style.series_style(index) for index in range(14)]
    for each, other in combinations(looks, 2):
        assert (each["color"], each["marker"]) != (other["color"], other["marker"])
    for each, other in zip(looks[:7], looks[7:], strict=True):
        assert each["linestyle"] != other["linestyle"] and each["marker"] != other["marker"]


# --- both widths ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_every_text_is_on_the_page_and_at_least_6_points(number: int, width: int) -> None:
    figure, texts = drawn(number, width)
    assert figure.get_figwidth() * 25.4 == pytest.approx(width)
    for text, box in texts:
        assert text.get_fontsize() >= 6, text.get_text()
        assert box.x0 > -1 and box.x1 < figure.bbox.width + 1, text.get_text()
        assert box.y0 > -1 and box.y1 < figure.bbox.height + 1, text.get_text()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("number", [2, 5, 6])
def test_no_legend_covers_data(number: int, width: int) -> None:
    figure, _ = drawn(number, width)
    legends = [
        *figure.legends,
        *(axes.get_legend() for axes in figure.axes),
    ]
    boxes = [legend.get_window_extent() for legend in legends if legend is not None]
    assert boxes
    for axes in (axes for axes in figure.axes if axes.axison):
        assert not any(box.overlaps(axes.bbox.padded(-1)) for box in boxes)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("number", [2, 3, 6])
def test_tick_labels_do_not_touch_each_other(number: int, width: int) -> None:
    figure, texts = drawn(number, width)
    boxes = {id(text): box for text, box in texts}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            group = [boxes[id(t.label1)] for t in axis.get_major_ticks() if id(t.label1) in boxes]
            assert not any(a.overlaps(b) for a, b in combinations(group, 2))


# --- published points -------------------------------------------------------------------------------


def test_published_points_have_their_series_colour_and_one_entry_in_the_legend() -> None:
    ours = any_table(2).to_pylist()
    published = [row | {"energy_origin": "published"} for row in ours]
    figure = draw("figure2", as_table(ours + published, "figure2"))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels.count("crosses: published") == 1 and labels.count("LBS 256") == 1
    lines = {line.get_gid(): line for line in figure.axes[2].lines}
    for series in {row["series"] for row in ours}:
        group = lines[f"points-C-{series}-measured"]
        theirs = lines[f"points-C-{series}-published"]
        assert group.get_color() == theirs.get_color()
        assert theirs.get_marker() == "x"


# --- origins of unknown energies ------------------------------------------------------------------


def rows_of(**origins: list[str | None]) -> pd.DataFrame:
    rows = [{"series": s, "energy_origin": o} for s, result in origins.items() for o in result]
    return pd.DataFrame(rows, dtype=object)


def test_an_unknown_energy_takes_the_look_of_its_series_only_origin() -> None:
    rows = rows_of(
        a=[None, "measured", "published"], b=[None, None], c=["estimated", "mixed", None]
    )
    assert drawn_origins(rows).tolist() == [
        *("measured", "measured", "published"),
        *(None, None),
        *("estimated", "mixed", None),
    ]
    assert series_origins(rows) == {"a": "measured", "b": None, "c": "estimated"}
    assert series_origins(rows_of(a=["published", None], b=["published"])) == {
        "a": None,
        "b": "published",
    }


def test_a_series_without_any_energy_looks_neither_measured_nor_estimated() -> None:
    rows = any_table(2).to_pylist()
    lost = rows[0]["series"]
    for row in rows:
        if row["series"] == lost:
            row |= {"energy_origin": None, "energy_scope": None}
    figure = draw("figure2", as_table(rows, "figure2"))
    faces = {
        line.get_gid(): line.get_markerfacecolor()
        for line in figure.axes[1].lines
        if (line.get_gid() or "").startswith("points")
    }
    assert faces[f"points-B-{lost}-None"] == style.NOT_KNOWN
    assert len(set(faces.values())) == len(faces)
    assert "grey markers: energy not known" in words(figure)


def test_panels_of_the_same_quantity_have_the_same_x_axis_and_lines_break_at_unknown_values() -> (
    None
):
    rows = any_table(2).to_pylist()
    series = rows[0]["series"]
    lost = [r for r in rows if r["panel"] in "CD" and r["series"] == series and r["gpus"] in (1, 8)]
    for row in lost:
        row |= {"y": None, "y_low": None, "y_high": None, "energy_origin": None}
    why = {r["configuration"]: "other runs measured on the node" for r in lost}
    figure = draw("figure2", as_table(rows, "figure2", no_energy=why))
    limits = [axes.get_xlim() for axes in figure.axes[:3]]
    assert limits[0] == limits[1] == limits[2] and limits[2][0] < 1
    for axes in figure.axes[2:4]:
        group = [r for r in axes.lines if (r.get_gid() or "").endswith(f"{series}-measured")]
        known = [np.isfinite(line.get_ydata()).astype(int).tolist() for line in group]
        assert known == [[0, 1, 1, 0, 1, 1, 1, 1, 1]]


# --- figures 1 and 5 --------------------------------------------------------------------------------


def test_figure5_keeps_a_panel_for_each_point_of_the_campaign_and_says_why_it_is_empty() -> None:
    rows = [row for row in power_table(panels="AB").to_pylist() if row["panel"] == "B"]
    metadata = {
        "panels": {"A": "gone", "B": rows[0]["configuration"], "C": "excluded-one"},
        "missing": ["gone"],
        "excluded": [{"configuration": "excluded-one", "repeat": 1, "reason": "lost sensor"}],
    }
    figure = draw("figure5", as_table(rows, "figure5", **metadata))
    texts = [" ".join(t.get_text() for t in axes.texts).split() for axes in figure.axes]
    assert [text[0] for text in texts if text] == ["A", "B", "C"]
    assert " ".join(texts[0]) == "A gone: no run of it has finished, or all are excluded."
