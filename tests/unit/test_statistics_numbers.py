"""Numbers, contrasts of them, and the intervals and verdicts that their errors allow."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from claims_made import numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scalewatt.claims.quantities import log_contrast, mean_of_runs
from scalewatt.results.tables.published import Spread
from scalewatt.statistics import (
    Numbers,
    Source,
    below,
    chances,
    estimate,
    exact,
    first_with_power,
    holm,
    joined,
    slope_weights,
)

SD = 0.05
ERRORS = st.floats(0.01, 0.5)
REPEATS = st.integers(2, 9)
PLACES = st.lists(st.integers(-1000, 1000), min_size=3, max_size=12).filter(
    lambda abscissae: len(set(abscissae)) > 1
)


def mean_of(n: int, relative: float, value: float, name: str) -> Numbers:
    """A mean of n repeats with this standard error, as a part of it."""
    square = (relative * value) ** 2
    return estimate(value, Source(name), square, n - 1, n * square)


# --- contrasts --------------------------------------------------------------------------------------


@given(ERRORS, REPEATS, ERRORS, REPEATS)
def test_the_ratio_of_two_means_has_welchs_interval_on_logarithms(
    first: float, n: int, second: float, m: int
) -> None:
    ratio = log_contrast(joined([mean_of(n, first, 3.0, "a"), mean_of(m, second, 2.0, "b")]))
    freedom = (first**2 + second**2) ** 2 / (first**4 / (n - 1) + second**4 / (m - 1))
    assert ratio.values == pytest.approx([math.log(1.5)])
    assert ratio.freedom == pytest.approx([freedom])
    assert ratio.halves == pytest.approx([stats.t.ppf(0.975, freedom) * math.hypot(first, second)])


@given(PLACES, st.floats(0.01, 10))
def test_a_slope_is_that_of_least_squares_with_the_errors_of_its_points(
    abscissae: list[int], error: float
) -> None:
    x = np.array(abscissae, float)
    y = np.random.default_rng(len(abscissae)).normal(size=len(x))
    slope = numbers(y, error).contrast(slope_weights(x))
    assert slope.values == pytest.approx([stats.linregress(x, y).slope], abs=1e-9)
    assert slope.errors == pytest.approx([error / np.sqrt(np.sum((x - x.mean()) ** 2))], rel=1e-6)


def test_exact_numbers_have_no_error_and_what_they_are_weighted_with_by_0_counts_not() -> None:
    assert exact([1.0, 2.0]).contrast([1, 1]).halves == pytest.approx([0.0])
    unknown = estimate(5.0, Source("?", words="of unknown spread"), math.inf, 1)
    both = joined([exact(1.0), unknown])
    assert both.contrast([1, 0]).errors == pytest.approx([0.0])
    assert both.contrast([1, 1]).errors == [math.inf]
    assert both.words(1) == "of unknown spread" and both.words(0) == ""


# --- runs that tell a spread count once ---------------------------------------------------------------


def single(value: float, probe: Spread) -> Numbers:
    return mean_of_runs(value, probe, Source("probe"), 1)


def test_two_single_runs_by_one_probe_have_its_two_degrees_of_freedom() -> None:
    ratio = log_contrast(joined([single(value, Spread(SD, 2)) for value in (3.0, 2.0)]))
    assert ratio.freedom == pytest.approx([2.0])
    assert ratio.halves == pytest.approx([stats.t.ppf(0.975, 2) * math.sqrt(2) * SD])


def share_that_holds(truth: float, draw: Callable[[np.random.Generator], Numbers]) -> float:
    """How often an interval on logarithms holds the truth."""
    rng = np.random.default_rng(19)
    drawn = [draw(rng) for _ in range(4000)]
    return sum(abs(n.values[0] - math.log(truth)) <= n.halves[0] for n in drawn) / len(drawn)


def runs(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.exp(SD * rng.standard_normal(count))


@pytest.mark.parametrize("others", [0, 12])
def test_repeats_count_once_beside_a_run_whose_spread_they_tell(others: int) -> None:
    def draw(rng: np.random.Generator) -> Numbers:
        repeats = runs(rng, 3)
        relative = repeats.std(ddof=1) / repeats.mean()
        more = SD**2 * rng.chisquare(others) if others else 0.0
        pool = Spread(math.sqrt((2 * relative**2 + more) / (2 + others)), 2 + others)
        square = float(repeats.var(ddof=1))
        mean = estimate(float(repeats.mean()), Source("three", "pool"), square / 3, 2, square)
        run = mean_of_runs(float(runs(rng, 1)[0]), pool, Source("pool"), 1)
        return log_contrast(joined([mean, run]))

    (freedom,) = draw(np.random.default_rng(1)).freedom
    assert freedom == pytest.approx(2) if not others else 4 < freedom < 2 + others
    assert share_that_holds(1.0, draw) == pytest.approx(0.95, abs=0.012)


# --- several tests, repeats that would tell -----------------------------------------------------------


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0.01, 0.2))
def test_holm_rejects_step_by_step_from_the_least_probable_on(p: list[float], level: float) -> None:
    ordered = sorted(p)
    least = next((i for i, x in enumerate(ordered) if x > level / (len(p) - i)), len(p))
    assert sum(holm(p, level)) == least
    assert {x for x, stands in zip(p, holm(p, level), strict=True) if stands} <= {*ordered[:least]}


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 1), st.floats(0.05, 1))
def test_the_repeats_named_are_the_first_that_decide_with_eighty_percent(
    distance: float, spread: float
) -> None:
    """By scipy's noncentral t: the number is of two repeats, above a bound at 0."""
    number = estimate(distance, Source("x"), spread**2 / 2, 2, spread**2)
    n = first_with_power(
        lambda count: chances(distance, 0, math.inf, *number.with_repeats(count))[0].mean()
    )

    def power(count: int) -> float:
        freedom, shift = max(2, count - 1), distance / spread * math.sqrt(count)
        return float(stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, shift))

    if n is None:
        assert power(1000) < 0.81
    else:
        assert power(n) > 0.79
        assert n == 2 or power(n - 1) < 0.81


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_an_estimate_of_unknown_error_decides_nothing(error: float) -> None:
    for low, high in ((0.0, 1.0), (-math.inf, 1.0), (0.0, math.inf), (0.0, 0.0)):
        assert [float(part.mean()) for part in chances(0.5, low, high, error, 2)] == [0, 0]
    assert below(0.5, 0.0, error, 2) == 1.0
