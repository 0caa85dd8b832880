"""The rules of checks: tolerance, fits, intervals, windows of power."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from campaign_files import DEMO
from claims_made import NEEDED, evidence, line, row
from claims_resnet_made import resnet_world
from claims_study import trace
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from scalewatt.campaign.load import load_campaign
from scalewatt.claims.evidence.claim_types import (
    NotTestable,
    Outcome,
    Unresolved,
)
from scalewatt.claims.evidence.evidence import Evidence
from scalewatt.claims.load_evidence import lines_of, with_points
from scalewatt.claims.numbers import tolerance as rules
from scalewatt.claims.numbers import uncertain_number as uncertain
from scalewatt.claims.numbers.uncertain_number import Number
from scalewatt.claims.rules import power_rules
from scalewatt.claims.rules.trace_rules import fifth_over_median, fluctuation, window_means
from scalewatt.results.tables.repeat_statistics import Summary, summarise

NUMBERS = st.floats(-1e6, 1e6)
HALVES = st.floats(0, 1e5)


@given(NUMBERS, HALVES, NUMBERS, st.floats(0, 1e5))
def test_a_band_decides_by_the_value_and_its_interval(
    value: float, half: float, low: float, width: float
) -> None:
    own, high = Number(value, half, half), low + width
    distance = max(low - value, value - high, 0.0)
    expected = "reproduced"
    if distance:
        expected = "unresolved" if half >= distance else "not_reproduced"
    assert rules.band("x", own, low, high).verdict == expected


@given(st.floats(0.01, 100), st.floats(0, 2))
def test_a_sign_needs_the_whole_interval_on_its_side(ratio: float, half: float) -> None:
    rising = rules.sign("x", Number(ratio, half, half), rises=True).verdict
    falling = rules.sign("x", Number(ratio, half, half), rises=False).verdict
    if ratio - half > 1:
        assert (rising, falling) == ("reproduced", "not_reproduced")
    elif ratio + half < 1:
        assert (rising, falling) == ("not_reproduced", "reproduced")
    else:
        assert rising == falling == "unresolved"


@given(st.floats(0.02, 5), st.floats(0.1, 1))
def test_the_repeats_said_are_the_first_that_would_tell(distance: float, spread: float) -> None:
    n = uncertain.repeats_to_tell(distance, spread)

    def half(count: int) -> float:
        return float(stats.t.ppf(0.975, count - 1)) * spread / math.sqrt(count)

    if n is None:
        assert half(1000) >= distance
    else:
        assert half(n) < distance
        assert n == 2 or half(n - 1) >= distance


def test_a_single_run_has_two_published_standard_deviations_and_says_so() -> None:
    own = uncertain.number(Summary(1, 100.0))
    assert own.half == pytest.approx(200 * math.sqrt(3 / 2) * 2 / 52)
    assert "published spread" in rules.band("x", own, 0, 50).detail


def _world_with(repeated: dict[str, float], n: int, spread: float = 0.1) -> Evidence:
    """A single run of 10 kWh and an error of 20 %, and a training of `n` repeats."""
    quantities = {"energy_kwh": 10.0, "metric_last": 20.0}
    names = ("resnet50", "train", "a100", "fd_lbs", 256)
    name = {"metric_name": "top1_error_percent"}
    one = line(*names, {1: quantities}, n_repeats=1, **name)
    more = line(*names[:-1], 128, {1: repeated}, n_repeats=n, spread=spread, **name)
    return evidence([one, more])


def test_a_single_run_has_the_spread_of_the_campaigns_repeats_where_there_are_some() -> None:
    point = _world_with({"energy_kwh": 50.0}, 4).lines[0].points[0]
    own = uncertain.quantity(point, "energy_kwh")
    assert own.half == pytest.approx(stats.t.ppf(0.975, 3) * 0.1 * 10)
    assert own.spread == pytest.approx(1.0)
    assert "10 ± 3.182 kWh (by the campaign's repeats)" in uncertain.text(own, "kWh")


def test_repeats_of_another_origin_do_not_tell_the_spread_of_an_energy() -> None:
    world = _world_with({"energy_kwh": 50.0}, 4)
    points = [replace(p, row={**p.row, "energy_origin": p.row["n_repeats"]}) for p in world.points]
    lines = [replace(ln, points=(p,)) for ln, p in zip(world.lines, points, strict=True)]
    own = uncertain.quantity(evidence(lines).points[0], "energy_kwh")
    assert "published spread" in uncertain.text(own)


@pytest.mark.parametrize(("repeated", "spread"), [({"energy_kwh": 1.0}, 0.1), (None, 0.0)])
def test_without_a_spread_of_the_error_single_runs_decide_no_sign(
    repeated: dict[str, float] | None, spread: float
) -> None:
    world = _world_with(repeated or {"metric_last": 30.0}, 3, spread)
    own = uncertain.quantity(world.points[0], "metric_last")
    outcome = rules.positive("the error", own, "%")
    assert outcome.verdict == "unresolved" and "unknown spread" in outcome.detail
    assert "about 2 repeats" in outcome.detail
    assert rules.band("the error", own, 0, 21, "%").verdict == "reproduced"
    assert rules.band("the error", own, 0, 19, "%").verdict == "unresolved"


def test_the_spread_of_the_error_is_that_of_the_campaigns_repeats() -> None:
    own = uncertain.quantity(_world_with({"metric_last": 30.0}, 3).points[0], "metric_last")
    assert own.spread == pytest.approx(2.0) and own.assumed == uncertain.BY_CAMPAIGN


def test_an_error_as_of_guessing_supports_nothing_unless_the_paper_trained_so() -> None:
    campaign = load_campaign(DEMO)
    id_, one = next((i, c) for i, c in campaign.configurations.items() if c.model == "resnet50")
    given = {"configuration": id_, "model": one.model, "phase": one.phase, "device": one.device}
    given |= {"gpus": one.gpus, "metric_name": "top1_error_percent"}

    def judge(error: float, **more: object) -> Number:
        rows = [row(1, metric_last=error, **(given | more))]
        (point,) = with_points(Evidence("demo", lines=lines_of(campaign, rows))).points
        return uncertain.quantity(point, "metric_last")

    with pytest.raises(NotTestable, match=r"is that of guessing .* it is not trained"):
        judge(88.9)
    assert judge(60.0).value == 60.0


def test_repeats_have_their_own_interval() -> None:
    summary = summarise([9.0, 10.0, 11.0])
    own = uncertain.number(summary)
    assert (own.low, own.high) == pytest.approx((summary.low, summary.high))
    assert not own.assumed


POINTS = st.lists(
    st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000)), min_size=3, max_size=12
).filter(lambda ps: len({x for x, _ in ps}) > 1 and len({y for _, y in ps}) > 1)


def standard_errors(points: list[tuple[int, int]]) -> tuple[float, float]:
    """Of slope and intercept, by fractions: scipy's take 1 - r² of floats, too little where all fits."""
    n, sum_x, sum_y = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    squares_x = Fraction(sum(x * x for x, _ in points)) - Fraction(sum_x**2, n)
    slope = (sum(x * y for x, y in points) - Fraction(sum_x * sum_y, n)) / squares_x
    intercept = (sum_y - slope * sum_x) / n
    squares = sum((y - intercept - slope * x) ** 2 for x, y in points)
    of_slope = squares / (n - 2) / squares_x
    of_intercept = of_slope * Fraction(sum(x * x for x, _ in points), n)
    return math.sqrt(of_slope), math.sqrt(of_intercept)


