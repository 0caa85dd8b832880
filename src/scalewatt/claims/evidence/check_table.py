"""The table of checks: the rows of reference/claim_checks.csv, and the tolerances that they name.

docs/claims.md has its columns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from scalewatt.claims.evidence.claim_types import PER_SAMPLE, REFERENCE, read_rows

CHECK_TABLE = REFERENCE / "claim_checks.csv"
SPLIT = 32
"""GPUs up to which the paper calls a speed-up near-optimal, and a rise of energy slow (D03, D04, D06)."""
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
    """A tolerance's name, a range `low..high`, a number with a tolerance's name (`52 +- name`), or JSON."""
    stated_in: str
    """Which source of the published results has the very number that is claimed; empty: none."""
    margin: str
    """The name of a tolerance that the rule has beside the bounds; of an onset what leaves the base."""
    least: int
    """How many points are needed."""
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
        return [quantity] if self.against in _NO_COLUMNS else [quantity, self.against]

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """Return lower and upper bound, null if there is none."""
        found = _range_of(self.expects)
        return self.target.bounds if found is None else found

    @property
    def target(self) -> Target:
        """Return the number that is claimed, with its tolerance."""
        value, _, name = self.expects.partition(" +- ")
        return Target(float(value), *_room(name))

    @property
    def room(self) -> tuple[float, bool]:
        """Return what `margin` names, `+-x` in the list of tolerances, and True if it is a part."""
        return _room(self.margin)

    @property
    def most(self) -> float:
        """Return the bound that `margin` names in the list of tolerances."""
        found = _range_of(self.margin)
        assert found is not None and found[1] is not None, self.id
        return found[1]

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
    def value(self) -> Any:
        """Return the exact value that `expects` states, as JSON; lists are tuples."""
        return _frozen(json.loads(self.expects))

    def label(self, **numbers: object) -> str:
        """Return the text with GPU counts and the like filled in."""
        return self.text.format(**numbers)


@cache
def read_checks(path: Path = CHECK_TABLE) -> dict[str, tuple[Check, ...]]:
    """Read the checks of all claims, by the claims' ids in the table's order."""
    names = {field.name for field in fields(Check)} - {"least"}
    checks = [
        Check(**{name: row[name] for name in names}, least=int(row["least"] or 3))
        for row in read_rows(path)
    ]
    return {id_: tuple(own) for id_, own in groupby(checks, key=lambda check: check.id)}


@dataclass(frozen=True)
class Tolerance:
    """A row of reference/tolerances.csv: how far off a number may be, for one check or several."""

    name: str
    expects: str
    """A range `low..high`, or `+-x %`, `+-x pp` or `+-x`, which a number has."""
    chosen: str
    """When: one of CHOSEN."""
    reason: str


TOLERANCE_TABLE = REFERENCE / "tolerances.csv"
BEFORE = "before any run"
CHOSEN = ("knowing the published rows", BEFORE)
"""A tolerance by which published rows are decided was chosen when they were known."""


@cache
def tolerances() -> dict[str, Tolerance]:
    """Return the tolerances by name."""
    return {row["name"]: Tolerance(**row) for row in read_rows(TOLERANCE_TABLE)}


def _range_of(text: str) -> tuple[float | None, float | None] | None:
    """Return the bounds of a range, or of a tolerance's name; null for what is neither."""
    named = tolerances().get(text)
    low, dots, high = (text if named is None else named.expects).partition("..")
    return (float(low) if low else None, float(high) if high else None) if dots else None


def _room(name: str) -> tuple[float, bool]:
    """Return what a tolerance `+-x` allows, and True if that is a part."""
    value, _, unit = tolerances()[name].expects.removeprefix("+-").partition(" ")
    return float(value) / (100 if unit == "%" else 1), unit == "%"


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


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
