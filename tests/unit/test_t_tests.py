"""Intervals and the probability that they decide, where an error is not known."""

from __future__ import annotations

import math

import pytest

from scalewatt.statistics import (
    below,
    chance_equivalent_or_different,
    chance_inside,
    chance_outside,
    first_with_power,
)

BOUNDS = [(0.0, 1.0), (-math.inf, 1.0), (0.0, math.inf), (0.0, 0.0)]


@pytest.mark.parametrize("error", [math.inf, math.nan])
@pytest.mark.parametrize(("low", "high"), BOUNDS)
@pytest.mark.parametrize("truth", [0.0, 0.5, 7.0])
def test_an_estimate_of_unknown_error_decides_nothing(
    low: float, high: float, truth: float, error: float
) -> None:
    assert chance_inside(truth, low, high, error, 2) == 0.0
    assert chance_outside(truth, low, high, error, 2) == 0.0
    assert below(truth, low, error, 2) == 1.0
    assert first_with_power(lambda n: chance_inside(truth, low, high, error, n)) is None


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_a_ratio_of_unknown_error_is_neither_equivalent_nor_different(error: float) -> None:
    assert chance_equivalent_or_different(0.0, 0.05, error, 2) == 0.0


@pytest.mark.parametrize("error", [1e-300, 1e-9, 1e9, 1e300])
def test_a_known_error_however_large_has_chances_that_are_numbers(error: float) -> None:
    chances = [of(0.5, 0.0, 1.0, error, 2) for of in (chance_inside, chance_outside)]
    assert all(0 <= chance <= 1 for chance in (*chances, below(0.5, 1.0, error, 2)))
    assert chances[0] == pytest.approx(1.0 if error < 1 else 0.0)
