"""Claims, their checks, tolerances and the paper's inconsistencies: the tables of reference/."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass, fields
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from scalewatt.common.project_files import PROJECT_ROOT

SET_UP = "set_up_as_stated"
SET_OTHERWISE = "set_up_otherwise"
BY_CONSTRUCTION = "identical_by_construction"
SUPPORTED = "supported"
CONTRADICTED = "contradicted"
UNDECIDED = "undecided"
NOT_TESTABLE = "not_testable"
INCONSISTENCY = "inconsistency_of_the_paper"
TESTED = (SUPPORTED, CONTRADICTED, UNDECIDED)
"""Verdicts on claims that results could have refuted."""
VERDICTS = (*TESTED, BY_CONSTRUCTION, SET_UP, SET_OTHERWISE, NOT_TESTABLE, INCONSISTENCY)
SPECIFIED_KINDS = ("config", "definition", "regime")
"""Kinds of claim that specs and provenance decide, counted apart."""

REFERENCE = PROJECT_ROOT / "reference"
CHECK_TABLE = REFERENCE / "claim_checks.csv"
PORTABLE_TABLE = REFERENCE / "portable_checks.csv"
"""Checks of campaigns that trained none of the paper's models."""
PER_SAMPLE = "energy_per_sample_wh"
"""Energy over all epochs per sample of the dataset: a quantity that is no column of configurations."""
SPLIT = 32
"""GPUs up to which the paper calls a speed-up near-optimal, and a rise of energy slow (D03, D04, D06)."""

Value = float | str | None


class NotTestable(Exception):
    """The evidence lacks what the claim is about; the message says what is missing."""


@dataclass(frozen=True)
class Claim:
    """A row of claims.csv; or an inconsistency that has none."""

    id: str
    section: str = ""
    figure_table: str = ""
    kind: str = "inconsistency"
    model: str = ""
    claim: str = ""
    expected: str = ""
    """What supports it: bounds, with the names of their tolerances, and what is not tested."""
    note: str = ""
    same_points_as: str = ""
    """Claims, separated by semicolons, that are tested on the same numbers."""


@dataclass(frozen=True)
class Inconsistency:
    """A contradiction in the paper, or with the facts: a row of inconsistencies.csv."""

    id: str
    """A claim of kind inconsistency; Y… where claims.csv has no row."""
    statement: str
    """What is wrong, if claims.csv has no row."""
    reading: str
    """What is done instead, in a sentence."""
    shows_in: str
    """Products of a campaign in which the reading shows, or `nowhere`."""
    claims: str
    """Claims that are checked by this reading, separated by semicolons."""

    @property
    def text(self) -> str:
        """The reading, and where it shows."""
        shows = "Shows nowhere" if self.shows_in == "nowhere" else f"Shows in {self.shows_in}"
        return f"{self.reading} {shows}."


@dataclass(frozen=True)
class Tolerance:
    """A row of tolerances.csv: how far off a number may be."""

    name: str
    expects: str
    """A range `low..high`, or `+-x %`, `+-x pp` or `+-x` around a number."""
    chosen: str
    """`before any run`, or `knowing the published rows`."""
    reason: str


