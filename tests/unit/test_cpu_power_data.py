"""Estimates of CPU power, held against all machines whose power at steps of load is public."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from scalewatt.energies.integration.rated_power import (
    CURVE,
    FACTOR,
    SHAPE_FACTOR,
    TDP_SHARE,
    WIDE_GAP,
    cpu_power_w,
)

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cpu_power_from_load.py"


@pytest.fixture(scope="module")
def facts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cpu_power_from_load", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def machines(facts: ModuleType) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder = os.environ.get("SCALEWATT_OTHERS")
    if not folder:
        pytest.skip("SCALEWATT_OTHERS does not name the folder with codecarbon's CPU powers")
    found = facts.read_machines(Path(folder))
    assert len(found) == 5 and all(power.size >= 10 for _, power in found.values())
    return found


def test_the_formula_and_both_factors_are_what_the_data_say(
    facts: ModuleType, machines: dict[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    means = [one.mean() for one in facts.logs(machines, 1.0)]
    assert np.exp(np.mean(means)) == pytest.approx(TDP_SHARE, abs=0.005)
    left = facts.left_out(machines).values()
    assert max(factor for _, factor, _, _ in left) == pytest.approx(FACTOR, abs=0.05)
    assert max(shape for _, _, shape, _ in left) == pytest.approx(SHAPE_FACTOR, abs=0.05)


def test_all_points_of_every_left_out_machine_lie_in_the_interval_of_the_others(
    facts: ModuleType, machines: dict[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    for name, (_, factor, _, needed) in facts.left_out(machines).items():
        assert needed < factor <= FACTOR * 1.001, name


def test_the_truth_lies_inside_the_stated_interval_on_all_machines(
    facts: ModuleType, machines: dict[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    for name, (load, truth) in machines.items():
        _, low, high = cpu_power_w(load, {"rated_w": facts.RATED_W[name]})
        assert ((low <= truth) & (truth <= high)).all(), name


def test_two_loads_of_a_machine_differ_in_their_error_by_less_than_the_shape_factor(
    facts: ModuleType, machines: dict[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    for name, one in zip(machines, facts.logs(machines), strict=True):
        assert np.exp(np.ptp(one)) < SHAPE_FACTOR, name


def test_curves_hold_the_truth_between_their_points(
    facts: ModuleType, machines: dict[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    for at, ends in ((facts.THREE_POINTS, CURVE), (facts.TWO_POINTS, WIDE_GAP)):
        errors = np.concatenate([facts.curve_errors(*one, at)[0] for one in machines.values()])
        truth = 1 / (1 + errors)
        assert errors.size >= 35
        assert (truth >= ends[0]).all() and (truth <= 1.01 * ends[1]).all()
    sums = [facts.curve_errors(*one, facts.THREE_POINTS)[1] for one in machines.values()]
    assert min(sums) > -0.09 and max(sums) < 0.01


def test_a_line_from_a_fifth_of_the_tdp_errs_as_the_documents_say(
    facts: ModuleType, machines: dict[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    lines = [
        facts.RATED_W[name] * (0.2 + 0.8 * load) / power - 1
        for name, (load, power) in machines.items()
    ]
    every = np.concatenate(lines)
    assert np.abs(every).mean() == pytest.approx(0.74, abs=0.005)
    assert (every.min(), every.max()) == (
        pytest.approx(-0.33, abs=0.005),
        pytest.approx(2.89, abs=0.005),
    )


def test_the_truth_of_any_curve_lies_in_the_interval_of_its_factors(facts: ModuleType) -> None:
    made = [np.log([0.9, 1.1, 1.0]), np.log([1.8, 2.2, 2.0]), np.log([0.5, 0.4, 0.6])]
    factor, shape = facts.factors(made)
    assert factor > 4 > shape > np.exp(np.ptp(made[2]))


def test_the_page_says_what_the_intervals_would_be_on_other_terms(
    facts: ModuleType, machines: dict[str, tuple[np.ndarray, np.ndarray]]
) -> None:
    page = (SCRIPT.parents[1] / "docs" / "energy.md").read_text(encoding="utf-8")
    assert f"a factor of up to {facts.with_twins_as_one(machines):.1f}." in page
    inside, points, factor = facts.curves_left_out(machines)
    assert f"{inside} of {points} points lie in the others' range" in page
    assert f"would be {factor:.1f}." in page
