"""Claims and the paper's inconsistencies as reference/ lists them; what a check answers.

Where the evidence lacks something, a rule may raise `NotTestable` in place of returning
such an outcome.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from scalewatt.common.project_files import PROJECT_ROOT

SET_UP = "set_up_as_stated"
SET_OTHERWISE = "set_up_otherwise"
BY_CONSTRUCTION = "identical_by_construction"
SUPPORTED = "supported"
CONTRADICTED = "contradicted"
UNDECIDED = "undecided"
NOT_TESTABLE = "not_testable"
INCONSISTENCY = "inconsistency_of_the_paper"
NOTHING = "nothing: an inconsistency"
"""What is expected of an inconsistency."""
TESTED = (SUPPORTED, CONTRADICTED, UNDECIDED)
"""Verdicts on claims that results could have refuted."""
VERDICTS = (*TESTED, BY_CONSTRUCTION, SET_UP, SET_OTHERWISE, NOT_TESTABLE, INCONSISTENCY)

CHECKED_KINDS = ("numeric", "trend", "threshold", "table", "derived", "identity")
"""Kinds of claim that tables of results decide; `hypothesis` where the campaign has the experiment."""
SPECIFIED_KINDS = ("config", "definition", "regime")
"""Kinds that specs and provenance decide, counted apart."""

REFERENCE = PROJECT_ROOT / "reference"
PER_SAMPLE = "energy_per_sample_wh"
"""A quantity that is no column of configurations: energy per sample of the dataset."""

Value = float | str | None


@dataclass(frozen=True)
class Claim:
    """A row of reference/claims.csv."""

    id: str
    section: str
    figure: str
    kind: str
    model: str
    text: str
    expected: str
    """What supports it: bounds, with the names of their tolerances, and what is not tested."""
    note: str
    same_points_as: str
    """Claims, separated by semicolons, that are tested on the same numbers; empty: none before it."""


@dataclass(frozen=True)
class Inconsistency:
    """A contradiction in the paper, or with the facts: a row of reference/inconsistencies.csv."""

    id: str
    """A claim of kind inconsistency; Y… where claims.csv has no row."""
    statement: str
    """What is wrong, of one without a row in claims.csv."""
    reading: str
    """What is done instead, in a sentence."""
    shows_in: str
    """Products of a campaign that the reading is seen in, or `nowhere`."""
    claims: str
    """Claims that are checked by this reading, separated by semicolons."""

    @property
    def is_listed(self) -> bool:
        """Return True if claims.csv has a row for it."""
        return not self.statement


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check. `detail` is one sentence with numbers, or with what is missing."""

    verdict: str
    value: Value
    detail: str
    expected: str | None = None
    """In place of the claim's own, where the check reads it in another way."""
    p: float | None = None
    """The probability of such data, or any further off, were the claim true: of several parts that of the
    least probable one times their number, at most 1. Null where nothing was tested, or exact numbers were."""
    tests: int = 1
    """How many numbers were compared with bounds."""
    margin: float | None = None
    """How far a number is within its bounds, in halves of its interval: supported from 1 on, contradicted
    below -1; of several parts that of the one that decides; null of what is no number."""
    note: str = ""
    """A sentence that stays where the detail is told in another way."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim; `p` as of its outcome."""

    id: str
    verdict: str
    value: Value
    expected: str
    detail: str
    p: float | None = None
    stands: bool | None = None
    """Of a contradiction: True if it is one too when all tested claims are taken together (Holm)."""


class NotTestable(Exception):
    """The evidence lacks what the claim is about, or points; the message says what is missing."""

    @property
    def outcome(self) -> Outcome:
        """Return what a check answers then."""
        return Outcome(NOT_TESTABLE, None, str(self))


_OTHER_NAMES = {"figure": "figure_table", "text": "claim"}
_COLUMNS = {one.name: _OTHER_NAMES.get(one.name, one.name) for one in fields(Claim)}
"""Columns of claims.csv by the fields of a claim."""


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV of reference/."""
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


@cache
def read_claims() -> tuple[Claim, ...]:
    """Read the claims of claims.csv, in its order."""
    return tuple(
        Claim(**{field: row[column] for field, column in _COLUMNS.items()})
        for row in read_rows(REFERENCE / "claims.csv")
    )


@cache
def inconsistencies() -> dict[str, Inconsistency]:
    """Return the paper's inconsistencies by id, those without a row in claims.csv last."""
    rows = read_rows(REFERENCE / "inconsistencies.csv")
    return {row["id"]: Inconsistency(**row) for row in rows}


def unlisted_inconsistencies() -> set[str]:
    """Return the ids of the inconsistencies that have no row in claims.csv."""
    return {one.id for one in inconsistencies().values() if not one.is_listed}


def listed_claims() -> tuple[Claim, ...]:
    """Return the claims of claims.csv, and after them the inconsistencies that have no row there."""
    blank = dict.fromkeys(_COLUMNS, "")
    further = (
        Claim(**blank | {"id": one.id, "kind": "inconsistency", "text": one.statement})
        for one in inconsistencies().values()
        if not one.is_listed
    )
    return (*read_claims(), *further)


def reading_of(claim: Claim) -> str:
    """Return how an inconsistency is read, and where that shows; its note where nothing is listed."""
    one = inconsistencies().get(claim.id)
    if one is None:
        return claim.note
    shows = "Shows nowhere" if one.shows_in == "nowhere" else f"Shows in {one.shows_in}"
    return f"{one.reading} {shows}."
