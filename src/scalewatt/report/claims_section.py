"""The paper's claims by verdict, and its inconsistencies, as `scalewatt claims` found them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from scalewatt.claims.check_claims import FURTHER_WORDS, WORDS
from scalewatt.claims.evidence.claim_types import (
    CHECKED_KINDS,
    SPECIFIED_KINDS,
    unlisted_inconsistencies,
)
from scalewatt.report.html_tables import Cell, Part, texts
from scalewatt.results.tables.frames import records
from scalewatt.results.text.number_format import count

Row = dict[str, Any]
_DECIDED_BY = {
    **dict.fromkeys((*CHECKED_KINDS, "hypothesis"), "results"),
    **dict.fromkeys(SPECIFIED_KINDS, "specs"),
}


_FURTHER = "further"


def claims_of(frame: pd.DataFrame) -> list[Part]:
    """Return the claims in the order of verdicts; an unknown verdict comes last, under its own name.

    Inconsistencies that are no claims of the paper's list stand apart.
    """
    groups: dict[str, list[Row]] = {verdict: [] for verdict in (*WORDS, _FURTHER)}
    further = unlisted_inconsistencies()
    for row in records(frame):
        group = _FURTHER if row["id"] in further else row["verdict"]
        groups.setdefault(group, []).append(row)
    return [_part(verdict, own) for verdict, own in groups.items() if own]


def _part(verdict: str, rows: Sequence[Row]) -> Part:
    heading = FURTHER_WORDS if verdict == _FURTHER else WORDS.get(verdict, verdict)
    kind = ("inconsistency", "inconsistencies") if verdict == _FURTHER else ("claim", "claims")
    headings = ["claim", "in words", "decided by", "found", "expected", "detail"]
    grid = texts(f"claims-{verdict}", f"Claims, {heading.lower()}", headings, map(_cells, rows))
    return Part(heading, count(len(rows), *kind), grid, verdict)


def _cells(row: Row) -> tuple[Any, ...]:
    by = _DECIDED_BY.get(row["kind"])
    return row["id"], row["claim"], by, _found(row["value"]), row["expected"], row["detail"]


def _found(value: str | None) -> Cell | None:
    """Return what was found, sorted by its number where it is one."""
    if not value:
        return None
    try:
        return Cell(value, float(value))
    except ValueError:
        return Cell(value)
