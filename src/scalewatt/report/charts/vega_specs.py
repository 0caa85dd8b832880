"""A panel as Vega-Lite: its marks, scales, tooltips and zoom, without the places themselves.

Written as the JSON that it is: Altair would take a second to import, and nothing of it is needed to
show a chart. The tests check the specifications by Altair and Vega-Lite's schema.
"""

from __future__ import annotations

from typing import Any

from scalewatt.report.charts.chart_types import (
    BARS,
    CURVES,
    DEFINED,
    LINES,
    ORIGIN,
    POINTS,
    SLOTS,
    Axis,
    Chart,
    Panel,
)

Spec = dict[str, Any]
HEIGHT = 260
_STEP = {BARS: 17, SLOTS: 30}
_NUMBER = "abs(datum.value) >= 1e4 ? format(datum.value, '.3~s') : format(datum.value, '.6~r')"
_FEW = (
    "domain('{field}')[1] < 8 * domain('{field}')[0] || indexof([1, 2, 5], "
    "round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))) >= 0 ? ({number}) : ''"
)
"""On a log axis of a decade and more only 1, 2, 5, 10, 20, … have their number."""
_FAR_BELOW = 1e-9
"""Of a log axis' lower end: where bars end that go to 0 or below."""
_SCALES: dict[str, Spec] = {
    "linear": {"type": "linear", "zero": False},
    "log": {"type": "log"},
    "log2": {"type": "log", "base": 2},
}
_FILL = (
    f"indexof(['measured', 'simulated', 'mixed', '{DEFINED}'], datum.origin) >= 0"
    " ? datum.colour : datum.origin === null ? '#9a9a9a' : page"
)
ZOOM: Spec = {
    "name": "zoom",
    "bind": "scales",
    "select": {"type": "interval", "zoom": "wheel![event.ctrlKey || event.metaKey]"},
}
"""Drag to move, wheel with Ctrl to zoom, double click to see everything again."""


def spec_of(panel: Panel, chart: Chart) -> Spec:
    """Return the specification of a panel; its places are to be set as its data."""
    layers = {
        CURVES: _curves,
        POINTS: _points,
        LINES: _lines,
        BARS: _bars,
        SLOTS: _slots,
    }[panel.kind](panel, chart)
    along = ["x"] if panel.kind in _STEP else ["x", "y"]
    zoom = {**ZOOM, "select": {**ZOOM["select"], "encodings": along}}
    # The layer whose fields are x and y: signals of the zoom have their names.
    zoomed = 0 if panel.kind in (LINES, BARS) else -1
    layers[zoomed] = {**layers[zoomed], "params": [zoom]}
    return {
        "width": "container",
        "height": _height(panel),
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": [
            {"name": "hidden", "value": []},
            {"name": "page", "value": "#ffffff"},
            {"name": "ink", "value": "#1c2329"},
            {"name": "ids", "value": [one.id for one in chart.series]},
            {"name": "labels", "value": [one.label for one in chart.series]},
            {"name": "colours", "value": [one.light for one in chart.series]},
        ],
        "transform": [
            {"filter": "indexof(hidden, datum.series) < 0"},
            {"calculate": "colours[indexof(ids, datum.series)]", "as": "colour"},
            {"calculate": "labels[indexof(ids, datum.series)]", "as": "label"},
            {"calculate": _FILL, "as": "fill"},
            *_texts(panel),
        ],
        "layer": layers,
    }


def _height(panel: Panel) -> int:
    """Return the height in pixels: beside words, enough for all of them."""
    lines = panel.places["name"].nunique()
    return _STEP[panel.kind] * lines if panel.kind in _STEP else HEIGHT


# --- layers ---------------------------------------------------------------------------------------


def _curves(panel: Panel, chart: Chart) -> list[Spec]:
    line = _layer(panel, chart, {"type": "line", "strokeWidth": 1.6})
    line["encoding"] |= {"strokeDash": _by_series(chart, "dash"), "order": {"field": "x"}}
    line["encoding"]["detail"] = [{"field": "series"}, {"field": "line"}]
    return [line, *_estimates(panel, chart), *_intervals(panel, chart), *_reference(panel, chart),
            _markers(panel, chart)]  # fmt: skip


