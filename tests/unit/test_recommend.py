"""Which n of a series is the cheapest, of those that keep a deadline."""

from __future__ import annotations

import pandas as pd
import pytest
from plan_files import KNOWN, forecaster, paper_plan, rows_of, small, without_energies
from request_files import horeka, paper

from scalewatt.common.errors import InputError
from scalewatt.scaling.planning.plan import make_plan

LBS1 = "fourcastnet-pretrain-lbs1"


def cheapest(plan: pd.DataFrame, series: str) -> list[int]:
    rows = [row for row in rows_of(plan, "point") if row["series"] == series]
    return [row["gpus"] for row in rows if row["cheapest"]]


def within(deadline_h: float) -> pd.DataFrame:
    return make_plan(paper(), horeka(), forecaster(), deadline_h=deadline_h)


def point(gpus: int) -> dict[str, float]:
    rows = rows_of(paper_plan(), "point")
    return next(row for row in rows if (row["series"], row["gpus"]) == (LBS1, gpus))


def test_the_cheapest_n_that_meets_a_deadline_is_recommended() -> None:
    plan = within(24)
    assert cheapest(plan, LBS1) == [64]
    assert point(64)["runtime_h_high"] < 24 < point(32)["runtime_h"]
    assert point(64)["energy_kwh"] < point(128)["energy_kwh"] < point(256)["energy_kwh"]
    assert "in 24 h" in plan.attrs["notes"][0]


def test_where_the_median_meets_it_barely_being_sure_takes_more() -> None:
    assert cheapest(within(point(32)["runtime_h"] * 1.01), LBS1) == [64]


def test_cheapest_is_not_always_smallest() -> None:
    # On one GPU a node's other parts draw power for longer: 39 kWh, against 26 on four.
    assert cheapest(within(100), "resnet50-full-lbs256") == [4]
    assert cheapest(paper_plan(), "resnet50-full-lbs256") == [4]


def test_nothing_is_recommended_where_no_point_keeps_the_limit() -> None:
    assert cheapest(within(1), LBS1) == []


def test_of_a_dataset_that_grows_no_n_is_recommended() -> None:
    rows = [r for r in rows_of(paper_plan(), "point") if r["series"] == "resnet50-scaled-lbs256"]
    assert {row["cheapest"] for row in rows} == {None}


def test_without_energies_no_n_is_the_cheapest() -> None:
    plan = make_plan(small({"known": KNOWN}), horeka(), without_energies())
    assert cheapest(plan, "known") == []
    assert {row["warnings"] for row in rows_of(plan, "point")} == {"its energy is not known"}


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_positive_number_is_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"--deadline-h: .*; expected a number above 0"):
        within(value)