@given(POINTS)
@example([(-634, -1), (-799, 894), (-799, 894)])
def test_a_line_is_that_of_least_squares(points: list[tuple[int, int]]) -> None:
    x, y = ([float(one[i]) for one in points] for i in (0, 1))
    fit = uncertain.line_fit(x, y)
    expected = stats.linregress(x, y)
    assert fit.slope == pytest.approx(expected.slope, abs=1e-6)
    assert fit.intercept == pytest.approx(expected.intercept, abs=1e-6)
    assert fit.r2 == pytest.approx(expected.rvalue**2, abs=1e-6)
    if fit.slope_half is not None and fit.intercept_half is not None:
        t = float(stats.t.ppf(0.975, len(x) - 2))
        of_slope, of_intercept = standard_errors(points)
        assert fit.slope_half == pytest.approx(t * of_slope, rel=1e-4, abs=1e-6)
        assert fit.intercept_half == pytest.approx(t * of_intercept, rel=1e-4, abs=1e-6)


@given(POINTS)
def test_rank_correlation_is_spearmans(points: list[tuple[int, int]]) -> None:
    x, y = ([float(one[i]) for one in points] for i in (0, 1))
    assert uncertain.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


@given(POINTS, st.floats(0, 10))
def test_a_slope_carries_the_spread_of_its_points(
    points: list[tuple[int, int]], spread: float
) -> None:
    x = [float(a) for a, _ in points]
    own = rules.slope(x, [Number(float(b), 2 * spread, spread) for _, b in points])
    xs = np.array(x)
    assert own.spread == pytest.approx(spread / np.sqrt(np.sum((xs - xs.mean()) ** 2)), rel=1e-6)
    assert own.half == pytest.approx(2 * own.spread, rel=1e-6)


