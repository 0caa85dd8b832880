"""The one rule of all checks: where a number's whole 95 % interval lies (docs/statistics.md).

Within the claimed bounds: supported. Outside of them: contradicted. Else: undecided, with the repeats that
would tell. Each outcome says how probable such data were if the claim were true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from scalewatt.claims.evidence.claim_types import (
    BY_CONSTRUCTION,
    CONTRADICTED,
    NOT_TESTABLE,
    SUPPORTED,
    UNDECIDED,
    NotTestable,
    Outcome,
    Value,
)
from scalewatt.claims.evidence.evidence import Point
from scalewatt.claims.numbers.uncertain_number import UNBOUNDED, UNTOLD, Number, shown, text
from scalewatt.results.tables.t_tests import (
    LEVEL,
    MOST_REPEATS,
    below,
    chance_inside,
    chance_outside,
    first_with_power,
    quantile,
)

MINIMUM_POINTS = 3


def band(
    what: str,
    own: Number,
    low: float | None,
    high: float | None,
    unit: str = "",
    shows: str | None = None,
    value: Value = None,
) -> Outcome:
    """Decide whether a number lies within bounds, these included; null: no bound on that side.

    `shows` is its sentence in place of the usual one, `value` what is told as its value.
    A number of unknown spread decides nothing.
    """
    told = text(own, unit, [end for end in (low, high) if end is not None])
    sentence = shows or f"{what} is {told}, expected {bounds_text(low, high, unit)}"
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    value = own.value if value is None else value
    if math.isinf(own.error):
        return Outcome(UNDECIDED, value, f"{sentence}; {needed(own, *ends)}.", margin=0.0)
    verdict, more = UNDECIDED, ""
    if ends[0] <= own.low and own.high <= ends[1]:
        verdict = SUPPORTED
    elif own.high < ends[0] or own.low > ends[1]:
        verdict = CONTRADICTED
    else:
        more = f"; {needed(own, *ends)}"
    return Outcome(
        verdict,
        value,
        f"{sentence}{more}.",
        p=against(own, *ends),
        margin=_margin(own, *ends),
    )


def sign(what: str, ratio: Number, rises: bool) -> Outcome:
    """Decide whether a ratio is above 1 (`rises`) or below it; 1 itself is neither."""
    low, high = (1.0, None) if rises else (None, 1.0)
    side = "above" if rises else "below"
    found = band(
        what, ratio, low, high, shows=f"{what} is {text(ratio, bounds=[1.0])}, expected {side} 1"
    )
    return _unless_on(found, ratio, 1.0)


def positive(what: str, own: Number, unit: str = "") -> Outcome:
    """Decide whether a number is above 0."""
    found = band(what, own, 0.0, None, shows=f"{what} is {text(own, unit)}, expected above 0")
    return _unless_on(found, own, 0.0)


def _unless_on(found: Outcome, own: Number, bound: float) -> Outcome:
    """Return the outcome; undecided for an exact number on the bound."""
    return replace(found, verdict=UNDECIDED) if own.low == own.high == bound else found


def against(own: Number, low: float, high: float) -> float:
    """Return the probability of a number as far outside of the bounds as this, were the truth within.

    One-sided, for a truth on the nearer bound; 1 within them.
    """
    value, low, high = (_on_scale(own, one) for one in (own.value, low, high))
    if low <= value <= high:
        return 1.0
    if value < low:
        return below(value, low, own.error, own.freedom)
    return below(-value, -high, own.error, own.freedom)


def _margin(own: Number, low: float, high: float) -> float:
    """Return how far a number is from the nearer bound, inwards, in halves of its interval."""
    value, low, high = (_on_scale(own, one) for one in (own.value, low, high))
    room = min(value - low, high - value)
    half = quantile(own.freedom) * own.error
    return room / half if half else math.copysign(math.inf, room) if room else 0.0


def _on_scale(own: Number, value: float) -> float:
    if not own.is_ratio:
        return value
    return math.log(value) if value > 0 else -math.inf


def needed(own: Number, low: float, high: float) -> str:
    """Return the repeats that would probably tell (80 %), were this value the truth, as a phrase."""
    if math.isinf(own.error):
        if own.assumed == UNBOUNDED:
            return "an estimate with an interval, or a sensor, would tell"
        if own.assumed == UNTOLD:
            return "repeats with seeds of their own (`seeds: varied`) would tell, 3 or more"
        return "about 3 repeats, with seeds of their own, would tell the spread"
    if own.value in (low, high):
        return "it lies on the bound, where no number of repeats would tell"
    return repeats_text(repeats_to_tell(own, low, high))


def repeats_to_tell(own: Number, low: float, high: float) -> int | None:
    """Return from how many repeats of each point a verdict is 80 % probable, were this value the truth.

    Null for more than MOST_REPEATS: where a published number's own interval is too wide, for any.
    """
    truth, low, high = (_on_scale(own, one) for one in (own.value, low, high))

    def chance(count: int) -> float:
        error, freedom = own.with_repeats(count)
        return max(
            decide(truth, low, high, error, freedom) for decide in (chance_inside, chance_outside)
        )

    return first_with_power(chance)


def repeats_text(repeats: int | None) -> str:
    """Return so many repeats as a phrase."""
    if repeats is None:
        return f"more than {MOST_REPEATS} repeats of each point would tell, if any number does"
    return f"about {repeats} repeats of each point would tell"


def told(own: Number) -> str:
    """Return the repeats that would tell a number from 0."""
    return needed(own, -math.inf, 0.0) if own.value > 0 else needed(own, 0.0, math.inf)


def bounds_text(low: float | None, high: float | None, unit: str) -> str:
    """Return bounds in words."""
    unit = f" {unit}" if unit else ""
    if low is None:
        return f"at most {shown(high or 0)}{unit}"
    if high is None:
        return f"at least {shown(low)}{unit}"
    return f"{shown(low)} to {shown(high)}{unit}"


def decided(holds: bool, value: Value, detail: str) -> Outcome:
    """Return supported or contradicted, by what is exact."""
    return Outcome(SUPPORTED if holds else CONTRADICTED, value, detail, p=None)


# --- several outcomes ------------------------------------------------------------------------------


_ALL = (CONTRADICTED, NOT_TESTABLE, UNDECIDED, SUPPORTED, BY_CONSTRUCTION)


def combine(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return one outcome of alike parts (devices, lines): contradicted if one is, then undecided.

    Parts that are not testable are named; they decide only where all are. The value is that of the
    part that decides. NotTestable if there are no parts.
    """
    order = (CONTRADICTED, UNDECIDED, SUPPORTED, BY_CONSTRUCTION, NOT_TESTABLE)
    return _deciding(parts, order)


