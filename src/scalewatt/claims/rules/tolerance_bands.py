"""The bands of numeric claims, read from claims.csv: its value and its tolerance."""

from __future__ import annotations

import re
from functools import cache

from scalewatt.claims.evidence.claim_types import Claim, read_claims
from scalewatt.common.errors import InputError

_TOLERANCE = re.compile(r"\+-\s*([0-9.]+)\s*(%|pp)?")


def band_of(id_: str) -> tuple[float, float]:
    """The band around a claim's number; InputError where claims.csv has none for it."""
    return around(_claims()[id_])


def around(claim: Claim) -> tuple[float, float]:
    """A claim's value less and plus its tolerance: `+-5 %` of the value, `+-3 pp`, or `+-0.03`."""
    found = _TOLERANCE.fullmatch(claim.tolerance.strip())
    try:
        value = float(claim.value)
    except ValueError:
        found = None
    if found is None:
        raise InputError(
            f"reference/claims.csv: {claim.id}: value {claim.value!r}, tol_same_hardware "
            f"{claim.tolerance!r}; expected a number and +-x %, +-x pp or +-x"
        )
    size = float(found[1]) * (abs(value) / 100 if found[2] == "%" else 1)
    return value - size, value + size


@cache
def _claims() -> dict[str, Claim]:
    return {claim.id: claim for claim in read_claims()}
