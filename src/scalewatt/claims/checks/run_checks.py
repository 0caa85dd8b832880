"""The outcome of a claim: that of all its rows in the table of checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

from scalewatt.claims.checks.check_table import CHECK_TABLE, Check, read_checks
from scalewatt.claims.checks.device_rules import DEVICE_RULES
from scalewatt.claims.checks.power_rules import POWER_RULES
from scalewatt.claims.checks.regime_rules import REGIME_RULES
from scalewatt.claims.checks.run_rules import RUN_RULES
from scalewatt.claims.checks.scopes import SCOPES
from scalewatt.claims.checks.series_rules import SERIES_RULES
from scalewatt.claims.checks.spec_rules import SPEC_RULES, unless_departing
from scalewatt.claims.checks.trace_rules import TRACE_RULES
from scalewatt.claims.evidence.claim_types import (
    INCONSISTENCY,
    NOT_TESTABLE,
    NOTHING,
    UNRESOLVED,
    Claim,
    NotTestable,
    Outcome,
    Unresolved,
    Verdict,
    reading_of,
)
from scalewatt.claims.evidence.evidence import Evidence
from scalewatt.claims.evidence.origin_tracking import origins_looked_at
from scalewatt.claims.rules.tolerance import all_of, attempt
from scalewatt.common.errors import InputError

RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    **DEVICE_RULES,
    **POWER_RULES,
    **REGIME_RULES,
    **RUN_RULES,
    **SPEC_RULES,
    **TRACE_RULES,
}
"""Rules that look at more than the points of one series, by the name that the table calls them."""
SETTINGS = {*SPEC_RULES, "profiles"}
"""Rules on what a campaign sets: one that is none of the paper's departs by its own choice."""
OTHER_CLAIMS = "claims"
"""The rule of a claim that holds where others do: `quantity` names them."""


@cache
def checks_of_claims() -> dict[str, tuple[Check, ...]]:
    """Return the checks of each claim; InputError for a rule or a scope that there is not."""
    checks = read_checks()
    for check in (one for rows in checks.values() for one in rows):
        rules = SERIES_RULES if check.scope else {**RULES, OTHER_CLAIMS: None}
        for what, name, there in (
            ("scope", check.scope, ["", *SCOPES]),
            ("rule", check.rule, rules),
        ):
            if name not in there:
                raise InputError(
                    f"{CHECK_TABLE.name}: {check.id}: {what} {name!r}; expected {', '.join(sorted(there))}"
                )
    return checks


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim; one without a check is an inconsistency, or not testable.

    The detail says of which origin the energies are that the check looked at, unless they are measured
    or the paper's.
    """
    with origins_looked_at() as origins:
        outcome = _outcome(claim, evidence)
    expected = claim.expected if outcome.expected is None else outcome.expected
    names = {name for line in evidence.lines for name in (line.model, line.device)}
    detail = _sentence(outcome.detail, names)
    if odd := sorted(origins - {"measured", "published"}):
        detail += f" Origin of the energy: {', '.join(odd)}."
    return Verdict(claim.id, outcome.verdict, outcome.value, expected, detail)


def _sentence(detail: str, names: set[str]) -> str:
    """Return it with a capital, unless it begins with a name, or an id that begins with one."""
    first = re.split(r"[ ,:;.-]", detail, maxsplit=1)[0]
    return detail if first in names else detail[:1].upper() + detail[1:]


def _outcome(claim: Claim, evidence: Evidence) -> Outcome:
    checks = checks_of_claims().get(claim.id)
    if checks is None and claim.kind == "inconsistency":
        return Outcome(INCONSISTENCY, None, reading_of(claim), NOTHING)
    if checks is None:
        return Outcome(NOT_TESTABLE, None, "There is no check for this claim.")
    try:
        return check_claim(checks, evidence)
    except NotTestable as missing:
        return Outcome(NOT_TESTABLE, None, str(missing))
    except Unresolved as missing:
        return Outcome(UNRESOLVED, None, str(missing))


def check_claim(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Return what the rows of a claim say together; NotTestable and Unresolved as of its rules."""
    groups = [list(rows) for _, rows in groupby(checks, key=lambda check: check.selector)]
    if len(groups) > 1:
        return all_of([attempt("", _together, rows, evidence) for rows in groups])
    found = _together(checks, evidence)
    if checks[0].rule in SETTINGS:
        found = unless_departing(found, evidence, checks[0].model)
    expected = checks[0].expected_text
    return replace(found, expected=expected) if expected else found


def _together(checks: Sequence[Check], evidence: Evidence) -> Outcome:
    """Return what rows on the same points say together."""
    if checks[0].scope:
        return SCOPES[checks[0].scope](evidence, checks)
    if checks[0].rule == OTHER_CLAIMS:
        others = checks[0].quantity.split(";")
        return all_of(
            [attempt(id_, check_claim, checks_of_claims()[id_], evidence) for id_ in others]
        )
    (check,) = checks
    return RULES[check.rule](evidence, check)
