"""The claims as data, the rules of their checks, the verdicts on the published rows, and the command."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from campaign_files import DEMO, PAPER, ROOT
from claims_made import NEEDED, evidence, line, row
from claims_resnet_made import resnet_world
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from scalewatt.campaign.load import load_campaign
from scalewatt.claims.checks.check_table import around, read_checks
from scalewatt.claims.checks.run_checks import _sentence, verdict_of
from scalewatt.claims.evidence.campaign_lines import lines_of, modes_of, with_points
from scalewatt.claims.evidence.claim_types import (
    CHECKED_KINDS,
    SPECIFIED_KINDS,
    VERDICTS,
    NotTestable,
    Outcome,
    Unresolved,
    Verdict,
    listed_claims,
    read_claims,
)
from scalewatt.claims.evidence.evidence import Evidence, unlike_paper
from scalewatt.claims.load_evidence import find_campaign, published_evidence
from scalewatt.claims.output import (
    as_json,
    as_markdown,
    as_table,
    as_text,
    basis,
    verdicts,
)
from scalewatt.claims.rules import fits
from scalewatt.claims.rules import tolerance as rules
from scalewatt.claims.rules import uncertain_number as uncertain
from scalewatt.claims.rules.points import as_in_paper
from scalewatt.claims.rules.uncertain_number import Number
from scalewatt.cli import main
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_table
from scalewatt.results.tables.metadata import metadata
from scalewatt.results.tables.repeat_statistics import Summary, summarise
from scalewatt.results.tables.table_schema import COMPARISONS, CONFIGURATIONS, RUNS, table

CLAIMS = read_claims()
LISTED = listed_claims()
BY_RESULTS = (*CHECKED_KINDS, "hypothesis")
SECTIONS_A_TO_F = [c.id for c in CLAIMS if c.id[0] in "ABCDEF" and c.kind in BY_RESULTS]

# What the paper's own numbers say of each claim of sections A to F, thought through by hand.
# Published of the fixed dataset: parts of energy at n = 1, 4, 256, errors there, time and energy at
# n = 256 alone (and of GBS 256 at n = 16): no trend. Of the scaled dataset all but the errors.
PUBLISHED = {
    "reproduced": (
        *("A01", "A02", "A03"),
        *("D08", "D09", "D10", "D11", "D12", "D18"),
        *(
            "F02",
            "F03",
            "F05",
            "F06",
            "F07",
            "F12",
            "F13",
            "F14",
            "F15",
            "F16",
            "F17",
            "F18",
            "F19",
        ),
    ),
    # The elasticity of the small regime is 1.13: its energy grows faster than its dataset.
    "not_reproduced": ("F20",),
    # One or two of the points that a trend needs.
    "unresolved": (
        *("D03", "D04", "D05", "D06", "D07", "D16", "D17", "D19"),
        *("E05", "E06", "E07", "E08", "E09", "F04"),
    ),
    # No total beside the parts at n = 1 and 4 (D13–D15), no energy of RAM (B03), no error of GBS 8192
    # (E03, E04) or on scaled datasets (F10, F11).
    "not_testable": ("B03", "D13", "D14", "D15", "E03", "E04", "F10", "F11"),
}


@pytest.fixture(scope="module")
def published() -> Evidence:
    return published_evidence()


@pytest.fixture(scope="module")
def of_published(published: Evidence) -> list[Verdict]:
    return verdicts(published)


# --- the claims ---------------------------------------------------------------------------------


def test_all_160_claims_of_the_reference_are_read_in_order() -> None:
    with open(ROOT / "reference" / "claims.csv", encoding="utf-8", newline="") as handle:
        assert [claim.id for claim in CLAIMS] == [one["id"] for one in csv.DictReader(handle)]
    assert len(CLAIMS) == 160


def test_every_claim_that_results_decide_has_a_check() -> None:
    without = [c.id for c in CLAIMS if c.kind in BY_RESULTS and c.id not in read_checks()]
    assert without == []
    counted = Counter(c.kind for c in CLAIMS if c.id in read_checks() and c.kind in CHECKED_KINDS)
    assert counted.total() >= 90
    assert counted["numeric"] + counted["trend"] + counted["threshold"] >= 70


def test_every_claim_that_specs_decide_has_a_check() -> None:
    assert [c.id for c in CLAIMS if c.kind in SPECIFIED_KINDS and c.id not in read_checks()] == []


def test_every_check_is_of_a_claim() -> None:
    assert set(read_checks()) <= {claim.id for claim in CLAIMS}


@pytest.mark.parametrize("column", ["id", "tol_same_hardware"])
def test_a_missing_column_of_the_claims_is_named(tmp_path: Path, column: str) -> None:
    text = (ROOT / "reference" / "claims.csv").read_text(encoding="utf-8")
    path = tmp_path / "claims.csv"
    path.write_text(text.replace(column, "other", 1), encoding="utf-8")
    with pytest.raises(InputError, match=f"lacks column {column}"):
        read_claims(path)


def test_a_claim_that_is_there_twice_is_named_with_its_row(tmp_path: Path) -> None:
    lines = (ROOT / "reference" / "claims.csv").read_text(encoding="utf-8").splitlines()
    path = tmp_path / "claims.csv"
    path.write_text("\n".join([*lines[:3], lines[1]]), encoding="utf-8")
    with pytest.raises(InputError, match="row 3: id A01 is there twice"):
        read_claims(path)


@pytest.mark.parametrize(
    ("value", "tolerance", "band"),
    [
        ("18.9", "+-5 %", (17.955, 19.845)),
        ("0.49", "+-0.03", (0.46, 0.52)),
        ("42", "+-3 pp", (39, 45)),
    ],
)
def test_a_band_is_the_claims_value_and_tolerance(
    value: str, tolerance: str, band: tuple[float, float]
) -> None:
    assert around(replace(CLAIMS[0], value=value, tolerance=tolerance)) == pytest.approx(band)


@pytest.mark.parametrize(("value", "tolerance"), [(">1.2", "+-5 %"), ("42", "about"), ("42", "")])
def test_a_claim_without_a_number_has_no_band(value: str, tolerance: str) -> None:
    with pytest.raises(InputError, match="A01"):
        around(replace(CLAIMS[0], value=value, tolerance=tolerance))


# --- lines and modes ----------------------------------------------------------------------------


def test_the_papers_series_have_the_modes_that_the_claims_name() -> None:
    assert modes_of(load_campaign(PAPER)) == {
        "resnet50-full-lbs256": "fd_lbs",
        "resnet50-full-gbs256": "fd_gbs_s",
        "resnet50-full-gbs8192": "fd_gbs_l",
        "resnet50-scaled-lbs256": "sd_lbs",
        "resnet50-scaled-gbs256": "sd_gbs_s",
        "resnet50-scaled-gbs8192": "sd_gbs_l",
        "fourcastnet-pretrain-lbs1": "fd_lbs",
        "fourcastnet-finetune-lbs1": "fd_lbs",
        "fourcastnet-pretrain-gbs64": "fd_gbs_l",
        "fourcastnet-pretrain-gbs16-h100": "fd_gbs_s",
        "fourcastnet-pretrain-gbs32-h100": "fd_gbs_l",
        "fourcastnet-pretrain-gbs16": "fd_gbs_s",
        "fourcastnet-probe": "probe",
    }


def test_lines_hold_the_points_that_have_results_by_ascending_n() -> None:
    campaign = load_campaign(PAPER)
    ids = campaign.series["resnet50-scaled-lbs256"].points
    rows = [
        row(configuration=ids[n], model="resnet50", phase="train", device="a100", gpus=n)
        for n in (256, 1, 16)
    ]
    (found,) = (ln for ln in lines_of(campaign, rows) if ln.name == "resnet50-scaled-lbs256")
    assert [point.gpus for point in found.points] == [1, 16, 256]
    assert found.planned == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert {point.dataset_total for point in found.points} == {1281167}
    assert found.points[-1].modes == ("fd_lbs", "sd_lbs")


def test_a_question_for_a_mode_finds_all_that_begin_so() -> None:
    world = resnet_world()
    assert {ln.mode for ln in world.find("resnet50", mode="fd_gbs")} == {"fd_gbs_s", "fd_gbs_l"}
    assert {ln.mode for ln in world.find("resnet50", mode="sd")} == {
        *("sd_lbs", "sd_gbs_s", "sd_gbs_l")
    }


def test_a_missing_line_is_said_with_what_is_there() -> None:
    with pytest.raises(NotTestable, match=r"h100 in mode fd_lbs; there are a100 fd_gbs_l, a100"):
        resnet_world().line("resnet50", "train", "h100", "fd_lbs")


def test_a_portable_claim_takes_its_own_device_where_that_has_results() -> None:
    values = {n: {"runtime_h": 4 / n} for n in (1, 2, 4)}
    lines = [line("resnet50", "train", d, "fd_lbs", 256, values) for d in ("h100", "a100", "cpu")]
    asked = ("resnet50", "train", "a100", "fd_lbs")
    assert [ln.device for ln in evidence(lines).anywhere(*asked)] == ["a100"]
    assert [ln.device for ln in evidence(lines[::2]).anywhere(*asked)] == ["cpu", "h100"]


def _alike(first: str, second: str, **columns: object) -> Evidence:
    values = {n: {"runtime_h": 4 / n} for n in (1, 2, 4)}
    one = line("resnet50", "train", "a100", "fd_lbs", 256, values)
    more = line(
        "resnet50", "train", "a100", "fd_lbs", 256, values | {8: {"runtime_h": 1}}, **columns
    )
    return evidence([replace(one, name=first, alike=True), replace(more, name=second, alike=True)])


def test_of_alike_series_that_with_most_points_counts_and_is_named() -> None:
    found = _alike("short", "long").line("resnet50", "train", "a100", "fd_lbs")
    assert found.title == "resnet50 a100 fd_lbs 256 (long)"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("protocol", "corrected"),
        ("protocol", None),
        ("precision", "bf16"),
        ("loader", "synthetic"),
        ("channels_last", True),
        ("compile", True),
        ("epochs", 20),
    ],
)
def test_of_alike_series_the_one_that_trained_as_the_paper_counts(
    column: str, value: object
) -> None:
    world = _alike("as paper", "other", **{column: value})
    found = world.line("resnet50", "train", "a100", "fd_lbs")
    assert found.name == "as paper"
    assert unlike_paper(found.points[0]) == ()
    (other,) = (ln for ln in world.lines if ln.name == "other")
    with pytest.raises(NotTestable, match="not trained as in the paper"):
        as_in_paper(other.points[0])


def test_series_of_a_campaign_that_are_alike_know_it() -> None:
    variants = load_campaign(ROOT / "campaigns" / "variants.yaml")
    assert {ln.alike for ln in lines_of(variants, [])} == {True}
    assert {ln.alike for ln in lines_of(load_campaign(PAPER), [])} == {False}


# --- rules --------------------------------------------------------------------------------------

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
    fit = fits.line_fit(x, y)
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
    assert fits.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


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
        fits.variation([0.0, 0.0, 0.0])


@given(st.lists(st.floats(0.1, 100), min_size=3, max_size=8, unique=True))
def test_ordered_values_are_monotone_and_their_reverse_is_not(values: list[float]) -> None:
    ordered = numbers(sorted(values), 0.0)
    assert rules.monotone("x", ordered, rises=True).verdict == "reproduced"
    assert rules.monotone("x", ordered, rises=False).verdict == "not_reproduced"


@given(st.floats(1, 100), st.floats(1, 100), st.floats(0, 0.3), st.floats(0, 0.3))
def test_a_quotient_adds_relative_halves_in_quadrature(
    top: float, bottom: float, one: float, other: float
) -> None:
    own = uncertain.over(Number(top, one * top, 0), Number(bottom, other * bottom, 0), factor=3)
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


# --- the published rows -------------------------------------------------------------------------


def test_the_expectations_name_every_claim_of_sections_a_to_f_once() -> None:
    named = [id_ for ids in PUBLISHED.values() for id_ in ids]
    assert sorted(named) == sorted(SECTIONS_A_TO_F)


@pytest.mark.parametrize("verdict", PUBLISHED)
def test_the_published_rows_support_what_their_notes_say(
    verdict: str, of_published: list[Verdict]
) -> None:
    found = {one.id: one.verdict for one in of_published}
    assert {id_: found[id_] for id_ in PUBLISHED[verdict]} == dict.fromkeys(
        PUBLISHED[verdict], verdict
    )


@pytest.mark.parametrize(
    ("id_", "value"),
    [("F03", 1.122), ("F05", 0.01134), ("F06", 0.0235), ("F14", 0.02165), ("F13", 1.053)],
)
def test_values_on_the_published_rows_are_those_of_the_notes(
    id_: str, value: float, of_published: list[Verdict]
) -> None:
    (found,) = (one.value for one in of_published if one.id == id_)
    assert found == pytest.approx(value, rel=0.01)


def test_every_claim_gets_one_verdict_with_a_sentence(of_published: list[Verdict]) -> None:
    assert [one.id for one in of_published] == [claim.id for claim in LISTED]
    assert {one.verdict for one in of_published} <= set(VERDICTS)
    assert all(one.detail.strip() and one.expected.strip() for one in of_published)


@pytest.mark.parametrize(
    "detail",
    [
        "fourcastnet at n = 4",
        "fourcastnet.pretrain-local at n = 4",
        "resnet50-local-n001-lbs0064-full was not trained",
        "local, n = 1: 3",
        "local: 3",
    ],
)
def test_a_detail_begins_with_a_capital_unless_it_begins_with_a_name_or_an_id(detail: str) -> None:
    names = {"resnet50", "fourcastnet", "local"}
    assert _sentence("two points", names) == "Two points"
    assert _sentence(detail, names) == detail


def test_a_verdict_leaves_the_names_of_models_and_devices_as_they_are() -> None:
    values = {n: {"runtime_h": 4 / n, "metric_last": 30.0} for n in (1, 2, 4)}
    one = line("resnet50", "train", "local", "fd_lbs", 256, values, protocol="corrected")
    (claim,) = (c for c in CLAIMS if c.id == "D17")
    assert verdict_of(claim, evidence([one])).detail.startswith("resnet50-train-local")


def test_what_the_published_rows_leave_open_says_how_many_points_or_repeats_are_needed(
    of_published: list[Verdict],
) -> None:
    left_open = [one for one in of_published if one.verdict == "unresolved"]
    assert left_open
    assert [one for one in left_open if not NEEDED.search(one.detail)] == []


def test_the_papers_contradictions_are_slips_and_nothing_else_is(
    of_published: list[Verdict],
) -> None:
    kinds = {claim.id: claim.kind for claim in LISTED}
    slips = {one.id for one in of_published if one.verdict == "slip"}
    assert slips == {id_ for id_, kind in kinds.items() if kind == "inconsistency"}


def test_without_runs_nothing_that_results_decide_is_testable() -> None:
    found = {one.id: one.verdict for one in verdicts(evidence([]))}
    by_results = {found[c.id] for c in CLAIMS if c.kind in BY_RESULTS}
    assert by_results == {"not_testable"}


# --- what people read ---------------------------------------------------------------------------


def test_an_estimated_energy_is_said_in_the_verdict() -> None:
    values = {n: {"runtime_h": 9 / n, "energy_kwh": 20.0 + n} for n in (4, 8, 16)}
    kinds = ("measured", "estimated")
    details = []
    for origin in kinds:
        one = line("resnet50", "train", "a100", "fd_lbs", 256, values, energy_origin=origin)
        (claim,) = (c for c in CLAIMS if c.id == "D05")
        details.append(verdict_of(claim, evidence([one])).detail)
    assert ["Origin of the energy: estimated" in detail for detail in details] == [False, True]


def test_the_json_is_a_list_of_five_keys(of_published: list[Verdict]) -> None:
    found = json.loads(json.dumps(as_json(of_published), allow_nan=False))
    assert {tuple(one) for one in found} == {("id", "verdict", "value", "expected", "detail")}


def test_the_table_has_each_verdict_beside_its_claim(
    published: Evidence, of_published: list[Verdict]
) -> None:
    found = as_table(of_published, LISTED, published).to_pylist()
    assert [one["id"] for one in found] == [claim.id for claim in LISTED]
    assert [one["claim"] for one in found] == [claim.text for claim in LISTED]


def test_text_and_markdown_name_every_claim_under_its_verdict(
    published: Evidence, of_published: list[Verdict]
) -> None:
    text = as_text(of_published, LISTED, published)
    markdown = as_markdown(of_published, LISTED, published)
    for claim in LISTED:
        assert f"  {claim.id} " in text
        assert f"| {claim.id} |" in markdown
    for said in (text, markdown):
        assert "published" in said.splitlines()[0] + said.splitlines()[2]
        places = [said.index(words) for words in ("Not reproduced", "Cannot be", "Not testable")]
        assert places == sorted(places)
    rows = [one for one in markdown.splitlines() if one.startswith("| ")]
    assert {one.replace("\\|", "").count("|") for one in rows} == {4, 6}
    assert "160 claims: 79 reproduced," in text and "Decided by results are 99: " in text


def test_slips_have_a_reading_and_nothing_that_is_expected(of_published: list[Verdict]) -> None:
    slips = {one.id: one for one in of_published if one.verdict == "slip"}
    assert {(one.value, one.expected) for one in slips.values()} == {(None, "nothing: a slip")}
    assert slips["X16"].detail.endswith("Shows nowhere.")


def test_claims_that_lack_one_with_a_check_are_refused() -> None:
    for id_ in ("D03", "X16"):
        with pytest.raises(InputError, match=rf"claims.csv: lacks the row of claim {id_};"):
            verdicts(Evidence("nothing"), [claim for claim in LISTED if claim.id != id_])


def test_slips_without_a_row_are_listed_apart(
    published: Evidence, of_published: list[Verdict]
) -> None:
    for said in (
        as_text(of_published, LISTED, published),
        as_markdown(of_published, LISTED, published),
    ):
        assert "Slips of the paper, with the reading chosen (20)" in said
        assert "Y01" in said.split("Slips without a row among the claims (2)")[1]


def test_excluded_runs_are_named_with_their_reasons() -> None:
    one = {"configuration": "resnet50-a100-n004", "repeat": 3, "reason": "a throttled GPU"}
    given = replace(resnet_world(), table_metadata={"excluded": [one], "missing": []})
    found = verdicts(given)
    table = as_table(found, LISTED, given)
    assert metadata(table)["excluded"] == [one]
    for said in (as_text(found, LISTED, given), as_markdown(found, LISTED, given)):
        assert "Excluded runs: resnet50-a100-n004/3 (a throttled GPU)." in said


def test_the_guide_names_what_the_published_rows_contradict(of_published: list[Verdict]) -> None:
    guide = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    section = guide.split("## What the paper's own numbers say")[1].split("##")[0]
    named = re.findall(r"^\| ([A-Z]\d+) \|", section, flags=re.MULTILINE)
    assert named == [one.id for one in of_published if one.verdict == "not_reproduced"]


def test_the_guide_counts_the_kinds_of_claims() -> None:
    guide = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    counted = Counter(claim.kind for claim in CLAIMS)
    rows = re.findall(r"^\| ([a-z, ]+) \| (\d+) \| ", guide, flags=re.MULTILINE)
    assert {kinds: int(number) for kinds, number in rows} == {
        kinds: sum(counted[kind] for kind in kinds.split(", ")) for kinds, _ in rows
    }
    assert sum(int(number) for _, number in rows) == len(CLAIMS)


# --- the command --------------------------------------------------------------------------------


def test_the_command_checks_the_published_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--results", "reference", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in found] == [claim.id for claim in read_claims()]
    assert len(found) == 160
    assert {one["verdict"] for one in found} <= set(VERDICTS)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Tables of a demo that finished runs of one series: 1, 2 and 4 processes, estimated."""
    campaign = load_campaign(DEMO)
    tables = tmp_path / "results" / "demo" / "tables"
    rows = []
    for configuration in campaign.configurations.values():
        if configuration.model != "resnet50":
            continue
        n = configuration.gpus
        given = {
            name: getattr(configuration, name)
            for name in (
                *("model", "phase", "device", "gpus", "nodes", "local_batch_size", "epochs"),
                *("global_batch_size", "dataset_samples", "protocol"),
            )
        }
        rows.append(
            row(
                **given,
                configuration=configuration.id,
                energy_origin="estimated",
                energy_scope="cpu",
                metric_name="top1_error_percent",
                metric_goal="min",
                runtime_h=0.1 / n,
                gpu_hours=0.1,
                energy_kwh=0.02,
                metric_last=20.0,
            )
        )
    write_table(table(rows, CONFIGURATIONS), tables / "configurations.parquet")
    write_table(table([], RUNS), tables / "runs.parquet")
    write_table(table([], COMPARISONS), tables / "comparisons.parquet")
    return tables.parent