def numbers(values: Sequence[float], spread: float) -> list[Number]:
    return [Number(value, 2 * spread, spread) for value in values]


def test_monotony_allows_a_step_back_of_a_standard_deviation() -> None:
    steps = [1.0, 2.0, 1.95, 3.0]
    assert rules.monotone("x", numbers(steps, 0.1), rises=True).verdict == "reproduced"
    assert rules.monotone("x", numbers(steps, 0.01), rises=True).verdict == "not_reproduced"
    assert rules.monotone("x", numbers(steps, 2), rises=False).verdict == "unresolved"


def test_a_step_back_within_its_interval_leaves_monotony_open() -> None:
    own = [*numbers([1.0, 2.0], 0.1), *numbers([1.8, 3.0], 0.1)]
    found = rules.monotone("x", own, rises=True)
    assert found.verdict == "unresolved"
    assert re.search(r"about \d+ repeats", found.detail)


NOISY = st.lists(st.floats(100, 100.5), min_size=3, max_size=8, unique=True)


@given(NOISY)
def test_values_that_happen_to_be_ordered_within_their_spread_show_nothing(
    values: list[float],
) -> None:
    own, x = numbers(sorted(values), 3.0), list(range(len(values)))
    for rises in (True, False):
        assert rules.monotone("x", own, rises).verdict == "unresolved"
    for found in (rules.ranked("x", x, own, True, 0.9), rules.linear("x", x, own, 0.0)):
        assert found.verdict == "unresolved"
        assert re.search(r"\d+ repeats", found.detail)


@given(st.lists(st.floats(100, 200), min_size=4, max_size=8, unique=True), st.booleans())
def test_ranks_beyond_all_spread_decide(values: list[float], rises: bool) -> None:
    own, x = numbers(values, 0.0), list(range(len(values)))
    rho = round(float(stats.spearmanr(x, values).statistic), 9)
    found = rules.ranked("x", x, own, rises, 0.5)
    if (rho if rises else -rho) < 0.5:
        assert found.verdict == "not_reproduced"
    else:
        slope = float(np.polyfit(x, values, 1)[0])
        assert found.verdict == ("reproduced" if (slope > 0) == rises else "unresolved")


def test_a_low_rank_correlation_within_the_spread_is_left_open() -> None:
    x, values = [1, 2, 3, 4, 5, 6], [10.0, 9.0, 12.0, 11.0, 14.0, 13.0]
    assert rules.ranked("x", x, numbers(values, 0.1), True, 0.9).verdict == "not_reproduced"
    assert rules.ranked("x", x, numbers(values, 1.0), True, 0.9).verdict == "unresolved"


@pytest.mark.parametrize(
    ("values", "spread", "verdict"),
    [
        ([28, 28, 28, 33, 40], 0.1, "reproduced"),
        ([28, 28, 33, 36, 40], 0.1, "not_reproduced"),
        ([28, 28, 28, 28, 28], 0.1, "not_reproduced"),
        ([28, 28, 28, 28, 33], 0.1, "not_reproduced"),
        ([28, 28, 28, 31, 40], 2.0, "unresolved"),
    ],
)
def test_an_onset_is_within_the_range_with_its_whole_step(
    values: list[float], spread: float, verdict: str
) -> None:
    sizes = [256, 4096, 8192, 16384, 32768]
    if values[-2] == 28:
        sizes = [256, 4096, 8192, 32768, 65536]
    found = rules.onset("error", sizes, numbers(values, spread), 2.0, 8192, 32768)
    assert found.verdict == verdict


def test_an_onset_between_far_points_names_the_points_that_are_needed() -> None:
    own = numbers([28, 28, 42], 0.1)
    found = rules.onset("error", [256, 1024, 65536], own, 2.0, 8192, 32768)
    assert found.verdict == "unresolved"
    assert "points at GBS 8192 and 32768 are needed" in found.detail


@pytest.mark.parametrize("sizes", [[8192, 16384, 32768], [16384, 32768, 65536]])
def test_an_onset_of_a_series_that_begins_in_the_range_has_no_base(sizes: list[int]) -> None:
    with pytest.raises(Unresolved, match="1 more needed, at a GBS below 8192"):
        rules.onset("error", sizes, numbers([40, 47, 50], 0.1), 2.0, 8192, 32768)


def test_a_part_whose_detail_begins_with_its_name_gets_it_once() -> None:
    parts = [(name, Outcome("reproduced", None, f"{name.title()}: x.")) for name in ("one", "two")]
    assert rules.all_of(parts).detail == "One: x. Two: x."


