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
from claims_made import NEEDED, evidence, line, numbers, row, trace, with_columns
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scalewatt.campaign.load import load_campaign
from scalewatt.claims.comparisons import any_at_least, rise_of_error
from scalewatt.claims.evidence import Evidence, Trace
from scalewatt.claims.load_evidence import points_of, series_of
from scalewatt.claims.outcomes import Outcome, above, all_of, combine, decide, ratios
from scalewatt.claims.outcomes import Tests as Within
from scalewatt.claims.quantities import BY_CAMPAIGN, UNTOLD, quantities, unbounded
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    NOT_TESTABLE,
    SUPPORTED,
    UNDECIDED,
    Check,
    NotTestable,
    read_checks,
)
from scalewatt.claims.shapes import (
    SERIES_RULES,
    knee_between,
    ranked,
    slope_change,
    spearman,
    straightness,
)
from scalewatt.claims.traces import fifth_over_median, fluctuation, in_windows, percentile_of
from scalewatt.results.tables.published_spread import published_spread
from scalewatt.statistics import LEVEL, Numbers, exact, joined

(CHECK, *_) = read_checks()["D05"]


def check(expects: str = "..", **columns: str) -> Check:
    """A row of the table of checks that has these columns alone."""
    blank = dict.fromkeys(("quantity", "against", "margin", "unit", "n"), "")
    return Check(**vars(CHECK) | {"expects": expects, **blank, "text": "it", **columns})


def judge(rule: str, row: Check, values: Mapping[int, float], error: float) -> Outcome:
    """A rule on a series of ResNet50 with LBS 256, by n, whose means have this relative error."""
    given = {n: {row.quantity: value} for n, value in values.items()}
    spread = error * math.sqrt(5)
    series = line("resnet50", "train", "a100", "fd_lbs", 256, given, spread=spread)
    world = evidence([series])
    return SERIES_RULES[rule](row, world, world.lines[0], world.lines[0].points)


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


def test_repeats_of_another_origin_do_not_tell_the_spread_of_an_energy() -> None:
    world = with_columns(world_with({"energy_kwh": 50.0}, 4), "lbs == 256", energy_origin="other")
    assert quantities(world.points[:1], "energy_kwh").words(0) == "by ResNet50's published repeats"


def test_a_single_run_of_fourcastnet_has_the_t_interval_of_the_probes_three_repeats() -> None:
    series = line(
        "fourcastnet", "pretrain", "a100", "fd_lbs", 1, {4: {"energy_kwh": 100.0}}, n_repeats=1
    )
    number = quantities(evidence([series]).points, "energy_kwh")
    assert number.halves == pytest.approx([stats.t.ppf(0.975, 2) * 100 * math.sqrt(3 / 2) * 2 / 52])
    assert number.halves == pytest.approx([20.3], abs=0.05)


def test_the_spread_of_a_power_is_that_of_energy_and_time() -> None:
    power, energy, time = (
        published_spread("fourcastnet", name) for name in ("p_gpuh_kw", "energy_kwh", "gpu_hours")
    )
    assert power and energy and time
    assert power.relative == pytest.approx(math.hypot(energy.relative, time.relative))


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


@pytest.mark.parametrize(
    ("values", "error", "verdict"),
    [
        ([100, 101, 99, 100], 0.003, SUPPORTED),
        ([100, 104, 108, 112], 0.003, CONTRADICTED),
        ([100, 100, 130, 100], 0.003, CONTRADICTED),
        ([100, 101, 99, 100], 0.08, UNDECIDED),
        # What is constant may fall by the factor that it may rise by.
        ([100, 95.66, 91.5], 1e-6, SUPPORTED),
        ([100, 95.13, 90.5], 1e-6, CONTRADICTED),
    ],
)
def test_constant_is_what_neither_drifts_nor_scatters(
    values: list[float], error: float, verdict: str
) -> None:
    by_n = {2**index: value for index, value in enumerate(values)}
    row = check("constant", quantity="runtime_h")
    outcome = judge("constant", row, by_n, error)
    assert outcome.verdict == verdict and "expected -9.091 to 10 %" in outcome.detail, (
        outcome.detail
    )
    if verdict != SUPPORTED or error > 1e-3:
        in_h = judge("constant", check("..10", quantity="runtime_h", unit="h"), by_n, error)
        assert in_h.verdict == verdict or values[1] == 95.13, in_h.detail