def test_the_command_checks_a_campaigns_tables_and_writes_them_four_times(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "claims"
    given = ["claims", "--results", str(results), "--campaign", str(DEMO), "--out", str(out)]
    assert main(given) == 0
    assert "estimated" in capsys.readouterr().out.splitlines()[0]
    written = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    found = {one["id"]: one["verdict"] for one in written}
    assert list(found) == [claim.id for claim in read_claims()]
    assert (found["D03"], found["D08"]) == ("reproduced", "not_testable")
    assert {path.suffix for path in tmp_path.glob("claims.*")} == {
        *(".parquet", ".csv", ".md", ".json")
    }


def test_a_configuration_with_another_origin_than_its_runs_is_named(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = results / "tables"
    first = pq.read_table(tables / "configurations.parquet").to_pylist()[0]
    run = dict.fromkeys(RUNS.names) | {name: first[name] for name in RUNS.names if name in first}
    run |= {"repeat": 1, "energy_kwh": 0.02, "energy_origin": "measured"}
    write_table(table([run], RUNS), tables / "runs.parquet")
    assert main(["claims", "--results", str(results), "--campaign", str(DEMO)]) == 1
    said = capsys.readouterr().err
    assert "configurations.parquet: row 1: " in said
    assert "energy_origin estimated; expected measured, as its runs in runs.parquet have" in said


def test_a_campaign_is_found_by_the_folders_name(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert find_campaign(results, None).name == "demo"


def test_a_folder_that_no_campaign_is_named_by_asks_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "elsewhere" / "tables").mkdir(parents=True)
    assert main(["claims", "--results", str(tmp_path / "elsewhere")]) == 1
    said = capsys.readouterr().err
    assert "no campaign is named elsewhere" in said and "--campaign" in said


def test_another_campaigns_results_are_refused(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "--results", str(results), "--campaign", str(PAPER)]) == 1
    assert "expected the campaign demo" in capsys.readouterr().err


def test_a_folder_without_tables_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "--results", str(tmp_path)]) == 1
    assert "has no folder tables" in capsys.readouterr().err


