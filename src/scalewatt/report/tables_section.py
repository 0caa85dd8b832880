"""The campaign's tables on the page, as tables.yaml lists them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from markupsafe import Markup

from scalewatt.figures import figure_data as data
from scalewatt.report.data_quality_section import flag_labels
from scalewatt.report.definition import Definition
from scalewatt.report.html_tables import Part, grid
from scalewatt.report.results import Results
from scalewatt.results.columns import columns, label, metric_label, with_unit_of
from scalewatt.results.tables.estimates import estimated_ends
from scalewatt.results.text.captions import UNEQUAL_SCOPES

_OPTIONAL = ("table1", "variants")
"""Tables of figures, which a campaign need not have."""
_OF_MODEL = ("plan", "prediction")
"""Tables that exist only where a scaling model knows the campaign."""
_NOT_MADE = "The table (tables/{}.parquet) has not been made."
_NOTHING = {
    "comparisons": "No training was done on two devices, so none are compared.",
    "scaling": "No series has a second n, so nothing is said of scaling.",
}
_HEADINGS = {
    "configuration": "Configuration",
    "n_repeats": "Runs",
    "metric_label": "Quality metric",
    "metric_last": "After the last epoch",
    "energy_low_kwh": "Estimated: at least",
    "energy_high_kwh": "Estimated: at most",
}
"""Of columns that several tables have."""
_ESTIMATED = (
    "Estimated, at least and at most: where the true value lies, however many repeats there are. What "
    "else follows from an estimated energy is as uncertain; what is above idle is more so."
)
_AT_TIME = {"energy_at_time_kwh": "Energy at the time found (kWh)"}


@dataclass(frozen=True)
class PageTable:
    """A table of the page, as tables.yaml has it."""

    name: str
    source: str
    heading: str
    sentence: str
    columns: str
    rows: str = ""
    headings: dict[str, str] = field(default_factory=dict)
    folded: bool = False


def table_parts(results: Results, definition: Definition) -> list[Part]:
    """Tables that the campaign has."""
    listed = yaml.safe_load(Path(__file__).with_name("tables.yaml").read_text(encoding="utf-8"))
    parts = []
    for table in (PageTable(**entry) for entry in listed):
        if table.source in _OPTIONAL and table.source not in definition.figures:
            continue
        if results.path(table.source).is_file():
            frame = results.runs if table.source == "runs" else results.table(table.source)
            parts.append(_part(table, frame, definition, results.gpu_word))
        elif table.source not in _OF_MODEL:
            parts.append(Part(table.name, table.heading, _NOT_MADE.format(table.source)))
    return parts


def _part(table: PageTable, frame: Any, definition: Definition, gpu_word: str) -> Part:
    rows = frame.query(table.rows) if table.rows else frame
    if table.source == "scaling":  # a single point of a series tells nothing of scaling
        rows = rows[rows.groupby("series")["gpus"].transform("nunique") > 1]
    if rows.empty and table.source in _NOTHING:
        return Part(table.name, table.heading, _NOTHING[table.source])
    rows = _with_derived(table.source, rows, gpu_word)
    headings = {
        **_HEADINGS,
        "cost": f"Cost ({definition.currency or 'currency'})",
        **table.headings,
    }
    if metric := data.stored(frame).get("metric_name"):
        headings["metric_last"] = metric_label(None, str(metric))
    made = grid(rows, table.columns.split(), headings, gpu_word)
    sentences = [
        table.sentence,
        *_notes(table, frame, rows),
        _ESTIMATED if "Estimated:" in made else "",
    ]
    file = f"tables/{table.source}.csv"
    sentence = " ".join(filter(None, sentences))
    return Part(table.name, table.heading, sentence, made, file, table.folded)


def _with_derived(source: str, rows: pd.DataFrame, gpu_word: str) -> pd.DataFrame:
    """Add what the page shows beyond the table's columns, and put quantities into words."""
    added: dict[str, Any] = {}
    if "energy_low_kwh" in rows:
        added |= estimated_ends(rows, "energy_kwh" if "energy_kwh" in rows else "energy_kwh_mean")
    if source in ("configurations", "runs"):
        names = zip(rows["model"], rows["metric_name"], strict=True)
        added["metric_label"] = [metric_label(*name) for name in names]
    if source == "configurations":
        anchor = Markup('<span id="configuration-{0}">{0}</span>')
        added["configuration"] = _markup(anchor, rows["configuration"])
    if source == "runs":
        added["flag_labels"] = rows["parsed"].map(flag_labels)
        link = Markup('<a href="figures/runs/{0}.svg">{0}</a>')
        added["page"] = _markup(link, rows["run"])
    if "quantity" in rows:
        known = {name: with_unit_of(name, gpu_word) for name in columns("runs")} | _AT_TIME
        if source == "comparisons":  # ratios have no unit
            known = {name: label(name, gpu_word) for name in known}
        added["quantity"] = rows["quantity"].map(lambda name: known.get(name, name))
    return rows.assign(**added)


def _markup(template: Markup, values: pd.Series) -> pd.Series:
    return pd.Series([template.format(value) for value in values], values.index, dtype=object)


def _notes(table: PageTable, frame: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Notes of a table's metadata; and where devices of the plan differ in scope."""
    stored = data.stored(frame)
    if table.name == "plan-sums":
        scopes = rows.loc[rows["level"] == "device", "energy_scope"]
        return [UNEQUAL_SCOPES] if scopes.nunique() > 1 else []
    if table.source == "prediction":
        sources = ", ".join(stored.get("sources") or [])
        return [f"Predicted by {stored.get('scaling_model')}, calibrated on {sources}."]
    shown = table.name in ("plan", "configurations", "comparisons")
    return [str(note) for note in (stored.get("notes") or [])] if shown else []
