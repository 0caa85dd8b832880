"""What follows from a run's energies: net of idle, per model, shares."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.results.tables.derived_quantities import (
    Facility,
    energy_columns,
    with_model_energies,
)
from scalewatt.results.tables.frames import column_of, frame_of, values
from scalewatt.results.tables.table_schema import RUNS

ENERGY = st.floats(1.0, 1e9)
KINDS = ("gpu", "cpu", "ram")
Number = float | None


def column(value: Number) -> pd.Series:
    return column_of([value], pa.float64())


WORK = pd.DataFrame(
    {"gpu_hours": [2.0], "nodes": 1, "samples": 1000, "updates": 10}
    | {"gpu_s": 7200.0, "socket_s": 7200.0, "node_s": 3600.0}
).convert_dtypes(dtype_backend="pyarrow")


def gross_of(parts: dict[str, Number], total: float) -> dict[str, Number]:
    joules = {kind: column(parts.get(kind)) for kind in KINDS}
    result = energy_columns(joules, column(total), WORK, SITE)
    return {name: values(each)[0] for name, each in result.items()}


SITE = Facility(1.2, 300.0, 0.5)


@given(st.tuples(ENERGY, ENERGY, ENERGY))
def test_shares_of_all_kinds_in_scope_add_up_to_one(parts: tuple[float, float, float]) -> None:
    joules: dict[str, Number] = dict(zip(KINDS, parts, strict=True))
    columns = gross_of(joules, sum(parts))
    shares = [columns[f"{kind}_energy_share"] for kind in joules]
    assert sum(share or 0.0 for share in shares) == pytest.approx(1.0)


def row(repeat: int, energy: float | None, began: str | None = None) -> dict[str, Any]:
    name = "tuned" if began else "first"
    return dict.fromkeys(RUNS.names) | {
        **{"configuration": name, "repeat": repeat, "initial_weights": began},
        **{"energy_kwh": energy, "net_energy_kwh": None},
    }


def model_energies(rows: list[Any]) -> list[Any]:
    return values(with_model_energies(frame_of(rows, RUNS))["energy_per_model_kwh"])


def test_a_tuned_model_costs_what_the_training_before_it_cost_too() -> None:
    rows = [row(1, 3.0), row(2, 4.0), row(1, 1.0, "first/1"), row(2, 2.0, "first/2")]
    assert model_energies(rows) == [3.0, 4.0, 4.0, 6.0]


@pytest.mark.parametrize("before", [[], [row(1, None)]], ids=["no run", "no energy"])
def test_a_model_whose_first_training_is_unknown_has_no_energy(before: list[Any]) -> None:
    assert model_energies([*before, row(1, 1.0, "first/1")])[-1] is None


@pytest.mark.parametrize("fact", ["energy_origin", "energy_scope"])
def test_energies_of_unlike_trainings_are_not_added_to_a_models(fact: str) -> None:
    before, after = row(1, 3.0) | {fact: "a"}, row(1, 1.0, "first/1") | {fact: "b"}
    assert model_energies([before, after]) == [3.0, None]
