"""The rules of checks: tolerance, fits, intervals, windows of power."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from campaign_files import DEMO
from claims_made import NEEDED, evidence, line, row
from claims_study import trace
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scalewatt.claims.numbers import (
    batch_sizes,
    trends,
)
from scalewatt.claims.numbers import (
    decisions as rules,
)
from scalewatt.claims.numbers import (
    uncertain_number as uncertain,
)
from scalewatt.claims.numbers.decisions import band
from scalewatt.claims.numbers.uncertain_number import Number
from scalewatt.claims.numbers.variances import Variance
from scalewatt.claims.rules import power_rules
from scipy import stats

from scalewatt.campaign.load import load_campaign
from scalewatt.claims.evidence import Evidence, Trace
from scalewatt.claims.load_evidence import lines_of, with_points
from scalewatt.claims.outcomes import Outcome
from scalewatt.claims.reference_tables import NotTestable
from scalewatt.claims.traces import fifth_over_median, fluctuation, percentile_of, window_means
from scalewatt.results.tables.published_spread import Spread
from scalewatt.results.tables.repeat_statistics import Summary

NUMBERS = st.floats(-1e6, 1e6)
ERRORS = st.floats(0, 1e5)
FREEDOM = 4


def of(value: float, error: float, freedom: float = FREEDOM, source: str = "x") -> Number:
    """A number of five repeats."""
    return Number(value, {source: Variance(error**2, freedom, 5 * error**2)})


def numbers(values: Sequence[float], error: float) -> list[Number]:
    return [of(value, error, source=str(index)) for index, value in enumerate(values)]


def exact(values: Sequence[float]) -> list[Number]:
    return [Number(float(value)) for value in values]


@given(NUMBERS, ERRORS, NUMBERS, st.floats(0, 1e5))
def test_a_band_decides_by_the_whole_interval(
    value: float, error: float, low: float, width: float
) -> None:
    own, high = of(value, error), low + width
    expected = "undecided"
    if low <= own.low and own.high <= high:
        expected = "supported"
    elif own.high < low or own.low > high:
        expected = "contradicted"
    found = rules.band("x", own, low, high)
    assert found.verdict == expected
    assert found.p is not None
    assert expected != "contradicted" or found.p <= rules.LEVEL + 1e-9
    assert expected != "supported" or found.p == 1


@given(st.floats(0.01, 100), st.floats(0, 2))
def test_a_sign_needs_the_whole_interval_on_its_side(ratio: float, error: float) -> None:
    own = replace(of(ratio, error), is_ratio=True)
    rising = rules.sign("x", own, rises=True).verdict
    falling = rules.sign("x", own, rises=False).verdict
    if own.low > 1:
        assert (rising, falling) == ("supported", "contradicted")
    elif own.high < 1:
        assert (rising, falling) == ("contradicted", "supported")
    elif error:
        assert rising == falling == "undecided"


@settings(max_examples=25, deadline=None)
@given(st.floats(0.02, 1), st.floats(0.05, 1))
def test_the_repeats_said_are_the_first_that_tell_with_eighty_percent(
    distance: float, spread: float
) -> None:
    own = Number(distance, {"x": Variance(spread**2, 2, spread**2)})
    n = rules.repeats_to_tell(own, 0.0, math.inf)

    def power(count: int) -> float:
        """Of a one-sided t test, by scipy's noncentral t."""
        shift = distance / spread * math.sqrt(count)
        freedom = max(2, count - 1)
        return float(stats.nct.sf(stats.t.ppf(0.975, freedom), freedom, shift))

    if n is None:
        assert power(1000) < 0.81
    else:
        assert power(n) > 0.79
        assert n == 2 or power(n - 1) < 0.81


def test_single_runs_have_the_t_interval_of_the_probes_three_repeats() -> None:
    own = uncertain.number(Summary(1, 100.0), "energy_kwh", "fourcastnet", "one")
    t = stats.t.ppf(0.975, 2)
    assert own.half == pytest.approx(t * 100 * math.sqrt(3 / 2) * 2 / 52)
    assert own.half == pytest.approx(20.3, abs=0.05)
    assert "FourCastNet's published repeats" in rules.band("x", own, 0, 50).detail


