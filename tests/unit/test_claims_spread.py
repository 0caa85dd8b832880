"""Runs that tell how others scatter count once, whatever is made of the numbers that they tell of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from claims_made import evidence, line
from scalewatt.claims.numbers.uncertain_number import (
    Number,
    number,
    own_repeats,
    single_run,
    stated,
)

from scalewatt.claims.comparisons import energy_slope
from scalewatt.claims.evidence import pooled_spreads
from scalewatt.claims.quantities import published_source, quantity
from scalewatt.results.tables.published_spread import Spread, published_spread
from scalewatt.results.tables.repeat_statistics import Summary, summarise

SD = 0.05


def share_that_holds(truth: float, draw: Callable[[np.random.Generator], Number]) -> float:
    rng = np.random.default_rng(19)
    drawn = [draw(rng) for _ in range(4000)]
    return sum(one.low <= truth <= one.high for one in drawn) / len(drawn)


def runs(rng: np.random.Generator, count: int) -> list[float]:
    return list(np.exp(SD * rng.standard_normal(count)))


def of_probe(rng: np.random.Generator, count: int) -> Spread:
    return Spread(SD * math.sqrt(rng.chisquare(count - 1) / (count - 1)), count - 1)


def test_a_run_without_repeats_and_the_papers_number_rest_on_one_probe() -> None:
    own = number(Summary(1, 150.0), "energy_kwh", "fourcastnet", "one")
    spread = published_spread("fourcastnet", "energy_kwh")
    paper = stated(115.6, spread, published_source("fourcastnet"), 1)
    assert (own / paper).freedom == pytest.approx(2)

    def draw(rng: np.random.Generator) -> Number:
        probe, (run, theirs) = of_probe(rng, 3), runs(rng, 2)
        return single_run(run, probe, "published", "") / stated(theirs, probe, "published", 1)

    assert share_that_holds(1.0, draw) == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("others", [0, 12])
def test_repeats_count_once_beside_a_run_whose_spread_they_tell(others: int) -> None:
    def draw(rng: np.random.Generator) -> Number:
        found = summarise(runs(rng, 3))
        assert found.mean and found.sd
        more = SD**2 * rng.chisquare(others) if others else 0.0
        squares = 2 * (found.sd / found.mean) ** 2 + more
        pool = Spread(math.sqrt(squares / (2 + others)), 2 + others)
        mean = own_repeats("three", found.mean, found.sd, 3, "pool")
        return mean / single_run(runs(rng, 1)[0], pool, "pool", "")

    made = draw(np.random.default_rng(1))
    assert made.freedom == pytest.approx(2) if not others else 4 < made.freedom < 2 + others
    assert share_that_holds(1.0, draw) == pytest.approx(0.95, abs=0.012)


def test_spreads_of_different_models_keep_their_own_degrees_of_freedom() -> None:
    names = ("train", "a100", "fd_lbs")
    lines = [
        line("resnet50", *names, 256, {1: {"energy_kwh": 10.0}}, n_repeats=1),
        line("resnet50", *names, 128, {1: {"energy_kwh": 10.0}}, n_repeats=41, spread=0.05),
        line("fourcastnet", *names, 1, {1: {"energy_kwh": 10.0}}, n_repeats=1),
        line("fourcastnet", *names, 2, {1: {"energy_kwh": 10.0}}, n_repeats=3, spread=0.01),
    ]
    one, _, other, _ = (quantity(point, "energy_kwh") for point in evidence(lines).points)
    welch = (0.05**2 + 0.01**2) ** 2 / (0.05**4 / 40 + 0.01**4 / 2)
    assert (one / other).freedom == pytest.approx(welch)


def test_the_slope_of_energies_has_the_errors_of_gpu_hours_too() -> None:
    names = ("fourcastnet", "pretrain", "a100", "fd_lbs", 1)
    given = {
        n: {"energy_kwh": 40.0 * h, "gpu_hours": 100.0 * h} for n, h in ((4, 1), (8, 3), (16, 4))
    }
    own = energy_slope("made", evidence([line(*names, given, n_repeats=1)]).points)
    x = np.array([100.0, 300.0, 400.0])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    energy, time = (
        published_spread("fourcastnet", name).relative  # type: ignore[union-attr]
        for name in ("energy_kwh", "gpu_hours")
    )
    assert own.value == pytest.approx(0.4)
    assert own.error == pytest.approx(0.4 * np.linalg.norm(weights * x) * math.hypot(energy, time))
    assert own.freedom == pytest.approx(2)


def test_errors_of_one_seed_do_not_tell_how_errors_of_others_scatter() -> None:
    names = ("resnet50", "train", "a100", "fd_lbs")
    same = line(*names, 128, {1: {"metric_last": 28.0}}, metric_name="top1_error_percent")
    (point,) = evidence([same]).points
    (varied,) = evidence([replace(same, points=(replace(point, varies_seeds=True),))]).points
    assert not [
        key for key in pooled_spreads([replace(point, varies_seeds=False)]) if "metric" in str(key)
    ]
    assert [key for key in pooled_spreads([varied]) if "metric" in str(key)]