@given(st.floats(0.1, 5), st.floats(0, 50), st.integers(3, 8))
def test_a_line_with_an_intercept_is_straight_though_not_proportional(
    slope: float, intercept: float, points: int
) -> None:
    x = 10.0 * np.arange(1, points + 1)
    lined = straightness("E", exact(x), numbers(intercept + slope * x, 1e-6), 0.1, range(points))
    assert lined.verdict == SUPPORTED and lined.value == pytest.approx(0, abs=1e-6)


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


@given(st.floats(0.1, 2), st.floats(0.01, 10))
def test_a_change_of_slope_counts_a_shared_point_once(factor: float, error: float) -> None:
    x, y = np.array([0.0, 1.0, 2.0, 3.0, 5.0]), np.array([1.0, 2.0, 2.5, 4.0, 9.0])

    def change(values: np.ndarray) -> float:
        first, last = (np.polyfit(x[side], values[side], 1)[0] for side in (slice(3), slice(2, 5)))
        return float(last - factor * first)

    number = slope_change(x, numbers(y, error), slice(3), slice(2, None), factor)
    assert number.values == pytest.approx([change(y)], rel=1e-9)
    assert number.errors == pytest.approx([error * np.linalg.norm([change(e) for e in np.eye(5)])])


@pytest.mark.parametrize(
    ("rule", "margin", "error", "verdict"),
    [
        ("rises", "no_step_back", 1e-4, SUPPORTED),
        ("rises", "..0.001", 1e-4, CONTRADICTED),
        ("falls", "no_step_back", 1e-4, CONTRADICTED),
        ("rises", "no_step_back", 0.5, UNDECIDED),
    ],
)
def test_monotony_allows_steps_back_within_its_tolerance_alone(
    rule: str, margin: str, error: float, verdict: str
) -> None:
    steps = {1: 100.0, 2: 200.0, 4: 199.0, 8: 300.0}
    outcome = judge(rule, check(quantity="runtime_h", margin=margin), steps, error)
    assert outcome.verdict == verdict, outcome.detail


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


def test_a_rank_correlation_has_the_interval_that_its_pairs_allow() -> None:
    x, y = np.arange(6.0), [10.0, 9.0, 12.0, 11.0, 14.0, 13.0]
    sure = ranked("it", x, numbers(y, 0.01), 0.9, math.inf)
    assert sure.verdict == CONTRADICTED and "0.83 (0.83 to 0.83)" in sure.detail
    assert sure.p is not None and sure.p < 1e-6
    assert ranked("it", x, numbers(y, 0.01), 0.8, math.inf).verdict == SUPPORTED
    few = ranked("it", x, numbers(y, 0.3), 0.9, math.inf)
    assert few.verdict == UNDECIDED and "to 1.00)" in few.detail


@pytest.mark.parametrize(
    ("values", "error", "verdict"),
    [
        ([28, 28, 28, 33, 40], 0.003, SUPPORTED),
        ([28, 28, 33, 36, 40], 0.003, CONTRADICTED),
        ([28, 28, 28, 28, 28], 0.003, CONTRADICTED),
        ([28, 28, 28, 28, 33], 0.003, CONTRADICTED),
        ([28, 28, 28, 31, 40], 0.07, UNDECIDED),
    ],
)
def test_an_onset_is_within_the_range_with_its_whole_step(
    values: list[float], error: float, verdict: str
) -> None:
    gpus = (1, 16, 32, 128, 256) if values[-2] == 28 else (1, 16, 32, 64, 128)
    row = check("8192..32768", quantity="metric_last", margin="left_base_error", unit="%")
    outcome = judge("onset", row, dict(zip(gpus, values, strict=True)), error)
    assert outcome.verdict == verdict, outcome.detail