def test_two_single_runs_by_one_probe_have_its_two_degrees_of_freedom() -> None:
    one, other = (
        uncertain.number(Summary(1, value), "energy_kwh", "fourcastnet", name)
        for value, name in ((100.0, "one"), (100.0, "other"))
    )
    ratio = one / other
    assert ratio.freedom == pytest.approx(2)
    assert math.log(ratio.high) == pytest.approx(
        stats.t.ppf(0.975, 2) * math.sqrt(2) * math.sqrt(3 / 2) * 2 / 52
    )
    assert ratio.low * ratio.high == pytest.approx(1)


@given(st.floats(0.01, 0.5), st.integers(2, 9), st.floats(0.01, 0.5), st.integers(2, 9))
def test_means_of_two_configurations_are_compared_by_welch_on_logarithms(
    one: float, n: int, other: float, m: int
) -> None:
    top, bottom = Number(3.0, {"a": Variance((3 * one) ** 2, n - 1)}), of(2.0, 0.0)
    bottom = Number(2.0, {"b": Variance((2 * other) ** 2, m - 1)})
    ratio = top / bottom
    freedom = (one**2 + other**2) ** 2 / (one**4 / (n - 1) + other**4 / (m - 1))
    assert ratio.freedom == pytest.approx(freedom)
    half = stats.t.ppf(0.975, freedom) * math.hypot(one, other)
    assert (ratio.low, ratio.high) == pytest.approx((1.5 * math.exp(-half), 1.5 * math.exp(half)))


def _world_with(
    repeated: dict[str, float],
    n: int,
    spread: float = 0.1,
    model: str = "resnet50",
    varies_seeds: bool = True,
) -> Evidence:
    """A single run of ResNet50, 10 kWh and an error of 20 %, and a training of `n` repeats."""
    quantities = {"energy_kwh": 10.0, "metric_last": 20.0}
    names = ("resnet50", "train", "a100", "fd_lbs", 256)
    phase = "train" if model == "resnet50" else "pretrain"
    others = (model, phase, "a100", "fd_lbs", 128)
    name = {"metric_name": "top1_error_percent", "varies_seeds": varies_seeds}
    one = line(*names, {1: quantities}, n_repeats=1, **name)
    more = line(*others, {1: repeated}, n_repeats=n, spread=spread, **name)
    return evidence([one, more])


def test_a_single_run_has_the_spread_of_the_campaigns_repeats_where_there_are_some() -> None:
    point = _world_with({"energy_kwh": 50.0}, 4).lines[0].points[0]
    own = uncertain.quantity(point, "energy_kwh")
    assert own.half == pytest.approx(stats.t.ppf(0.975, 3) * 0.1 * 10)
    assert own.spread == pytest.approx(1.0)
    assert "10 ± 3.182 kWh (by the campaign's repeats of this model)" in uncertain.text(own, "kWh")


def test_repeats_of_another_origin_do_not_tell_the_spread_of_an_energy() -> None:
    world = _world_with({"energy_kwh": 50.0}, 4)
    points = [replace(p, row={**p.row, "energy_origin": p.row["n_repeats"]}) for p in world.points]
    lines = [replace(ln, points=(p,)) for ln, p in zip(world.lines, points, strict=True)]
    own = uncertain.quantity(evidence(lines).points[0], "energy_kwh")
    assert "published repeats" in uncertain.text(own)


@pytest.mark.parametrize(("repeated", "spread"), [({"energy_kwh": 1.0}, 0.1), (None, 0.0)])
def test_without_a_spread_of_the_error_single_runs_decide_nothing(
    repeated: dict[str, float] | None, spread: float
) -> None:
    world = _world_with(repeated or {"metric_last": 30.0}, 3, spread)
    own = uncertain.quantity(world.points[0], "metric_last")
    outcome = rules.positive("the error", own, "%")
    assert outcome.verdict == "undecided" and "unknown spread" in outcome.detail
    assert "about 3 repeats" in outcome.detail
    assert rules.band("the error", own, 0, 21, "%").verdict == "undecided"


def test_repeats_of_one_seed_support_nothing_about_errors() -> None:
    world = _world_with({"metric_last": 30.0}, 3, varies_seeds=False)
    outcome = rules.positive("the error", uncertain.quantity(world.points[1], "metric_last"), "%")
    assert outcome.verdict == "undecided"
    assert "repeats share one seed" in outcome.detail and "seeds: varied" in outcome.detail


