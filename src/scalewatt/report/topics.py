"""Sections of the page as topics.yaml has them: a heading, a sentence, and a table of some rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from markupsafe import Markup

from scalewatt.common.columns import columns
from scalewatt.figures import figure_data as data
from scalewatt.report import data_quality_section as quality
from scalewatt.report import provenance_section as provenance
from scalewatt.report.html_tables import Part, grid
from scalewatt.report.results import Results
from scalewatt.results.columns import label, metric_label, with_unit_of
from scalewatt.results.tables.estimates import estimated_ends
from scalewatt.results.text.number_format import percent

_ESTIMATED = (
    " Estimated, at least and at most: the range of the true value, however many repeats there are. Whatever "
    "follows from an estimated energy is equally uncertain, and energy above idle even more so."
)
_AT_TIME = {"energy_at_time_kwh": "Energy at the time found (kWh)"}


@dataclass(frozen=True)
class Topic:
    """An entry of topics.yaml."""

    heading: str
    source: str
    """A table, or one of ROWS."""
    columns: str = ""
    """Without any, the sentence stands alone."""
    sentence: str = ""
    """If there are rows; {n} is their number, and other names are keys of the table's metadata."""
    none: str = "This table has no rows."
    """If there are none; empty: then the topic is left out."""
    rows: str = ""
    """Which rows, as pandas' `query` has it."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """Of columns that have no label in common/columns.csv."""
    name: str = ""
    """Its id on the page; default: its heading."""
    folded: bool = False
    notes: bool = False
    """The notes in the table's metadata follow the sentence."""
    of_figure: bool = False
    """It is on the page if the campaign has a figure of this name."""
    optional: bool = False
    """It is left out if its table has not been made."""


def parts(section: str, results: Results) -> list[Part]:
    """Topics of a section that have something to say."""
    content = _content()
    topics = [
        Topic(**{**entry, "headings": content["headings"] | entry.get("headings", {})})
        for entry in content[section]
    ]
    shown = [
        topic
        for topic in topics
        if not topic.of_figure or topic.source in results.definition.figures
    ]
    made = [_part(topic, results, section == "tables") for topic in shown]
    return [part for part in made if part.sentence or part.table]


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(
        Path(__file__).with_name("topics.yaml").read_text(encoding="utf-8")
    )
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
    metadata = data.stored(frame)
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


# --- rows -----------------------------------------------------------------------------------------


def _run_rows(results: Results) -> pd.DataFrame:
    """Runs with the labels and details of their flags, and a link to their pages."""
    runs = results.runs
    shares = [share if pd.isna(share) else percent(share) for share in runs["coverage"]]
    return runs.assign(
        share=pd.Series(shares, runs.index, dtype=object),
        flag_labels=runs["parsed"].map(quality.flag_labels),
        flag_details=[quality.flag_labels(flags, True) for flags in runs["parsed"]],
        page=_marked('<a href="figures/runs/{0}.svg">{0}</a>', runs["run"]),
    )


def _configuration_rows(results: Results) -> pd.DataFrame | None:
    """Configurations, as targets of the links of figures."""
    table = results.table("configurations")
    if table is None:
        return None
    targets = _marked('<span id="configuration-{0}">{0}</span>', table["configuration"])
    return table.assign(configuration=targets)


def _scaling_rows(results: Results) -> pd.DataFrame | None:
    """Series with several n: a single point says nothing of scaling."""
    table = results.table("scaling")
    if table is None:
        return None
    return table[table.groupby("series")["gpus"].transform("nunique") > 1]


def _marked(template: str, values: pd.Series) -> pd.Series:
    markup = Markup(template)
    return pd.Series([markup.format(value) for value in values], values.index, dtype=object)


ROWS: dict[str, Callable[[Results], pd.DataFrame | None]] = {
    "runs": _run_rows,
    "configurations": _configuration_rows,
    "scaling": _scaling_rows,
    "idle": quality.idle_rows,
    "missing": quality.missing_rows,
    "replaced": quality.replaced_rows,
    "flags": quality.flag_rows,
    "no_idle": quality.no_idle_rows,
    "what_ran": provenance.what_ran_rows,
    "hardware": provenance.hardware_rows,
    "states": provenance.state_rows,
    "departures": provenance.departure_rows,
    "software": provenance.software_rows,
}
"""What the rows of a topic are, if they are not simply a table's."""
