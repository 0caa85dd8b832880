"""Charts of the report: drawn from the figures' tables, valid Vega-Lite, and in no need of it."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from cost_rows import frame as cost_frame
from cost_rows import h100_rows
from figure_tables import any_table
from paper_rows import breakdown_table, learning_table, pareto_table

from scalewatt.figures import breakdown, style
from scalewatt.figures.figure_data import drawable, plotted
from scalewatt.report.charts import vega_bundle
from scalewatt.report.charts.chart_types import Axis, Chart, Panel, fitted, series_of
from scalewatt.report.charts.figure_charts import chart_of, charts_json, values_grid
from scalewatt.report.charts.vega_specs import spec_of
from scalewatt.results.figures.figure_schema import OPERATING_POINTS, PREDICTION
from scalewatt.results.tables.frames import frame_of, to_frame

Row = dict[str, Any]


def operating_points() -> pd.DataFrame:
    rows = []
    for clock in (1000, 1500, 2000):
        row = dict.fromkeys(OPERATING_POINTS.names) | {"line": "l", "series": "s", "label": "L"}
        row |= {"configuration": f"c{clock}", "model": "m", "phase": "train", "basis": "sample"}
        row |= {"gpus": 1, "local_batch_size": 8, "gpu_clock_mhz": clock, "n_repeats": 1}
        row |= {"energy_origin": "measured", "time_s_mean": 2e3 / clock, "energy_j_mean": clock / 9}
        rows.append(row | {"pareto_optimal": clock > 1000})
    return to_frame(pa.Table.from_pylist(rows, schema=OPERATING_POINTS))


def prediction() -> pd.DataFrame:
    known = {"model": "m", "phase": "train", "device": "a100", "gpus": 4, "local_batch_size": 8}
    rows = [
        dict.fromkeys(PREDICTION.names) | known
        | {"configuration": "c", "quantity": quantity, "found": 2.0, "predicted": 4.0, "n_repeats": 1}
        | {"predicted_low": 3.0, "predicted_high": 6.0, "energy_origin": "measured"}
        for quantity in ("runtime_h", "energy_kwh", "energy_at_time_kwh")
    ]  # fmt: skip
    return frame_of(rows, PREDICTION)


@cache
def tables() -> dict[str, pd.DataFrame]:
    """A table of each kind of figure."""
    return {
        **{f"figure{n}": to_frame(any_table(n)) for n in range(1, 8)},
        "pareto": to_frame(pareto_table()),
        "learning": to_frame(learning_table(epochs=3)),
        "breakdown": to_frame(breakdown_table()),
        "cost_per_sample": cost_frame(h100_rows()),
        "operating_points": operating_points(),
        "prediction": prediction(),
    }


def chart(name: str) -> Chart:
    found = chart_of(name, tables()[name])
    assert found is not None
    return found


NAMES = [*(f"figure{n}" for n in range(1, 8)), "pareto", "learning", "breakdown"]
NAMES += ["cost_per_sample", "operating_points", "prediction"]


# --- what is in them ------------------------------------------------------------------------------


def test_a_line_breaks_where_that_of_the_figure_does() -> None:
    whole = any_table(2)
    rows = [r for r in whole.to_pylist() if (r["series"], r["gpus"]) != ("resnet50-full-lbs256", 8)]
    frame = to_frame(pa.Table.from_pylist(rows, schema=whole.schema))
    points = [{"gpus": row["gpus"]} for row in whole.to_pylist()]
    planned = [{"name": "resnet50-full-lbs256", "points": points}]
    frame.attrs = {**tables()["figure2"].attrs, "definition": {"series": planned}}
    found = chart_of("figure2", frame)
    assert found is not None
    places = found.panels[0].places
    own = places[places["series"] == "resnet50-full-lbs256"]
    before, after = own[own["x"] < 8], own[own["x"] > 8]
    assert before["line"].nunique() == after["line"].nunique() == 1
    assert set(before["line"]).isdisjoint(after["line"])


def test_a_line_over_batch_sizes_breaks_where_that_of_the_figure_does() -> None:
    name = "{}-h100-n001-lbs{:04d}-full".format
    rows = [{**one, "configuration": name(one["series"].rpartition("-")[0], one["local_batch_size"])}
            for one in h100_rows()]  # fmt: skip
    frame = cost_frame(rows)
    planned = [{"points": [{"configuration": one["configuration"]} for one in rows]}]
    gap = rows[3]
    assert gap["local_batch_size"] == 256, "of six batch sizes of bf16, channels last"
    frame = frame[frame["configuration"] != gap["configuration"]]
    frame.attrs |= {**cost_frame(rows).attrs, "definition": {"series": planned}}
    found = chart_of("cost_per_sample", frame)
    assert found is not None
    places = found.panels[1].places
    own = places[places["series"] == places["series"].iloc[0]]
    before, after = own[own["x"] < 256], own[own["x"] > 256]
    assert len(before) == 3 and len(after) == 2
    assert before["line"].nunique() == after["line"].nunique() == 1
    assert set(before["line"]).isdisjoint(after["line"])


def test_an_error_bar_that_goes_below_zero_reaches_the_end_of_a_logarithmic_axis() -> None:
    places = pd.DataFrame(
        {"series": "s", "name": ["a", "b"], "x": [1.0, 2.0], "y": [1.0, 2.0], "line": ""}
        | {"origin": "measured", "runs": 2, "target": None}
        | {"y_low": [-0.27, 1.9], "y_high": [2.27, 2.1]}
    )
    axes = Axis("x", "log2", (0.9, 2.2)), Axis("y", "log", (0.5, 4.0))
    made = Chart(series_of({"s": "s"}), (Panel("A", *axes, places),))
    (rule,) = [
        one for one in spec_of(made.panels[0], made)["layer"] if one["mark"]["type"] == "rule"
    ]
    field = rule["encoding"]["y"]["field"]
    (calculated,) = [one for one in rule["transform"] if one.get("as") == field]
    assert calculated["calculate"] == "max(datum.y_low, 5e-10)"
    convert = pytest.importorskip("vl_convert", reason="vl-convert, which draws it, is not there")
    data = {"values": places.to_dict("records")}
    svg = convert.vegalite_to_svg({**spec_of(made.panels[0], made), "data": data, "width": 200})
    drawn = re.findall(r"<g class=\"mark-rule role-mark layer[^>]*>(.*?)</g>", svg, re.DOTALL)
    (own,) = [one for one in drawn if "<line" in one]
    bars = re.findall(r"translate\([\d.]+,([-\d.]+)\)\" x2=\"0\" y2=\"([-\d.]+)\"", own)
    ends = [sorted((float(start), float(start) + float(length))) for start, length in bars]
    height = [260 * (1 - math.log(y / 0.5) / math.log(8)) for y in (2.27, 2.1, 1.9)]
    (top, bottom), narrow = ends
    assert [top, *narrow] == pytest.approx(height, abs=0.5)
    assert bottom > 260, "it leaves the panel below"


def test_totals_of_the_breakdown_have_their_intervals_once_a_bar() -> None:
    found = chart("breakdown")
    for panel in found.panels:
        bars = panel.places[panel.places["last"]]
        assert bars["name"].is_unique and len(bars) == panel.places["name"].nunique()
    places = pd.concat([panel.places for panel in found.panels])
    known = breakdown_table().to_pandas()["total_kwh_low"].notna().any()
    assert places["x_low"].notna().any() == known
    rules = [s for s in spec_of(found.panels[0], found)["layer"] if s["mark"]["type"] == "rule"]
    assert rules and all("datum.last" in one["transform"][0]["filter"] for one in rules)


def test_power_is_not_joined_across_a_sample_that_is_missing() -> None:
    frame = tables()["figure5"].copy()
    frame.attrs = tables()["figure5"].attrs
    gap = frame.index[frame["panel"] == frame["panel"].iloc[0]][5]
    frame.loc[gap, "power_w"] = None
    found = chart_of("figure5", frame)
    assert found is not None
    places = found.panels[0].places
    own = places[places["series"] == frame["panel"].iloc[0]]
    assert (
        own["line"].nunique()
        == 1
        + chart("figure5")
        .panels[0]
        .places.query(f"series == '{frame['panel'].iloc[0]}'")["line"]
        .nunique()
    )


def test_what_bars_are_is_said_as_in_the_figure() -> None:
    assert (
        "nominal" in chart("prediction").open
        and "interval of the prediction" in chart("prediction").open
    )
    assert chart("figure1").panels[0].places["origin"].eq("defined").all()
    grid = values_grid("figure1", "Figure 1", chart("figure1"), set())
    assert grid is not None and "origin" not in grid.headings


@pytest.mark.parametrize("figure", [2, 3, 4, 6, 7])
def test_a_chart_of_curves_has_the_points_that_the_figure_plots_and_no_others(figure: int) -> None:
    table = tables()[f"figure{figure}"]
    expected = drawable(plotted(table))
    shown = {panel.letter: panel.places for panel in chart(f"figure{figure}").panels}
    assert set(shown) == set(expected["panel"])
    for letter, places in shown.items():
        own = expected[expected["panel"] == letter]
        assert len(places) == len(own)
        x, y = (sorted(places[axis]) for axis in "xy")
        for values, wanted in ((x, sorted(own["x"])), (y, sorted(own["y"]))):
            factor = values[-1] / wanted[-1]  # of the axis' unit
            assert values == pytest.approx([factor * one for one in wanted])


def test_a_point_leads_to_the_row_of_its_configuration() -> None:
    places = chart("figure2").panels[0].places
    ids = set(tables()["figure2"]["configuration"])
    assert {target.removeprefix("configuration-") for target in places["target"]} <= ids


def test_an_epoch_leads_to_the_row_of_its_run() -> None:
    table = tables()["learning"]
    runs = {f"run-{c}-{r}" for c, r in zip(table["configuration"], table["repeat"], strict=True)}
    assert {t for panel in chart("learning").panels for t in panel.places["target"]} == runs


def test_series_look_as_in_the_figure() -> None:
    found = chart("pareto").series
    assert [one.light for one in found[:7]] == list(style.COLOURS)
    assert found[7].light == style.COLOURS[0] and found[7].dash != found[0].dash


def test_colours_in_the_dark_are_told_from_the_dark_page() -> None:
    for one in chart("pareto").series:
        assert style.luma(one.dark) > 0.5, "of the page it is 0.1"


def test_a_bar_is_as_long_as_its_energy() -> None:
    table = drawable(tables()["breakdown"])
    totals = table.groupby("configuration")["energy_kwh"].sum()
    found = chart("breakdown")
    places = pd.concat([panel.places for panel in found.panels])
    ends = places.groupby("target")["x_end"].max()
    longest = ends.max() / totals.max()  # the axis' unit
    for target, end in ends.items():
        assert end == pytest.approx(longest * totals[str(target).removeprefix("configuration-")])
    assert {one.id for one in found.series} == set(table["device_kind"]) & set(breakdown.KINDS)


def test_a_ratio_to_the_prediction_has_the_interval_of_the_prediction() -> None:
    time, energy = chart("prediction").panels
    for panel in (time, energy):
        (row,) = panel.places.to_dict("records")
        assert (row["y"], row["y_open_low"], row["y_open_high"]) == (0.5, 0.75, 1.5)


def test_the_only_speed_up_of_a_series_is_in_no_chart() -> None:
    table = tables()["figure2"]
    one = table[table["gpus"] == table["gpus"].max()]
    found = chart_of("figure2", one)
    assert found is not None
    assert "A" not in [panel.letter for panel in found.panels]


@pytest.mark.parametrize("name", NAMES)
def test_without_rows_there_is_no_chart(name: str) -> None:
    assert chart_of(name, tables()[name].iloc[:0]) is None
    assert chart_of(name, None) is None


def test_an_axis_leaves_room_around_its_values() -> None:
    for scale, values in (("linear", [1.0, 3.0]), ("log", [1.0, 300.0]), ("log2", [1.0, 64.0])):
        low, high = fitted("x", scale, [*values, math.nan]).domain or (0.0, 0.0)
        assert low < values[0] and high > values[1]
    assert fitted("x", "log", [0.0, -1.0]) == Axis("x")
    assert fitted("x", "linear", [2.0, 4.0], from_zero=True).domain == pytest.approx((0.0, 4.32))
    assert fitted("n", "log2", [1, 8]).ticks == (1, 2, 4, 8)


# --- what the page gets ---------------------------------------------------------------------------


def test_the_data_of_a_chart_are_its_places_with_six_digits() -> None:
    found = chart("figure2")
    text = charts_json({"figure2": found})
    assert "<" not in text and "NaN" not in text
    columns = json.loads(text)["figure2"]["panels"][0]["columns"]
    assert columns["y"] == pytest.approx(found.panels[0].places["y"].to_list(), rel=1e-5)
    series = columns["series"]
    assert [series["of"][at] for at in series["at"]] == found.panels[0].places["series"].to_list()


def test_the_table_beside_has_each_place_with_its_interval_and_its_link() -> None:
    found = chart("figure2")
    target = found.panels[0].places["target"].iloc[0]
    grid = values_grid("figure2", "Figure 2", found, {target})
    assert grid is not None
    assert len(grid.rows) == sum(len(panel.places) for panel in found.panels)
    links = {cell.link for row in grid.rows for cell in row}
    assert links == {"", f"#{target}"}
    assert found.bars in grid.headings
    first = dict(zip(grid.headings, grid.rows[0], strict=True))
    assert first["value"].value == pytest.approx(found.panels[0].places["y"].iloc[0])


def test_a_chart_of_very_many_places_has_no_table_beside_it() -> None:
    assert values_grid("learning", "Learning", chart("learning"), set()) is None


def test_without_vl_convert_there_is_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    vega_bundle.vega_script.cache_clear()
    assert vega_bundle.vega_script() is None
    vega_bundle.vega_script.cache_clear()


# --- Vega-Lite ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_is_valid_vega_lite(name: str) -> None:
    altair = pytest.importorskip(
        "altair", reason="altair, which has Vega-Lite's schema, is not there"
    )
    found = chart(name)
    for panel in found.panels:
        spec = json.loads(json.dumps(spec_of(panel, found))) | {"data": {"values": [{"x": 1}]}}
        altair.Chart.from_dict(spec, validate=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_compiles_to_vega_that_can_be_zoomed_and_hides_series(name: str) -> None:
    convert = pytest.importorskip(
        "vl_convert", reason="vl-convert, which has Vega-Lite, is not there"
    )
    found = chart(name)
    for panel in found.panels:
        spec = spec_of(panel, found) | {"data": {"values": [{"x": 1, "y": 1}]}}
        signals = {one["name"] for one in convert.vegalite_to_vega(spec)["signals"]}
        assert {"hidden", "colours", "zoom_x"} <= signals
