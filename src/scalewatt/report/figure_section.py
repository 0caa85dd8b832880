"""The figures on the page: titles, captions of the figures' own files, and drawings whose points answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
from markupsafe import Markup

from scalewatt.figures import figure_data as data
from scalewatt.figures.axes import quantity
from scalewatt.report.results import Results
from scalewatt.results.columns import metric_label
from scalewatt.results.text.number_format import number

_ESCAPE = re.compile(r"\\([!-/:-@[-`{-~])")
"""A sign that would mean something in Markdown."""
_POINT = ["panel", "series", "energy_origin", "x", "y"]


def figure_entry(name: str, title: str, results: Results) -> dict[str, Any]:
    """Make the entry of a figure of the campaign; its drawing is None if nothing was drawn.

    A title in lower case follows the names of the figure's models.
    """
    table = results.table(name)
    svg = results.folder / "figures" / f"{name}.svg"
    models = [] if table is None or not title[0].islower() else list(table["model"].unique())
    caption = svg.with_name(f"{name}.caption.md")
    text = caption.read_text(encoding="utf-8") if caption.is_file() else ""
    return {
        "name": name,
        "label": figure_label(name),
        "title": f"{', '.join(models)}: {title}" if models else title[0].upper() + title[1:],
        # Without Markdown's escapes.
        "caption": _ESCAPE.sub(r"\1", " ".join(text.splitlines())),
        "drawing": _inline(svg, name, table) if svg.is_file() else None,
    }


def figure_label(name: str) -> str:
    """Name of a figure: `Figure 2`, `Breakdown`."""
    digits = name.removeprefix("figure")
    return f"Figure {digits}" if digits != name else name.capitalize().replace("_", " ")


# --- drawings -------------------------------------------------------------------------------------


def _inline(path: Path, name: str, table: pd.DataFrame | None) -> Markup:
    """Make a drawing an element of the page: ids begin with the figure's name, markers have tooltips."""
    root = ElementTree.parse(path).getroot()
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in list(element.attrib):
            value = element.attrib.pop(key)
            value = re.sub(r"(?<=^#)|(?<=url\(#)", f"{name}-", value)
            key = key.rpartition("}")[2]
            element.set(key, f"{name}-{value}" if key == "id" else value)
    for metadata in root.findall("metadata"):
        root.remove(metadata)
    for size in ("width", "height"):  # the page's, by viewBox
        root.attrib.pop(size, None)
    if table is not None and {*_POINT, "label", "configuration"} <= {*table}:
        _mark_points(root, table, name)
    root.set("role", "group")
    root.set("aria-label", figure_label(name))
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _mark_points(root: ElementTree.Element, table: pd.DataFrame, name: str) -> None:
    """Give each marker a tooltip and a link to its configuration, and its group the label of its series.

    By that label the page hides a series. A group named `points-<panel>-<series>-<origin>` has a marker for
    each row of that origin (that of figure_data.drawn_origins, `None` if unknown). Both are in the order of
    x, then of y; axes rise to the right and up. If there are not as many markers as rows, they stay as they
    are.
    """
    groups: dict[str, list[ElementTree.Element]] = {}
    for group in root.iter("g"):
        groups.setdefault(group.get("id", ""), []).append(group)
    gpu_word, origins = data.gpu_word(table), data.drawn_origins(table).fillna("None")
    known = table.assign(origin=origins).dropna(subset=["x", "y"])
    for (panel, series, origin), rows in known.groupby(["panel", "series", "origin"], sort=False):
        of_series = groups.get(f"{name}-points-{panel}-{series}-{origin}", [])
        for group in of_series:
            group.set("data-series", str(rows["label"].iloc[0]))
        markers = [
            (parent, marker)
            for group in of_series
            for parent in group.iter("g")
            for marker in parent.findall("use")
        ]
        markers.sort(key=lambda pair: (float(pair[1].get("x", 0)), -float(pair[1].get("y", 0))))
        if len(markers) != len(rows):
            continue
        for (parent, marker), row in zip(
            markers, rows.sort_values(["x", "y"]).itertuples(), strict=True
        ):
            link = ElementTree.Element("a", {"href": f"#configuration-{row.configuration}"})
            ElementTree.SubElement(link, "title").text = _tooltip(row, gpu_word)
            parent[list(parent).index(marker)] = link
            link.append(marker)


def _tooltip(row: Any, gpu_word: str) -> str:
    """Series, n and local batch size of a point, and both its values with their units."""
    values = [
        f"{_axis(name, row, gpu_word)} {number(value)}"
        for name, value in ((row.x_name, row.x), (row.y_name, row.y))
        if name != "gpus"
    ]
    return f"{row.label}, n {row.gpus}, LBS {row.local_batch_size}: {', '.join(values)}"


def _axis(name: str, row: Any, gpu_word: str) -> str:
    metric = metric_label(row.model, row.metric_name) if name.startswith("metric_") else None
    return quantity(name, gpu_word, label=metric).label
