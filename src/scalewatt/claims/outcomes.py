"""How numbers are compared with what is claimed: by their whole 95 % intervals.

Within the claimed bounds: supported. Outside of them: contradicted. Else: undecided, with the number of
repeats that would tell (docs/paper/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from scalewatt.claims.evidence import Evidence
from scalewatt.claims.quantities import UNBOUNDED, UNTOLD
from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    NOT_TESTABLE,
    SUPPORTED,
    UNDECIDED,
    Check,
    NotTestable,
    Value,
)
from scalewatt.statistics import LEVEL, MOST_REPEATS, Numbers, below, repeats_to_tell

SHOWN = 3
"""How many numbers of a check are named singly."""
_DECIDING = (CONTRADICTED, UNDECIDED, SUPPORTED, BY_CONSTRUCTION, NOT_TESTABLE)
"""Verdicts of alike parts, the one that decides first."""
_DECIDING_WHOLE = (CONTRADICTED, NOT_TESTABLE, UNDECIDED, SUPPORTED, BY_CONSTRUCTION)
"""Verdicts of parts of which none may be missing."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check. `detail` is a sentence with numbers, or with what is missing."""

    verdict: str
    """A verdict, or the reason why nothing was tested."""
    value: Value
    detail: str
    p: float | None = None
    """Probability of such data, or any further off, were the claim true: of several numbers that of the
    least probable, times their count, at most 1. Null where nothing was tested, or exact numbers were."""
    tests: int = 1
    """How many numbers were compared with bounds."""
    margin: float | None = None
    """How far a number is within its bounds, in halves of its interval: supported from 1 on, contradicted
    below -1; null of what is no number."""
    origins: frozenset[str] = frozenset()
    """Origins of the energies that were looked at."""


Rule = Callable[[Evidence, Check], Outcome]
AnyRule = TypeVar("AnyRule", bound=Callable[..., Outcome])


def rule_in(rules: dict[str, AnyRule]) -> Callable[[AnyRule], AnyRule]:
    """Decorator that adds a rule to `rules` by the name of its function, which the table of checks has."""

    def add(function: AnyRule) -> AnyRule:
        rules[function.__name__] = function
        return function

    return add


# --- numbers against bounds -----------------------------------------------------------------------


@dataclass(frozen=True)
class Tests:
    """Numbers, each with a label, and the bounds that they are compared with."""

    labels: str | Sequence[str]
    """A single label is that of all."""
    numbers: Numbers
    low: float = -math.inf
    high: float = math.inf
    show: Callable[[float], float] = float
    """From the scale that decides to the one that is shown."""
    unit: str = ""
    strict: bool = False
    """True if an exact number on the bound decides nothing."""
    stated: float | None = None
    """Value that is stated in place of the number that is compared."""

    def judge(self, index: int) -> Outcome:
        """The outcome of a number by itself, without words."""
        numbers, low, high = self.numbers, self.low, self.high
        value, half = float(numbers.values[index]), float(numbers.halves[index])
        stated = self.show(value) if self.stated is None else self.stated
        if math.isinf(half):
            return Outcome(UNDECIDED, stated, "", margin=0.0, origins=numbers.origins)
        room = min(value - low, high - value)
        margin = room / half if half else math.copysign(math.inf, room) if room else 0.0
        if self.strict and not room and not half:
            verdict = UNDECIDED
        elif low <= value - half and value + half <= high:
            verdict = SUPPORTED
        else:
            is_outside = value + half < low or value - half > high
            verdict = CONTRADICTED if is_outside else UNDECIDED
        p = against(numbers, index, low, high)
        return Outcome(verdict, stated, "", p, margin=margin, origins=numbers.origins)

    def sentence(self, index: int) -> str:
        """The sentence on a number: its interval, and its bounds."""
        mean, half = float(self.numbers.values[index]), float(self.numbers.halves[index])
        remarks = [self.numbers.words(index)] if half else []
        if half and math.isfinite(half):
            ends = map(shown, sorted(map(self.show, (mean - half, mean + half))))
            remarks.insert(0, " to ".join(ends))
        interval = "; ".join(filter(None, remarks))
        # With as many digits as tell it from a bound that it is not on.
        value, bounds = self.show(mean), sorted(map(self.show, (self.low, self.high)))
        is_on_bound = shown(value) in {shown(end) for end in bounds if end != value}
        text = f"{value:.8g}" if is_on_bound else shown(value)
        label = self.labels if isinstance(self.labels, str) else self.labels[index]
        unit = f" {self.unit}" if self.unit else ""
        expected = " to ".join(map(shown, bounds))
        if math.isinf(self.low):
            expected = f"{'below' if self.strict else 'at most'} {shown(self.show(self.high))}"
        elif math.isinf(self.high):
            expected = f"{'above' if self.strict else 'at least'} {shown(self.show(self.low))}"
        return (
            f"{label[:1].upper()}{label[1:]} is {text}{unit}{f' ({interval})' if interval else ''}, "
            f"expected {expected}{unit}"
        )

    def needed(self, index: int) -> str:
        """The repeats that would probably tell (80 %), were this value the truth, as a phrase."""
        number = self.numbers[index : index + 1]
        if math.isinf(number.errors[0]):
            return _WOULD_TELL.get(
                number.words(0), "about 3 repeats, with seeds of their own, would tell the spread"
            )
        if number.values[0] in (self.low, self.high):
            return "it lies on the bound, where no number of repeats would tell"
        count = repeats_to_tell(number, self.low, self.high)
        if count is None:
            return f"more than {MOST_REPEATS} repeats of each point would tell, if any number does"
        return f"about {count} repeats of each point would tell"


