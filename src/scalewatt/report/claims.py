"""The paper's claims by verdict, with their words from reference/claims.csv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.claims.model import REFERENCE, read_claims
from scalewatt.report.grids import Grid, texts
from scalewatt.report.numbers import count, number

Row = dict[str, Any]
_VERDICTS = {
    "reproduced": "reproduced",
    "not_reproduced": "not reproduced",
    "unresolved": "cannot be resolved",
    "not_testable": "not testable here",
    "slip": "slips of the paper",
}


@dataclass(frozen=True)
class Verdicts:
    """The claims with one verdict."""

    verdict: str
    """Its word, for ids and styles."""
    heading: str
    says: str
    grid: Grid


def claims_by_verdict(claims: Sequence[Row]) -> list[Verdicts]:
    """Claims in the order of verdicts; one that is not known comes last, under its own name."""
    words = _words()
    verdicts = [
        *_VERDICTS,
        *dict.fromkeys(c["verdict"] for c in claims if c["verdict"] not in _VERDICTS),
    ]
    found = []
    for verdict in verdicts:
        own = [claim for claim in claims if claim["verdict"] == verdict]
        if own:
            heading = _VERDICTS.get(verdict, verdict)
            found.append(
                Verdicts(
                    verdict,
                    heading.capitalize(),
                    count(len(own), "claim"),
                    _grid(verdict, own, words),
                )
            )
    return found


def _grid(verdict: str, claims: Sequence[Row], words: dict[str, str]) -> Grid:
    rows = [
        (
            claim["id"],
            words.get(claim["id"]),
            _text(claim["value"]),
            _text(claim["expected"]),
            _text(claim["detail"]),
        )
        for claim in claims
    ]
    headings = ["claim", "in words", "found", "expected", "detail"]
    return texts(f"claims-{verdict}", f"Claims: {verdict}", headings, rows)


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else number(value)


def _words() -> dict[str, str]:
    """The claims in words, none where the reference is not there."""
    if not (REFERENCE / "claims.csv").is_file():
        return {}
    return {claim.id: claim.text for claim in read_claims()}
