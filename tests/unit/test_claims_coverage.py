"""Verdicts on claims are wrong as seldom as stated: `benchmarks/claims_coverage.py` in small."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from claims_contrasts import Campaigns
from claims_coverage import CASES, bounds_of, families, is_more_than, own_intervals
from claims_worlds import Study, claims_on_results, paper_world, published_scatter

from scalewatt.claims.reference_tables import CONTRADICTED, SUPPORTED, UNDECIDED
from scalewatt.claims.verdicts import verdict_of
from scalewatt.statistics import LEVEL

SEED = 19
EACH = pytest.mark.parametrize("at", range(len(CASES)), ids=[case.id for case in CASES])


@EACH
def test_campaigns_are_decided_as_the_claims_are(at: int) -> None:
    """With the same p, on each bound and beyond."""
    case, count = CASES[at], 1
    for bound in bounds_of(at)[::2]:
        world = bound.world(bound.at + bound.out * math.log1p(0.02))
        drawn = Campaigns(Study().quantities(world, count, np.random.default_rng(SEED)))
        held, claim = case.decide(drawn), claims_on_results()[case.id]
        verdicts = [
            verdict_of(claim, evidence) for evidence in Study().campaigns(world, count, SEED)
        ]
        words = np.where(held.contradicted, CONTRADICTED, UNDECIDED)
        assert [verdict.verdict for verdict in verdicts] == [
            *np.where(held.supported, SUPPORTED, words)
        ]
        p = np.minimum(held.p * held.count, 1.0)
        assert p == pytest.approx([verdict.p for verdict in verdicts], rel=1e-9)


@EACH
def test_on_their_bounds_claims_are_decided_wrongly_as_seldom_as_stated(at: int) -> None:
    for bound in bounds_of(at):
        on_bound, beyond = bound.verdicts(0.0, 1000, SEED), bound.verdicts(0.15, 200, SEED)
        for wrong in (on_bound.supported, on_bound.contradicted, beyond.supported):
            assert not is_more_than(wrong, LEVEL), bound


def test_the_scatter_of_simulated_runs_is_the_published_one() -> None:
    fourcastnet, resnet = (published_scatter()[name] for name in ("fourcastnet", "resnet50"))
    assert fourcastnet.energy == pytest.approx(2 / 52 * 1.5**0.5)
    assert (fourcastnet.time, resnet.energy) == pytest.approx((0.0437, 0.0093), rel=0.01)
    world = {id_: truth for id_, truth in paper_world().items() if id_.startswith("resnet50")}
    (evidence,) = Study().campaigns(world, 1, SEED)
    for name, relative in (("energy_kwh", resnet.energy), ("gpu_hours", resnet.time)):
        assert evidence.points[f"{name}_pool"].iloc[0] == pytest.approx(relative, rel=0.25)


def test_the_claims_intervals_hold_the_truth_in_95_percent() -> None:
    for name, hits in own_intervals(5000, np.random.default_rng(SEED)):
        assert not is_more_than(~hits, 0.05), name
        assert hits.mean() < 0.965, name  # nor are they wider than they need be


def test_contradictions_that_stand_by_holm_are_all_right_in_95_percent_of_families() -> None:
    alone, stands = (hits for _, hits in families(1000, np.random.default_rng(SEED)))
    assert not is_more_than(stands, 0.05)
    assert is_more_than(alone, 0.05)  # why a family needs it
