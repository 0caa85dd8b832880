"""The verdict on a claim: by the rows of its check, on the paper's trainings or on others in their place."""

from __future__ import annotations

import re
from dataclasses import replace

from scalewatt.claims.evidence.check_table import read_checks
from scalewatt.claims.evidence.claim_types import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    INCONSISTENCY,
    NOT_TESTABLE,
    NOTHING,
    SET_OTHERWISE,
    SET_UP,
    SPECIFIED_KINDS,
    SUPPORTED,
    TESTED,
    UNDECIDED,
    Claim,
    NotTestable,
    Outcome,
    Verdict,
    reading_of,
)
from scalewatt.claims.evidence.evidence import Evidence, looking
from scalewatt.claims.rules.run_checks import (
    COUNTS,
    IDENTITIES,
    SETTINGS,
    check_claim,
)
from scalewatt.claims.verdicts.portable import (
    is_foreign,
    on_each_training,
    portable_checks,
    portable_texts,
)


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim; one without a check is an inconsistency, or not testable.

    The detail says of which origin the energies are that the check looked at, unless they are measured
    or the paper's.
    """
    with looking() as seen:
        outcome = _classed(claim, _outcome(claim, evidence))
    outcome = _told(claim, evidence, outcome)
    expected = _expected(claim, evidence) if outcome.expected is None else outcome.expected
    names = {name for line in evidence.lines for name in (line.model, line.device)}
    detail = " ".join(filter(None, (_sentence(outcome.detail, names), outcome.note)))
    if odd := sorted(seen - {"measured", "published"}):
        detail += f" Origin of the energy: {', '.join(odd)}."
    return Verdict(
        claim.id,
        outcome.verdict,
        outcome.value,
        expected,
        detail,
        p=outcome.p,
    )


def _expected(claim: Claim, evidence: Evidence) -> str:
    if is_foreign(evidence) and claim.id in portable_checks():
        return portable_texts()[claim.id][0]
    return claim.expected


def _told(claim: Claim, evidence: Evidence, outcome: Outcome) -> Outcome:
    """Return the outcome with what stands beside it: claims on the same points, and stand-ins."""
    notes = [outcome.note]
    if outcome.verdict in TESTED and claim.same_points_as:
        others = claim.same_points_as.replace(";", ", ")
        notes.append(f"Same points as {others}: no independent test.")
    if is_foreign(evidence) and claim.id in portable_checks() and outcome.verdict in TESTED:
        notes.append(portable_texts()[claim.id][1])
    return replace(outcome, note=" ".join(filter(None, notes)))


def _classed(claim: Claim, outcome: Outcome) -> Outcome:
    """Return the outcome with the verdict of what it is: only what data could refute is supported.

    What a campaign sets is set up as stated; arithmetic of the same samples is identical by construction;
    and where no number was compared with a bound, nothing was tested.
    """
    rules = {check.rule for check in read_checks().get(claim.id, ())}
    if outcome.verdict == SUPPORTED and rules & IDENTITIES:
        return replace(outcome, verdict=BY_CONSTRUCTION)
    if outcome.verdict == SUPPORTED and (
        claim.kind in SPECIFIED_KINDS or rules & {*SETTINGS, *COUNTS}
    ):
        return replace(outcome, verdict=SET_UP)
    if outcome.verdict == CONTRADICTED and rules & SETTINGS:
        return replace(outcome, verdict=SET_OTHERWISE)
    if outcome.verdict == UNDECIDED and outcome.p is None:
        outcome = replace(outcome, verdict=NOT_TESTABLE)
    if outcome.verdict not in TESTED:
        return replace(outcome, p=None)
    return outcome


def _sentence(detail: str, names: set[str]) -> str:
    """Return it with a capital, unless it begins with a name, or an id that begins with one."""
    first = re.split(r"[ ,:;.-]", detail, maxsplit=1)[0]
    return detail if first in names else detail[:1].upper() + detail[1:]


def _outcome(claim: Claim, evidence: Evidence) -> Outcome:
    checks = read_checks().get(claim.id)
    portable = portable_checks().get(claim.id) if is_foreign(evidence) else None
    if checks is None and claim.kind == "inconsistency":
        return Outcome(INCONSISTENCY, None, reading_of(claim), NOTHING)
    if checks is None:
        return Outcome(NOT_TESTABLE, None, "There is no check for this claim.")
    try:
        if portable is not None:
            return on_each_training(evidence, portable)
        return check_claim(checks, evidence)
    except NotTestable as missing:
        return missing.outcome
