"""Whether two devices differ or are equivalent."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from scalewatt.results.tables.comparisons import comparisons_of
from scalewatt.results.tables.frames import frame_of, records, to_table
from scalewatt.results.tables.ratios import ratio_of
from scalewatt.results.tables.table_schema import COMPARISONS, RUNS

VALUES = st.lists(st.floats(50.0, 150.0), min_size=2, max_size=8)


# scipy warns of repeats that are all the same, which a test with this spread may be drawn from.
@pytest.mark.filterwarnings("ignore:Precision loss occurred")
@given(VALUES, VALUES)
def test_the_test_is_that_of_two_one_sided_welch_tests(
    ones: list[float], others: list[float]
) -> None:
    logs = np.log(ones), np.log(others)
    if max(each.std() for each in logs) < 1e-6:
        return
    room = math.log1p(0.05)
    above = stats.ttest_ind(logs[0] + room, logs[1], equal_var=False, alternative="greater").pvalue
    below = stats.ttest_ind(logs[0] - room, logs[1], equal_var=False, alternative="less").pvalue
    assert ratio_of(others, ones)["tost_p"] == pytest.approx(max(above, below), abs=1e-9)


@pytest.mark.parametrize(
    ("ones", "others", "verdict", "equivalent"),
    [
        ([100.0, 101, 99, 100.5, 99.5], [101.0, 100, 102, 101.5, 100.5], "not_apart", True),
        ([100.0, 101, 99, 100.5, 99.5], [120.0, 121, 119, 120.5, 119.5], "higher", False),
        ([120.0, 121, 119, 120.5, 119.5], [100.0, 101, 99, 100.5, 99.5], "lower", False),
        ([100.0, 100.01, 99.99], [101.0, 101.01, 100.99], "higher", True),
        ([100.0, 110, 90], [101.0, 111, 92], "not_apart", False),
        ([100.0], [100.0], "no_interval", None),
        ([100.0], [200.0, 200.0, 200.0], "no_interval", None),
        ([100.0, 100.0], [106.0, 106.0], "no_interval", None),
    ],
)
def test_the_verdict_says_what_the_repeats_can_tell(
    ones: list[float], others: list[float], verdict: str, equivalent: bool | None
) -> None:
    result = ratio_of(ones, others)
    assert (result["verdict"], result.get("equivalent")) == (verdict, equivalent)


def run(device: str, repeat: int = 1, **more: Any) -> dict[str, Any]:
    return dict.fromkeys(RUNS.names) | {
        **{"campaign": "made", "model": "fourcastnet", "phase": "pretrain", "gpus": 16},
        **{"local_batch_size": 1, "global_batch_size": 16, "dataset_samples": 54020},
        **{"epochs": 80, "protocol": "paper", "precision": "fp16", "loader": "hdf5"},
        **{"channels_last": None, "compile": None},
        **{"configuration": f"fourcastnet.pretrain-{device}-n016-lbs0001-full"},
        **{"device": device, "repeat": repeat, "excluded": None, "energy_origin": "measured"},
        **{"energy_scope": "gpu+cpu" if device == "h100" else "gpu+cpu+ram"},
        **{"gpu_energy_kwh": 100.0, "cpu_energy_kwh": 30.0, "ram_energy_kwh": 5.0},
        **{"gpu_hours": 500.0, "runtime_h": 31.25, "metric_last": 40.0},
        **more,
    }


def with_energy(run: dict[str, Any]) -> dict[str, Any]:
    """The run with the energy of the kinds in its scope."""
    kwh = sum(run[f"{kind}_energy_kwh"] for kind in run["energy_scope"].split("+"))
    return {**run, "energy_kwh": kwh, "p_gpuh_kw": kwh / run["gpu_hours"]}


def comparison_rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result = comparisons_of(frame_of(map(with_energy, runs), RUNS))
    to_table(result, COMPARISONS)
    return records(result)


def test_energies_are_compared_over_the_kinds_that_both_devices_have() -> None:
    rows = comparison_rows([run("a100"), run("h100", gpu_energy_kwh=113.0, ram_energy_kwh=None)])
    (energy,) = [row for row in rows if row["quantity"] == "energy_kwh"]
    assert (energy["device"], energy["baseline_device"]) == ("h100", "a100")
    assert energy["energy_scope"] == "gpu+cpu"
    assert energy["ratio"] == pytest.approx(143 / 130)


def by_quantity(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["quantity"]: row for row in rows}


def test_single_runs_have_no_interval() -> None:
    rows = by_quantity(comparison_rows([run("a100"), run("h100")]))
    assert {row["verdict"] for row in rows.values()} == {"no_interval"}
    assert {row["reason"] for row in rows.values()} == {"a single run of each"}
    assert {row["ratio_low"] for row in rows.values()} == {None}


def test_a_setting_without_a_column_of_its_own_makes_another_training() -> None:
    workers = "fourcastnet.pretrain-{}-n016-lbs0001-full-loader_workers8"
    runs = [
        run(device, configuration=configuration)
        for device in ("a100", "h100")
        for configuration in (run(device)["configuration"], workers.format(device))
    ]
    rows = [row for row in comparison_rows(runs) if row["quantity"] == "energy_kwh"]
    assert [(row["n_repeats"], row["baseline_n_repeats"]) for row in rows] == [(1, 1), (1, 1)]
    assert {row["configuration"].rpartition("-")[2] for row in rows} == {"full", "loader_workers8"}


def test_energies_of_unequal_origin_are_not_compared() -> None:
    rows = by_quantity(comparison_rows([run("a100"), run("h100", energy_origin="estimated")]))
    assert rows["runtime_h"]["ratio"] == 1.0
    for name in ("energy_kwh", "p_gpuh_kw"):
        assert (rows[name]["verdict"], rows[name]["reason"]) == ("not_compared", "estimated")
        assert rows[name]["ratio"] is None


@given(VALUES, VALUES)
def test_equivalent_devices_have_their_whole_interval_within_the_margin(
    ones: list[float], others: list[float]
) -> None:
    result = ratio_of(others, ones)
    if result["verdict"] == "no_interval":
        return
    edge = min(result["ratio_low"] - 1 / 1.05, 1.05 - result["ratio_high"])
    if abs(edge) > 1e-9:
        assert result["equivalent"] == (edge > 0)
