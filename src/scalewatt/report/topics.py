"""Sections of the page as topics.yaml has them: a heading, a sentence, and a table of some rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from scalewatt.common.columns import columns
from scalewatt.report.html_tables import Part, grid
from scalewatt.report.results import Results
from scalewatt.report.rows import ROWS
from scalewatt.results.columns import label, metric_label, with_unit_of
from scalewatt.results.tables.derived_quantities import estimated_ends

_ESTIMATED = (
    " Estimated, at least and at most: the range of the true value, however many repeats there are. Whatever "
    "follows from an estimated energy is equally uncertain, and energy above idle even more so."
)
_AT_TIME = {"energy_at_time_kwh": "Energy at the time found (kWh)"}


@dataclass(frozen=True)
class Topic:
    """An entry of topics.yaml, which says at its head what each key means."""

    heading: str
    source: str
    columns: str = ""
    sentence: str = ""
    none: str = "This table has no rows."
    rows: str = ""
    headings: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    folded: bool = False
    notes: bool = False
    of_figure: bool = False
    optional: bool = False


def parts(section: str, results: Results) -> list[Part]:
    """Topics of a section that have something to say."""
    content = topics_file()
    entries = (
        {**entry, "headings": content["headings"] | entry.get("headings", {})}
        for entry in content[section]
    )
    figures = results.definition.figures
    topics = [Topic(**entry) for entry in entries]
    shown = [topic for topic in topics if not topic.of_figure or topic.source in figures]
    made = [_part(topic, results, section == "tables") for topic in shown]
    return [part for part in made if part.sentence or part.table]


@cache
def topics_file() -> dict[str, Any]:
    """Content of topics.yaml."""
    path = Path(__file__).with_name("topics.yaml")
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def _part(topic: Topic, results: Results, has_file: bool) -> Part:
    name = topic.name or topic.heading.lower().replace(" ", "-")
    frame = ROWS.get(topic.source, lambda results: results.table(topic.source))(results)
    if frame is None:
        unmade = f"The table (tables/{topic.source}.parquet) has not been made."
        return Part(name, topic.heading, "" if topic.optional else unmade)
    rows = frame.query(topic.rows, engine="python") if topic.rows else frame
    if rows.empty:
        return Part(name, topic.heading, topic.none)
    metadata = frame.attrs
    sources = ", ".join(metadata.get("sources") or ())
    sentence = topic.sentence.format(**{**metadata, "sources": sources, "n": len(rows)})
    notes = map(str, metadata.get("notes") or ()) if topic.notes else ()
    sentence = " ".join(filter(None, [sentence, *notes]))
    if not topic.columns:
        return Part(name, topic.heading, sentence)
    headings = {"cost": f"Cost ({results.definition.currency or 'currency'})", **topic.headings}
    if metric := metadata.get("metric_name"):
        headings["metric_last"] = metric_label(None, str(metric))
    rows = _with_texts(topic.source, rows, results.gpu_word)
    table = grid(rows, topic.columns.split(), headings, results.gpu_word)
    sentence += _ESTIMATED if "Estimated:" in table else ""
    file = f"tables/{topic.source}.csv" if has_file else ""
    return Part(name, topic.heading, sentence, table, file, topic.folded)


def _with_texts(source: str, rows: pd.DataFrame, gpu_word: str) -> pd.DataFrame:
    """Add the interval of estimates, and put metrics and quantities into words."""
    added: dict[str, Any] = {}
    if "energy_low_kwh" in rows:
        added |= estimated_ends(rows, "energy_kwh" if "energy_kwh" in rows else "energy_kwh_mean")
    if {"model", "metric_name"} <= {*rows}:
        names = zip(rows["model"], rows["metric_name"], strict=True)
        added["metric_label"] = [metric_label(*name) for name in names]
    if "quantity" in rows:
        known = {name: with_unit_of(name, gpu_word) for name in columns("runs")} | _AT_TIME
        if source == "comparisons":  # ratios have no unit
            known = {name: label(name, gpu_word) for name in known}
        added["quantity"] = rows["quantity"].map(lambda name: known.get(name, name))
    return rows.assign(**added)
