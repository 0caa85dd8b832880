"""A claim, what a check answers, the verdict on a claim, and the registry of checks.

A check is a function of the evidence that returns an `Outcome`, registered for one claim or for
several: `@check("D03")`. Checks made from a table register by a call: `check("D08")(partial(…))`.
Where the evidence lacks something, a check may raise `NotTestable` or `Unresolved` in place of
returning such an outcome.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.claims.evidence.inconsistencies import FURTHER, SLIPS, Slip
from scalewatt.claims.evidence.origin_tracking import origins_looked_at
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT

if TYPE_CHECKING:
    from scalewatt.claims.evidence.evidence import Evidence

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not_reproduced"
UNRESOLVED = "unresolved"
NOT_TESTABLE = "not_testable"
SLIP = "slip"
NOTHING = "nothing: a slip"
"""What is expected of a slip."""
VERDICTS = (REPRODUCED, NOT_REPRODUCED, UNRESOLVED, NOT_TESTABLE, SLIP)

CHECKED_KINDS = ("numeric", "trend", "threshold", "table", "derived", "identity")
"""Kinds of claim that tables of results decide; `hypothesis` where the campaign has the experiment."""
SPECIFIED_KINDS = ("config", "definition", "regime")
"""Kinds that specs and provenance decide, counted apart."""

REFERENCE = PROJECT_ROOT / "reference"

Value = float | str | None


@dataclass(frozen=True)
class Claim:
    """A row of reference/claims.csv."""

    id: str
    section: str
    figure: str
    kind: str
    model: str
    device: str
    phase: str
    mode: str
    text: str
    quantity: str
    value: str
    unit: str
    tolerance: str
    portable: str
    note: str

    @property
    def expected(self) -> str:
        """What is expected, in one line: quantity, value, unit and tolerance."""
        unit = f" {self.unit}" if self.unit not in ("", "-") else ""
        tolerance = f" ({self.tolerance})" if self.tolerance not in ("", "-") else ""
        value = f"{self.value}{unit}{tolerance}" if self.value not in ("", "-") else self.tolerance
        return f"{self.quantity}: {value}" if self.quantity else self.text


@dataclass(frozen=True)
class Outcome:
    """What a check answers. `detail` is one sentence with numbers, or with what is missing."""

    verdict: str
    value: Value
    detail: str
    expected: str | None = None
    """In place of the claim's own, where the check reads it in another way."""


@dataclass(frozen=True)
class Verdict:
    """What the evidence says of one claim."""

    id: str
    verdict: str
    value: Value
    expected: str
    detail: str


class NotTestable(Exception):
    """The evidence cannot decide the claim; the message says what is missing."""


class Unresolved(Exception):
    """Too few repeats or points; the message says how many are needed."""


Check = Callable[["Evidence"], Outcome]
CHECKS: dict[str, Check] = {}
"""The check of each claim, by its id; filled as the modules of checks are imported."""


def check(*ids: str) -> Callable[[Check], Check]:
    """Register a function as the check of these claims."""

    def register(function: Check) -> Check:
        for id_ in ids:
            if id_ in CHECKS:
                raise ValueError(f"claim {id_} has two checks")
            CHECKS[id_] = function
        return function

    return register


_READINGS = {slip.id: slip for slip in (*SLIPS, *FURTHER)}
_COLUMNS = {
    "id": "id",
    "section": "section",
    "figure": "figure_table",
    "kind": "kind",
    "model": "model",
    "device": "device",
    "phase": "phase",
    "mode": "scaling_mode",
    "text": "claim",
    "quantity": "quantity",
    "value": "value",
    "unit": "unit",
    "tolerance": "tol_same_hardware",
    "portable": "portable",
    "note": "note",
}


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """The claims of claims.csv, in its order; InputError for a missing column or a double id."""
    path = path or REFERENCE / "claims.csv"
    try:
        with open(path, encoding="utf-8", newline="") as handle:
            reader = csv.DictReader(handle)
            rows: list[dict[str, Any]] = list(reader)
            names = reader.fieldnames or []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    missing = [name for name in _COLUMNS.values() if name not in names]
    if missing:
        raise InputError(
            f"{path}: lacks column {missing[0]}; expected {', '.join(_COLUMNS.values())}"
        )
    claims = tuple(
        Claim(**{field: row[column] or "" for field, column in _COLUMNS.items()}) for row in rows
    )
    seen: set[str] = set()
    for number, claim in enumerate(claims, 1):
        if claim.id in seen:
            raise InputError(f"{path}: row {number}: id {claim.id} is there twice")
        seen.add(claim.id)
    return claims


def listed_claims() -> tuple[Claim, ...]:
    """The claims of claims.csv, and after them the slips that have no row there."""
    return (*read_claims(), *map(_as_claim, FURTHER))


def _as_claim(slip: Slip) -> Claim:
    blank = dict.fromkeys(_COLUMNS, "")
    return Claim(**blank | {"id": slip.id, "kind": "inconsistency", "text": slip.says})


def verdict_of(claim: Claim, evidence: Evidence) -> Verdict:
    """Run a claim's check. A claim without one is a slip of the paper, or not testable.

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
    """Begun with a capital, unless it begins with a name, or an id that begins with one."""
    first = re.split(r"[ ,:;.-]", detail, maxsplit=1)[0]
    return detail if first in names else detail[:1].upper() + detail[1:]


def _outcome(claim: Claim, evidence: Evidence) -> Outcome:
    function = CHECKS.get(claim.id)
    if function is None:
        if claim.kind == "inconsistency":
            slip = _READINGS.get(claim.id)
            if slip is None:
                return Outcome(SLIP, None, claim.note, NOTHING)
            shows = "Shows nowhere" if slip.shows_in == "nowhere" else f"Shows in {slip.shows_in}"
            return Outcome(SLIP, None, f"{slip.reading} {shows}.", NOTHING)
        return Outcome(NOT_TESTABLE, None, "There is no check for this claim.")
    try:
        return function(evidence)
    except NotTestable as missing:
        return Outcome(NOT_TESTABLE, None, str(missing))
    except Unresolved as missing:
        return Outcome(UNRESOLVED, None, str(missing))
