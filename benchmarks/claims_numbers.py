"""Single numbers against bounds: wrong verdicts, families of tests, failing assumptions.

The decisions of the claims are applied to numbers drawn one by one. The paper's own number, which a claim
is compared with, is drawn too: it is as uncertain as a campaign's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from claims_intervals import PROBE, Covered, covered
from claims_worlds import published_scatter
from scalewatt.claims.numbers.decisions import band, holm
from scalewatt.claims.numbers.uncertain_number import Number, own_repeats, single_run, stated

from scalewatt.claims.outcomes import Outcome
from scalewatt.claims.reference_tables import CONTRADICTED
from scalewatt.results.tables.published_spread import Spread
from scalewatt.results.tables.repeat_statistics import summarise
from scalewatt.statistics import quantile

ROWS, FREEDOM = 17, 68
"""Published rows of ResNet50 with repeats, and their degrees of freedom together."""
REPEATS = 5
OFF = (0.0, 0.05, 0.1, 0.15)
"""How far off a truth is, as parts."""
FAMILY = 30
"""Claims that are tested at once."""

Draw = Callable[[np.random.Generator, float], Number]
"""Draws a number whose truth is given."""


@dataclass(frozen=True)
class Case:
    """A kind of number, and the bounds that it is held against."""

    name: str
    draw: Draw
    low: float
    high: float

    def outcomes(self, truth: float, count: int, seed: object) -> Iterator[Outcome]:
        """Yield the outcomes of so many numbers of this truth."""
        random = np.random.default_rng([*repr((self.name, truth, seed)).encode()])
        for _ in range(count):
            high = None if math.isinf(self.high) else self.high
            yield band("it", self.draw(random, truth), self.low, high)

    @property
    def bounds(self) -> Sequence[float]:
        """Return those that there are."""
        return [one for one in (self.low, self.high) if math.isfinite(one)]

    def truths(self, off: float) -> Sequence[float]:
        """Return the truths that are so far off: the middle, below and above; of one bound, within it."""
        if math.isinf(self.high):
            return [self.low * (1 + off)]
        middle = (self.low + self.high) / 2
        return [middle * (1 - off), middle * (1 + off)]


def _single(random: np.random.Generator, truth: float, sd: float) -> Number:
    """A single run of FourCastNet, whose spread three other runs tell."""
    value = truth * math.exp(sd * random.standard_normal())
    return single_run(value, _spread(random, sd, PROBE - 1), "campaign", "")


def _five(random: np.random.Generator, truth: float, sd: float, source: str = "own") -> Number:
    """A mean of five repeats of ResNet50."""
    found = summarise((truth * np.exp(sd * random.standard_normal(REPEATS))).tolist())
    assert found.mean is not None and found.sd is not None
    return own_repeats(source, found.mean, found.sd, REPEATS)


def _spread(random: np.random.Generator, sd: float, freedom: int) -> Spread:
    return Spread(sd * math.sqrt(random.chisquare(freedom) / freedom), freedom)


def _paper(random: np.random.Generator, sd: float, runs: int, freedom: int) -> Number:
    """The paper's number of so many runs, whose true value is 1."""
    value = math.exp(sd / math.sqrt(runs) * random.standard_normal())
    return stated(value, _spread(random, sd, freedom), "the claim", runs)


def cases() -> list[Case]:
    """Return kinds of numbers as claims have them, each held against ± 10 % or ± 5 %."""
    fcn, resnet = (published_scatter()[model].energy for model in ("fourcastnet", "resnet50"))

    def single_beside_paper(random: np.random.Generator, truth: float) -> Number:
        return _single(random, truth, fcn) / _paper(random, fcn, 1, PROBE - 1)

    def five_beside_paper(random: np.random.Generator, truth: float) -> Number:
        return _five(random, truth, resnet) / _paper(random, resnet, REPEATS, FREEDOM)

    def two_singles(random: np.random.Generator, truth: float) -> Number:
        spread = _spread(random, fcn, PROBE - 1)
        one, other = (
            single_run(size * math.exp(fcn * random.standard_normal()), spread, "campaign", "")
            for size in (truth, 1.0)
        )
        return one / other

    def two_fives(random: np.random.Generator, truth: float) -> Number:
        return _five(random, truth, resnet, "one") / _five(random, 1.0, resnet, "other")

    by_paper = (
        "FourCastNet: a single run over the paper's",
        "ResNet50: a mean of five over the paper's",
    )
    return [
        Case(by_paper[0], single_beside_paper, 0.9, 1.1),
        Case("FourCastNet: two single runs", two_singles, 0.9, 1.1),
        Case(by_paper[1], five_beside_paper, 0.95, 1.05),
        Case("ResNet50: two means of five", two_fives, 0.95, 1.05),
    ]


