"""The paper's claims by verdict, and its inconsistencies, as `scalewatt claims` found them."""

from __future__ import annotations

import pandas as pd

from scalewatt.claims.check_claims import FURTHER_WORDS, MEANINGS, WORDS, stands_text
from scalewatt.claims.reference_tables import TESTED, unlisted_inconsistencies
from scalewatt.report.html_tables import Part, grid
from scalewatt.results.text.number_format import MISSING

_FURTHER = "further"
_HEADINGS = {
    "id": "Claim",
    "claim": "In words",
    "value": "Found",
    "p": "p",
    "expected": "Expected",
    "detail": "Detail",
}


def claim_parts(claims: pd.DataFrame) -> list[Part]:
    """Claims in the order of verdicts; inconsistencies that are no claims of the paper's list come last."""
    is_further = claims["id"].isin(unlisted_inconsistencies())
    verdicts = claims["verdict"].mask(is_further, _FURTHER)
    claims = claims.assign(p=[_p(*row) for row in zip(claims["p"], claims["stands"], strict=True)])
    parts = []
    for verdict in dict.fromkeys([*WORDS, *verdicts]):
        rows = claims[verdicts == verdict]
        if len(rows):
            heading = FURTHER_WORDS if verdict == _FURTHER else WORDS.get(verdict, verdict)
            sentence = f"{len(rows)}. {MEANINGS.get(verdict, '')}".strip()
            shown = [name for name in _HEADINGS if name != "p" or verdict in TESTED]
            table = grid(rows, shown, _HEADINGS)
            name = f"claims-{verdict}"
            parts.append(Part(name, heading, sentence, table, folded=verdict not in TESTED))
    return parts


def _p(p: float | None, stands: bool | None) -> str:
    """Probability of such data were the claim true, and whether a contradiction stands."""
    if p is None or pd.isna(p):
        return MISSING
    return f"{p:.2g}" if stands is None else f"{p:.2g} ({stands_text(bool(stands))})"
