"""Frames as tables of a page: heads with units, a dash for what is missing; and what all pages share."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from scalewatt.results.columns import label, unit
from scalewatt.results.tables.frames import records
from scalewatt.results.text.number_format import number, unit_for, with_interval

_LONG = 40
"""Characters of a text that may wrap; a shorter one, and an id, which has no space, stays on one line."""


@dataclass(frozen=True)
class Part:
    """A heading of the page with a sentence, and a table where there is one."""

    name: str
    """Its id on the page."""
    heading: str
    sentence: str
    table: Markup | None = None
    file: str = ""
    """The whole table as CSV, by its path beside the page; empty: there is none."""
    folded: bool = False


def grid(
    frame: pd.DataFrame,
    columns: Iterable[str],
    headings: Mapping[str, str] | None = None,
    gpu_word: str = "GPUs",
) -> Markup:
    """Make a table of the given columns; those without any value are left out.

    A column of means (`<name>_mean`), or of values with an interval (`<name>_low`, `<name>_high`), is named
    by its stem. `headings` replace the labels of columns.csv. kWh, h, kW and kg become the unit that suits
    a column's largest value, unless its heading has a unit in brackets.
    """
    rows, shown, chosen = records(frame), {}, headings or {}
    for name in columns:
        values = [row.get(f"{name}_mean", row.get(name)) for row in rows]
        if all(value is None for value in values):
            continue
        heading = chosen.get(name) or label(name, gpu_word)
        has_unit = "(" in heading
        scaled = values if unit(name) in _SCALED and not has_unit else ()
        suited = unit_for(scaled, unit(name))
        if suited.name in ("min", "s"):  # hours that are given in minutes are a time
            heading = heading.replace("hours", "time")
        if suited.name not in ("", *_UNNAMED) and not has_unit:
            heading = f"{heading} ({suited.name})"
        ends = [(row.get(f"{name}_low"), row.get(f"{name}_high")) for row in rows]
        shown[str(escape(heading))] = [
            _cell(value, low, high, suited.factor)
            for value, (low, high) in zip(values, ends, strict=True)
        ]
    if not shown:
        return Markup('<p class="missing">This table has no rows.</p>')
    with pd.option_context("display.max_colwidth", None):
        table = pd.DataFrame(shown).to_html(index=False, escape=False, border=0, justify="unset")
    return Markup(table.replace("<th>", '<th scope="col">'))


_SCALED = ("kWh", "h", "kW", "kg")
_UNNAMED = ("samples", "0–1", "% or m²/s²")
"""Units that a heading does without."""


def _cell(value: Any, low: float | None, high: float | None, factor: float) -> str:
    if isinstance(value, float):
        return with_interval(value, low, high, factor)
    text = value if isinstance(value, Markup) else escape(number(value))
    is_long = len(text) > _LONG and " " in text and not isinstance(value, Markup)
    return f'<div class="long">{text}</div>' if is_long else str(text)


# --- pages ----------------------------------------------------------------------------------------


def render(folder: Path, template: str, script: str, **contents: Any) -> str:
    """Render a page with the style of all pages and a script, which alone its policy allows."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = (folder / script).read_text(encoding="utf-8")
    return environment.get_template(template).render(
        style=Path(__file__).with_name("page.css").read_text(encoding="utf-8"),
        script=text,
        script_sha256=base64.b64encode(hashlib.sha256(text.encode()).digest()).decode(),
        **contents,
    )