def test_points_off_a_line_within_their_intervals_say_how_many_repeats_would_tell() -> None:
    own = numbers([1.0, 3.0, 2.0, 4.0], 2.0)
    found = rules.linear("x", [1, 2, 3, 4], own)
    assert found.verdict == "unresolved"
    assert re.search(r"about \d+ repeats", found.detail)
    assert rules.linear("x", [1, 2, 3, 4], numbers([1, 3, 2, 4], 0.01)).verdict == "not_reproduced"


def test_values_around_0_have_no_coefficient_of_variation() -> None:
    with pytest.raises(NotTestable, match="mean that is not 0"):
        uncertain.variation([0.0, 0.0, 0.0])


@given(st.lists(st.floats(0.1, 100), min_size=3, max_size=8, unique=True))
def test_ordered_values_are_monotone_and_their_reverse_is_not(values: list[float]) -> None:
    ordered = numbers(sorted(values), 0.0)
    assert rules.monotone("x", ordered, rises=True).verdict == "reproduced"
    assert rules.monotone("x", ordered, rises=False).verdict == "not_reproduced"


@given(st.floats(1, 100), st.floats(1, 100), st.floats(0, 0.3), st.floats(0, 0.3))
def test_a_quotient_adds_relative_halves_in_quadrature(
    top: float, bottom: float, one: float, other: float
) -> None:
    own = Number(top, one * top, 0) / Number(bottom, other * bottom, 0) * 3
    assert own.value == pytest.approx(3 * top / bottom)
    assert own.half / own.value == pytest.approx(math.hypot(one, other))


def test_one_line_that_fails_decides_over_several() -> None:
    order = ["not_testable", "reproduced", "unresolved", "not_reproduced"]
    parts = [(name, Outcome(name, None, f"{name} it is.")) for name in order]
    for first, second in pairwise(range(4)):
        both = rules.combine([parts[first], parts[second]])
        assert both.verdict == order[second]
        assert order[first] in both.detail and order[second] in both.detail
    with pytest.raises(NotTestable):
        rules.combine([])


def test_a_part_that_is_lacking_leaves_a_claim_on_all_parts_untested() -> None:
    order = ["reproduced", "unresolved", "not_testable", "not_reproduced"]
    parts = [(name, Outcome(name, None, f"{name} it is.")) for name in order]
    for first, second in pairwise(range(4)):
        assert rules.all_of([parts[second], parts[first]]).verdict == order[second]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.023512, "0.02351"),
        (28.0, "28"),
        (1281167.0, "1281000"),
        (-14321.0, "-14320"),
        (3e12, "3e+12"),
    ],
)
def test_values_are_shown_with_four_digits(value: float, text: str) -> None:
    assert uncertain.shown(value) == text


def test_a_trend_says_how_many_points_are_missing() -> None:
    (points,) = (ln.points[:2] for ln in resnet_world().lines[:1])
    with pytest.raises(Unresolved, match=r"2 of the 3 points .* \(n = 1, 2\); 1 more needed"):
        rules.enough(points, "energy")
    with pytest.raises(NotTestable):
        rules.enough([], "energy")


# --- windows of power and errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("falls", "expected"),
    [
        ((-2.0, 1.5, 0.3, -1.8, 0.9, -0.9), "unresolved"),
        ((2.0, -1.5, -0.3, 1.8, -0.9, 0.9), "unresolved"),
        ((-2.0, -1.5, -1.8, -1.9), "not_reproduced"),
        ((2.0, 1.5, 1.8, 1.9), "reproduced"),
    ],
)
def test_a_fall_of_the_error_is_told_by_its_whole_interval(
    falls: tuple[float, ...], expected: str
) -> None:
    found = power_rules.error_fall([0.1] * len(falls), [0.1 - fall / 100 for fall in falls])
    assert found.verdict == expected
    assert expected != "unresolved" or NEEDED.search(found.detail)


@given(st.lists(st.floats(50, 700), min_size=100, max_size=300))
def test_windows_keep_the_mean_and_never_widen_the_range(powers: list[float]) -> None:
    whole = powers[: len(powers) // 10 * 10]
    found = window_means(trace("one", "a100", 4, list(whole)))
    assert math.isclose(sum(found) / len(found), sum(whole) / len(whole))
    assert min(whole) <= min(found) + 1e-9 and max(found) <= max(whole) + 1e-9
    assert 0 < fifth_over_median(found) <= 1
    assert fluctuation(found).value <= max(whole) / min(whole)


def test_lost_samples_leave_a_window_out() -> None:
    powers = [100.0] * 100 + [None] * 10 + [200.0] * 10
    assert window_means(trace("one", "a100", 4, powers)) == [100.0] * 10 + [200.0]
    with pytest.raises(Unresolved, match="9 windows of 10 s have power; 1 more are needed"):
        window_means(trace("one", "a100", 4, [100.0] * 90))