def _points(panel: Panel, chart: Chart) -> list[Spec]:
    fronts = []
    if "front" in panel.places and panel.places["front"].notna().any():
        mark = {"type": "line", "strokeDash": [5, 3], "strokeWidth": 1.2, "color": {"expr": "ink"}}
        front = _layer(panel, chart, mark, coloured=False)
        front["transform"] = [{"filter": "datum.front !== null"}]
        front["encoding"] |= {"detail": [{"field": "front"}], "order": {"field": "x"}}
        fronts.append(front)
    marks = _markers(panel, chart)
    rest = [*_estimates(panel, chart), *_intervals(panel, chart), *_reference(panel, chart)]
    return [*rest, *fronts, marks]


def _lines(panel: Panel, chart: Chart) -> list[Spec]:
    line = _layer(panel, chart, {"type": "line", "strokeWidth": 1.3})
    line["encoding"] |= {
        "order": {"field": "x"},
        "opacity": {"field": "opacity", "type": "quantitative", "scale": None},
        "strokeDash": _by_series(chart, "dash"),
        "detail": [{"field": "series"}, {"field": "line"}],
    }
    # Not seen, but found by the mouse.
    dots = _layer(panel, chart, {"type": "point", "size": 40, "opacity": 0, "filled": True})
    dots["encoding"]["tooltip"] = _tooltip(panel, chart)
    return [line, *_estimates(panel, chart), dots]


def _bars(panel: Panel, chart: Chart) -> list[Spec]:
    bar = _layer(panel, chart, {"type": "bar", "cursor": "pointer"})
    bar["encoding"] |= {
        "x2": {"field": "x_end"},
        "opacity": {"field": "opacity", "type": "quantitative", "scale": None},
        "tooltip": _tooltip(panel, chart),
    }
    return [bar, *_estimates(panel, chart), *_intervals(panel, chart)]


def _slots(panel: Panel, chart: Chart) -> list[Spec]:
    return [
        *_estimates(panel, chart),
        *_intervals(panel, chart),
        *_reference(panel, chart),
        _markers(panel, chart),
    ]


def _markers(panel: Panel, chart: Chart) -> Spec:
    mark = {"type": "point", "size": 62, "opacity": 1, "strokeWidth": 1.4, "cursor": "pointer"}
    layer = _layer(panel, chart, mark)
    layer["encoding"] |= {
        "shape": _by_series(chart, "shape"),
        "fill": {"field": "fill", "type": "nominal", "scale": None},
        "stroke": layer["encoding"].pop("color"),
        "fillOpacity": {
            "condition": {
                "test": "datum.origin === 'simulated' || datum.origin === 'mixed'",
                "value": 0.45,
            },
            "value": 1,
        },
        "tooltip": _tooltip(panel, chart),
    }
    return layer


def _intervals(panel: Panel, chart: Chart) -> list[Spec]:
    """Return error bars along the axes that have some."""
    return [_rule(panel, chart, axis, "", {"strokeWidth": 1.2}) for axis in _known(panel, "low")]


def _estimates(panel: Panel, chart: Chart) -> list[Spec]:
    """Return broad pale bars where true values of estimates lie."""
    look = {"strokeWidth": 7, "opacity": 0.25}
    return [_rule(panel, chart, axis, "open_", look) for axis in _known(panel, "open_low")]


def _known(panel: Panel, end: str) -> list[str]:
    names = {axis: f"{axis}_{end}" for axis in ("x", "y")}
    return [a for a, n in names.items() if n in panel.places and panel.places[n].notna().any()]


def _rule(panel: Panel, chart: Chart, axis: str, of: str, look: Spec) -> Spec:
    layer = _layer(panel, chart, {"type": "rule", **look})
    low, high = f"{axis}_{of}low", f"{axis}_{of}high"
    # A bar's total has them: they are drawn once, with its last part.
    once = " && datum.last" if panel.kind == BARS else ""
    layer["transform"] = [{"filter": f"isValid(datum.{low}) && isValid(datum.{high}){once}"}]
    own = panel.x if axis == "x" else panel.y
    if own.scale != "linear" and own.domain:
        # A logarithm of 0 or less is none: such a bar leaves the panel at its end.
        least, shown = own.domain[0] * _FAR_BELOW, f"{low}_shown"
        layer["transform"].append({"calculate": f"max(datum.{low}, {least:.6g})", "as": shown})
        low = shown
    layer["encoding"][axis] = {**layer["encoding"][axis], "field": low}
    layer["encoding"][f"{axis}2"] = {"field": high}
    return layer