KNEE_SIZES = [4, 8, 16, 32, 64, 128]
BENT = [700.0, 705.0, 708.0, 760.0, 830.0, 880.0]
SMOOTH = [700.0, 703.0, 712.0, 735.0, 765.0, 805.0]
CLEAR = [700.0, 702.0, 704.0, 760.0, 816.0, 872.0]


@pytest.mark.parametrize(
    ("curve", "error", "exact_ones", "verdict"),
    [
        (BENT, 3.0, {2}, UNDECIDED),
        (CLEAR, 0.5, {2}, SUPPORTED),
        (CLEAR, 0.5, set(), SUPPORTED),
        (SMOOTH, 0.0, set(range(6)), UNDECIDED),
        (CLEAR, 0.0, set(range(6)), SUPPORTED),
    ],
)
def test_where_a_knee_is_does_not_depend_on_the_unit(
    curve: list[float], error: float, exact_ones: set[int], verdict: str
) -> None:
    errors = np.array([0.0 if at in exact_ones else error for at in range(len(curve))])
    outcomes = [
        knee_between(KNEE_SIZES, numbers(factor * np.array(curve), factor * errors), 16, 64)
        for factor in (1e-3, 1.0, 1e4)
    ]
    assert {outcome.verdict for outcome in outcomes} == {verdict}, [
        outcome.detail for outcome in outcomes
    ]
    assert [outcome.p for outcome in outcomes] == pytest.approx([outcomes[0].p] * 3)
    assert verdict == SUPPORTED or NEEDED.search(outcomes[0].detail)


def test_a_knee_of_numbers_of_unknown_spread_is_no_test() -> None:
    outcome = knee_between(KNEE_SIZES, joined([unbounded(value, UNTOLD) for value in BENT]), 16, 64)
    assert (outcome.verdict, outcome.p) == (UNDECIDED, None) and "seeds: varied" in outcome.detail


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


def test_of_parts_that_agree_the_value_is_that_of_the_one_nearest_to_its_bound() -> None:
    def band(value: float) -> Outcome:
        return decide(Within("x", numbers([value], 0.01), 0.85, 1.15))

    for parts in ([band(1.1), band(1.0)], [band(1.0), band(1.1)]):
        named = [("", part) for part in parts]
        assert all_of(named).value == combine(named).value == 1.1
    assert all_of([("", band(1.3)), ("", band(2.0))]).value == 2
    assert all_of([("", band(1.1)), ("", all_of([("", band(1.0)), ("", band(1.3))]))]).value == 1.3


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


@pytest.mark.parametrize(
    ("falls", "verdict"),
    [
        ((-2.0, 1.5, 0.3, -1.8, 0.9, -0.9), UNDECIDED),
        ((-2.0, -1.5, -1.8, -1.9), CONTRADICTED),
        ((2.0, 1.5, 1.8, 1.9), SUPPORTED),
    ],
)
def test_a_rise_of_the_error_counts_with_its_whole_interval(
    falls: tuple[float, ...], verdict: str
) -> None:
    after = [0.1] * len(falls)
    outcome = decide(rise_of_error("passes", [0.1 + fall / 100 for fall in falls], after))
    assert outcome.verdict == verdict, outcome.detail
    p = stats.ttest_1samp(falls, 0.0, alternative="less").pvalue
    assert outcome.p == pytest.approx(1.0 if np.mean(falls) > 0 else p)


@given(st.lists(st.floats(50, 700), min_size=100, max_size=300))
def test_windows_keep_the_mean_and_never_widen_the_range(powers: list[float]) -> None:
    whole = powers[: len(powers) // 10 * 10]
    made = trace("one", "a100", 4, list(whole))
    means = in_windows(made).mean().to_numpy()
    assert math.isclose(means.mean(), sum(whole) / len(whole))
    assert min(whole) <= means.min() + 1e-9 and means.max() <= max(whole) + 1e-9
    assert fluctuation(made).values[0] == pytest.approx(means.std(ddof=1) / means.mean())


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
