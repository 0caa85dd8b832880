"""Whether two devices are equivalent, and how many repeats would tell."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scalewatt.results.comparisons import (
    MARGIN,
    PUBLISHED_SPREAD,
    comparison_rows,
    equivalence,
    repeats_needed,
)
from scalewatt.results.schema import COMPARISONS, table

VALUES = st.lists(st.floats(50.0, 150.0), min_size=2, max_size=8)


@given(VALUES, VALUES)
def test_the_test_is_that_of_two_one_sided_welch_tests(
    ones: list[float], others: list[float]
) -> None:
    logs = np.log(ones), np.log(others)
    if max(one.std() for one in logs) < 1e-6:
        return
    room = math.log1p(0.05)
    above = stats.ttest_ind(logs[0] + room, logs[1], equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(logs[0] - room, logs[1], equal_var=False, alternative="less").pvalue
    assert equivalence(ones, others, 0.05).p == pytest.approx(max(above, below), abs=1e-9)


@given(VALUES, VALUES)
def test_a_ratio_turned_round_is_its_inverse(ones: list[float], others: list[float]) -> None:
    one, other = equivalence(ones, others, 0.05), equivalence(others, ones, 0.05)
    assert one.ratio == pytest.approx(1 / other.ratio)
    assert one.low == pytest.approx(1 / other.high)  # type: ignore[operator]
    assert one.verdict == other.verdict


@pytest.mark.parametrize(
    ("ones", "others", "verdict"),
    [
        ([100.0, 101, 99, 100.5, 99.5], [101.0, 100, 102, 101.5, 100.5], "equivalent"),
        ([100.0, 101, 99, 100.5, 99.5], [120.0, 121, 119, 120.5, 119.5], "different"),
        ([100.0, 110, 90], [101.0, 111, 92], "unresolved"),
        ([100.0], [100.0], "unresolved"),
        ([100.0], [200.0, 200.0, 200.0], "unresolved"),
        ([100.0, 100.0], [104.0, 104.0], "equivalent"),
        ([100.0, 100.0], [106.0, 106.0], "different"),
    ],
)
def test_the_verdict_says_what_the_repeats_can_tell(
    ones: list[float], others: list[float], verdict: str
) -> None:
    assert equivalence(ones, others, MARGIN).verdict == verdict


def test_as_many_repeats_as_needed_do_show_equivalence() -> None:
    needed = repeats_needed(PUBLISHED_SPREAD, MARGIN)
    assert needed is not None and 8 <= needed <= 14
    generator = np.random.default_rng(0)
    for n, enough in ((needed, True), (max(2, needed // 2), False)):
        found = [
            equivalence(
                *np.exp(generator.normal(0, PUBLISHED_SPREAD, (2, n))).tolist(), MARGIN
            ).verdict
            for _ in range(400)
        ]
        assert (found.count("equivalent") / len(found) > 0.74) == enough


def test_a_spread_that_is_too_large_needs_more_repeats_than_anybody_runs() -> None:
    assert repeats_needed(5.0, MARGIN) is None
    assert repeats_needed(0.0, MARGIN) == 2


def run(device: str, repeat: int = 1, **more: Any) -> dict[str, Any]:
    return {
        **{"campaign": "made", "model": "fourcastnet", "phase": "pretrain", "gpus": 16},
        **{"local_batch_size": 1, "global_batch_size": 16, "dataset_samples": 54020},
        **{"epochs": 80, "protocol": "paper", "precision": "fp16", "loader": "hdf5"},
        **{"channels_last": None, "compile": None, "configuration": f"fcn-{device}"},
        **{"device": device, "repeat": repeat, "excluded": None, "energy_origin": "measured"},
        **{"energy_scope": "gpu+cpu" if device == "h100" else "gpu+cpu+ram"},
        **{"gpu_energy_kwh": 100.0, "cpu_energy_kwh": 30.0, "ram_energy_kwh": 5.0},
        **{"gpu_hours": 500.0, "runtime_h": 31.25, "metric_last": 40.0},
        **more,
    }


def test_energies_are_compared_over_the_kinds_that_both_devices_have() -> None:
    rows = comparison_rows([run("a100"), run("h100", gpu_energy_kwh=113.0, ram_energy_kwh=None)])
    table(rows, COMPARISONS)
    (energy,) = [row for row in rows if row["quantity"] == "energy_kwh"]
    assert (energy["device"], energy["baseline_device"]) == ("h100", "a100")
    assert energy["energy_scope"] == "gpu+cpu"
    assert energy["ratio"] == pytest.approx(143 / 130)


def test_single_runs_cannot_be_resolved_and_say_how_many_would() -> None:
    rows = comparison_rows([run("a100"), run("h100")])
    assert {row["verdict"] for row in rows} == {"unresolved"}
    assert {row["ratio_low"] for row in rows} == {None}
    assert {row["spread_source"] for row in rows} == {"published probe"}
    assert all(row["repeats_needed"] > 5 for row in rows)


def test_the_spread_is_that_of_the_campaigns_repeats_where_these_have_none() -> None:
    others = [run("a100", r, gpus=4, gpu_energy_kwh=100.0 + r) for r in (1, 2, 3)]
    rows = comparison_rows([run("a100"), run("h100"), *others])
    energy = next(row for row in rows if row["quantity"] == "energy_kwh")
    assert energy["spread_source"] == "the campaign's repeats"
    assert energy["repeats_needed"] == 2


@pytest.mark.parametrize(
    "change",
    [{"epochs": 20}, {"protocol": "corrected"}, {"gpus": 8}, {"loader": "synthetic"}],
)
def test_only_the_same_training_is_compared(change: dict[str, Any]) -> None:
    assert comparison_rows([run("a100"), run("h100", **change)]) == []


def test_energies_of_unequal_origin_are_not_compared() -> None:
    rows = comparison_rows([run("a100"), run("h100", energy_origin="estimated")])
    assert {row["quantity"] for row in rows} == {"runtime_h", "gpu_hours", "metric_last"}


def test_excluded_runs_are_not_compared() -> None:
    assert comparison_rows([run("a100"), run("h100", excluded="throttled")]) == []
