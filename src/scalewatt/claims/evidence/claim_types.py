"""Claims, their checks and the paper's inconsistencies as reference/ lists them; what a check answers.

Where the evidence lacks something, a rule may raise `NotTestable` or `TooFew` in place of returning
such an outcome.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, fields
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import PROJECT_ROOT
from scalewatt.common.untrusted_text import parse_json

SET_UP = "set_up_as_stated"
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
VERDICTS = (*TESTED, BY_CONSTRUCTION, SET_UP, NOT_TESTABLE, INCONSISTENCY)

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
    assumed: str
    """What simulated runs assume that the claim is about: a key of `assumptions`, or empty."""
    assumed_about: str
    """That, in a noun phrase."""
    assumed_where: str
    """The configurations that this is about: `finetune`, `gbs<=8192`, `gbs=65536`, or all."""

    @property
    def expected(self) -> str:
        """Return what is expected, in one line: quantity, value, unit and tolerance."""
        unit = f" {self.unit}" if self.unit not in ("", "-") else ""
        tolerance = f" ({self.tolerance})" if self.tolerance not in ("", "-") else ""
        value = f"{self.value}{unit}{tolerance}" if self.value not in ("", "-") else self.tolerance
        return f"{self.quantity}: {value}" if self.quantity else self.text


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
    """The probability of such data, or any further off, were the claim true; null where nothing was tested,
    or exact numbers were."""
    chances: tuple[float, ...] | None = None
    """The probability to be supported, were the truth 0, 5, 10 and 15 % off (see `decisions.OFF`)."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one claim; `p` and `chances` as of its outcome."""

    id: str
    verdict: str
    value: Value
    expected: str
    detail: str
    p: float | None = None
    chances: tuple[float, ...] | None = None
    stands: bool | None = None
    """Of a contradiction: True if it is one too when all tested claims are taken together (Holm)."""


class Undecided(Exception):
    """The evidence does not decide the claim; the message says why."""

    verdict: str

    @property
    def outcome(self) -> Outcome:
        """Return what a check answers then."""
        return Outcome(self.verdict, None, str(self))


class NotTestable(Undecided):
    """The evidence lacks what the claim is about; the message says what is missing."""

    verdict = NOT_TESTABLE


class TooFew(Undecided):
    """Too few points; the message says how many are needed."""

    verdict = UNDECIDED


_OTHER_NAMES = {
    "figure": "figure_table",
    "mode": "scaling_mode",
    "text": "claim",
    "tolerance": "tol_same_hardware",
}
_COLUMNS = {one.name: _OTHER_NAMES.get(one.name, one.name) for one in fields(Claim)}
"""Columns of claims.csv by the fields of a claim."""


def read_rows(path: Path, columns: list[str]) -> list[dict[str, str]]:
    """Read these columns of a CSV of reference/; InputError for a missing column."""
    try:
        with open(path, encoding="utf-8", newline="") as handle:
            reader = csv.DictReader(handle)
            rows = list(reader)
            names = reader.fieldnames or []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    if missing := [name for name in columns if name not in names]:
        raise InputError(f"{path}: lacks column {missing[0]}; expected {', '.join(columns)}")
    return [{name: row[name] or "" for name in columns} for row in rows]


def read_claims(path: Path | None = None) -> tuple[Claim, ...]:
    """Read the claims of claims.csv, in its order; InputError for a missing column or a duplicate id."""
    path = path or REFERENCE / "claims.csv"
    rows = read_rows(path, list(_COLUMNS.values()))
    claims = tuple(
        Claim(**{field: row[column] for field, column in _COLUMNS.items()}) for row in rows
    )
    seen: set[str] = set()
    for number, claim in enumerate(claims, 1):
        if claim.id in seen:
            raise InputError(f"{path}: row {number}: id {claim.id} is there twice")
        seen.add(claim.id)
    return claims


