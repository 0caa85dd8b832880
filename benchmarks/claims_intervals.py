"""How often intervals hold the truth: those of the claims' numbers, and conventions beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from claims_worlds import World, campaign, published_scatter
from scalewatt.claims.numbers.uncertain_number import Number

from scalewatt.claims.evidence import Evidence, Point
from scalewatt.claims.quantities import quantity
from scalewatt.statistics import quantile

PROBE = 3
"""Runs of FourCastNet's probe, whose spread stands for that of its single runs."""
CONVENTION = 2.0
"""Standard deviations of the probe that the convention ± 9.4 % is."""
RESNET = 17, 4
"""Published rows of ResNet50, with degrees of freedom each."""


@dataclass(frozen=True)
class Covered:
    """In how many of so many cases an interval held the truth."""

    hits: int = 0
    trials: int = 0

    def __add__(self, other: Covered) -> Covered:
        return Covered(self.hits + other.hits, self.trials + other.trials)


def simulated_intervals(count: int, seed: int) -> dict[str, Covered]:
    """Return how often a single run's interval holds the truth, by rules for its spread.

    Of FourCastNet's energy. The spread is known from the probe, or pooled with ResNet50's repeats.
    """
    random = np.random.default_rng([seed, 1])
    spreads = published_scatter()
    own, other = spreads["fourcastnet"].energy, spreads["resnet50"].energy
    runs = own * random.standard_normal(count)
    rivals = own * random.standard_normal(count)
    probe = own * random.standard_normal((count, PROBE)).std(axis=1, ddof=1)
    rows, each = RESNET
    squares = other**2 * random.chisquare(rows * each, count) + (PROBE - 1) * probe**2
    freedom = rows * each + PROBE - 1
    pooled = np.sqrt(squares / freedom)
    exact = quantile(PROBE - 1)
    halves = {
        f"single run, t of {PROBE - 1} degrees of freedom (± {exact * own:.0%})": exact * probe,
        f"single run, two standard deviations (± {CONVENTION * own:.1%})": CONVENTION * probe,
        "single run, spread pooled over models": quantile(freedom) * pooled,
    }
    found = {name: covered(np.abs(runs) <= half) for name, half in halves.items()}
    both = math.sqrt(2)
    for name, half in {
        f"ratio of two single runs, t (± {both * exact * own:.0%})": both * exact * probe,
        "ratio of two single runs, two standard deviations": both * CONVENTION * probe,
    }.items():
        found[name] = covered(np.abs(runs - rivals) <= half)
    return found


def covered(holds: np.ndarray) -> Covered:
    return Covered(int(holds.sum()), len(holds))


OF_CLAIMS = {
    "FourCastNet, a single run": "fourcastnet.pretrain-a100-n016-lbs0001-full",
    "ResNet50, a mean of five": "resnet50-a100-n016-lbs0256-full",
}
RIVALS = {
    "fourcastnet": "fourcastnet.pretrain-h100-n016-lbs0001-full",
    "resnet50": "resnet50-a100-n004-lbs0256-full",
}
QUANTITIES = {"energy_kwh": "energy", "runtime_h": "time", "p_gpuh_kw": "energy per GPU hour"}


def covered_in(evidence: Evidence, world: World) -> dict[str, Covered]:
    """Return whether the claims' own intervals of some numbers hold their truth in a campaign."""
    points = {point.id: point for point in evidence.points}
    found = {}
    for what, id_ in OF_CLAIMS.items():
        other = RIVALS[campaign().configurations[id_].model]
        for name, word in QUANTITIES.items():
            one, rival = (_number(points[each], name) for each in (id_, other))
            truth, second = (_truth(world, each, name) for each in (id_, other))
            found[f"claims: {what}, {word}"] = _holds(one, truth)
            found[f"claims: {what}, ratio of {word}"] = _holds(one / rival, truth / second)
    return found


def _number(point: Point, name: str) -> Number:
    return quantity(point, name)


def _holds(own: Number, truth: float) -> Covered:
    return Covered(int(own.low <= truth <= own.high), 1)


def _truth(world: World, id_: str, name: str) -> float:
    own, gpus = world[id_], campaign().configurations[id_].gpus
    values: Mapping[str, float] = {
        "energy_kwh": own.total_kwh,
        "runtime_h": own.hours,
        "p_gpuh_kw": own.total_kwh / own.hours / gpus,
    }
    return values[name]