def _reference(panel: Panel, chart: Chart) -> list[Spec]:
    """Return the ideal line of speed-ups, or the line of a ratio of 1."""
    mark: Spec = {"strokeDash": [4, 3], "color": {"expr": "ink"}, "opacity": 0.55, "clip": True}
    if panel.ideal and panel.x.domain:
        ends = [{"x": end, "y": end} for end in panel.x.domain]
        axes = {"x": _position(panel.x, "x"), "y": _position(panel.y, "y")}
        return [{"data": {"values": ends}, "mark": {"type": "line", **mark}, "encoding": axes}]
    if panel.line_at is not None:
        axis = "x" if panel.kind == SLOTS else "y"
        own = panel.x if axis == "x" else panel.y
        place = [{axis: panel.line_at}]
        return [{"data": {"values": place}, "mark": {"type": "rule", **mark},
                 "encoding": {axis: _position(own, axis)}}]  # fmt: skip
    return []


def _layer(panel: Panel, chart: Chart, mark: Spec, coloured: bool = True) -> Spec:
    y: Spec = _position(panel.y, "y")
    if panel.kind in _STEP:
        names = list(dict.fromkeys(panel.places["name"]))
        labels = {"labelLimit": 220, "ticks": False, "domain": False, "grid": False, "title": None}
        y = {"field": "name", "type": "nominal", "sort": names, "axis": labels}
    encoding: Spec = {"x": _position(panel.x, "x"), "y": y}
    if panel.kind == SLOTS:
        encoding["yOffset"] = {"field": "series", "sort": [one.id for one in chart.series]}
    if coloured:
        encoding["color"] = {"field": "colour", "type": "nominal", "scale": None}
    return {"mark": {"clip": True, **mark}, "encoding": encoding}


def _position(axis: Axis, field: str) -> Spec:
    scale = {**_SCALES[axis.scale], "nice": False}
    if axis.domain:
        scale["domain"] = list(axis.domain)
    words = _NUMBER if axis.scale != "log" else _FEW.format(field=field, number=_NUMBER)
    look: Spec = {"labelExpr": words, "title": axis.title if field == "x" else None}
    look |= {"values": list(axis.ticks)} if axis.ticks else {"tickCount": 6}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": look}


def _by_series(chart: Chart, what: str) -> Spec:
    values = [getattr(one, what) for one in chart.series]
    scale = {"domain": [one.id for one in chart.series], "range": values}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": None}


# --- tooltips -------------------------------------------------------------------------------------


def _text(name: str) -> str:
    return f"format(datum.{name}, abs(datum.{name}) >= 1e4 ? ',.0f' : '.4~r')"


def _texts(panel: Panel) -> list[Spec]:
    """Return the texts of tooltips as calculated columns: values and from where to where they go."""
    axes = [axis for axis in ("x", "y") if not (axis == "y" and panel.kind in _STEP)]
    values = {axis: "energy" if panel.kind == BARS else axis for axis in axes}
    found = [{"calculate": _text(values[axis]), "as": f"{axis}_text"} for axis in axes]
    for of in ("", "open_"):
        for axis in _known(panel, f"{of}low"):
            low, high = f"{axis}_{of}low", f"{axis}_{of}high"
            both = f"{_text(low)} + ' to ' + {_text(high)}"
            words = f"isValid(datum.{low}) ? {both} : 'none'"
            found.append({"calculate": words, "as": f"{axis}_{of}interval"})
    if "share" in panel.places:
        found.append({"calculate": "format(datum.share, '.1%')", "as": "share_text"})
    return found


def _tooltip(panel: Panel, chart: Chart) -> list[Spec]:
    rows = [("label", "device kind" if panel.kind == BARS else "series"), ("name", "point")]
    if panel.kind == BARS:
        rows.append(("part", "stage"))
    titles = {"x": panel.x.title, "y": panel.y.title}
    for axis in ("y", "x"):
        if not (axis == "y" and panel.kind in _STEP):
            rows.append((f"{axis}_text", titles[axis]))
        of = f", {_short(titles[axis])}" if axis == "x" and panel.kind not in _STEP else ""
        of = ", the total" if panel.kind == BARS else of
        if axis in _known(panel, "low"):
            rows.append((f"{axis}_interval", f"{chart.bars}{of}"))
        if axis in _known(panel, "open_low"):
            rows.append((f"{axis}_open_interval", f"{chart.open}{of}"))
    if "share" in panel.places:
        rows.append(("share_text", "share"))
    if panel.places["origin"].dropna().ne(DEFINED).any():
        rows.append(("origin", ORIGIN))
    if panel.places["runs"].notna().any():
        rows.append(("runs", "runs"))
    return [{"field": field, "type": "nominal", "title": title} for field, title in rows]


def _short(title: str) -> str:
    return title.partition(" (")[0].lower()