def test_an_error_as_of_guessing_supports_nothing_unless_the_paper_trained_so() -> None:
    campaign = load_campaign(DEMO)
    id_, one = next((i, c) for i, c in campaign.configurations.items() if c.model == "resnet50")
    given = {"configuration": id_, "model": one.model, "phase": one.phase, "device": one.device}
    given |= {"gpus": one.gpus, "metric_name": "top1_error_percent"}

    def error(percent: float, **more: object) -> Number:
        rows = [row(1, metric_last=percent, **(given | more))]
        (point,) = with_points(Evidence("demo", lines=lines_of(campaign, rows))).points
        return uncertain.quantity(point, "metric_last")

    with pytest.raises(NotTestable, match=r"is that of guessing .* it is not trained"):
        error(88.9)
    assert error(60.0).value == 60.0


def test_a_published_number_stays_uncertain_whatever_is_repeated() -> None:
    paper = uncertain.stated(100.0, Spread(0.047, 2), "it", 1)
    ratio = of(100.0, 0.1) / paper
    assert ratio.error == pytest.approx(0.047, abs=1e-3)
    assert rules.repeats_to_tell(ratio, 0.9, 1.1) is None
    assert "if any number does" in rules.band("x", ratio, 0.9, 1.1).detail


POINTS = st.lists(
    st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000)), min_size=3, max_size=12
).filter(lambda ps: len({x for x, _ in ps}) > 1 and len({y for _, y in ps}) > 1)


@given(POINTS)
@example([(-634, -1), (-799, 894), (-799, 894)])
def test_a_line_is_that_of_least_squares(points: list[tuple[int, int]]) -> None:
    x, y = ([float(one[i]) for one in points] for i in (0, 1))
    fit = uncertain.line_fit(x, y)
    expected = stats.linregress(x, y)
    assert fit.slope == pytest.approx(expected.slope, abs=1e-6)
    assert fit.r2 == pytest.approx(expected.rvalue**2, abs=1e-6)


@given(POINTS)
def test_rank_correlation_is_spearmans(points: list[tuple[int, int]]) -> None:
    x, y = ([float(one[i]) for one in points] for i in (0, 1))
    assert uncertain.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


@given(POINTS, st.floats(0.01, 10))
def test_a_slope_carries_the_errors_of_its_points(
    points: list[tuple[int, int]], error: float
) -> None:
    x = [float(a) for a, _ in points]
    own = trends.slope(x, numbers([float(b) for _, b in points], error))
    xs = np.array(x)
    assert own.error == pytest.approx(error / np.sqrt(np.sum((xs - xs.mean()) ** 2)), rel=1e-6)


@given(st.floats(0.1, 2), st.floats(0.01, 10))
def test_a_change_of_slope_counts_a_shared_point_once(times: float, error: float) -> None:
    x, y = [0.0, 1.0, 2.0, 3.0, 5.0], [1.0, 2.0, 2.5, 4.0, 9.0]

    def change(values: list[float]) -> float:
        first, last = (np.polyfit(x[side], values[side], 1)[0] for side in (slice(3), slice(2, 5)))
        return float(last - times * first)

    own = trends.slope_change(x, numbers(y, error), slice(3), slice(2, None), times)
    assert own.value == pytest.approx(change(y), rel=1e-9)
    one_by_one = [change(list(one)) for one in np.eye(5)]
    assert own.error == pytest.approx(error * np.linalg.norm(one_by_one), rel=1e-6)


def test_monotony_allows_steps_back_within_its_tolerance_alone() -> None:
    steps = [100.0, 200.0, 199.0, 300.0]
    assert trends.monotone("x", numbers(steps, 0.1), True, 0.02).verdict == "supported"
    assert trends.monotone("x", numbers(steps, 0.1), True, 0.001).verdict == "contradicted"
    assert trends.monotone("x", numbers(steps, 200), False, 0.02).verdict == "undecided"


NOISY = st.lists(st.floats(100, 100.5), min_size=3, max_size=8, unique=True)


@given(NOISY)
def test_values_that_happen_to_be_ordered_within_their_spread_show_nothing(
    values: list[float],
) -> None:
    own, x = numbers(sorted(values), 3.0), list(range(len(values)))
    for rises in (True, False):
        assert trends.monotone("x", own, rises, 0.02).verdict == "undecided"
    for found in (trends.ranked("x", x, own, True, 0.9), trends.straight("x", exact(x), own, 0.1)):
        assert found.verdict == "undecided"
        assert re.search(r"\d+ repeats", found.detail)


