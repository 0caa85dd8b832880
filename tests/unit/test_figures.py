"""The figures' contents, checked on synthetic tables."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from figure_tables import any_table, draw, power_table, words
from figure_tables import plotted as plotted_of

from scalewatt.common.errors import InputError
from scalewatt.figures.axes import log_ticks, quantity
from scalewatt.figures.draw_figure import SUFFIXES, draw_figure
from scalewatt.figures.save_figure import save
from scalewatt.figures.style import plain_number
from scalewatt.results.figures.figure_schema import check_panels


def drawn(number: int, table: pa.Table) -> Any:
    return draw(f"figure{number}", table)


def shown_axes(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.axison]


def lines(figure: Any, gid: str = "points") -> list[Any]:
    return [
        line
        for axes in figure.axes
        for line in axes.lines
        if (line.get_gid() or "").startswith(gid)
    ]


def factor(rows: list[dict[str, Any]], row: dict[str, Any], axis: str) -> float:
    """By what the axis of a row's panel multiplies, so that its numbers are not tiny."""
    values = [each[axis] for each in rows if each["panel"] == row["panel"]]
    return quantity(row[f"{axis}_name"], values=values).factor


@pytest.mark.parametrize(("number", "small"), [(2, False), (3, False), (6, True)])
def test_every_row_with_a_value_is_one_plotted_point(number: int, small: bool) -> None:
    table = any_table(number, small)
    result = [
        (float(x), float(y)) for line in lines(drawn(number, table)) for x, y in line.get_xydata()
    ]
    rows = plotted_of(f"figure{number}", table).to_pylist()
    assert len(result) == len(rows) > 0
    assert set(result) == {
        (row["x"] * factor(rows, row, "x"), row["y"] * factor(rows, row, "y")) for row in rows
    }


@pytest.mark.parametrize(
    ("origin", "fill", "face"),
    [
        ("measured", "full", "coloured"),
        ("estimated", "full", "white"),
        ("simulated", "left", "coloured"),
    ],
)
def test_the_markers_fill_tells_the_origin(origin: str, fill: str, face: str) -> None:
    table = any_table(2)
    column = table.column_names.index("energy_origin")
    table = table.set_column(column, "energy_origin", pa.array([origin] * len(table)))
    line = lines(drawn(2, table))[0]
    assert line.get_fillstyle() == fill
    assert (line.get_markerfacecolor() == "white") == (face == "white")


def test_a_panel_without_values_is_left_out_and_named() -> None:
    table = any_table(6)
    rows = [row | ({"y": None} if row["panel"] in "BC" else {}) for row in table.to_pylist()]
    figure = drawn(6, pa.Table.from_pylist(rows, schema=table.schema))
    assert len(shown_axes(figure)) == 3
    left_out = "B (Mean power per GPU (W)), C (Mean power per CPU socket (W))."
    assert f"Panels without values are left out: {left_out}" in words(figure)


def test_error_bars_reach_from_y_low_to_y_high_and_single_runs_have_none() -> None:
    table = any_table(4, small=True)
    axes = drawn(4, table).axes[1]
    segments = [s for bars in axes.collections for s in bars.get_segments()]
    barred = [r for r in table.to_pylist() if r["panel"] == "B" and r["y_low"] is not None]
    ends = sorted(y for segment in segments for _, y in segment if not math.isnan(y))
    assert ends == pytest.approx(sorted(r[e] for r in barred for e in ("y_low", "y_high")))
    assert len(barred) == 2


@pytest.mark.parametrize("number", [2, 5])
def test_a_table_without_rows_gives_a_figure_that_says_so(number: int) -> None:
    figure = drawn(number, any_table(number).slice(0, 0))
    assert not shown_axes(figure)
    assert "has finished" in words(figure)


@pytest.mark.parametrize("panels", ["A", "ABC"])
def test_figure5_has_a_panel_per_run_with_two_dashed_means(panels: str) -> None:
    axes = shown_axes(drawn(5, power_table(panels=panels)))
    assert len(axes) == len(panels)
    for panel in axes:
        trace, *means = panel.lines
        assert len(trace.get_xydata()) == 300
        assert len(means) == 2 and all(mean.is_dashed() for mean in means)
    legend = axes[0].get_legend().get_texts()
    assert legend[0].get_text() == "a100: n = 1, LBS 4, GBS 4"


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    written: list[dict[str, bytes]] = []
    for folder in ("first", "second"):
        for number in (2, 5):
            pq.write_table(any_table(number), tmp_path / f"{number}.parquet")
            stem = tmp_path / folder / f"{number}"
            draw_figure(f"figure{number}", tmp_path / f"{number}.parquet", stem)
            assert all(Path(f"{stem}{suffix}").is_file() for suffix in SUFFIXES)
        written.append({p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()})
        time.sleep(1.1)  # a stored date would differ by now
    assert written[0] == written[1] and len(written[0]) == 2 * len(SUFFIXES)


