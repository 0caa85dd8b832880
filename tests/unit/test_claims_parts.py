"""Claims that several numbers decide together: which of them decides, and which is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from claims_cases import in_parts
from claims_made import NEEDED, changed, evidence, line
from claims_resnet_made import becoming, dropping, resnet_world
from claims_resnet_made import times as scaled
from claims_study import edited, judged, study, times
from scalewatt.claims.numbers.decisions import band, in_one
from scalewatt.claims.numbers.uncertain_number import Number, Variance

from scalewatt.claims.check_claims import verdicts
from scalewatt.claims.comparisons import one_at_least
from scalewatt.claims.evidence import Evidence
from scalewatt.claims.outcomes import all_of, combine
from scalewatt.claims.reference_tables import (
    CONTRADICTED,
    NOT_TESTABLE,
    SUPPORTED,
    UNDECIDED,
    read_checks,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from claims_coverage import STATED, is_more_than

# --- an extreme value is no value of its own ------------------------------------------------------


def test_the_lowest_of_five_efficiencies_contradicts_only_where_it_is_rare_among_five() -> None:
    found = judged("D03", becoming("fd_lbs", "gpu_hours", {32: 98.27})(resnet_world()))
    assert found.verdict == UNDECIDED and "Of 5 comparisons" in found.detail
    far = judged("D03", becoming("fd_lbs", "gpu_hours", {32: 98.8})(resnet_world()))
    assert far.verdict == CONTRADICTED and "to 32) is 0.8907" in far.detail


@pytest.mark.long
def test_five_efficiencies_on_the_bound_are_contradicted_as_seldom_as_stated() -> None:
    """Five repeats each, that scatter by 1 %; the lowest, picked and tested alone, was in 7 %."""
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


# --- what is not known hides nothing --------------------------------------------------------------


@pytest.mark.parametrize("id_", ["T1", "T2", "H17"])
def test_a_row_of_the_paper_that_lacks_its_energy_is_contradicted_by_its_run_time(id_: str) -> None:
    (check, *_) = read_checks()[id_]
    sizes = (check.device, int(check.n), int(check.batch), int(check.gbs))
    here = [p for p in study().points if (p.device, p.gpus, p.lbs, p.gbs) == sizes]
    slow = edited(lambda p: p in here, runtime_h=times("runtime_h", 4.7))()
    assert judged(id_, slow).verdict == CONTRADICTED
    bare = changed(slow, lambda p: p.id == here[0].id, energy_kwh=lambda p: None)
    found = judged(id_, bare)
    assert found.verdict == CONTRADICTED and "The energy of" in found.detail, found.detail


def test_a_part_of_a_series_that_is_lacking_hides_no_contradiction_of_another() -> None:
    wrong = scaled("sd_gbs_s", 16, runtime_h=0.75)(resnet_world())
    bare = dropping("sd_gbs_s", 2)(wrong)
    assert judged("F12", wrong).verdict == judged("F12", bare).verdict == CONTRADICTED
    assert "no finished run with 2 GPUs" in judged("F12", bare).detail
    right = dropping("sd_gbs_s", 2)(resnet_world())
    assert judged("F12", right).verdict == NOT_TESTABLE


@pytest.mark.parametrize("name", ["energy_kwh", "gpu_energy_kwh", "cpu_energy_kwh"])
@pytest.mark.parametrize("world", [study, resnet_world])
def test_an_energy_of_0_is_no_error_of_any_claim(world: Callable[[], Evidence], name: str) -> None:
    """Where RAM is not known, and with it no share of CPUs."""
    unknown = {f"{kind}_energy_share": lambda p: None for kind in ("gpu", "cpu", "ram")}
    zero = changed(world(), lambda p: p.gpus in (1, 4), **unknown, **{name: lambda p: 0.0})
    if name == "energy_kwh":
        zero = in_parts(lambda: zero)()
    found = {one.id: one for one in verdicts(zero)}
    if name != "energy_kwh" and world is resnet_world:
        assert {found[id_].verdict for id_ in ("D13", "D14")} == {NOT_TESTABLE}
    if name == "energy_kwh" and world is study:
        assert "divided by is 0" in found["T9"].detail


# --- one of several is enough ---------------------------------------------------------------------


def ratio(value: float, error: float, source: str = "x") -> Number:
    """A ratio of means of many repeats."""
    return Number(value, {source: Variance(error**2, 50, error**2)}, "", True)


@pytest.mark.parametrize(
    ("ratios", "verdict", "told", "p"),
    [
        # A certain pair counts though another has the larger value.
        ([(1.35, 0.01), (1.4, 0.2)], SUPPORTED, 1.35, (1, 1)),
        # Below is what all are below by: the probability of the least certain one.
        ([(1.15, 0.001), (1.02, 0.075)], CONTRADICTED, 1.02, (0.01, 0.025)),
        # The pair that keeps it open is told, with what would tell.
        ([(1.15, 0.001), (1.02, 0.2)], UNDECIDED, 1.02, (0.2, 0.3)),
        ([(1.0, 0.01), (1.25, 0.1)], UNDECIDED, 1.25, (1, 1)),
        # One of many may be above by chance.
        ([(1.27, 0.026), *[(1.1, 0.05)] * 5], UNDECIDED, 1.27, (1, 1)),
    ],
)
def test_of_several_ratios_one_that_is_rarely_so_high_is_enough(
    ratios: list[tuple[float, float]], verdict: str, told: float, p: tuple[float, float]
) -> None:
    pairs = [(f"pair {n}", ratio(*one)) for n, one in enumerate(ratios)]
    for order in (pairs, pairs[::-1]):
        found = one_at_least(order, 1.2)
        assert (found.verdict, found.value) == (verdict, told), found.detail
        assert found.p is not None and p[0] <= found.p <= p[1]
        assert verdict != UNDECIDED or NEEDED.search(f"{found.detail} {found.note}")


# --- parts that are saved -------------------------------------------------------------------------


# --- the part that decides is told ----------------------------------------------------------------


# --- what counts, and how often -------------------------------------------------------------------


# --- the value ------------------------------------------------------------------------------------


def test_of_parts_that_agree_the_value_is_that_of_the_one_nearest_to_its_bound() -> None:
    near, far = (
        band(name, ratio(value, 0.01), 0.85, 1.15) for name, value in (("a", 1.1), ("b", 1))
    )
    for parts in ([("", near), ("", far)], [("", far), ("", near)]):
        assert all_of(parts).value == combine(parts).value == in_one(parts).value == 1.1
    off, further = (
        band(name, ratio(value, 0.01), 0.85, 1.15) for name, value in (("a", 1.3), ("b", 2))
    )
    assert all_of([("", off), ("", further)]).value == 2
    assert all_of([("", near), ("", all_of([("", far), ("", off)]))]).value == 1.3
