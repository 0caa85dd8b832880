"""Rules for claims on foreign ground, where a campaign's trainings differ in their numbers of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from scalewatt.claims.evidence.check_table import Check
from scalewatt.claims.evidence.claim_types import NotTestable, Outcome
from scalewatt.claims.evidence.evidence import Evidence
from scalewatt.claims.numbers.uncertain_number import quantity
from scalewatt.claims.rules.power_rules import P, of_whole_nodes, one_at_least


def _factors_at_equal_n(evidence: Evidence, check: Check) -> Outcome:
    """Check whether the ratio of P between two models or devices at equal n is at least `low` for any pair.

    Energies of unlike scopes are not compared. Trainings at other n would differ by n as well.
    """
    points = [point for group in of_whole_nodes(evidence, P).values() for point in group]
    numbers = []
    for one, other in combinations(points, 2):
        alike = (one.gpus, one.scope) == (other.gpus, other.scope)
        if alike and (one.model, one.device) != (other.model, other.device):
            top, bottom = sorted((one, other), key=lambda p: -(p.mean(P) or 0.0))
            names = [f"{point.model} {point.device}" for point in (top, bottom)]
            what = f"P_GPUh of {names[0]} over that of {names[1]} at n = {one.gpus}"
            numbers.append((what, quantity(top, P) / quantity(bottom, P)))
    if not numbers:
        raise NotTestable("No two trainings of other models or devices have P_GPUh at the same n.")
    return one_at_least(numbers, check.low)


EQUAL_N_RULES: dict[str, Callable[[Evidence, Check], Outcome]] = {
    "factors_at_equal_n": _factors_at_equal_n,
}
"""The rules by the name that the table calls them."""
