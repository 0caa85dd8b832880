"""Claims that several numbers decide together: which of them decides, and which is told."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from claims_made import evidence, line
from claims_resnet_made import Change, becoming, resnet_world
from claims_resnet_made import times as scaled
from claims_study import judged

from scalewatt.claims.evidence.claim_types import CONTRADICTED, SUPPORTED, UNDECIDED
from scalewatt.claims.numbers import decisions

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from claims_coverage import STATED, is_more_than

# --- an extreme value is no value of its own ------------------------------------------------------


@pytest.mark.parametrize(
    ("id_", "change", "lowest"),
    [
        ("D03", scaled("fd_lbs", 2, gpu_hours=1.0, spread=0.2), "The lowest of 5 is 0.937"),
        ("E06", scaled("fd_gbs_l", 64, runtime_h=1.0, spread=1.5), "longest over the shortest"),
        (
            "B03",
            becoming("fd_lbs", "ram_energy_share", {8: 0.045}, spread=0.5),
            "The largest of 36 is 0.05367",
        ),
    ],
)
def test_a_value_that_is_not_the_extreme_one_but_less_certain_keeps_a_claim_open(
    id_: str, change: Change, lowest: str
) -> None:
    assert judged(id_, resnet_world()).verdict == SUPPORTED
    found = judged(id_, change(resnet_world()))
    assert found.verdict == UNDECIDED, found.detail
    assert lowest in found.detail and "would tell" in found.detail


def test_the_lowest_of_five_efficiencies_contradicts_only_where_it_is_rare_among_five() -> None:
    found = judged("D03", becoming("fd_lbs", "gpu_hours", {32: 98.27})(resnet_world()))
    assert found.verdict == UNDECIDED and "Of 5 comparisons" in found.detail
    far = judged("D03", becoming("fd_lbs", "gpu_hours", {32: 98.8})(resnet_world()))
    assert far.verdict == CONTRADICTED and "to 32) is 0.8907" in far.detail


def test_five_efficiencies_on_the_bound_are_contradicted_as_seldom_as_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five repeats each, that scatter by 1 %; the lowest, picked and tested alone, was in 7 %."""
    monkeypatch.setattr(decisions, "repeats_to_tell", lambda *_: None)
    monkeypatch.setattr(decisions, "chances_of", lambda *_: (None, None))
    hours = {n: {"gpu_hours": 88 if n == 1 else 88 / 0.9} for n in (1, 2, 4, 8, 16, 32)}
    on_bound = evidence([line("resnet50", "train", "a100", "fd_lbs", 256, hours)])
    random, wrong, trials = np.random.default_rng(3), 0, 600
    for _ in range(trials):
        world = on_bound
        for n, one in hours.items():
            drawn = one["gpu_hours"] * (1 + 0.01 * random.standard_normal(5))
            spread = float(drawn.std(ddof=1) / drawn.mean())
            world = becoming("fd_lbs", "gpu_hours", {n: float(drawn.mean())}, spread)(world)
        wrong += judged("D03", world).verdict == CONTRADICTED
    assert not is_more_than(wrong, trials, STATED), wrong
