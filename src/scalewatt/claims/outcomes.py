"""The one rule of all checks, and the one sentence: where a number's whole 95 % interval lies.

Within the claimed bounds: supported. Outside of them: contradicted. Else: undecided, with the repeats that
would tell (docs/statistics.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scalewatt.claims.quantities import UNBOUNDED, UNTOLD
from scalewatt.claims.reference_tables import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    NOT_TESTABLE,
    SUPPORTED,
    UNDECIDED,
    NotTestable,
    Value,
)
from scalewatt.statistics import (
    LEVEL,
    MOST_REPEATS,
    Floats,
    Numbers,
    below,
    chance_inside,
    chance_outside,
    first_with_power,
)

SHOWN = 3
"""How many numbers of a check are named one by one."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check. `detail` is a sentence with numbers, or with what is missing."""

    verdict: str
    value: Value
    detail: str
    p: float | None = None
    """The probability of such data, or any further off, were the claim true: of several numbers that of the
    least probable one times their count, at most 1. Null where nothing was tested, or exact numbers were."""
    tests: int = 1
    """How many numbers were compared with bounds."""
    margin: float | None = None
    """How far a number is within its bounds, in halves of its interval: supported from 1 on, contradicted
    below -1; of several that of the one that decides; null of what is no number."""
    origins: frozenset[str] = frozenset()
    """Of the energies that were looked at."""


# --- numbers against bounds -----------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """How the bounds of a number are brought to the scale that it is decided on, and how it is shown."""

    to: Callable[[float], float]
    back: Callable[[float], float]
    is_percent: bool = False


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


PLAIN = Scale(float, float)
PART = Scale(float, float, is_percent=True)
RATIO = Scale(_log, _exp)
"""Of logarithms that are shown as ratios."""
CHANGE = Scale(lambda part: _log(1 + part), lambda log: _exp(log) - 1, is_percent=True)
"""Of logarithms that are shown as the parts by which they change something."""
SAVED = Scale(lambda part: _log(1 - part), lambda log: 1 - _exp(log))
"""Of logarithms of what is left that are shown as the part that is saved."""


@dataclass(frozen=True)
class Tests:
    """Numbers, each with a label and bounds, on the scale that decides."""

    labels: Sequence[str]
    numbers: Numbers
    low: float
    high: float
    scale: Scale = PLAIN
    unit: str = ""
    strict: bool = False
    """True if an exact number on the bound decides nothing."""
    stated: Sequence[float] | None = None
    """What is stated as each number's value, if not the number that is held against the bounds."""

    def shown(self, at: int) -> str:
        """Return the sentence on one number: its interval, its bounds."""
        mean, half = float(self.numbers.values[at]), float(self.numbers.halves[at])
        bounds = [end for end in self._ends(self.low, self.high) if math.isfinite(end)]
        value, low, high = (
            _apart(end, bounds)
            for end in (*self._ends(mean), *self._ends(mean - half, mean + half))
        )
        words = self.numbers.words(at)
        if math.isinf(half):
            interval = f" ({words})" if words else ""
        else:
            interval = f" ({low} to {high}{f'; {words}' if words else ''})" if half else ""
        return f"{self.labels[at]} is {value}{self._unit}{interval}, expected {self._expected()}"

    @property
    def _unit(self) -> str:
        unit = "%" if self.scale.is_percent else self.unit
        return f" {unit}" if unit else ""

    def _ends(self, *values: float) -> list[float]:
        """Return values of the scale that decides as they are shown, ascending."""
        factor = 100.0 if self.scale.is_percent else 1.0
        return sorted(factor * self.scale.back(value) for value in values)

    def _expected(self) -> str:
        low, high = self._ends(self.low, self.high)
        least, most = self._ends(-math.inf, math.inf)
        if low <= least:
            return f"{'below' if self.strict else 'at most'} {shown(high)}{self._unit}"
        if high >= most:
            return f"{'above' if self.strict else 'at least'} {shown(low)}{self._unit}"
        return f"{shown(low)} to {shown(high)}{self._unit}"

    def needed(self, at: int) -> str:
        """Return the repeats that would probably tell (80 %), were this value the truth, as a phrase."""
        number = self.numbers[at : at + 1]
        if math.isinf(number.errors[0]):
            return _UNKNOWN.get(number.words(0), _SPREAD)
        if number.values[0] in (self.low, self.high):
            return "it lies on the bound, where no number of repeats would tell"
        count = repeats_to_tell(number, self.low, self.high)
        if count is None:
            return f"more than {MOST_REPEATS} repeats of each point would tell, if any number does"
        return f"about {count} repeats of each point would tell"


_SPREAD = "about 3 repeats, with seeds of their own, would tell the spread"
_UNKNOWN = {
    UNBOUNDED: "an estimate with an interval, or a sensor, would tell",
    UNTOLD: "repeats with seeds of their own (`seeds: varied`) would tell, 3 or more",
}