@dataclass(frozen=True)
class Check:
    """A row of a table of checks, one part of what decides a claim (columns: docs/paper/claim-rules.md)."""

    id: str
    part: str
    rule: str
    scope: str
    model: str
    phase: str
    device: str
    mode: str
    batch: str
    n: str
    gbs: str
    training: str
    quantity: str
    against: str
    expects: str
    stated_in: str
    margin: str
    least: str
    unit: str
    text: str

    @property
    def selector(self) -> tuple[str, ...]:
        """What rows share that are checked on the same points."""
        return (self.scope, self.model, self.phase, self.device, self.mode)

    @property
    def modes(self) -> list[str]:
        """Modes of the series that are looked at."""
        return self.mode.split(";")

    @property
    def series(self) -> tuple[str, str, str]:
        """Model, phase and device."""
        return self.model, self.phase, self.device

    @property
    def columns(self) -> list[str]:
        """Columns of configurations that points must know."""
        quantity = "energy_kwh" if self.quantity == PER_SAMPLE else self.quantity
        is_column = self.against not in ("n", "samples", "log2 n", "")
        return [quantity, self.against] if is_column else [quantity]

    @property
    def min_points(self) -> int:
        """Number of points that are needed."""
        return int(self.least or 3)

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound; infinite if there is none."""
        return bounds_of(self.expects)

    @property
    def low(self) -> float:
        """Lower bound."""
        return self.bounds[0]

    @property
    def high(self) -> float:
        """Upper bound."""
        return self.bounds[1]

    @property
    def rises(self) -> bool:
        """Whether a sign or a rank is claimed to be at least `low`, not at most `high`."""
        return math.isfinite(self.low)

    @property
    def target(self) -> tuple[float, float, bool]:
        """The number that is claimed, its tolerance, and whether that is relative."""
        value, _, name = self.expects.partition(" +- ")
        return float(value), *tolerance_of(name)

    @property
    def most(self) -> float:
        """The upper bound that `margin` names."""
        return bounds_of(self.margin)[1]

    @property
    def exact_value(self) -> Any:
        """The exact value that `expects` states as JSON; lists are tuples."""
        return _frozen(json.loads(self.expects))

    def label(self, **numbers: object) -> str:
        """The text with GPU counts and the like filled in."""
        return self.text.format(**numbers)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV of reference/."""
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def _read(path: Path, kind: type[Any]) -> list[Any]:
    """Read rows as a dataclass; columns that it lacks are left out."""
    names = [field.name for field in fields(kind)]
    return [kind(**{name: row[name] for name in names}) for row in read_rows(path)]


@cache
def read_claims() -> tuple[Claim, ...]:
    """Read the claims of claims.csv, in its order."""
    return tuple(_read(REFERENCE / "claims.csv", Claim))


@cache
def inconsistencies() -> dict[str, Inconsistency]:
    """Read the paper's inconsistencies by id; those without a row in claims.csv come last."""
    return {row.id: row for row in _read(REFERENCE / "inconsistencies.csv", Inconsistency)}


def unlisted_inconsistencies() -> set[str]:
    """Ids of the inconsistencies that have no row in claims.csv."""
    return {id_ for id_, row in inconsistencies().items() if row.statement}


def listed_claims() -> tuple[Claim, ...]:
    """The claims of claims.csv, then the inconsistencies that have no row there."""
    unlisted = (row for row in inconsistencies().values() if row.statement)
    return (*read_claims(), *(Claim(row.id, claim=row.statement) for row in unlisted))


@cache
def read_checks(path: Path = CHECK_TABLE) -> dict[str, tuple[Check, ...]]:
    """Read the checks by the claim's id, in the table's order."""
    by_claim = groupby(_read(path, Check), key=lambda check: check.id)
    return {id_: tuple(rows) for id_, rows in by_claim}


@cache
def portable_texts() -> dict[str, tuple[str, str]]:
    """Read by portable claim what is expected, and what stands in for the paper's models and devices."""
    rows = reversed(read_rows(PORTABLE_TABLE))
    return {row["id"]: (row["expected"], row["stands_in"]) for row in rows}


@cache
def tolerances() -> dict[str, Tolerance]:
    """Read the tolerances by name."""
    return {row.name: row for row in _read(REFERENCE / "tolerances.csv", Tolerance)}


def bounds_of(text: str) -> tuple[float, float]:
    """Bounds of a range `low..high`, or of the tolerance of this name; infinite where open."""
    named = tolerances().get(text)
    low, _, high = (text if named is None else named.expects).partition("..")
    return float(low or "-inf"), float(high or "inf")


def tolerance_of(name: str) -> tuple[float, bool]:
    """What a tolerance `+-x` allows, and whether that is relative."""
    value, _, unit = tolerances()[name].expects.removeprefix("+-").partition(" ")
    return float(value) / (100 if unit == "%" else 1), unit == "%"


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