@pytest.mark.parametrize(("number", "small"), [(6, True), (5, False)])
def test_the_csv_holds_exactly_the_plotted_points(number: int, small: bool, tmp_path: Path) -> None:
    table = any_table(number, small)
    pq.write_table(table, tmp_path / "table.parquet")
    draw_figure(f"figure{number}", tmp_path / "table.parquet", tmp_path / "figure")
    written = pc.read_csv(tmp_path / "figure.csv")
    rows = table.to_pylist()
    value = "power_w" if number == 5 else "y"
    expected = [row for row in rows if row[value] is not None]
    assert written.column_names == table.column_names
    assert written[value].to_pylist() == pytest.approx([row[value] for row in expected])
    assert len(expected) < len(rows)


def test_the_csv_of_figure1_holds_the_counts_that_are_drawn(tmp_path: Path) -> None:
    table = any_table(1)
    pq.write_table(table, tmp_path / "table.parquet")
    draw_figure("figure1", tmp_path / "table.parquet", tmp_path / "figure")
    written = pc.read_csv(tmp_path / "figure.csv").to_pylist()
    quantities = ("gpus", "local_batch_size", "global_batch_size", "samples_per_gpu", "updates")
    for axes in drawn(1, table).axes:
        printed = [text.get_text() for text in axes.texts]
        cell = axes.get_title("left")
        group = [
            r
            for r in written
            if f"{r['dataset_rule'].capitalize()} dataset, {r['batch_rule']}" == cell
        ]
        assert len(axes.patches) == len(quantities) * len(group) > 0
        for row in group:
            assert {plain_number(row[name]) for name in quantities} <= set(printed)
    assert len(written) < len(table)


def test_a_table_that_lacks_a_column_and_an_unknown_figure_are_named(tmp_path: Path) -> None:
    path = tmp_path / "figure2.parquet"
    pq.write_table(any_table(2).drop_columns(["y_low"]), path)
    with pytest.raises(InputError, match="lacks the column y_low"):
        draw_figure("figure2", path, tmp_path / "figure2")
    with pytest.raises(InputError, match="no figure named figure8"):
        draw_figure("figure8", path, tmp_path / "figure8")
    assert [p.name for p in tmp_path.iterdir()] == ["figure2.parquet"]


def test_ticks_are_round_numbers_inside_the_axis() -> None:
    assert log_ticks(3, 3000) == [10, 100, 1000]
    assert log_ticks(33, 125) == [40, 60, 80, 100, 120]
    assert log_ticks(1, 9, base=2) == [1, 2, 4, 8]
    assert log_ticks(0.93, 1.08, base=2) == [1] and log_ticks(5.6, 6.5, base=2) == [6]
    numbers = {0.0001: "0.0001", 2.5: "2.5", 1000: "1000", 12000: "12k", 999_999: "1M"}
    assert {value: plain_number(value) for value in numbers} == numbers


def test_only_the_panels_that_the_campaign_names_are_drawn() -> None:
    table = any_table(2, panels=["A", "C"])
    letters = [axes.texts[0].get_text() for axes in shown_axes(drawn(2, table))]
    assert letters == ["A", "C"]
    assert set(plotted_of("figure2", table)["panel"].to_pylist()) == {"A", "C"}


def test_panels_that_a_figure_does_not_have_are_refused() -> None:
    with pytest.raises(InputError, match=r"figures\.figure2\.panels: E; allowed: A, B, C, D"):
        check_panels("figure2", ["A", "E"], [])
    phases = [SimpleNamespace(model="a", phase=phase) for phase in ("pretrain", "finetune")]
    check_panels("pareto", ["D"], phases)
    with pytest.raises(InputError, match=r"figures\.pareto\.panels: E; allowed: A, B, C, D"):
        check_panels("pareto", ["E"], phases)


def test_all_words_are_in_the_font_that_the_campaign_names(tmp_path: Path) -> None:
    save(drawn(2, any_table(2, font="DejaVu Serif")), tmp_path / "figure", ["svg"])
    fonts = set(re.findall(r"font-family: ('[^']+')", (tmp_path / "figure.svg").read_text()))
    assert fonts == {"'DejaVu Serif'"}
    with pytest.raises(InputError, match="font: Nosuch is not installed"):
        drawn(2, any_table(2, font="Nosuch"))