@cache
def inconsistencies() -> dict[str, Inconsistency]:
    """Return the paper's inconsistencies by id, those without a row in claims.csv last."""
    columns = list(Inconsistency.__dataclass_fields__)
    rows = read_rows(REFERENCE / "inconsistencies.csv", columns)
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


# --- the checks of claims: the rows of reference/claim_checks.csv (docs/claims.md has its columns) ------

CHECK_TABLE = REFERENCE / "claim_checks.csv"
OF_CLAIM = "claim"
"""In `expects`: the value and the tolerance that claims.csv gives."""
_TOLERANCE = re.compile(r"\+-\s*([0-9.]+)\s*(%|pp)?")
_RANGE = re.compile(r"(-?[0-9.]*?[0-9])?\.\.(-?[0-9.]*[0-9])?")
_NO_COLUMNS = ("n", "samples", "log2 n", "")


@dataclass(frozen=True)
class Check:
    """A row of the table: one part of what decides a claim."""

    id: str
    """The claim's."""
    part: str
    """What a claim of several parts calls this one in its detail."""
    rule: str
    scope: str
    """Which series, points or runs are looked at."""
    model: str
    phase: str
    device: str
    mode: str
    """Of series: several, separated by semicolons, must all be there."""
    batch: str
    """The LBS or GBS that is constant along a series; of a row of Table 1 its LBS."""
    n: str
    """GPU counts: `node` (whole nodes), a number, or two that are compared (`16/4`, `last/first`)."""
    gbs: str
    """Global batch sizes: a number, or `<=` one."""
    training: str
    """`paper`: all points must be trained as in the paper; `paper points`: others are left out."""
    quantity: str
    """A column of configurations, a path into specs or provenance, or another claim."""
    against: str
    """What a slope or a rank is taken against: a column, `n`, `log2 n` or `samples`."""
    expects: str
    """A tolerance's name, a range `low..high`, a number with its tolerance, OF_CLAIM, or JSON."""
    stated_in: str
    """Which source of the published results has the very number that is claimed; empty: none."""
    margin: str
    """Of an onset what leaves the base; else a tolerance that its rule has beside the bounds."""
    least: int
    """How many points are needed."""
    unit: str
    text: str
    """What the detail calls the number."""
    expected_text: str
    """What is expected, where the claim's own value is read in another way."""

    @property
    def selector(self) -> tuple[str, ...]:
        """Return what rows have in common that are checked on the same points."""
        return (self.scope, self.model, self.phase, self.device, self.mode)

    @property
    def modes(self) -> list[str]:
        """Return the modes of series."""
        return self.mode.split(";")

    @property
    def series(self) -> tuple[str, str, str]:
        """Return model, phase and device."""
        return self.model, self.phase, self.device

    @property
    def columns(self) -> list[str]:
        """Return the columns of configurations that points must know."""
        quantity = "energy_kwh" if self.quantity == PER_SAMPLE else self.quantity
        return [quantity] if self.against in _NO_COLUMNS else [quantity, self.against]

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Return lower and upper bound, null if there is none; InputError for what is no range."""
        if self.expects == OF_CLAIM:
            return around(_claims()[self.id])
        if (found := _range_of(self.expects)) is not None:
            return found
        value, *tolerance = self.expects.split(maxsplit=1)
        return _around(self.id, value, " ".join(tolerance))

    @property
    def target(self) -> Target:
        """Return the number that is claimed, with its tolerance; InputError for what is none."""
        if self.expects == OF_CLAIM:
            claim = _claims()[self.id]
            return _target(self.id, claim.value, claim.tolerance.strip())
        value, *tolerance = self.expects.split(maxsplit=1)
        return _target(self.id, value, " ".join(tolerance))

    @property
    def most(self) -> float:
        """Return the bound that `margin` names in the list of tolerances."""
        found = _range_of(self.margin)
        if found is None or found[1] is None:
            raise InputError(
                f"{CHECK_TABLE.name}: {self.id}: margin {self.margin!r} is no tolerance"
            )
        return found[1]

    @property
    def low(self) -> float:
        """Return the lower bound, which must be there; likewise `high`."""
        return self._bound(0)

    @property
    def high(self) -> float:
        return self._bound(1)

    def _bound(self, side: int) -> float:
        bound = self.bounds[side]
        if bound is None:
            raise InputError(
                f"{CHECK_TABLE.name}: {self.id}: expects {self.expects!r} lacks a bound"
            )
        return bound

    @property
    def rises(self) -> bool:
        """Return True if a sign or a rank is claimed to be at least `low`, not at most `high`."""
        return self.bounds[0] is not None

    @property
    def value(self) -> Any:
        """Return the exact value that `expects` states, as JSON; lists are tuples."""
        return _frozen(parse_json(self.expects))

    def label(self, **numbers: object) -> str:
        """Return the text with GPU counts and the like filled in."""
        return self.text.format(**numbers)


@cache
def read_checks(path: Path = CHECK_TABLE) -> dict[str, tuple[Check, ...]]:
    """Read the checks of all claims, by the claims' ids in the table's order.

    InputError for a table that cannot be read, a missing column or a number that is none.
    """
    rows = read_rows(path, [field.name for field in fields(Check)])
    checks = [_check(path, number, row) for number, row in enumerate(rows, 2)]
    found = {id_: tuple(group) for id_, group in groupby(checks, key=lambda check: check.id)}
    if len(found) < len(list(groupby(checks, key=lambda check: check.id))):
        raise InputError(f"{path}: the rows of a claim must follow each other")
    return found


def _check(path: Path, number: int, row: dict[str, str]) -> Check:
    least = row.pop("least")
    try:
        return Check(**row, least=int(least or 3))
    except ValueError as error:
        raise InputError(f"{path}: line {number}: {row['id']}: {error}") from error


@dataclass(frozen=True)
class Tolerance:
    """A row of reference/tolerances.csv: bounds that several checks share."""

    name: str
    expects: str
    """A range `low..high`."""
    reason: str


TOLERANCE_TABLE = REFERENCE / "tolerances.csv"


@cache
def tolerances() -> dict[str, Tolerance]:
    """Return the tolerances by name; InputError for a missing column."""
    rows = read_rows(TOLERANCE_TABLE, [field.name for field in fields(Tolerance)])
    return {row["name"]: Tolerance(**row) for row in rows}


def _range_of(text: str) -> tuple[float | None, float | None] | None:
    """Return the bounds of a range, or of a tolerance's name; null for what is neither."""
    named = tolerances().get(text)
    found = _RANGE.fullmatch(text if named is None else named.expects)
    if found is None:
        return None
    low, high = (None if end is None else float(end) for end in found.groups())
    return low, high


