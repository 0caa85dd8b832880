"""Findings of checks, and the verdict that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SAME, DIFFERS, NOT_CHECKED = "same", "differs", "not_checked"
OUTCOMES = (SAME, DIFFERS, NOT_CHECKED)

ENVIRONMENT, STORED, REGENERATED = "environment", "stored", "regenerated"
PROVENANCE, HISTORY, ENERGY = "provenance", "history", "energy"
CHECKS = (ENVIRONMENT, STORED, REGENERATED, PROVENANCE, HISTORY, ENERGY)
"""In the order in which they are done and shown."""


@dataclass(frozen=True)
class Finding:
    """One row of the page: what was compared with what, and the outcome."""

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
    """Return the finding of two values that should be equal; `detail` is for those that are not."""
    same = expected == found
    return Finding(
        check, what, SAME if same else DIFFERS, expected, found, None if same else detail
    )


def not_checked(check: str, what: str, why: str, **values: Any) -> Finding:
    """Return the finding of what could not be checked."""
    return Finding(check, what, NOT_CHECKED, detail=why, **values)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 where a stored and a regenerated file are as recorded and nothing differs, else 1."""
    found = {(one.check, one.outcome) for one in findings}
    differs = any(outcome == DIFFERS for _, outcome in found)
    return 0 if {(STORED, SAME), (REGENERATED, SAME)} <= found and not differs else 1


def verdict(findings: Sequence[Finding]) -> str:
    """Return the result in one sentence, with how much could not be checked."""
    outcomes = [one.outcome for one in findings]
    count, left = outcomes.count(DIFFERS), outcomes.count(NOT_CHECKED)
    made = len(findings) - left
    if count:
        sentence = f"{count} of {made} checks find{'' if count > 1 else 's'} a difference"
    elif exit_code(findings):
        sentence = (
            "too little could be checked: no stored file is as recorded, or no regenerated one"
        )
    else:
        sentence = f"nothing differs in {made} checks"
    return f"{sentence}; {left} could not be done" if left else sentence