def all_of(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return one outcome of all that a claim names (quantities, series, models): none may be lacking.

    Contradicted if one is; then not testable, then undecided, if one is; else supported.
    """
    return _deciding(parts, _ALL)


def in_one(parts: Iterable[tuple[str, Outcome]]) -> Outcome:
    """Return one outcome of alike numbers, as of `all_of`, in the words of the one that decides.

    Of several that agree the one with the least margin.
    """
    return _deciding(parts, _ALL, is_told_alone=True)


def _deciding(
    given: Iterable[tuple[str, Outcome]], order: Sequence[str], is_told_alone: bool = False
) -> Outcome:
    """Return the outcome that comes first in `order`, with the probabilities of all.

    Of several that agree it is the one with the least margin: the nearest to another verdict where they
    support, the furthest off where they contradict.
    The more parts, the more probable it is that one lies outside by chance: a contradiction must be so
    rare that it is below LEVEL times their number (Bonferroni), else it leaves the claim undecided.
    """
    parts = list(given)
    if not parts:
        raise NotTestable("There is nothing to check.")
    tested = [one for _, one in parts if one.p is not None]
    count = sum(one.tests for one in tested)
    p = min((count * (one.p or 0.0) / one.tests for one in tested), default=None)
    by_chance = p is not None and p > LEVEL

    def verdict_of(one: Outcome) -> str:
        is_rare = one.p is None or not by_chance
        return one.verdict if one.verdict != CONTRADICTED or is_rare else UNDECIDED

    def rank(part: tuple[str, Outcome]) -> tuple[int, float]:
        one = part[1]
        return order.index(verdict_of(one)), math.inf if one.margin is None else one.margin

    name, decides = min(parts, key=rank)
    told = [(name, decides)] if is_told_alone else parts
    note = " ".join(filter(None, (one.note for _, one in parts)))
    if any(verdict_of(one) != one.verdict for _, one in parts):
        chance = f"Of {count} comparisons one may lie so far outside by chance (p = {p:.2g})."
        note = f"{note} {chance}".strip()
    return Outcome(
        verdict_of(decides),
        decides.value,
        " ".join(_named(name, one, len(told)) for name, one in told),
        p=None if p is None else min(1.0, p),
        tests=max(count, 1),
        margin=decides.margin,
        note=note,
    )


def _named(name: str, one: Outcome, parts: int) -> str:
    """Return a part's detail after its name, unless it is alone or begins with it."""
    if not name or parts == 1 or one.detail.casefold().startswith(name.casefold()):
        return one.detail
    return f"{name}: {one.detail}"


def attempt(name: str, run: Callable[..., Outcome], *arguments: object) -> tuple[str, Outcome]:
    """Return a part for `combine`: the outcome of a function that may raise NotTestable."""
    try:
        return name, run(*arguments)
    except NotTestable as missing:
        return name, missing.outcome


def enough(points: Sequence[Point], what: str, least: int = MINIMUM_POINTS) -> Sequence[Point]:
    """Return the points, if a trend can be seen in them; NotTestable for too few."""
    if not points:
        raise NotTestable(f"{what}: known at no point.")
    if len(points) < least:
        there = ", ".join(str(point.gpus) for point in points)
        raise NotTestable(
            f"{what}: known at {len(points)} of the {least} points that a trend needs (n = {there}); "
            f"{least - len(points)} more needed."
        )
    return points


def holm(tests: Sequence[float], level: float = 2 * LEVEL) -> list[bool]:
    """Return which of several contradictions stand when all of them are true with a probability of 95 %.

    `tests` are the probabilities of all claims that were tested (Holm 1979).
    """
    ordered = sorted(range(len(tests)), key=lambda index: tests[index])
    stands = [False] * len(tests)
    for rank, index in enumerate(ordered):
        if tests[index] > level / (len(tests) - rank):
            break
        stands[index] = True
    return stands
