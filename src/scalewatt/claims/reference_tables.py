"""Claims, their checks, tolerances and the paper's inconsistencies: the tables of reference/."""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from scalewatt.common.project_files import PROJECT_ROOT

TESTED = SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
"""Verdicts on claims that results could have refuted."""
NOT_TESTABLE, NO_TEST = "not_testable", "no_test"
BY_CONSTRUCTION, INCONSISTENCY = "identical by construction", "inconsistency of the paper"
SET_UP, SET_OTHERWISE = "set up as stated", "set up otherwise"
MEANINGS = {
    SUPPORTED: "The whole 95 % interval is within what is claimed.",
    CONTRADICTED: "The whole 95 % interval is outside of what is claimed.",
    UNDECIDED: "The interval reaches across a bound.",
    BY_CONSTRUCTION: "No test: a number is compared with itself, or with what was made of it.",
    SET_UP: "No test: the campaign sets, or records, what the paper states.",
    SET_OTHERWISE: "No test: the campaign departs from what the paper states.",
    NOT_TESTABLE: "Something is missing, or there are too few points.",
    INCONSISTENCY: "No test: the paper contradicts itself, or the facts.",
}
"""Verdicts, and the reasons of NO_TEST, in the order in which they are shown."""
SPECIFIED_KINDS = ("config", "definition", "regime")
"""Kinds of claim that specs and provenance decide, counted apart."""

REFERENCE = PROJECT_ROOT / "reference"
CHECK_TABLE = REFERENCE / "claim_checks.csv"
PORTABLE_TABLE = REFERENCE / "portable_checks.csv"
"""Checks of campaigns that trained none of the paper's models."""
PER_SAMPLE, PER_EPOCH = "energy_per_sample_wh", "epoch_h"
MADE_OF = {PER_SAMPLE: "energy_kwh", PER_EPOCH: "runtime_h"}
"""Energy over all epochs per sample of the dataset, and time per epoch: the columns that they follow from."""
SIGNS = ("0..", "1..", "..0", "..1")
"""Expectations of more or less, of which an exact number on the bound says neither."""

Value = float | str | None


class NotTestable(Exception):
    """The evidence lacks what the claim is about; the message says what is missing."""


class Claim(SimpleNamespace):
    """A row of claims.csv, or an inconsistency that has none there: then most columns are empty."""


class Check(SimpleNamespace):
    """A row of a table of checks, one part of what decides a claim (columns: docs/paper/claim-rules.md)."""

    @property
    def selector(self) -> tuple[str, ...]:
        """What rows share that are checked on the same points."""
        return (self.scope, self.model, self.phase, self.device, self.mode)

    @property
    def modes(self) -> list[str]:
        """Modes of the series that are looked at."""
        return str(self.mode).split(";")

    @property
    def series(self) -> tuple[str, str, str]:
        """Model, phase and device."""
        return self.model, self.phase, self.device

    @property
    def column(self) -> str:
        """The column of configurations that the quantity is, or follows from."""
        return str(MADE_OF.get(self.quantity, self.quantity))

    @property
    def columns(self) -> list[str]:
        """Quantities that points must know."""
        if self.rule == "share_of_cpu":
            return ["cpu_energy_kwh", "gpu_energy_kwh"]
        is_exact = self.against.removeprefix("log2 ") in ("", "n", "samples")
        return [self.column] if is_exact or "/" in self.against else [self.column, self.against]

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound; infinite if there is none."""
        return bounds_of(self.expects)

    @property
    def is_sign(self) -> bool:
        """Whether more or less is claimed, by whatever amount."""
        return self.expects in SIGNS

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


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV of reference/."""
    rows: Any = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return list(rows)


@cache
def read_claims() -> tuple[Claim, ...]:
    """Read the claims of claims.csv, in its order."""
    return tuple(Claim(**row) for row in read_rows(REFERENCE / "claims.csv"))


@cache
def inconsistencies() -> dict[str, SimpleNamespace]:
    """Read the paper's inconsistencies by id; those without a row in claims.csv have a `statement`."""
    rows = read_rows(REFERENCE / "inconsistencies.csv")
    return {row["id"]: SimpleNamespace(**row) for row in rows}


def unlisted_inconsistencies() -> set[str]:
    """Ids of the inconsistencies that have no row in claims.csv."""
    return {id_ for id_, row in inconsistencies().items() if row.statement}


def listed_claims() -> tuple[Claim, ...]:
    """The claims of claims.csv, then the inconsistencies that have no row there."""
    empty = dict.fromkeys(vars(read_claims()[0]), "")
    return *read_claims(), *(
        Claim(**empty | {"id": row.id, "claim": row.statement.rstrip("."), "kind": "inconsistency"})
        for row in inconsistencies().values()
        if row.statement
    )


@cache
def read_checks(path: Path = CHECK_TABLE) -> dict[str, tuple[Check, ...]]:
    """Read the checks by the claim's id, in the table's order."""
    checks = [Check(**row) for row in read_rows(path)]
    return {id_: tuple(rows) for id_, rows in groupby(checks, key=lambda check: check.id)}


@cache
def tolerances() -> dict[str, SimpleNamespace]:
    """Read the tolerances by name: what each expects, when it was chosen, and why."""
    rows = read_rows(REFERENCE / "tolerances.csv")
    return {row["name"]: SimpleNamespace(**row) for row in rows}


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