@given(st.lists(st.floats(100, 200), min_size=4, max_size=8, unique=True), st.booleans())
def test_ranks_beyond_all_spread_decide(values: list[float], rises: bool) -> None:
    own, x = numbers(values, 0.0), list(range(len(values)))
    rho = round(float(stats.spearmanr(x, values).statistic), 9)
    found = trends.ranked("x", x, own, rises, 0.5)
    holds = (rho if rises else -rho) >= 0.5
    assert found.verdict == ("supported" if holds else "contradicted")
    assert found.value == pytest.approx(rho)


def test_a_rank_correlation_has_the_interval_that_its_pairs_allow() -> None:
    x, values = [1, 2, 3, 4, 5, 6], [10.0, 9.0, 12.0, 11.0, 14.0, 13.0]
    sure = trends.ranked("x", x, numbers(values, 0.01), True, 0.9)
    assert sure.verdict == "contradicted" and "0.83 (0.83 to 0.83)" in sure.detail
    assert sure.p is not None and sure.p < 1e-6
    assert trends.ranked("x", x, numbers(values, 0.01), True, 0.8).verdict == "supported"
    few = trends.ranked("x", x, numbers(values, 0.3), True, 0.9)
    assert few.verdict == "undecided" and "to 1.00)" in few.detail


@pytest.mark.parametrize(
    ("values", "spread", "verdict"),
    [
        ([28, 28, 28, 33, 40], 0.1, "supported"),
        ([28, 28, 33, 36, 40], 0.1, "contradicted"),
        ([28, 28, 28, 28, 28], 0.1, "contradicted"),
        ([28, 28, 28, 28, 33], 0.1, "contradicted"),
        ([28, 28, 28, 31, 40], 2.0, "undecided"),
    ],
)
def test_an_onset_is_within_the_range_with_its_whole_step(
    values: list[float], spread: float, verdict: str
) -> None:
    sizes = [256, 4096, 8192, 16384, 32768]
    if values[-2] == 28:
        sizes = [256, 4096, 8192, 32768, 65536]
    found = batch_sizes.onset("error", sizes, numbers(values, spread), 2.0, 8192, 32768)
    assert found.verdict == verdict


@pytest.mark.parametrize("points", [3, 7])
@pytest.mark.parametrize(
    ("exponent", "verdict"),
    [(0.41, "contradicted"), (0.67, "contradicted"), (1.45, "contradicted"), (1.0, "supported")],
)
def test_powers_that_a_coefficient_of_determination_lets_pass_are_no_lines(
    exponent: float, verdict: str, points: int
) -> None:
    x = [4.0 * 2**index for index in range(points)]
    own = [of(a**exponent, 1e-3 * a**exponent, source=str(a)) for a in x]
    found = trends.straight("E", exact(x), own, 0.1)
    fit = uncertain.line_fit(x, [one.value for one in own])
    if exponent in (0.67, 1.45):
        assert fit.r2 > 0.96
    if points == 7 or exponent < 0.6 or verdict == "supported":
        assert found.verdict == verdict, found.detail


@pytest.mark.parametrize(("last", "verdict"), [(0.915, "supported"), (0.905, "contradicted")])
def test_what_is_constant_may_fall_by_the_factor_that_it_may_rise_by(
    last: float, verdict: str
) -> None:
    middle = last**0.5
    found = trends.constant("t", [1, 2, 3], numbers([1.0, middle, last], 1e-6), 0.1)
    assert found.verdict == verdict
    assert "from its geometric mean by" in found.detail and "expected -9.1 to +10 %" in found.detail
    other = trends.constant("t", [1, 2, 3], numbers([1.0, 1.1, 1.2], 1e-6), 0.5, "pp")
    assert "from its mean by" in other.detail and "expected ± 0.5 pp" in other.detail


@given(st.floats(0.1, 5), st.floats(0, 50), st.integers(3, 8))
def test_a_line_with_an_intercept_is_straight_though_not_proportional(
    slope: float, intercept: float, points: int
) -> None:
    x = [10.0 * (index + 1) for index in range(points)]
    own = numbers([intercept + slope * a for a in x], 1e-6)
    assert trends.straight("E", exact(x), own, 0.1).verdict == "supported"


