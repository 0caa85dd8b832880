"""What claims are called that hold, do not, or are open; and that an open one says what it needs."""

from __future__ import annotations

from claims_made import NEEDED
from claims_setting_cases import SETTING_CASES

from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    NOT_TESTABLE,
    SET_OTHERWISE,
    SET_UP,
    SUPPORTED,
    UNDECIDED,
    read_checks,
)
from scalewatt.claims.verdicts import SETTINGS, Verdict

OPEN, YES, NO, UNTESTED = UNDECIDED, SUPPORTED, CONTRADICTED, NOT_TESTABLE
SAME, SET = BY_CONSTRUCTION, SET_UP
IDENTITIES = {"B02", "C10", "K04"}
OF_FEW_RUNS = {*("T1", "T2", "T3", "T4", "T5", "T6", "H17", "H18", "G08", "G09", "G10")}
"""Numbers of the paper that are themselves known to 12 or 20 % alone: nothing can be equal to within 10 %."""


def expected(id_: str, verdict: str) -> str:
    """What a claim that holds is called."""
    if verdict == NO and {check.rule for check in read_checks()[id_]} & SETTINGS:
        return SET_OTHERWISE
    if verdict != YES:
        return verdict
    if id_ in IDENTITIES:
        return SAME
    if id_ in OF_FEW_RUNS:
        return OPEN
    return SET if id_ in SETTING_CASES or id_ == "F02" else YES


def agree(decided: Verdict, verdict: str) -> None:
    """A verdict is as expected; one that is open says what it needs, and was tested or is not testable."""
    if verdict == OPEN:
        assert decided.verdict == (UNTESTED if decided.p is None else OPEN), decided.detail
        assert NEEDED.search(decided.detail), decided.detail
    else:
        assert decided.verdict == verdict, decided.detail
