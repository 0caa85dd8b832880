"""Worlds in which a claim lies exactly on its bound: where its check, given the truth, changes its mind.

The paper's world is moved step by step along a pattern: one quantity of the claim is multiplied, over
the points that it is about, until the verdict of a campaign that knows the truth turns. So no bound is
written down here a second time, and a rule that is changed is studied as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from claims_worlds import World, campaign, exact, paper_world

from scalewatt.campaign.campaign_types import Configuration
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    SUPPORTED,
    TESTED,
    Check,
    Claim,
    read_checks,
    read_claims,
)
from scalewatt.claims.runs import RUN_RULES
from scalewatt.claims.settings import SPEC_RULES
from scalewatt.claims.verdicts import verdict_of

CLASSES = {
    "value in a band": ("value", "mean", "each", "share_of_cpu"),
    "ratio in a band": ("ratio", "fall_to_node", "same_slope_in_both_phases", "factors_differ"),
    "inequality, sign": (
        *("sign", "slope", "first_is_least", "finetuning_over_pretraining", "largest_ram_share"),
        *("epoch_of_finetuning_over_pretraining", "large_regime_is_shorter", "least_at_node"),
        *("efficiency_after_quadrupling", "lowest_efficiency", "gpu_varies_more_than_cpu"),
        *("efficiency_falls_beyond", "slope_changes"),
    ),
    "constant": ("constant", "span", "relative_span", "steady"),
    "exponent": ("elasticity", "proportional"),
    "straight line": ("linear", "straight", "linear_everywhere", "convex"),
    "monotone, rank": ("rises", "falls", "rank", "rank_of_all_points"),
    "all within": ("points_within", "means_within", "ram_shares_within"),
    "onset, knee, bend": ("onset", "knee", "stagnates"),
    "errors of two regimes": ("large_regime_is_worse", "large_regime_steeper_with_data"),
    "pairs of devices": (
        *("saved_on_h100", "energy_equivalent_on_h100", "power_higher_on_h100"),
        "steeper_on_h100",
    ),
    "leaving one out": ("rates_explain",),
}
OTHERS = "several rules"
_CLASS_OF = {rule: name for name, rules in CLASSES.items() for rule in rules}
STEPS = (0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0)
"""How far worlds are moved: logarithms of the factor between the points moved least and most."""
HALVINGS = 18
MOST_BOUNDS = 4
"""How many bounds of one claim are studied."""


def judged(claim: Claim, world: World, keep: frozenset[str] | None = None) -> str:
    """Return the verdict of a campaign that knows the truth."""
    return verdict_of(claim, exact(world, keep)).verdict


@cache
def claims_on_results() -> dict[str, Claim]:
    """The claims that results of the paper's campaign decide, one way or another."""
    evidence = exact(paper_world())
    claims = [claim for claim in read_claims() if _scatters(claim.id)]
    return {one.id: one for one in claims if verdict_of(one, evidence).verdict in TESTED}


def _scatters(id_: str) -> bool:
    """Return True if a claim's check is on numbers that differ between campaigns."""
    exact = {*RUN_RULES, *SPEC_RULES, "updates_per_epoch"}
    return any(check.rule not in exact for check in read_checks().get(id_, ()))


@cache
def class_of(id_: str) -> str:
    """Return the class of a claim's check; OTHERS where its parts are of several."""
    checks = read_checks()[id_]
    if checks[0].rule == "claims":
        checks = tuple(one for of in checks[0].quantity.split(";") for one in read_checks()[of])
    there = {_CLASS_OF.get(check.rule, check.rule) for check in checks}
    return there.pop() if len(there) == 1 else OTHERS


# --- moved worlds -------------------------------------------------------------------------------

Pattern = Callable[[Configuration], float]
"""By how much of the step's logarithm a configuration is moved."""


def _doublings(one: Configuration) -> float:
    return math.log2(one.gpus)