def tests(
    labels: str | Sequence[str],
    numbers: Numbers,
    low: float | None = None,
    high: float | None = None,
    scale: Scale = PLAIN,
    unit: str = "",
    strict: bool = False,
    stated: Sequence[float] | None = None,
) -> Tests:
    """Return numbers with bounds as they are shown, null for none; one label may be that of all."""
    labels = [labels] * len(numbers) if isinstance(labels, str) else labels
    least, most = (-math.inf, math.inf) if scale is not SAVED else (-math.inf, 1.0)
    ends = [scale.to(least if low is None else low), scale.to(most if high is None else high)]
    return Tests(labels, numbers, min(ends), max(ends), scale, unit, strict, stated)


def above(labels: str | Sequence[str], numbers: Numbers, unit: str = "") -> Tests:
    """Return numbers that are expected above 0."""
    return tests(labels, numbers, 0.0, unit=unit, strict=True)


def beside_one(labels: str | Sequence[str], logarithms: Numbers, rises: bool) -> Tests:
    """Return ratios, by their logarithms, that are expected above 1 (`rises`) or below it."""
    low, high = (1.0, None) if rises else (None, 1.0)
    return tests(labels, logarithms, low, high, RATIO, strict=True)


def decide(*groups: Tests, value: Value = None) -> Outcome:
    """Decide whether all numbers lie within their bounds, these included.

    A number of unknown spread decides nothing. The more numbers, the more probable it is that one lies
    outside by chance: a contradiction must be so rare that it is below LEVEL times their count (Bonferroni),
    else it leaves the claim undecided. The number that decides is, of those with the verdict, the one with
    the least margin; `value` is stated in its place. NotTestable without any number.
    """
    rows = [(group, at) for group in groups for at in range(len(group.numbers))]
    parts = [_judged(*row) for row in rows]
    weighed = _weighed(parts, _ORDER)
    deciding = [at for at in weighed.order if weighed.verdicts[at] == weighed.verdict]
    detail = _detail([(*rows[at], parts[at]) for at in deciding], weighed, len(rows))
    outcome = _decided(parts, weighed, detail)
    return outcome if value is None else replace(outcome, value=value)


def _judged(tests: Tests, at: int) -> Outcome:
    """Return the verdict on one number by itself, without words."""
    value, error, half = (
        float(each[at])
        for each in (tests.numbers.values, tests.numbers.errors, tests.numbers.halves)
    )
    shown_value = tests.scale.back(value) if tests.stated is None else tests.stated[at]
    low, high = tests.low, tests.high
    if math.isinf(error):
        return Outcome(UNDECIDED, shown_value, "", margin=0.0, origins=tests.numbers.origins)
    room = min(value - low, high - value)
    margin = room / half if half else math.copysign(math.inf, room) if room else 0.0
    if tests.strict and not room and not half:
        verdict = UNDECIDED
    elif low <= value - half and value + half <= high:
        verdict = SUPPORTED
    else:
        outside = value + half < low or value - half > high
        verdict = CONTRADICTED if outside else UNDECIDED
    p = against(tests.numbers, at, low, high)
    return Outcome(verdict, shown_value, "", p, margin=margin, origins=tests.numbers.origins)


def against(numbers: Numbers, at: int, low: float, high: float) -> float:
    """Return the probability of a number as far outside of the bounds as this, were the truth within.

    One-sided, for a truth on the nearer bound; 1 within them.
    """
    value, error, freedom = (
        float(each[at]) for each in (numbers.values, numbers.errors, numbers.freedom)
    )
    if low <= value <= high:
        return 1.0
    if value < low:
        return below(value, low, error, freedom)
    return below(-value, -high, error, freedom)


def _detail(rows: Sequence[tuple[Tests, int, Outcome]], weighed: _Weighed, count: int) -> str:
    """Return the sentences on the numbers that decide; of many that support, on the nearest to a bound."""
    is_supported = weighed.verdict == SUPPORTED
    named = rows[:1] if is_supported else rows[:SHOWN]
    sentences = []
    for tests, at, part in named:
        more = f"; {tests.needed(at)}" if part.verdict == UNDECIDED else ""
        sentences.append(f"{tests.shown(at)}{more}.")
    if is_supported and count > 1:
        sentences.append(f"Of {count} compared, this is nearest to a bound by its interval.")
    elif len(rows) > len(named):
        sentences.append(f"Not shown: {len(rows) - len(named)}.")
    if any(part.verdict != weighed.verdict for _, _, part in rows):
        sentences.append(_by_chance(count, weighed.p))
    return " ".join(sentences)


def repeats_to_tell(number: Numbers, low: float, high: float) -> int | None:
    """Return from how many repeats of each point a verdict is 80 % probable, were this value the truth.

    Null for more than MOST_REPEATS: where a published number's interval is too wide, for any.
    """
    truth = float(number.values[0])

    def chance(count: int) -> float:
        error, freedom = number.with_repeats(count)
        return max(
            decide(truth, low, high, error, freedom) for decide in (chance_inside, chance_outside)
        )

    return first_with_power(chance)


def exactly(holds: bool, value: Value, detail: str, origins: Iterable[str] = ()) -> Outcome:
    """Return supported or contradicted, by what is exact."""
    verdict = SUPPORTED if holds else CONTRADICTED
    return Outcome(verdict, value, detail, origins=frozenset(origins))


