"""Findings of checks as one table, and what it says in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

from scalewatt.results.text.number_format import listed, number

SAME, DIFFERS, NOT_CHECKED = "same", "differs", "not_checked"
OUTCOMES = (DIFFERS, NOT_CHECKED, SAME)
"""In the order in which they are shown."""
ENVIRONMENT, STORED, REGENERATED = "environment", "stored", "regenerated"
PROVENANCE, HISTORY, ENERGY = "provenance", "history", "energy"
CHECKS = (ENVIRONMENT, STORED, REGENERATED, PROVENANCE, HISTORY, ENERGY)
"""In the order in which they are made and shown."""
_MOST_NAMED = 3


class Finding(NamedTuple):
    """What was compared with what, and the outcome."""

    check: str
    """One of CHECKS."""
    what: str
    """A package, a file, or a run and its quantity."""
    outcome: str
    """One of OUTCOMES."""
    expected: Any = None
    """As recorded; null if nothing is."""
    actual: Any = None
    """As it is now; null if nothing is."""
    detail: str | None = None
    """Where it differs, or why it was not checked."""


def compare(check: str, what: str, expected: Any, actual: Any, why: str | None = None) -> Finding:
    """Compare two values that should be equal; `why` explains those that are not."""
    if expected == actual:
        return Finding(check, what, SAME, expected, actual)
    return Finding(check, what, DIFFERS, expected, actual, why)


def skip(check: str, what: str, why: str) -> Finding:
    """Make the finding of what cannot be checked."""
    return Finding(check, what, NOT_CHECKED, detail=why)


def frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """Findings as a table with a column for each field."""
    return pd.DataFrame(list(findings), columns=Finding._fields, dtype=object)


def _counts(findings: pd.DataFrame) -> pd.DataFrame:
    """Number of findings of each check (rows) by outcome (columns)."""
    numbers = findings.groupby(["check", "outcome"]).size().unstack(fill_value=0)
    return numbers.reindex(index=list(CHECKS), columns=list(OUTCOMES), fill_value=0)


def verdict(findings: pd.DataFrame) -> tuple[str, int]:
    """The result in one sentence, and the exit code.

    0 if nothing differs, and a stored and a regenerated file are as recorded; else 1.
    """
    counts = _counts(findings)
    same, differ, left = (counts[outcome].sum() for outcome in (SAME, DIFFERS, NOT_CHECKED))
    rest = f"; {left} could not be made" if left else ""
    if differ:
        return f"differences: {differ} in {same + differ} checks{rest}", 1
    if not counts.loc[[STORED, REGENERATED], SAME].all():
        why = "too little was checked: no stored, or no regenerated, file is as recorded"
        return f"{why}{rest}", 1
    return f"nothing differs in {same} checks{rest}", 0


def as_text(campaign: str, findings: pd.DataFrame) -> str:
    """Counts by check, and what differs or was not checked with the reason, for a terminal."""
    loud = findings[findings["outcome"] != SAME]
    values = loud["expected"].map(_shown) + " expected, " + loud["actual"].map(_shown) + " now"
    loud = loud.assign(why=loud["detail"].where(loud["detail"].notna(), values))
    reasons = [
        f"{outcome}: {check}: {listed(rows['what'], _MOST_NAMED)}: {why}"
        for (outcome, check, why), rows in loud.groupby(["outcome", "check", "why"])
    ]
    head = f"{campaign}: {verdict(findings)[0]}"
    return "\n".join([head, _counts(findings).to_string(), *reasons])


def _shown(value: Any) -> str:
    """A value, shortened: of a hash its first digits."""
    text = number(value, 6)
    is_hash = len(text) == 64 and " " not in text
    return f"{text[:12]}…" if is_hash else text