PATTERNS: dict[str, Pattern] = {
    "all": lambda one: 1.0,
    "with n": lambda one: _doublings(one) / 6,
    "up and down": lambda one: float(round(_doublings(one)) % 2),
    "bent": lambda one: ((_doublings(one) - 4) / 4) ** 2,
    "the largest n": lambda one: float(one.gpus >= 256 or one.gpus == 16),
    "four GPUs": lambda one: float(one.gpus == 4),
    "few samples": lambda one: math.log2((one.dataset_samples or 1) / 5004) / 8,
    "h100": lambda one: float(one.device == "h100"),
    "fine-tuning": lambda one: float(one.phase == "finetune"),
    "GBS 8192": lambda one: float(one.global_batch_size == 8192),
}
_LEVERS = (
    ("error", ("metric",)),
    ("cpu", ("cpu_",)),
    ("ram", ("ram_",)),
    ("gpu", ("gpu_energy", "mean_gpu")),
    ("energy", ("energy", "p_gpuh")),
    ("hours", ("runtime", "gpu_hours", "gpuh")),
)


def _lever(check: Check) -> str:
    names = check.quantity.split(";")
    return next(
        lever for lever, parts in _LEVERS if any(part in name for part in parts for name in names)
    )


@dataclass(frozen=True)
class Move:
    """A direction in which the paper's world is moved."""

    lever: str
    pattern: str
    model: str = ""

    def world(self, by: float) -> World:
        """Return the world where what is moved most has its quantity times exp(`by`)."""
        found = dict(paper_world())
        for id_, truth in found.items():
            one = campaign().configurations[id_]
            if not self.model or one.model == self.model:
                found[id_] = truth.times(self.lever, math.exp(by * PATTERNS[self.pattern](one)))
        return found


@dataclass(frozen=True)
class Bound:
    """A world on the bound of a claim, and which way it is contradicted."""

    id: str
    move: Move
    at: float
    out: int
    """1 or -1: the side on which the claim does not hold."""

    def world(self, beyond: float) -> World:
        """Return the world this much beyond the bound, as a ratio less 1."""
        return self.move.world(self.at + self.out * math.log1p(beyond))


def concerned(id_: str) -> frozenset[str] | None:
    """Return the configurations of the models that a claim is about; null for all."""
    models = {check.model for check in read_checks()[id_]} - {""}
    if len(models) != 1:
        return None
    (model,) = models
    return frozenset(k for k, one in campaign().configurations.items() if one.model == model)


def bounds_of(id_: str) -> list[Bound]:
    """Return worlds on the bounds of a claim, at most MOST_BOUNDS, those of small moves first.

    Of each quantity one is moved up and one down, if both come to a bound.
    """
    checks = read_checks()[id_]
    if checks[0].rule == "claims":
        return []
    moves = {
        Move(_lever(check), pattern, check.model): None for check in checks for pattern in PATTERNS
    }
    found = [bound for move in moves if _concerns(id_, move) for bound in along(id_, move)]
    near = sorted(found, key=lambda one: abs(one.at))
    first: dict[tuple[str, bool], Bound] = {}
    for one in near:
        first.setdefault((one.move.lever, one.at > 0), one)
    chosen = [*first.values(), *(one for one in near if one not in first.values())]
    return chosen[:MOST_BOUNDS]


def _concerns(id_: str, move: Move) -> bool:
    """Return True if a move changes the numbers that the claim is about."""
    claim, keep = claims_on_results()[id_], concerned(id_)
    details = {verdict_of(claim, exact(move.world(by), keep)).detail for by in (0.0, STEPS[-1])}
    return len(details) > 1


def along(id_: str, move: Move) -> Iterator[Bound]:
    """Yield the bounds that a move comes to, upwards and downwards."""
    claim, keep = claims_on_results()[id_], concerned(id_)

    def verdict(by: float) -> str:
        return judged(claim, move.world(by), keep)

    middle = verdict(0.0)
    for sign in (1, -1):
        low, before = 0.0, middle
        for step in STEPS:
            high, after = sign * step, verdict(sign * step)
            if {before, after} == {SUPPORTED, CONTRADICTED}:
                low, high = _halved(verdict, low, high)
                # Between the two there may be worlds in which even the truth leaves the claim undecided.
                if {verdict(low), verdict(high)} == {before, after}:
                    out = sign if before == SUPPORTED else -sign
                    yield Bound(id_, move, (low + high) / 2, out)
                break
            low, before = high, after


def _halved(verdict: Callable[[float], str], low: float, high: float) -> tuple[float, float]:
    """Return two moves close to each other between which the verdict turns."""
    before = verdict(low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if verdict(middle) == before else (low, middle)
    return low, high
