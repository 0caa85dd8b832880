"""The metric against energy and run time: which points are Pareto-optimal, and how they are drawn."""

from __future__ import annotations

from typing import Any

from figure_tables import any_table, as_table, draw, legend_of
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.results.figures.figure_schema import POINTS as COLUMNS
from scalewatt.results.figures.panel_points import pareto_front
from scalewatt.results.tables.frames import frame_of, records

Row = dict[str, Any]


def point(x: float | None, y: float | None, **more: Any) -> Row:
    base = {"x": x, "y": y, "x_name": "energy_kwh", "y_name": "metric_last", "metric_goal": "min"}
    return base | {"energy_origin": "measured", "energy_scope": "gpu"} | more


def with_front(rows: list[Row]) -> list[Row]:
    """The rows of one panel with the column `pareto_optimal`."""
    whole = frame_of([dict.fromkeys(COLUMNS.names) | {"panel": "A"} | row for row in rows], COLUMNS)
    published = (whole["energy_origin"] == "published").fillna(False)
    front = pareto_front(whole.assign(published=published))
    return records(whole.assign(pareto_optimal=front))


# --- the table ------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


@given(POINTS, st.sampled_from(["min", "max"]))
def test_each_point_is_on_the_front_or_beaten_by_one_that_is(
    positions: list[tuple[int, int]], goal: str
) -> None:
    sign = 1 if goal == "min" else -1
    rows = with_front([point(x, y, metric_goal=goal) for x, y in positions])
    front = [row for row in rows if row["pareto_optimal"]]
    assert front
    for row in rows:
        better = [
            other
            for other in front
            if other["x"] <= row["x"]
            and sign * other["y"] <= sign * row["y"]
            and (other["x"], other["y"]) != (row["x"], row["y"])
        ]
        assert row["pareto_optimal"] is not bool(better)


def fronts_of(rows: list[Row]) -> list[bool | None]:
    return [row["pareto_optimal"] for row in with_front(rows)]


def test_energies_of_unequal_scope_or_origin_do_not_beat_each_other() -> None:
    rows = [
        point(1, 1),
        point(2, 2, energy_scope="gpu+cpu"),
        point(2, 2, energy_origin="simulated"),
        point(0, 0, energy_origin="estimated"),
    ]
    assert fronts_of(rows) == [True, True, True, None]


def test_run_times_compare_whatever_the_energies_scope() -> None:
    rows = [point(1, 1), point(2, 2, energy_scope="gpu+cpu")]
    assert fronts_of([row | {"x_name": "runtime_h"} for row in rows]) == [True, False]


def test_published_points_and_points_without_a_value_are_on_no_front_and_beat_nobody() -> None:
    rows = [point(1, 1, energy_origin="published"), point(0, None), point(None, 0), point(2, 2)]
    for name in ("energy_kwh", "runtime_h"):
        assert fronts_of([row | {"x_name": name} for row in rows]) == [None, None, None, True]


# --- the figure -----------------------------------------------------------------------------------


def test_a_front_is_joined_from_the_cheapest_to_the_dearest_within_one_scope() -> None:
    figure = draw("pareto", any_table("pareto"))
    fronts = [[x for x in axes.lines if x.get_gid() == "front"] for axes in figure.axes[2:4]]
    assert [len(lines) for lines in fronts] == [2, 1], "two scopes in energy, none in time"
    for line in fronts[0] + fronts[1]:
        assert list(line.get_xdata()) == sorted(line.get_xdata())
    assert "Pareto-optimal" in legend_of(figure)


def test_a_model_without_any_energy_is_drawn_against_time_alone() -> None:
    rows = [
        row | ({"x": None} if row["phase"] == "finetune" and row["x_name"] == "energy_kwh" else {})
        for row in any_table("pareto").to_pylist()
    ]
    figure = draw("pareto", as_table(rows, "pareto"))
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == 5 and shown[4].get_xlabel().startswith("Run time")
