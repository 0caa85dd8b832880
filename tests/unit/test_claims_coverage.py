"""Verdicts on claims are wrong as seldom as stated: `benchmarks/claims_coverage.py` in small."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from claims_bounds import Move, along, claims_on_results, class_of, concerned
from claims_coverage import STATED, is_more_than
from claims_intervals import simulated_intervals
from claims_numbers import Case, cases, families, supported_when_off, verdicts
from claims_worlds import Study, paper_world, published_scatter

from scalewatt.claims.evidence import pooled_spreads
from scalewatt.claims.reference_tables import CONTRADICTED, SUPPORTED
from scalewatt.claims.verdicts import verdict_of
from scalewatt.results.tables.frames import frame_of, records
from scalewatt.results.tables.repeat_statistics import configurations_of
from scalewatt.results.tables.table_schema import PARTS, QUANTITIES, RUNS

SEED = 19
CAMPAIGNS = 150
ON_BOUNDS = {
    "ratio in a band": ("H11", Move("energy", "fine-tuning", "fourcastnet")),
    "inequality, sign": ("H03", Move("hours", "four GPUs", "fourcastnet")),
    "constant": ("F13", Move("hours", "with n", "resnet50")),
    "exponent": ("F20", Move("energy", "few samples", "resnet50")),
    "straight line": ("D16", Move("energy", "four GPUs", "resnet50")),
    "monotone, rank": ("K09", Move("gpu", "with n", "resnet50")),
    "all within": ("K01", Move("energy", "all", "fourcastnet")),
    "pairs of devices": ("T7", Move("hours", "h100", "fourcastnet")),
}
"""Of each class of checks a claim, and a move of the paper's world that takes it to its bound."""


# --- the campaigns are like real ones -------------------------------------------------------------


def test_rows_of_simulated_campaigns_are_those_that_the_tables_make_of_such_runs() -> None:
    ids = frozenset(
        ["resnet50-a100-n004-lbs0256-full", "fourcastnet.pretrain-h100-n016-lbs0001-full"]
    )
    (evidence,) = Study().campaigns(paper_world(), 1, SEED, ids)
    runs: list[dict[str, Any]] = []
    for point in evidence.points:
        own = point.row.runs
        for repeat in range(point.n_repeats):
            row = dict.fromkeys(RUNS.names) | {
                n: point.row[n] for n in point.row if n in RUNS.names
            }
            row |= {name: values[repeat] for name, values in own.items()} | {"repeat": repeat + 1}
            runs.append(row)
    made = {row["configuration"]: row for row in records(configurations_of(frame_of(runs, RUNS)))}
    assert set(made) == ids
    for point in evidence.points:
        assert {n: point.row[n] for n in point.row} == pytest.approx(made[point.id], nan_ok=True)


def test_the_scatter_of_simulated_runs_is_the_published_one() -> None:
    fourcastnet, resnet = (published_scatter()[name] for name in ("fourcastnet", "resnet50"))
    assert fourcastnet.energy == pytest.approx(2 / 52 * 1.5**0.5)
    assert (fourcastnet.time, resnet.energy) == (
        pytest.approx(0.0437, rel=0.01),
        pytest.approx(0.0093, rel=0.01),
    )
    ids = frozenset(k for k in paper_world() if k.startswith("resnet50"))
    spreads = [
        next(iter(found.points)).spread("energy_kwh")
        for found in Study().campaigns(paper_world(), 5, SEED, ids)
    ]
    assert [one and one.relative for one in spreads] == pytest.approx([resnet.energy] * 5, rel=0.25)


def test_spreads_that_are_pooled_when_asked_for_are_the_evidences_own() -> None:
    (evidence,) = Study().campaigns(paper_world(), 1, SEED)
    asked = evidence.points[0].spreads
    pooled = pooled_spreads(evidence.points)
    assert {key: asked.get(key) for key in pooled} == pooled
    assert {name for name, *_ in asked} == {name for name, *_ in pooled}
    assert len(asked) == len(pooled)
    assert {name for name, *_ in pooled} <= set(QUANTITIES) and len(PARTS) == 5


# --- intervals --------------------------------------------------------------------------------------


def test_the_interval_of_a_single_run_by_a_probe_of_three_holds_the_truth_in_95_percent() -> None:
    found = simulated_intervals(5000, SEED)
    (one,) = [v for name, v in found.items() if name.startswith("single run, t of")]
    (two,) = [v for name, v in found.items() if name.startswith("ratio of two single runs, t (")]
    for own in (one, two):
        assert not is_more_than(own.trials - own.hits, own.trials, 0.05)
        assert own.hits / own.trials < 0.965  # nor is it wider than it need be


@pytest.mark.parametrize(
    "words",
    ["single run, two standard dev", "single run, spread pooled", "ratio of two single runs, two"],
)
def test_two_standard_deviations_and_a_spread_pooled_over_models_fail_that(words: str) -> None:
    found = simulated_intervals(5000, SEED)
    (own,) = [v for name, v in found.items() if name.startswith(words)]
    assert is_more_than(own.trials - own.hits, own.trials, 0.05)
    assert own.hits / own.trials < 0.85


# --- verdicts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_numbers_on_a_bound_are_decided_wrongly_as_seldom_as_stated(case: Case) -> None:
    for truth in case.bounds:
        counts = verdicts(case, truth, 1000, SEED)
        assert counts.total() == 1000
        for verdict in (SUPPORTED, CONTRADICTED):
            assert not is_more_than(counts[verdict], 1000, STATED), counts


def test_numbers_beyond_a_bound_are_supported_more_seldom_still() -> None:
    for case in (one for one in cases() if len(one.bounds) == 2):
        shares = [supported_when_off(case, off, 400, SEED)[SUPPORTED] / 400 for off in (0.0, 0.15)]
        assert shares[1] <= 0.01 < shares[0], case.name


def test_contradictions_that_stand_by_holm_are_all_right_in_95_percent_of_families() -> None:
    found = families(100, SEED)
    stands = found["one that stands by Holm is wrong"]
    assert not is_more_than(stands.hits, stands.trials, 0.05)
    alone = found["a contradiction is wrong"]
    assert is_more_than(alone.hits, alone.trials, 0.05)  # why a family needs it


def wrong_on_bound(name: str) -> tuple[str, dict[str, int]]:
    """The verdicts of campaigns in which the claim of a class is on its bound."""
    id_, move = ON_BOUNDS[name]
    assert class_of(id_) == name
    bound = next(iter(along(id_, move)))
    claim, keep = claims_on_results()[id_], concerned(id_)
    found = Counter(
        verdict_of(claim, evidence).verdict
        for evidence in Study().campaigns(bound.world(0.0), CAMPAIGNS, SEED, keep)
    )
    return id_, found


@pytest.mark.parametrize("name", ON_BOUNDS)
def test_claims_on_their_bounds_are_decided_wrongly_as_seldom_as_stated(name: str) -> None:
    id_, found = wrong_on_bound(name)
    for verdict in (SUPPORTED, CONTRADICTED):
        assert not is_more_than(found[verdict], CAMPAIGNS, STATED), (id_, found)