def test_an_exponent_has_the_errors_of_its_hours_too() -> None:
    x = [of(a, 0.02 * a, source=f"h{a}") for a in (1.0, 2.0, 4.0, 8.0)]
    own = [of(3 * a, 0.03 * a, source=f"e{a}") for a in (1.0, 2.0, 4.0, 8.0)]
    found = trends.elasticity(x, own)
    assert found.error == pytest.approx(math.hypot(0.01, 0.02) / (math.log(2) * math.sqrt(5)))


def test_a_number_of_unknown_spread_makes_no_test() -> None:
    found = rules.band("x", uncertain.unknown(3.0, uncertain.UNKNOWN), 0, 10)
    assert found.p is None and found.verdict == "undecided"


@pytest.mark.parametrize(
    ("values", "error", "verdict"),
    [
        ([100, 101, 99, 100], 0.3, "supported"),
        ([100, 104, 108, 112], 0.3, "contradicted"),
        ([100, 100, 130, 100], 0.3, "contradicted"),
        ([100, 101, 99, 100], 8.0, "undecided"),
    ],
)
def test_constant_is_what_neither_drifts_nor_scatters(
    values: list[float], error: float, verdict: str
) -> None:
    found = trends.constant("time", [0, 1, 2, 3], numbers(values, error), 0.1)
    assert found.verdict == verdict, found.detail
    in_units = trends.constant("time", [0, 1, 2, 3], numbers(values, error), 10, "h")
    assert in_units.verdict == verdict, in_units.detail


def test_one_line_that_fails_decides_over_several() -> None:
    order = ["not_testable", "supported", "undecided", "contradicted"]
    parts = [(name, Outcome(name, None, f"{name} it is.")) for name in order]
    for first, second in pairwise(range(4)):
        both = rules.combine([parts[first], parts[second]])
        assert both.verdict == order[second]
        assert order[first] in both.detail and order[second] in both.detail
    with pytest.raises(NotTestable):
        rules.combine([])


def test_one_of_many_comparisons_lies_outside_by_chance() -> None:
    inside, outside = (
        rules.band(name, of(value, 0.1), 0.0, 1.0) for name, value in (("a", 0.5), ("b", 1.3))
    )
    assert outside.verdict == "contradicted" and 0.01 < (outside.p or 0) < 0.025
    few = rules.combine([("b", outside)])
    many = rules.combine([("b", outside), *[(f"a{n}", inside) for n in range(5)]])
    assert few.verdict == "contradicted" and many.verdict == "undecided"
    assert many.p == pytest.approx(6 * (outside.p or 0))
    assert "Of 6 comparisons" in many.note and "by chance" in many.note


def test_holm_keeps_what_is_rare_among_all_tests() -> None:
    assert rules.holm([0.001, 0.02, 0.03, 0.5]) == [True, False, False, False]
    assert rules.holm([0.001, 0.01, 0.02, 0.04]) == [True, True, True, True]
    assert rules.holm([]) == []


def test_a_part_that_is_lacking_leaves_a_claim_on_all_parts_untested() -> None:
    order = ["supported", "undecided", "not_testable", "contradicted"]
    parts = [(name, Outcome(name, None, f"{name} it is.")) for name in order]
    for first, second in pairwise(range(4)):
        assert rules.all_of([parts[second], parts[first]]).verdict == order[second]


# --- windows of power and errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("falls", "expected"),
    [
        ((-2.0, 1.5, 0.3, -1.8, 0.9, -0.9), "undecided"),
        ((2.0, -1.5, -0.3, 1.8, -0.9, 0.9), "undecided"),
        ((-2.0, -1.5, -1.8, -1.9), "contradicted"),
        ((2.0, 1.5, 1.8, 1.9), "supported"),
    ],
)
def test_a_fall_of_the_error_is_told_by_its_whole_interval(
    falls: tuple[float, ...], expected: str
) -> None:
    found = power_rules.error_fall([0.1] * len(falls), [0.1 - fall / 100 for fall in falls])
    assert found.verdict == expected
    assert expected != "undecided" or NEEDED.search(found.detail)


