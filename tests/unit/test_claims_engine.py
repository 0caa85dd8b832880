"""How claims are decided: numbers against bounds, shapes of series, several parts, power against time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from campaign_files import DEMO
from claims_made import evidence, line, numbers, row, trace, with_columns
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scalewatt.campaign.load import load_campaign
from scalewatt.claims.comparisons import any_at_least
from scalewatt.claims.evidence import Evidence, Trace, points_of, series_of
from scalewatt.claims.outcomes import Outcome, above, all_of, combine, decide, ratios
from scalewatt.claims.outcomes import Tests as Within
from scalewatt.claims.quantities import BY_CAMPAIGN, UNTOLD, quantities, unbounded
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    NOT_TESTABLE,
    SUPPORTED,
    UNDECIDED,
    NotTestable,
)
from scalewatt.claims.shapes import ranked, spearman, straightness
from scalewatt.claims.traces import fifth_over_median, percentile_of
from scalewatt.statistics import LEVEL, Numbers, exact, joined

# --- numbers against bounds ---------------------------------------------------------------------------


@given(st.floats(-1e6, 1e6), st.floats(0, 1e5), st.floats(-1e6, 1e6), st.floats(0, 1e5))
def test_a_band_decides_by_the_whole_interval(
    value: float, error: float, low: float, width: float
) -> None:
    number, high = numbers([value], error), low + width
    first, last = value - number.halves[0], value + number.halves[0]
    expected = UNDECIDED
    if low <= first and last <= high:
        expected = SUPPORTED
    elif last < low or first > high:
        expected = CONTRADICTED
    outcome = decide(Within("x", number, low, high))
    assert outcome.verdict == expected and outcome.p is not None
    assert expected != CONTRADICTED or outcome.p <= LEVEL + 1e-9
    assert expected != SUPPORTED or outcome.p == 1
    assert outcome.value == value


@pytest.mark.parametrize(
    ("bounds", "expected"), [((0.9, 1.1), "0.9 to 1.1"), ((0.9, math.inf), "at least 0.9")]
)
def test_what_is_decided_on_logarithms_is_shown_as_it_is_claimed(
    bounds: tuple[float, float], expected: str
) -> None:
    ratio = numbers([0.8], 0.8 * 0.02).logarithms()
    detail = f"X is 0.8 (0.7568 to 0.8457), expected {expected}."
    assert decide(ratios("x", ratio, *bounds)).detail == detail


def test_a_number_of_unknown_spread_makes_no_test_and_says_what_would_tell() -> None:
    outcome = decide(above("the error", unbounded(3.0, UNTOLD), "%"))
    assert (outcome.verdict, outcome.p) == (UNDECIDED, None)
    assert "repeats share one seed" in outcome.detail and "`seeds: varied`" in outcome.detail


@pytest.mark.parametrize(("known", "verdict"), [(0.5, UNDECIDED), (1.5, CONTRADICTED)])
def test_a_number_of_unknown_spread_hides_no_contradiction(known: float, verdict: str) -> None:
    both = joined([unbounded(0.5, UNTOLD), numbers([known], 0.01)])
    assert decide(Within("x", both, 0, 1)).verdict == verdict


def test_of_many_numbers_one_lies_outside_by_chance() -> None:
    inside, outside = (Within(n, numbers([v], 0.1), 0, 1) for n, v in (("a", 0.5), ("b", 1.3)))
    alone, many = decide(outside), decide(outside, *[inside] * 5)
    parts = combine([("b", alone), *[("a", decide(inside))] * 5])
    assert alone.verdict == CONTRADICTED and 0.01 < (alone.p or 0) < LEVEL
    for outcome in (many, parts):
        assert outcome.verdict == UNDECIDED and outcome.p == pytest.approx(6 * (alone.p or 0))
        assert "Of 6 comparisons one may lie so far outside by chance" in outcome.detail


# --- what tells the spread of a point's number ----------------------------------------------------------


def world_with(repeated: Mapping[str, float], n: int) -> Evidence:
    """A single run of ResNet50, 10 kWh and an error of 20 %, and a training of `n` repeats."""
    names, single = ("resnet50", "train", "a100", "fd_lbs"), {"energy_kwh": 10.0, "metric_last": 20}
    return evidence(
        [
            line(*names, 256, {1: single}, n_repeats=1),
            line(*names, 128, {1: repeated}, n_repeats=n, spread=0.1),
        ]
    )


def test_a_single_run_has_the_spread_of_the_campaigns_repeats_where_there_are_some() -> None:
    number = quantities(world_with({"energy_kwh": 50.0}, 4).points[:1], "energy_kwh")
    assert number.halves == pytest.approx([stats.t.ppf(0.975, 3) * 0.1 * 10])
    assert number.words(0) == BY_CAMPAIGN


@pytest.mark.parametrize("varies_seeds", [True, False])
def test_errors_of_one_seed_do_not_tell_how_others_scatter(varies_seeds: bool) -> None:
    world = with_columns(world_with({"metric_last": 30.0}, 3), varies_seeds=varies_seeds)
    assert world.points["metric_last_pool"].notna().all() == varies_seeds
    number = quantities(world.points[1:], "metric_last")
    assert number.words(0) == ("" if varies_seeds else UNTOLD)
    assert math.isinf(number.errors[0]) != varies_seeds


def test_an_error_as_of_guessing_is_not_of_a_trained_model() -> None:
    campaign = load_campaign(DEMO)
    id_, configuration = next(
        (i, c) for i, c in campaign.configurations.items() if c.model == "resnet50"
    )
    columns = {name: getattr(configuration, name) for name in ("model", "phase", "device", "gpus")}

    def error(percent: float) -> Numbers:
        rows = pd.DataFrame([row(1, metric_last=percent, configuration=id_, **columns)])
        return quantities(points_of(campaign, series_of(campaign), rows), "metric_last")

    with pytest.raises(NotTestable, match=r"is that of guessing .* it is not trained"):
        error(88.9)
    assert error(60.0).values == [60.0]


# --- shapes of series -----------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [3, 7])
@pytest.mark.parametrize(
    ("exponent", "verdict"),
    [(0.41, CONTRADICTED), (0.67, CONTRADICTED), (1.45, CONTRADICTED), (1.0, SUPPORTED)],
)
def test_powers_that_a_coefficient_of_determination_lets_pass_are_no_lines(
    exponent: float, verdict: str, points: int
) -> None:
    x = 4.0 * 2.0 ** np.arange(points)
    y = x**exponent
    lined = straightness("E", exact(x), numbers(y, 1e-3 * y), 0.1, range(points))
    if exponent in (0.67, 1.45):
        assert stats.linregress(x, y).rvalue ** 2 > 0.96
    if points == 7 or exponent < 0.6 or verdict == SUPPORTED:
        assert lined.verdict == verdict


@given(st.lists(st.floats(100, 100.5), min_size=3, max_size=8, unique=True))
def test_values_that_happen_to_be_ordered_within_their_spread_show_nothing(
    values: list[float],
) -> None:
    means, x = numbers(sorted(values), 3.0), np.arange(float(len(values)))
    lined = straightness("E", exact(x), means, 0.1, range(len(values)))
    for outcome in (ranked("it", x, means, 0.9, math.inf), lined):
        assert outcome.verdict == UNDECIDED and re.search(r"\d+ repeats", outcome.detail)


@given(st.lists(st.integers(-9, 9), min_size=3, max_size=9), st.booleans())
def test_ranks_beyond_all_spread_decide_by_spearmans_correlation(
    values: list[int], rises: bool
) -> None:
    y, x = np.array(values, float), np.arange(float(len(values)))
    if np.ptp(y) == 0:
        assert spearman(x, y) == 0
        return
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    if len(set(values)) == len(values):
        bounds = (0.5, math.inf) if rises else (-math.inf, -0.5)
        outcome = ranked("it", x, numbers(y, 0.0), *bounds)
        rho = round(spearman(x, y), 9) * (1 if rises else -1)
        assert outcome.verdict == (SUPPORTED if rho >= 0.5 else CONTRADICTED)


# --- several parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("together", "order"),
    [
        (combine, (NOT_TESTABLE, SUPPORTED, UNDECIDED, CONTRADICTED)),
        (all_of, (SUPPORTED, UNDECIDED, NOT_TESTABLE, CONTRADICTED)),
    ],
)
def test_the_part_that_counts_most_decides_and_all_are_named(
    together: Callable[[Iterable[tuple[str, Outcome]]], Outcome], order: Sequence[str]
) -> None:
    parts = [(name, Outcome(name, None, f"{name} it is.")) for name in order]
    for (less, _), (more, _) in pairwise(parts):
        both = together([part for part in parts if part[0] in (less, more)])
        assert both.verdict == more and less in both.detail and more in both.detail
    with pytest.raises(NotTestable):
        together([])


@pytest.mark.parametrize(
    ("ratios", "verdict", "value", "p"),
    [
        # A certain pair counts though another has the larger value.
        ([(1.35, 0.01), (1.4, 0.2)], SUPPORTED, 1.35, (1, 1)),
        # Below is what all are below by: the probability of the least certain one.
        ([(1.15, 0.001), (1.02, 0.075)], CONTRADICTED, 1.02, (0.01, 0.025)),
        # The pair that keeps it open is named, with what would tell.
        ([(1.15, 0.001), (1.02, 0.2)], UNDECIDED, 1.02, (0.2, 0.3)),
        ([(1.0, 0.01), (1.25, 0.1)], UNDECIDED, 1.25, (1, 1)),
        # One of many may be above by chance.
        ([(1.27, 0.026), *[(1.1, 0.05)] * 5], UNDECIDED, 1.27, (1, 1)),
    ],
)
def test_of_several_ratios_one_that_is_rarely_so_high_is_enough(
    ratios: list[tuple[float, float]], verdict: str, value: float, p: tuple[float, float]
) -> None:
    for pairs in (ratios, ratios[::-1]):
        logs = numbers(
            [value for value, _ in pairs], [math.prod(pair) for pair in pairs], 50
        ).logarithms()
        outcome = any_at_least([f"pair {at}" for at in range(len(pairs))], logs, 1.2)
        assert outcome.verdict == verdict and outcome.value == pytest.approx(value), outcome.detail
        assert outcome.p is not None and p[0] <= outcome.p <= p[1]
        assert verdict != UNDECIDED or re.search(r"\d+ (repeats|comparisons)", outcome.detail)


# --- power against time, errors of predictions ------------------------------------------------------------


def falling(low: float) -> Trace:
    """Thirty windows of 10 s, of which nine are at `low` times the power of the others."""
    random = np.random.default_rng(1)
    levels = np.where(random.permutation(30) < 9, low, 1.0)
    return trace(
        "one", "a100", 4, (250 * np.repeat(levels, 10) + random.normal(0, 4, 300)).tolist()
    )


@pytest.mark.parametrize(
    ("low", "verdict"),
    [(0.599, UNDECIDED), (0.602, UNDECIDED), (0.3, SUPPORTED), (0.9, CONTRADICTED)],
)
def test_a_fall_of_power_counts_with_its_whole_interval(low: float, verdict: str) -> None:
    number = percentile_of(falling(low))
    assert decide(Within("", number, high=0.6)).verdict == verdict
    assert number.freedom == pytest.approx([29])


def test_the_interval_of_a_percentile_of_power_holds_the_truth_where_windows_are_independent() -> (
    None
):
    """Windows of a mean of their own, of 10 samples about it; the truth is that of 20,000 windows."""

    def powers(random: np.random.Generator, windows: int) -> list[float]:
        means = random.normal(250, 25, (windows, 1))
        return (means + random.normal(0, 10, (windows, 10))).ravel().tolist()

    truth = fifth_over_median(powers(np.random.default_rng(0), 20_000))
    drawn = (
        percentile_of(trace("one", "a100", 4, [*powers(np.random.default_rng(seed), 30)]))
        for seed in range(1, 121)
    )
    inside = sum(abs(number.values[0] - truth) <= number.halves[0] for number in drawn)
    assert inside / 120 >= 0.82  # 91 % of 800: of 30 windows, one or two make the percentile
