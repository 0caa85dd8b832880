"""The paper's claims on foreign ground: campaigns that trained none of the paper's models.

reference/portable_checks.csv has rows, like those of the table of checks, for the claims whose sentence
speaks of trainings in general. Where `model` is `each`, every training of the campaign (model, phase,
device) takes the place of the paper's, and all decide together; `stands_in` says what else differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from scalewatt.claims.evidence.check_table import Check, read_checks
from scalewatt.claims.evidence.claim_types import REFERENCE, Outcome, read_rows
from scalewatt.claims.evidence.evidence import Evidence
from scalewatt.claims.numbers.decisions import attempt, combine
from scalewatt.claims.rules.run_checks import check_claim
from scalewatt.results.tables.published import FULL_SAMPLES

PORTABLE_TABLE = REFERENCE / "portable_checks.csv"
EACH = "each"
"""In place of a model: every training of the campaign."""


def portable_checks() -> dict[str, tuple[Check, ...]]:
    """Return the checks of each portable claim on another campaign's trainings."""
    return read_checks(PORTABLE_TABLE)


@cache
def portable_texts() -> dict[str, tuple[str, str]]:
    """Return by claim what is expected, and what stands in for the paper's models, devices and sensors."""
    rows = read_rows(PORTABLE_TABLE)
    return {row["id"]: (row["expected"], row["stands_in"]) for row in reversed(rows)}


def is_foreign(evidence: Evidence) -> bool:
    """Return True if a campaign has results, and none of them of a model of the paper's."""
    return bool(evidence.points) and all(p.model not in FULL_SAMPLES for p in evidence.points)


def on_each_training(evidence: Evidence, checks: Sequence[Check]) -> Outcome:
    """Check the rows of a claim on every training in place of the paper's; all decide together.

    A training that lacks something is named and does not decide. NotTestable without any point.
    """
    if all(check.model != EACH for check in checks):
        return check_claim(checks, evidence)
    trainings = sorted({(p.model, p.phase, p.device) for p in evidence.points})

    def of_training(model: str, phase: str, device: str) -> Outcome:
        own = [replace(check, model=model, phase=phase, device=device) for check in checks]
        return check_claim(own, evidence)

    return combine(attempt(_title(one), of_training, *one) for one in trainings)


def _title(training: tuple[str, str, str]) -> str:
    model, phase, device = training
    return " ".join([model, *([] if phase == "train" else [phase]), device])