def verdicts(case: Case, truth: float, count: int, seed: object) -> Counter[str]:
    """Return how often each verdict is given."""
    return Counter(one.verdict for one in case.outcomes(truth, count, seed))


def supported_when_off(case: Case, off: float, count: int, seed: object) -> Counter[str]:
    """Return the verdicts where the truth is so far off."""
    truths = case.truths(off)
    return sum((verdicts(case, one, count // len(truths), seed) for one in truths), Counter())


def families(count: int, seed: object) -> dict[str, Covered]:
    """Return in how many of so many families of claims one is contradicted though all are true.

    Each of FAMILY independent claims is on its bound: the worst case.
    """
    case = next(one for one in cases() if one.name == "ResNet50: two means of five")
    found = {"a contradiction is wrong": 0, "one that stands by Holm is wrong": 0}
    outcomes = case.outcomes(case.high, count * FAMILY, seed)
    for _ in range(count):
        own = [next(outcomes) for _ in range(FAMILY)]
        stand = holm([1.0 if one.p is None else one.p for one in own])
        wrong = [one.verdict == CONTRADICTED for one in own]
        found["a contradiction is wrong"] += any(wrong)
        found["one that stands by Holm is wrong"] += any(
            w and s for w, s in zip(wrong, stand, strict=True)
        )
    return {name: Covered(hits, count) for name, hits in found.items()}


# --- where assumptions fail -----------------------------------------------------------------------


def failing(count: int, seed: int) -> dict[str, Covered]:
    """Return how often 95 % intervals hold the truth where what they assume is wrong."""
    random = np.random.default_rng([seed, 2])
    return {
        **{
            f"energy per GPU hour of a single run, correlation {rho:g} (none is assumed)": (
                _by_correlation(random, rho, count)
            )
            for rho in (-0.5, 0.0, 0.5, 0.8)
        },
        **{
            f"single run by a probe of three, {name}": _single_of(draw, count)
            for name, draw in _distributions(random).items()
        },
        **{
            f"mean of five, {name}": _mean_of(draw, count)
            for name, draw in _distributions(random).items()
        },
        **{
            f"mean of five on one batch of nodes that is {part:g} of a run's spread off": _batch(
                random, part, count
            )
            for part in (0.0, 0.5, 1.0)
        },
    }


def _by_correlation(random: np.random.Generator, rho: float, count: int) -> Covered:
    own = published_scatter()["fourcastnet"]
    z = random.standard_normal((2, count, PROBE + 1))
    time, energy = own.time * z[0], own.energy * (rho * z[0] + math.sqrt(1 - rho**2) * z[1])
    in_time, in_energy = (one[:, 1:].std(axis=1, ddof=1) for one in (time, energy))
    half = quantile(PROBE - 1) * np.hypot(in_time, in_energy)
    return covered(np.abs(energy[:, 0] - time[:, 0]) <= half)


Draws = Callable[[tuple[int, ...]], np.ndarray]


def _distributions(random: np.random.Generator) -> dict[str, Draws]:
    """Return logarithms of mean 0 that are normal, or are not."""
    return {
        "normal": random.standard_normal,
        "heavy tails (t of 3 degrees of freedom)": lambda shape: random.standard_t(3, shape),
        "one run in ten 3 deviations slower": lambda shape: (
            random.standard_normal(shape) + 3.0 * (random.random(shape) < 0.1) - 0.3
        ),
        "exponential": lambda shape: random.exponential(1.0, shape) - 1,
    }


def _single_of(draw: Draws, count: int) -> Covered:
    runs = draw((count, PROBE + 1))
    half = quantile(PROBE - 1) * runs[:, 1:].std(axis=1, ddof=1)
    return covered(np.abs(runs[:, 0]) <= half)


def _mean_of(draw: Draws, count: int) -> Covered:
    return _mean_holds(draw((count, REPEATS)))


def _mean_holds(runs: np.ndarray) -> Covered:
    n = runs.shape[1]
    half = quantile(n - 1) * runs.std(axis=1, ddof=1) / math.sqrt(n)
    return covered(np.abs(runs.mean(axis=1)) <= half)


def _batch(random: np.random.Generator, part: float, count: int) -> Covered:
    runs = random.standard_normal((count, REPEATS))
    return _mean_holds(runs + part * random.standard_normal((count, 1)))
