"""What a model cost, with the trainings that it started from."""

from __future__ import annotations

from typing import Any

import pytest

from scalewatt.results.tables.derived_quantities import with_model_energies
from scalewatt.results.tables.frames import frame_of, values
from scalewatt.results.tables.table_schema import RUNS


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
