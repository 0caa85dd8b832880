"""A comparison as one self-contained page, readable without JavaScript."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scalewatt.common.files import write_text
from scalewatt.comparison.compare import Comparison
from scalewatt.comparison.compare_text import NOTE, alone_text, common_words, labels_of, metric_of
from scalewatt.comparison.compare_words import (
    by_quantity,
    heading_of,
    is_mixed,
    origins_text,
    ratio_text,
    same_sentence,
    tally,
    unit_of,
    value_text,
    verdict_text,
)
from scalewatt.comparison.compared_source import Row
from scalewatt.comparison.ratios import Quantity
from scalewatt.comparison.setting_differences import Difference, facts, ordered
from scalewatt.report.html_tables import STYLE, Cell, Part, templates, texts
from scalewatt.report.provenance_section import maker
from scalewatt.results.text.number_format import count, number

_FOLDER = Path(__file__).parent
_LEAST_HALF = math.log(1.05)
"""The scale is at least this wide: within it two trainings are called the same."""
_SECTIONS = {
    "settings": "Settings",
    "software": "Software",
    "machines": "Machines",
    "cluster": "Cluster",
}


@dataclass(frozen=True)
class _Tally:
    """One quantity in the summary: what came out, and where it is on the page."""

    heading: str
    place: str
    says: str


@dataclass(frozen=True)
class Mark:
    """Where a ratio and its interval lie on a logarithmic scale around 1; per cent of its width."""

    at: float
    low: float | None
    """None without an interval."""
    high: float | None


@dataclass(frozen=True)
class _Ratios:
    """One quantity on the page."""

    part: Part
    marks: list[Mark | None]
    """A row's each; None where nothing is compared."""
    ends: tuple[str, str]
    """The ratios at the scale's ends."""


def write_page(found: Comparison, out: Path) -> None:
    """Write a comparison to `out`, one HTML file without scripts or any reference outside itself."""
    quantities = by_quantity(found.rows)
    headings = {
        one.name: heading_of(one, rows, found.word, metric_of(found)) for one, rows in quantities
    }
    page = (
        templates(_FOLDER)
        .get_template("compare.html.j2")
        .render(
            style=STYLE.read_text(encoding="utf-8"),
            maker=maker(),
            title=_title(found),
            sources=[("A", facts(found.a)), ("B", facts(found.b))],
            summary=[_Tally(headings[one.name], one.name, tally(rows)) for one, rows in quantities],
            warnings=_warnings(found),
            differences=_differences(found.differences),
            quantities=[_quantity(found, one, headings[one.name]) for one, _ in quantities],
            alone=_alone(found),
            note=NOTE,
            common=common_words(found) if len(found.matched.pairs) > 1 else "",
        )
    )
    write_text(out, page)


def _title(found: Comparison) -> str:
    a, b = found.a, found.b
    named = a.campaign != b.campaign
    return f"{a.campaign} and {b.campaign}" if named else f"{a.place} and {b.place}"


def _warnings(found: Comparison) -> list[str]:
    """Return what a reader must know before reading a ratio."""
    said = list(filter(None, [same_sentence(found.same_runs)]))
    if any(is_mixed(rows) for _, rows in by_quantity(found.rows)):
        said.append(
            "Values of different origin are set against each other, such as measured and simulated ones: "
            "each section names them."
        )
    if not found.matched.pairs:
        said.append("No configuration is in both.")
    return said


def _differences(found: Sequence[Difference]) -> list[Part]:
    parts = []
    for section, own in ordered(found).items():
        headings = ["what", "A", "B", *(["in"] if section == "settings" else [])]
        rows = [
            (one.name, one.a, one.b, *([count(one.pairs, "pair")] if one.pairs is not None else []))
            for one in own
        ]
        grid = texts(f"differences-{section}", _SECTIONS[section], headings, rows) if own else None
        says = "" if own else "No difference is recorded."
        parts.append(Part(_SECTIONS[section], says, grid, f"differences-{section}"))
    return parts


def _quantity(found: Comparison, quantity: Quantity, heading: str) -> _Ratios:
    rows = [row for row in found.rows if row["quantity"] == quantity.name]
    labels, unit = labels_of(found), unit_of(rows, quantity)
    cells = [
        (
            labels[row["configuration_a"]],
            Cell(value_text(row, "a", unit), row["mean_a"]),
            Cell(value_text(row, "b", unit), row["mean_b"]),
            f"{row['n_repeats_a']}, {row['n_repeats_b']}",
            Cell(ratio_text(row), row["ratio"]),
            Cell(verdict_text(row)),
        )
        for row in rows
    ]
    headings = ["training", "A", "B", "runs of A, B", "B/A (95 % interval)", "verdict"]
    grid = texts(quantity.name, heading, headings, cells)
    says = f"{tally(rows)[:1].upper()}{tally(rows)[1:]}. {origins_text(rows)}".strip()
    half = half_width(rows)
    ends = number(math.exp(-half), 3), number(math.exp(half), 3)
    marks = [mark_of(row, half) for row in rows]
    return _Ratios(Part(heading, says, grid, quantity.name), marks, ends)


def half_width(rows: Sequence[Row]) -> float:
    """Return the logarithm of the ratio at the scale's end, so that all ratios and intervals fit."""
    names = ("ratio", "ratio_low", "ratio_high")
    found = [abs(math.log(row[name])) for row in rows for name in names if row[name]]
    return max([_LEAST_HALF, *(1.05 * one for one in found)])


def mark_of(row: Row, half: float) -> Mark | None:
    """Return where a row's ratio and interval lie; None without a ratio."""
    if row["ratio"] is None:
        return None
    at, low, high = (
        None if row[name] is None else round(50 + 50 * math.log(row[name]) / half, 2)
        for name in ("ratio", "ratio_low", "ratio_high")
    )
    assert at is not None
    return Mark(at, low, high)


def _alone(found: Comparison) -> list[tuple[str, list[str]]]:
    """Return what only A has, and what only B has; with a heading each."""
    return [
        (
            f"Only in {side}: {count(len(own), 'configuration')}",
            [alone_text(one, found.word) for one in own],
        )
        for side, own in (("A", found.matched.only_a), ("B", found.matched.only_b))
        if own
    ]
