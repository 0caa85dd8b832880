"""The table of speed-up, efficiency and energy along each series."""

from __future__ import annotations

import math
from typing import Any

import pytest
import scipy.stats

from scalewatt.results.tables.frames import frame_of, records, to_table
from scalewatt.results.tables.scaling import scaling_of
from scalewatt.results.tables.table_schema import CONFIGURATIONS, SCALING

IDENTITY = {
    **{"campaign": "made", "model": "resnet50", "phase": "train", "device": "a100"},
    **{"device_name": "A100", "local_batch_size": 256, "dataset_samples": 1000},
}


def row(gpus: int, hours: float, energy: float | None = 1.0, sd: float | None = None) -> Any:
    result = dict.fromkeys(CONFIGURATIONS.names) | {
        **IDENTITY,
        **{"configuration": f"c{gpus}", "gpus": gpus, "nodes": 1, "global_batch_size": 256 * gpus},
        **{"n_repeats": 1 if sd is None else 3, "energy_origin": "measured"},
        "energy_scope": "gpu+cpu",
    }
    values = {"runtime_h": hours, "gpu_hours": gpus * hours, "energy_kwh": energy}
    for name, mean in values.items():
        spread = None if sd is None or mean is None else sd * mean
        ends = (None, None) if spread is None else (mean - 2 * spread, mean + 2 * spread)
        result |= {f"{name}_mean": mean, f"{name}_sd": spread}
        result |= {f"{name}_low": ends[0], f"{name}_high": ends[1]}
    return result


def series(*gpus: int) -> dict[str, Any]:
    points = [{"configuration": f"c{n}"} for n in gpus]
    return {"name": "one", "label": "LBS 256", "points": points}


def scaling_rows(series: list[Any], configurations: list[Any]) -> list[Any]:
    result = scaling_of(series, frame_of(configurations, CONFIGURATIONS))
    to_table(result, SCALING)
    return records(result)


def test_speed_up_and_efficiency_are_those_of_the_smallest_n_that_has_runs() -> None:
    rows = scaling_rows([series(1, 2, 4, 8)], [row(2, 8.0), row(4, 5.0), row(8, 4.0)])
    assert [r["smallest_gpus"] for r in rows] == [2, 2, 2]
    assert [r["speedup"] for r in rows] == pytest.approx([2.0, 3.2, 4.0])
    assert [r["efficiency"] for r in rows] == pytest.approx([1.0, 0.8, 0.5])
    assert [r["gpu_hours_ratio"] for r in rows] == pytest.approx([1.0, 1.25, 2.0])


def test_trainings_of_unlike_epochs_have_no_ratios() -> None:
    rows = scaling_rows([series(1, 2)], [row(1, 8.0), row(2, 8.0) | {"epochs": 3}])
    for name in ("speedup", "efficiency", "gpu_hours_ratio", "energy_ratio"):
        assert rows[0][name] == 1.0 and rows[1][name] is None


def welch(value: float, spreads: tuple[float, float], n: int) -> tuple[float, float]:
    """The 95 % interval of a ratio by the logarithms of two means of n repeats."""
    squares = [spread**2 / n for spread in spreads]
    freedom = sum(squares) ** 2 / sum(square**2 / (n - 1) for square in squares)
    half = scipy.stats.t.ppf(0.975, freedom) * math.sqrt(sum(squares))
    return value * math.exp(-half), value * math.exp(half)


@pytest.mark.parametrize("spreads", [(0.03, 0.04), (0.9, 1.2)])
def test_the_interval_of_a_ratio_is_welchs_on_logarithms_and_the_first_has_none(
    spreads: tuple[float, float],
) -> None:
    first, second = spreads
    rows = scaling_rows([series(1, 4)], [row(1, 8.0, sd=first), row(4, 2.5, sd=second)])
    assert rows[0]["efficiency_sd"] is rows[0]["speedup_low"] is None
    assert rows[1]["efficiency_sd"] == pytest.approx(0.8 * math.hypot(*spreads))
    for name, value in (("speedup", 3.2), ("efficiency", 0.8), ("energy_ratio", 1.0)):
        ends = rows[1][f"{name}_low"], rows[1][f"{name}_high"]
        assert ends == pytest.approx(welch(value, spreads, 3), rel=1e-9)
        assert ends[0] > 0


def test_energies_of_another_origin_have_no_ratio() -> None:
    first = {**row(1, 8.0), "energy_origin": "estimated"}
    (_, second) = scaling_rows([series(1, 4)], [first, row(4, 2.5)])
    assert second["energy_ratio"] is None and second["speedup"] is not None


def test_a_dataset_that_grows_with_n_has_no_speed_up() -> None:
    grown = {**row(4, 8.0), "dataset_samples": 4000}
    first, second = scaling_rows([series(1, 4)], [row(1, 8.0), grown])
    assert (first["speedup"], first["efficiency"]) == (1.0, 1.0)
    assert second["speedup"] is second["efficiency"] is second["efficiency_low"] is None
    assert second["gpu_hours_ratio"] == pytest.approx(4.0)
