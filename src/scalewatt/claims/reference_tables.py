"""Claims, their checks, tolerances and the paper's inconsistencies, as reference/*.csv list them.

docs/claims.md has the columns.
"""

from __future__ import annotations

import csv
import json
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
"""The same for campaigns that trained none of the paper's models."""
PER_SAMPLE = "energy_per_sample_wh"
"""A quantity that is no column of configurations: energy over all epochs per sample of the dataset."""
SPLIT = 32
"""GPUs up to which the paper calls a speed-up near-optimal, and a rise of energy slow (D03, D04, D06)."""

Value = float | str | None


class NotTestable(Exception):
    """The evidence lacks what the claim is about, or points; the message says what is missing."""


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
    """Claims, separated by semicolons, that are tested on the same numbers; empty: none before it."""


@dataclass(frozen=True)
class Inconsistency:
    """A contradiction in the paper, or with the facts: a row of inconsistencies.csv."""

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
    def text(self) -> str:
        """Return how it is read, and where that shows."""
        shows = "Shows nowhere" if self.shows_in == "nowhere" else f"Shows in {self.shows_in}"
        return f"{self.reading} {shows}."


@dataclass(frozen=True)
class Check:
    """A row of a table of checks: one part of what decides a claim."""

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
    """A tolerance's name, a range `low..high`, a number with a tolerance's name (`52 +- name`), or JSON."""
    stated_in: str
    """Which source of the published results has the very number that is claimed; empty: none."""
    margin: str
    """The name of a tolerance that the rule has next to the bounds; of an onset what leaves the base."""
    least: str
    """How many points are needed; empty: three."""
    unit: str
    text: str
    """What the detail calls the number."""

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
        is_column = self.against not in ("n", "samples", "log2 n", "")
        return [quantity, self.against] if is_column else [quantity]

    @property
    def min_points(self) -> int:
        """Return how many points are needed."""
        return int(self.least or 3)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Return lower and upper bound, null if there is none."""
        bounds = range_of(self.expects)
        assert bounds is not None, self.id
        return bounds

    @property
    def low(self) -> float:
        """Return the lower bound."""
        return self._bound(0)

    @property
    def high(self) -> float:
        """Return the upper bound."""
        return self._bound(1)

    def _bound(self, side: int) -> float:
        bound = self.bounds[side]
        assert bound is not None, self.id
        return bound

    @property
    def rises(self) -> bool:
        """Return True if a sign or a rank is claimed to be at least `low`, not at most `high`."""
        return self.bounds[0] is not None

    @property
    def target(self) -> tuple[float, float, bool]:
        """Return the number that is claimed, its tolerance, and True if that is a part of the number."""
        value, _, name = self.expects.partition(" +- ")
        return float(value), *tolerance_of(name)

    @property
    def most(self) -> float:
        """Return the upper bound that `margin` names in the list of tolerances."""
        bounds = range_of(self.margin)
        assert bounds is not None and bounds[1] is not None, self.id
        return bounds[1]

    @property
    def exact_value(self) -> Any:
        """Return the exact value that `expects` states, as JSON; lists are tuples."""
        return _frozen(json.loads(self.expects))

    def label(self, **numbers: object) -> str:
        """Return the text with GPU counts and the like filled in."""
        return self.text.format(**numbers)


@dataclass(frozen=True)
class Tolerance:
    """A row of tolerances.csv: how far off a number may be, for one check or several."""

    name: str
    expects: str
    """A range `low..high`, or `+-x %`, `+-x pp` or `+-x`, which a number has."""
    chosen: str
    """`before any run`, or `knowing the published rows`, as of those by which published rows are decided."""
    reason: str


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV of reference/."""
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


@cache
def read_claims() -> tuple[Claim, ...]:
    """Read the claims of claims.csv, in its order."""
    names = [field.name for field in fields(Claim)]
    rows = read_rows(REFERENCE / "claims.csv")
    return tuple(Claim(**{name: row[name] for name in names}) for row in rows)


@cache
def inconsistencies() -> dict[str, Inconsistency]:
    """Read the paper's inconsistencies by id, those without a row in claims.csv last."""
    rows = read_rows(REFERENCE / "inconsistencies.csv")
    return {row["id"]: Inconsistency(**row) for row in rows}


def unlisted_inconsistencies() -> set[str]:
    """Return the ids of the inconsistencies that have no row in claims.csv."""
    return {id_ for id_, row in inconsistencies().items() if row.statement}


def listed_claims() -> tuple[Claim, ...]:
    """Return the claims of claims.csv, and after them the inconsistencies that have no row there."""
    unlisted = (row for row in inconsistencies().values() if row.statement)
    return (*read_claims(), *(Claim(row.id, claim=row.statement) for row in unlisted))


@cache
def read_checks(path: Path = CHECK_TABLE) -> dict[str, tuple[Check, ...]]:
    """Read the checks of all claims, by the claims' ids in the table's order."""
    names = [field.name for field in fields(Check)]
    checks = [Check(**{name: row[name] for name in names}) for row in read_rows(path)]
    return {id_: tuple(rows) for id_, rows in groupby(checks, key=lambda check: check.id)}


@cache
def portable_texts() -> dict[str, tuple[str, str]]:
    """Read by portable claim what is expected, and what stands in for the paper's models and devices."""
    rows = read_rows(PORTABLE_TABLE)
    return {row["id"]: (row["expected"], row["stands_in"]) for row in reversed(rows)}


@cache
def tolerances() -> dict[str, Tolerance]:
    """Read the tolerances by name."""
    return {row["name"]: Tolerance(**row) for row in read_rows(REFERENCE / "tolerances.csv")}


def range_of(text: str) -> tuple[float | None, float | None] | None:
    """Return the bounds of a range, or of a tolerance's name; null for what is neither."""
    named = tolerances().get(text)
    low, dots, high = (text if named is None else named.expects).partition("..")
    return (float(low) if low else None, float(high) if high else None) if dots else None


def tolerance_of(name: str) -> tuple[float, bool]:
    """Return what a tolerance `+-x` allows, and True if that is a part."""
    value, _, unit = tolerances()[name].expects.removeprefix("+-").partition(" ")
    return float(value) / (100 if unit == "%" else 1), unit == "%"


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