@dataclass(frozen=True)
class Target:
    """A number that is claimed, and how far off another may be."""

    value: float
    room: float
    """In the value's unit, or a part of it where it is relative."""
    is_relative: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the value less and plus its tolerance."""
        size = self.room * (abs(self.value) if self.is_relative else 1)
        return self.value - size, self.value + size


def around(claim: Claim) -> tuple[float, float]:
    """Return a claim's value less and plus its tolerance: `+-5 %` of the value, `+-3 pp`, or `+-0.03`."""
    return _around(claim.id, claim.value, claim.tolerance.strip())


def _around(id_: str, value: str, tolerance: str) -> tuple[float, float]:
    return _target(id_, value, tolerance).bounds


def _target(id_: str, value: str, tolerance: str) -> Target:
    found = _TOLERANCE.fullmatch(tolerance)
    try:
        number = float(value)
    except ValueError:
        found = None
    if found is None:
        raise InputError(
            f"reference/claims.csv: {id_}: value {value!r}, tol_same_hardware "
            f"{tolerance!r}; expected a number and +-x %, +-x pp or +-x"
        )
    is_relative = found[2] == "%"
    return Target(number, float(found[1]) / (100 if is_relative else 1), is_relative)


@cache
def _claims() -> dict[str, Claim]:
    return {claim.id: claim for claim in read_claims()}


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