_WOULD_TELL = {
    UNBOUNDED: "an estimate with an interval, or a sensor, would tell",
    UNTOLD: "repeats with seeds of their own (`seeds: varied`) would tell, 3 or more",
}


def ratios(
    labels: str | Sequence[str],
    logarithms: Numbers,
    low: float = 0.0,
    high: float = math.inf,
    strict: bool = False,
    stated: float | None = None,
) -> Tests:
    """Ratios, by their logarithms, with the bounds of the ratios."""
    low, high = (math.log(bound) if bound > 0 else -math.inf for bound in (low, high))
    return Tests(labels, logarithms, low, high, _ratio, strict=strict, stated=stated)


def _ratio(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else math.inf


def above(labels: str | Sequence[str], numbers: Numbers, unit: str = "") -> Tests:
    """Numbers that are expected above 0."""
    return Tests(labels, numbers, 0.0, unit=unit, strict=True)


def decide(*groups: Tests, value: Value = None) -> Outcome:
    """Decide whether all numbers lie within their bounds, these included.

    A number of unknown spread decides nothing. The number that decides is, of those with the verdict, the
    one with the least margin; `value` is stated in place of it. NotTestable without any number.
    """
    rows = [(group, index) for group in groups for index in range(len(group.numbers))]
    parts = [group.judge(index) for group, index in rows]
    outcome, verdicts, ranking = _settle(parts, _DECIDING)
    deciding = [row for row in ranking if verdicts[row] == outcome.verdict]
    is_supported = outcome.verdict == SUPPORTED
    named = deciding[: 1 if is_supported else SHOWN]
    sentences = []
    for row in named:
        group, index = rows[row]
        more = f"; {group.needed(index)}" if parts[row].verdict == UNDECIDED else ""
        sentences.append(f"{group.sentence(index)}{more}.")
    if is_supported and len(rows) > 1:
        sentences.append(f"Of {len(rows)} compared, this is nearest to a bound by its interval.")
    elif len(deciding) > len(named):
        sentences.append(f"Not shown: {len(deciding) - len(named)}.")
    if any(parts[row].verdict != outcome.verdict for row in deciding):
        sentences.append(_by_chance(outcome))
    stated = outcome.value if value is None else value
    return replace(outcome, value=stated, detail=" ".join(sentences))


def against(numbers: Numbers, index: int, low: float, high: float) -> float:
    """Probability of a number as far outside of the bounds as this, were the truth within.

    One-sided, for a truth on the nearer bound; 1 within them.
    """
    value, error, freedom = (
        float(each[index]) for each in (numbers.values, numbers.errors, numbers.freedom)
    )
    if low <= value <= high:
        return 1.0
    if value < low:
        return below(value, low, error, freedom)
    return below(-value, -high, error, freedom)


def exactly(holds: bool, value: Value, detail: str, origins: Iterable[str] = ()) -> Outcome:
    """Supported or contradicted, by what is exact."""
    verdict = SUPPORTED if holds else CONTRADICTED
    return Outcome(verdict, value, detail, origins=frozenset(origins))


# --- several outcomes ------------------------------------------------------------------------------


def combine(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Combine alike parts (devices, series), by name: contradicted if one is, then undecided.

    Parts that are not testable are named; they decide only where all are. The value is that of the
    part that decides. NotTestable if there are no parts.
    """
    return _together(list(parts), _DECIDING)


def all_of(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Combine all that a claim names (quantities, series, models), of which none may be missing.

    Contradicted if one is; then not testable, then undecided, if one is; else supported.
    """
    return _together(list(parts), _DECIDING_WHOLE)


def attempt(name: str, check: Callable[..., Outcome], *arguments: object) -> tuple[str, Outcome]:
    """A named part to combine: the outcome of a function that may raise NotTestable."""
    try:
        return name, check(*arguments)
    except NotTestable as missing:
        return name, Outcome(NOT_TESTABLE, None, str(missing))


def _together(named: Sequence[tuple[str, Outcome]], order: Sequence[str]) -> Outcome:
    """Combine outcomes, with the sentences of all."""
    parts = [part for _, part in named]
    outcome, verdicts, _ = _settle(parts, order)
    sentences = [
        part.detail if part.detail.startswith(name) else f"{name}: {part.detail}"
        for name, part in named
    ]
    if outcome.verdict == NOT_TESTABLE and len({part.detail for part in parts}) == 1:
        sentences = [parts[0].detail]
    if any(part.verdict != verdict for part, verdict in zip(parts, verdicts, strict=True)):
        sentences.append(_by_chance(outcome))
    return replace(outcome, detail=" ".join(sentences))


def _settle(parts: Sequence[Outcome], order: Sequence[str]) -> tuple[Outcome, list[str], list[int]]:
    """What parts say together, without words; the verdict on each; and their ranking, the deciding one first.

    The more numbers, the more probable it is that one lies outside by chance: contradictions count if the
    probability of the rarest, times the count of numbers, is at most LEVEL (Bonferroni); else they are
    undecided. Of equal verdicts the least margin decides. NotTestable without any part.
    """
    if not parts:
        raise NotTestable("There is nothing to check.")
    tested = [(part.p, part.tests) for part in parts if part.p is not None]
    count = sum(number for _, number in tested)
    p = min((1.0, *(count * each / number for each, number in tested))) if tested else None
    may_be_chance = p is not None and p > LEVEL
    verdicts = [
        UNDECIDED
        if part.verdict == CONTRADICTED and part.p is not None and may_be_chance
        else part.verdict
        for part in parts
    ]

    def rank(index: int) -> tuple[int, float]:
        margin = parts[index].margin
        return order.index(verdicts[index]), math.inf if margin is None else margin

    ranking = sorted(range(len(parts)), key=rank)
    first = parts[ranking[0]]
    origins = frozenset().union(*(part.origins for part in parts))
    verdict = verdicts[ranking[0]]
    outcome = Outcome(verdict, first.value, "", p, max(count, 1), first.margin, origins)
    return outcome, verdicts, ranking


def _by_chance(outcome: Outcome) -> str:
    count, p = outcome.tests, outcome.p
    return f"Of {count} comparisons one may lie so far outside by chance (p = {p:.2g})."


# --- numbers in words -------------------------------------------------------------------------------


def shown(value: float) -> str:
    """A value with four significant digits, without an exponent up to ten digits."""
    rounded = f"{value:.4g}"
    return f"{float(rounded):.0f}" if 1e4 <= abs(value) < 1e10 else rounded


def shown_in_order(values: npt.ArrayLike) -> str:
    """Values in their order."""
    return ", ".join(shown(float(value)) for value in np.atleast_1d(np.asarray(values, float)))
