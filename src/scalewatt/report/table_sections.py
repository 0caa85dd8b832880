"""Which tables the page has, in which order, and what it says where one is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scalewatt.report import plan_section as plan
from scalewatt.report import table_formats as tables
from scalewatt.report.html_tables import Grid
from scalewatt.report.report_inputs import Results
from scalewatt.report.report_request import Definition


@dataclass(frozen=True)
class TablePart:
    """One table on the page, or the reason why it is not there."""

    name: str
    """Its place on the page."""
    source: str
    """The table in the campaign's folder that it is from."""
    heading: str
    says: str
    grid: Grid | None
    folded: bool = False


@dataclass(frozen=True)
class _Kind:
    """What is to be made of a table."""

    name: str
    source: str
    heading: str
    says: str
    make: Callable[[Results, str], Grid]
    folded: bool = False
    notes: Callable[[Results], str] = lambda _: ""
    """Sentences of the table's own."""


_KINDS = (
    _Kind(
        "plan-sums",
        "plan",
        "Plan in sum",
        "The whole campaign as the scaling model predicts it before anything is submitted: medians "
        "with the 90 % intervals of the sums.",
        plan.sums_grid,
        notes=plan.sums_notes,
    ),
    _Kind(
        "plan",
        "plan",
        "Plan by point",
        "One run of each point, as predicted, with 90 % intervals; beside the next smaller n of "
        "its series: how many times as fast, and what that costs.",
        plan.points_grid,
        folded=True,
        notes=plan.plan_notes,
    ),
    _Kind("table1", "table1", "Table 1", "", tables.table1_grid),
    _Kind(
        "scaling",
        "scaling",
        "Scaling",
        "Each point of a series beside its smallest n that has runs (n₀), with half the width of "
        "the 95 % interval.",
        tables.scaling_grid,
    ),
    _Kind(
        "comparisons",
        "comparisons",
        "Devices compared",
        "The same training on two devices. Equivalent: two one-sided t tests place the ratio "
        "within the margin.",
        tables.comparisons_grid,
    ),
    _Kind(
        "variants-table",
        "variants",
        "Variants",
        "One training done in several ways; each departs from its baseline in what is named.",
        tables.variants_grid,
    ),
    _Kind(
        "configurations",
        "configurations",
        "Configurations",
        "Means over the runs of a configuration, with half the width of the 95 % t interval; a "
        "single run has no interval.",
        tables.configurations_grid,
    ),
    _Kind("runs", "runs", "Runs", "Every run, excluded ones too.", tables.runs_grid),
    _Kind(
        "prediction-table",
        "prediction",
        "Predicted and measured",
        "Each configuration as the scaling model predicts it, and as it was found.",
        plan.prediction_grid,
        folded=True,
        notes=plan.prediction_notes,
    ),
    _Kind(
        "metrics",
        "runs",
        "Did the networks learn?",
        "The metric of every run. Persistence is the forecast that nothing changes, climatology "
        "that of the mean; guessing is the error of one class for all images, and no better than that "
        "is an error within two of its standard deviations over the validation images. Where they "
        "have no meaning there is a dash.",
        tables.metrics_grid,
        folded=True,
    ),
)
_OF_THE_CAMPAIGN = ("table1", "variants")
"""What a campaign need not have."""
_OF_THE_MODEL = ("plan", "prediction")
"""What is there only where a scaling model knows the campaign."""


def table_parts(results: Results, definition: Definition, hours: str) -> list[TablePart]:
    """The tables that the campaign has; `hours`: what GPU hours are called."""
    return [
        _part(kind, results, hours)
        for kind in _KINDS
        if _is_shown(kind.source, results, definition)
    ]


def _is_shown(source: str, results: Results, definition: Definition) -> bool:
    if source in _OF_THE_MODEL:
        return source in results.tables
    return source not in _OF_THE_CAMPAIGN or source in definition.figures


def _part(kind: _Kind, results: Results, hours: str) -> TablePart:
    def part(says: str, grid: Grid | None) -> TablePart:
        return TablePart(kind.name, kind.source, kind.heading, says, grid, kind.folded)

    if kind.source not in results.tables:
        return part(f"The table (tables/{kind.source}.parquet) has not been made.", None)
    made = kind.make(results, hours)
    if not made.rows and kind.source == "comparisons":
        return part("No training was done on two devices, so none are compared.", None)
    return part(" ".join(filter(None, [kind.says, kind.notes(results)])), made)