def test_a_metric_that_is_nan_is_named_with_file_and_row(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    path = results / "tables" / "configurations.parquet"
    rows = pq.read_table(path).to_pylist()
    rows[1]["metric_last_mean"] = math.nan
    write_table(table(rows, CONFIGURATIONS), path)
    assert main(["claims", "--results", str(results), "--campaign", str(DEMO)]) == 1
    said = capsys.readouterr().err
    assert "configurations.parquet" in said and "row 2" in said and "metric_last_mean" in said


def test_a_configuration_that_is_there_twice_is_named(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    path = results / "tables" / "configurations.parquet"
    rows = pq.read_table(path).to_pylist()
    write_table(table([*rows, rows[0]], CONFIGURATIONS), path)
    assert main(["claims", "--results", str(results), "--campaign", str(DEMO)]) == 1
    said = capsys.readouterr().err
    assert str(rows[0]["configuration"]) in said and str(len(rows) + 1) in said


def test_a_folder_with_other_published_results_is_not_taken_for_the_papers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "published_results.csv").write_text("source,model\n", encoding="utf-8")
    assert main(["claims", "--results", str(tmp_path)]) == 1
    assert "has no folder tables" in capsys.readouterr().err


def test_the_reference_folder_is_known_by_any_path_to_it(
    published: Evidence, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "--results", str(ROOT / "docs" / ".." / "reference")]) == 0
    assert capsys.readouterr().out.startswith(basis(published))


def test_claims_on_configurations_are_said_to_be_checked_on_the_projects_specs(
    published: Evidence,
) -> None:
    assert "on the specs of config.yaml" in basis(published)


def test_a_cluster_that_is_no_json_is_refused_in_one_line(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["claims", "--results", str(results), "--cluster", "{bad"]) == 1
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_missing_table_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (results / "tables" / "comparisons.parquet").unlink()
    assert main(["claims", "--results", str(results), "--campaign", str(DEMO)]) == 1
    assert "comparisons.parquet" in capsys.readouterr().err
