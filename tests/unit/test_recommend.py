"""How many GPUs to take for a deadline, or for an energy."""

from __future__ import annotations

import pytest
from plan_files import KNOWN, forecaster, paper_plan, rows_of, small, without_energies
from request_files import horeka, paper

from scalewatt.common.errors import InputError
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.scaling.planning.plan import Planner
from scalewatt.scaling.planning.plan_table import make_plan
from scalewatt.scaling.planning.plan_text import recommended_sentences
from scalewatt.scaling.planning.recommend import Recommendation, recommendations


def recommended(
    series: str = "fourcastnet-pretrain-lbs1",
    deadline_h: float | None = None,
    energy_kwh: float | None = None,
) -> Recommendation:
    planner = Planner(paper(), horeka(), forecaster(), Facility())
    found = recommendations(planner, deadline_h, energy_kwh)
    return next(one for one in found if one.series == series)


def point(gpus: int) -> dict[str, float]:
    rows = rows_of(paper_plan(), "point")
    return next(r for r in rows if r["series"] == "fourcastnet-pretrain-lbs1" and r["gpus"] == gpus)


def test_the_cheapest_n_that_meets_a_deadline_is_recommended() -> None:
    one = recommended(deadline_h=24)
    assert (one.gpus_with_95_percent, one.gpus_with_median) == (64, 64)
    assert point(64)["runtime_h_high"] < 24 < point(32)["runtime_h"]
    assert point(64)["energy_kwh"] < point(128)["energy_kwh"] < point(256)["energy_kwh"]


def test_where_the_median_meets_it_barely_being_sure_takes_more() -> None:
    one = recommended(deadline_h=point(32)["runtime_h"] * 1.01)
    assert (one.gpus_with_95_percent, one.gpus_with_median) == (64, 32)


def test_the_fastest_n_within_an_energy_is_recommended() -> None:
    one = recommended(energy_kwh=point(64)["energy_kwh"] * 1.01)
    assert (one.gpus_with_95_percent, one.gpus_with_median) == (32, 64)


def test_cheapest_is_not_always_smallest() -> None:
    # On one GPU a node's other parts draw power for longer: 39 kWh, against 26 on four.
    one = recommended("resnet50-full-lbs256", deadline_h=100)
    assert one.gpus_with_95_percent == one.gpus_with_median == 4


def test_nothing_is_recommended_where_no_point_keeps_the_limit() -> None:
    one = recommended(deadline_h=1)
    assert (one.gpus_with_95_percent, one.gpus_with_median) == (None, None)
    assert one.reason == "none of its points is as fast"
    assert recommended(energy_kwh=1).reason == "none of its points takes as little"


def test_of_a_dataset_that_grows_no_n_is_recommended() -> None:
    one = recommended("resnet50-scaled-lbs256", deadline_h=100)
    assert one.gpus_with_median is None and "its dataset grows with n" in str(one.reason)


def test_without_energies_a_deadline_takes_the_n_of_the_fewest_gpu_hours() -> None:
    plan = make_plan(
        small({"known": KNOWN}), horeka(), without_energies(), deadline_h=8.0, energy_kwh=30.0
    )
    deadline, energy = plan.recommended
    assert (deadline.gpus_with_95_percent, deadline.gpus_with_median, deadline.least) == (
        16,
        16,
        "gpu_hours",
    )
    assert energy.gpus_with_median is None
    assert energy.reason == "the energy of none of its points is known"
    hours = {row["gpus"]: row["gpu_hours"] for row in rows_of(plan, "point")}
    assert hours[16] < hours[64], "64 meets it as well"
    assert recommended_sentences(plan)[0] == (
        "known: within 8 h, the cheapest n (by GPU hours: no energy is known): 16 with 95 % "
        "probability, 16 by the median."
    )


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_positive_number_is_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"--deadline-h: .*; expected a number above 0"):
        recommended(deadline_h=value)
    with pytest.raises(InputError, match="--energy-kwh"):
        recommended(energy_kwh=value)
