"""The paper's claims by verdict, and its inconsistencies, as `scalewatt claims` found them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from scalewatt.claims.check_claims import (
    FURTHER_WORDS,
    MEANINGS,
    WORDS,
    stands_text,
)
from scalewatt.claims.reference_tables import (
    TESTED,
    unlisted_inconsistencies,
)
from scalewatt.report.html_tables import Cell, Part, texts
from scalewatt.results.tables.frames import records
from scalewatt.results.text.number_format import count

Row = dict[str, Any]
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
    is_test = verdict in TESTED
    p = ["p"] if is_test else []
    headings = ["claim", "in words", "found", *p, "expected", "detail"]
    cells = [_cells(row, [_p(row)] if is_test else []) for row in rows]
    grid = texts(f"claims-{verdict}", f"Claims, {heading.lower()}", headings, cells)
    meaning = MEANINGS.get(verdict, "")
    says = f"{count(len(rows), *kind)}. {meaning}" if meaning else count(len(rows), *kind)
    return Part(heading, says, grid, verdict, folded=not is_test)


def _cells(row: Row, p: Sequence[Cell | None]) -> list[Any]:
    return [
        *(row["id"], row["claim"], _found(row["value"])),
        *p,
        *(row["expected"], row["detail"]),
    ]


def _p(row: Row) -> Cell | None:
    """Return the probability of such data were the claim true, and whether a contradiction stands."""
    p = row["p"]
    stands = "" if row["stands"] is None else f" ({stands_text(row['stands'])})"
    return None if p is None else Cell(f"{p:.2g}{stands}", p)


def _found(value: str | None) -> Cell | None:
    """Return what was found, sorted by its number where it is one."""
    if not value:
        return None
    try:
        return Cell(value, float(value))
    except ValueError:
        return Cell(value)