@given(st.lists(st.floats(50, 700), min_size=100, max_size=300))
def test_windows_keep_the_mean_and_never_widen_the_range(powers: list[float]) -> None:
    whole = powers[: len(powers) // 10 * 10]
    found = window_means(trace("one", "a100", 4, list(whole)))
    assert math.isclose(sum(found) / len(found), sum(whole) / len(whole))
    assert min(whole) <= min(found) + 1e-9 and max(found) <= max(whole) + 1e-9
    assert 0 < fifth_over_median(found) <= 1
    assert fluctuation(found).value <= max(whole) / min(whole)


def _falling(windows: int, low: float, part: float) -> Trace:
    """A trace of windows of 10 s, of which a part is at `low` times the power of the others."""
    random = np.random.default_rng(1)
    falls = random.permutation(windows) < part * windows
    powers = [
        250.0 * (low if fall else 1.0) + random.normal(0, 4) for fall in falls for _ in range(10)
    ]
    return trace("one", "a100", 4, powers)


@pytest.mark.parametrize(
    ("low", "windows", "expected"),
    [
        (0.599, 30, "undecided"),
        (0.602, 30, "undecided"),
        (0.3, 30, "supported"),
        (0.9, 30, "contradicted"),
    ],
)
def test_a_fall_of_power_is_told_by_its_whole_interval(
    low: float, windows: int, expected: str
) -> None:
    own = percentile_of(_falling(windows, low, 0.3))
    found = band("", own, None, 0.6)
    assert found.verdict == expected, found.detail
    assert found.p is not None and (found.p <= rules.LEVEL) == (expected == "contradicted")
    assert own.freedom == windows - 1


def test_the_interval_of_a_percentile_of_power_holds_the_truth_where_windows_are_independent() -> (
    None
):
    """Windows of a mean of their own, of 10 samples about it; the truth is that of 20,000 windows."""

    def powers(random: np.random.Generator, windows: int) -> list[float]:
        means = random.normal(250, 25, (windows, 1))
        return (means + random.normal(0, 10, (windows, 10))).ravel().tolist()

    truth = fifth_over_median(powers(np.random.default_rng(0), 20_000))
    inside = 0
    for seed in range(1, 121):
        own = percentile_of(trace("one", "a100", 4, [*powers(np.random.default_rng(seed), 30)]))
        inside += own.low <= truth <= own.high
    assert inside / 120 >= 0.82  # 91 % of 800: of 30 windows, one or two make the percentile


KNEE_SIZES = [4, 8, 16, 32, 64, 128]
BENT = [700.0, 705.0, 708.0, 760.0, 830.0, 880.0]
SMOOTH = [700.0, 703.0, 712.0, 735.0, 765.0, 805.0]
CLEAR = [700.0, 702.0, 704.0, 760.0, 816.0, 872.0]


@pytest.mark.parametrize(
    ("curve", "error", "exact", "verdict"),
    [
        (BENT, 3.0, {2}, "undecided"),
        (CLEAR, 0.5, {2}, "supported"),
        (CLEAR, 0.5, set(), "supported"),
        (SMOOTH, 0.0, set(range(6)), "undecided"),
        (CLEAR, 0.0, set(range(6)), "supported"),
    ],
)
def test_where_a_knee_is_does_not_depend_on_the_unit(
    curve: list[float], error: float, exact: set[int], verdict: str
) -> None:
    """With points of unknown, known and no error."""

    def told(factor: float) -> Outcome:
        own = [
            of(factor * value, 0.0 if index in exact else factor * error, source=str(index))
            for index, value in enumerate(curve)
        ]
        return batch_sizes.knee(KNEE_SIZES, own, 16, 64)

    found = [told(factor) for factor in (1e-3, 0.01, 1.0, 100.0, 1e4)]
    assert {one.verdict for one in found} == {verdict}, [one.detail for one in found]
    assert [one.p for one in found] == pytest.approx([found[0].p] * len(found))
    fits = {
        match[1] for one in found if (match := re.search(r"fits too \(p = (.*?)\)", one.detail))
    }
    assert len(fits) <= 1
    assert verdict == "supported" or NEEDED.search(found[0].detail)


@pytest.mark.parametrize("find", [batch_sizes.onset, batch_sizes.knee])
def test_an_onset_or_a_knee_of_numbers_of_unknown_spread_is_no_test(
    find: Callable[..., Outcome],
) -> None:
    own = [uncertain.unknown(value, uncertain.UNTOLD) for value in BENT]
    arguments = (own, 16, 64) if find is batch_sizes.knee else (own, 20.0, 16, 64)
    named = () if find is batch_sizes.knee else ("error",)
    found = find(*named, KNEE_SIZES, *arguments)
    assert (found.verdict, found.p) == ("undecided", None)
    assert "seeds: varied" in found.detail
