"""Findings of checks as one table, and the verdict that follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

SAME, DIFFERS, NOT_CHECKED = "same", "differs", "not_checked"
OUTCOMES = (DIFFERS, NOT_CHECKED, SAME)
"""In the order in which they are shown."""

ENVIRONMENT, STORED, REGENERATED = "environment", "stored", "regenerated"
PROVENANCE, HISTORY, ENERGY = "provenance", "history", "energy"
CHECKS = (ENVIRONMENT, STORED, REGENERATED, PROVENANCE, HISTORY, ENERGY)
"""In the order in which they are done and shown."""


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
    found: Any = None
    """As it is now; null if nothing is."""
    detail: str | None = None
    """Where it differs, or why it was not checked."""


def compared(
    check: str, what: str, expected: Any, found: Any, detail: str | None = None
) -> Finding:
    """Compare two values that should be equal; `detail` is for those that are not."""
    if expected == found:
        return Finding(check, what, SAME, expected, found)
    return Finding(check, what, DIFFERS, expected, found, detail)


def not_checked(check: str, what: str, why: str, **values: Any) -> Finding:
    """Make the finding of what could not be checked."""
    return Finding(check, what, NOT_CHECKED, detail=why, **values)


def frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """Findings as a table, a column for each field."""
    return pd.DataFrame(list(findings), columns=Finding._fields, dtype=object)


def counts(findings: pd.DataFrame) -> pd.DataFrame:
    """How many findings each check (rows) has of each outcome (columns)."""
    numbers = findings.groupby(["check", "outcome"]).size().unstack(fill_value=0)
    return numbers.reindex(index=list(CHECKS), columns=list(OUTCOMES), fill_value=0)


def exit_code(findings: pd.DataFrame) -> int:
    """0 where a stored and a regenerated file are as recorded and nothing differs, else 1."""
    numbers = counts(findings)
    files = numbers.loc[[STORED, REGENERATED], SAME]
    return 0 if files.all() and not numbers[DIFFERS].any() else 1


def verdict(findings: pd.DataFrame) -> str:
    """The result in one sentence, with how much could not be checked."""
    total = counts(findings).sum()
    made = total[SAME] + total[DIFFERS]
    if total[DIFFERS]:
        sentence = f"differences: {total[DIFFERS]} in {made} checks"
    elif exit_code(findings):
        sentence = (
            "too little could be checked: no stored file is as recorded, or no regenerated one"
        )
    else:
        sentence = f"nothing differs in {made} checks"
    left = total[NOT_CHECKED]
    return f"{sentence}; {left} could not be done" if left else sentence