# --- several outcomes ------------------------------------------------------------------------------


_ORDER = (CONTRADICTED, UNDECIDED, SUPPORTED, BY_CONSTRUCTION, NOT_TESTABLE)


def combine(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return one outcome of alike parts (devices, series): contradicted if one is, then undecided.

    Parts that are not testable are named; they decide only where all are. The value is that of the
    part that decides. NotTestable if there are no parts.
    """
    return _together(list(parts), _ORDER)


def all_of(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return one outcome of all that a claim names (quantities, series, models): none may be lacking.

    Contradicted if one is; then not testable, then undecided, if one is; else supported.
    """
    order = (CONTRADICTED, NOT_TESTABLE, UNDECIDED, SUPPORTED, BY_CONSTRUCTION)
    return _together(list(parts), order)


def _together(named: Sequence[tuple[str, Outcome]], order: Sequence[str]) -> Outcome:
    """Return the outcome that comes first in `order`, with the sentences of all."""
    parts = [part for _, part in named]
    weighed = _weighed(parts, order)
    if weighed.verdict == NOT_TESTABLE and len({part.detail for part in parts}) == 1:
        sentences = [parts[0].detail]
    else:
        sentences = [_named(name, part, len(parts)) for name, part in named]
    if any(part.verdict != v for part, v in zip(parts, weighed.verdicts, strict=True)):
        sentences.append(_by_chance(weighed.count, weighed.p))
    return _decided(parts, weighed, " ".join(sentences))


@dataclass(frozen=True)
class _Weighed:
    """What parts say among each other."""

    verdicts: Sequence[str]
    """Of each part; a contradiction that may be by chance is undecided."""
    order: Sequence[int]
    """Of the parts, that which decides first."""
    count: int
    """Of the numbers that were tested."""
    p: float | None
    """Of the least probable part, times `count`."""

    @property
    def verdict(self) -> str:
        """Return the verdict of the part that decides."""
        return self.verdicts[self.order[0]]


def _weighed(parts: Sequence[Outcome], order: Sequence[str]) -> _Weighed:
    """Rank parts by their verdicts in `order` and their margins; NotTestable without any (see `decide`)."""
    if not parts:
        raise NotTestable("There is nothing to check.")
    known = [(part.p, part.tests) for part in parts if part.p is not None]
    count = sum(tests for _, tests in known)
    p = min((count * each / tests for each, tests in known), default=None)
    by_chance = p is not None and p > LEVEL
    verdicts = [
        UNDECIDED
        if part.verdict == CONTRADICTED and part.p is not None and by_chance
        else part.verdict
        for part in parts
    ]

    def rank(at: int) -> tuple[int, float]:
        margin = parts[at].margin
        return order.index(verdicts[at]), math.inf if margin is None else margin

    return _Weighed(verdicts, sorted(range(len(parts)), key=rank), count, p)


def _decided(parts: Sequence[Outcome], weighed: _Weighed, detail: str) -> Outcome:
    """Return the outcome of the part that decides, with the probability of all."""
    first = parts[weighed.order[0]]
    return Outcome(
        weighed.verdict,
        first.value,
        detail,
        p=None if weighed.p is None else min(1.0, weighed.p),
        tests=max(weighed.count, 1),
        margin=first.margin,
        origins=frozenset().union(*(part.origins for part in parts)),
    )


def _by_chance(count: int, p: float | None) -> str:
    return f"Of {count} comparisons one may lie so far outside by chance (p = {p:.2g})."


def _named(name: str, part: Outcome, parts: int) -> str:
    """Return a part's detail after its name, unless it is alone or begins with it."""
    if not name or parts == 1 or part.detail.casefold().startswith(name.casefold()):
        return part.detail
    return f"{name}: {part.detail}"


def attempt(name: str, run: Callable[..., Outcome], *arguments: object) -> tuple[str, Outcome]:
    """Return a part for `combine`: the outcome of a function that may raise NotTestable."""
    try:
        return name, run(*arguments)
    except NotTestable as missing:
        return name, Outcome(NOT_TESTABLE, None, str(missing))


# --- numbers in words -------------------------------------------------------------------------------


def _apart(value: float, bounds: Iterable[float]) -> str:
    """Return a value with four digits, or as many as keep it on its side of each bound."""
    others = [bound for bound in bounds if bound != value]

    def keeps_side(words: str) -> bool:
        rounded = float(words)
        return all(rounded != bound and (rounded > bound) == (value > bound) for bound in others)

    return next(filter(keeps_side, (shown(value, digits) for digits in range(4, 17))), repr(value))


def shown(value: float, digits: int = 4) -> str:
    """Return a value with so many significant digits, without an exponent up to ten digits."""
    if 1e4 <= abs(value) < 1e10:
        return f"{float(f'{value:.{digits}g}'):.{max(digits - len(f'{abs(value):.0f}'), 0)}f}"
    return f"{value:.{digits}g}"


def in_order(numbers: Floats | npt.ArrayLike) -> str:
    """Return values, shown in their order."""
    return ", ".join(shown(float(value)) for value in np.atleast_1d(np.asarray(numbers, float)))
