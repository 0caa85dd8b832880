"""Repeats to means: the sample standard deviation and the 95 % Student-t interval."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from run_files import make_spec, part, row_of

from scalewatt.results.tables.frames import column_of, frame_of, records
from scalewatt.results.tables.published import from_population_sd
from scalewatt.results.tables.repeat_statistics import configurations_of, summarise
from scalewatt.results.tables.table_schema import RUNS, SUMMARY

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@given(VALUES)
def test_mean_sd_and_interval_are_those_of_scipy(values: list[float]) -> None:
    result = summarise(values)
    spread = max(abs(v) for v in values) + 1
    sd = np.std(values, ddof=1)
    assert result["mean"] == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9 * spread)
    assert result["sd"] == pytest.approx(sd, rel=1e-6, abs=1e-9 * spread)
    if sd > 1e-6 * spread:
        low, high = scipy.stats.t.interval(
            0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values)
        )
        ends = result["low"], result["high"]
        assert ends == pytest.approx((low, high), rel=1e-6, abs=1e-9 * spread)


def test_a_single_run_has_a_mean_and_no_spread() -> None:
    assert summarise([4.2]) == {"mean": 4.2, "sd": None, "low": None, "high": None}


@given(st.floats(-1e6, 1e6), st.integers(2, 12))
def test_equal_repeats_have_no_spread_but_a_known_one(value: float, repeats: int) -> None:
    result = summarise([value] * repeats)
    assert result == {"mean": value, "sd": 0, "low": value, "high": value}


@pytest.mark.parametrize("values", [[None], [1.0, None], [None, None], [1.0, None, 3.0]])
def test_one_unknown_repeat_makes_the_mean_unknown(values: list[float | None]) -> None:
    assert summarise(values) == dict.fromkeys(SUMMARY)


def configuration_rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return records(configurations_of(frame_of(runs, RUNS)))


# --- configurations -----------------------------------------------------------------------------


def runs(tmp_path: Path, *energies: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    return [
        row_of(tmp_path, energy, spec=make_spec(repeat=repeat), **more)
        for repeat, energy in enumerate(energies, 1)
    ]


@given(st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=8))
def test_a_population_spread_says_the_same_as_the_values_it_is_of(values: list[float]) -> None:
    whole = summarise(values)
    given_ = (column_of([each], pa.float64()) for each in (whole["mean"], float(np.std(values))))
    (result,) = records(from_population_sd(column_of([len(values)], pa.int32()), *given_))
    for name in SUMMARY:
        assert result[name] == pytest.approx(whole[name], rel=1e-6, abs=1e-9)


def cpu(joules: float | None, seconds: float = 3600, **more: Any) -> list[dict[str, Any]]:
    return [part("cpu", "train", seconds, joules, **more)]


def test_a_configuration_has_the_mean_of_its_repeats(tmp_path: Path) -> None:
    [row] = configuration_rows(runs(tmp_path, cpu(3.6e6), cpu(7.2e6, 7200), cpu(7.2e6, 1800)))
    assert row["n_repeats"] == 3
    assert row["energy_kwh_mean"] == pytest.approx(5 / 3)
    assert row["energy_kwh_sd"] == pytest.approx(math.sqrt(1 / 3))
    assert row["runtime_h_mean"] == pytest.approx((1 + 2 + 0.5) / 3)
    half = scipy.stats.t.ppf(0.975, 2) * math.sqrt(1 / 3) / math.sqrt(3)
    assert row["energy_kwh_low"] == pytest.approx(5 / 3 - half)
    assert row["energy_kwh_high"] == pytest.approx(5 / 3 + half)


def test_an_excluded_run_is_in_no_mean(tmp_path: Path) -> None:
    each, other = runs(tmp_path, cpu(3.6e6), cpu(7.2e6))
    (row,) = configuration_rows([each, {**other, "excluded": "a test"}])
    assert (row["n_repeats"], row["energy_kwh_mean"]) == (1, pytest.approx(1))


def test_measured_and_estimated_repeats_have_no_mean_energy_and_the_row_says_why(
    tmp_path: Path,
) -> None:
    rows = runs(tmp_path, cpu(1.0), cpu(1.0), cpu(2.0, 1800, origin="estimated"))
    (result,) = configuration_rows(rows)
    assert result["energy_unlike"] == "repeats differ in origin (measured, estimated)"
    assert {result[f"{name}_mean"] for name in ("energy_kwh", "cpu_energy_kwh", "p_gpuh_kw")} == {
        None
    }
    assert result["energy_high_kwh"] is result["energy_origin"] is result["energy_scope"] is None
    assert (result["runtime_h_mean"], result["n_repeats"]) == (pytest.approx(2.5 / 3), 3)


def test_repeats_on_cpu_and_gpu_are_not_averaged(tmp_path: Path) -> None:
    first, second = runs(tmp_path, cpu(1.0), cpu(1.0))
    [row] = configuration_rows([first, {**second, "torch_device": "cpu"}])
    assert row["torch_device"] == "several"
    assert row["energy_unlike"] == "repeats differ in torch_device (cuda, cpu)"
    assert row["runtime_h_mean"] is row["energy_kwh_mean"] is None


def test_a_repeat_whose_energy_is_unknown_makes_the_mean_unknown_and_refuses_nothing(
    tmp_path: Path,
) -> None:
    # for example a run that shared its node: flagged node_shared, its energy null
    [row] = configuration_rows(
        runs(tmp_path, cpu(1.0), cpu(None, flags=("node_shared",)), cpu(1.0))
    )
    assert row["energy_kwh_mean"] is None
    assert row["runtime_h_mean"] == 1.0
    assert row["energy_origin"] == "measured"
