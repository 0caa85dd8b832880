"""Energy of which a part is missing: stated with what the missing time can have cost, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from energy_files import T0, make_run, write_journal
from run_files import make_spec

import scalewatt
from scalewatt.energies.read import Account

RULES = {
    "time": {"column": "t", "unit": "s"},
    "sensors": [
        {"column": "w", "unit": "W", "kind": "gpu", "index_column": "gpu", "node_column": "host"}
    ],
}


def energy_of(folder: Path, powers: dict[str, np.ndarray]) -> Account:
    """Account for powers in W at each second of a GPU of each node; NaN: no value."""
    rows = [
        {"t": T0 + t, "host": host, "gpu": 0, "w": watts}
        for host, power in powers.items()
        for t, watts in enumerate(power)
    ]
    pd.DataFrame(rows).to_csv(folder / "powers.csv", index=False)
    (folder / "columns.yaml").write_text(json.dumps(RULES))
    return scalewatt.energy(folder / "powers.csv", columns=folder / "columns.yaml")


def interval(account: Account, kind: str = "all") -> list[float | None]:
    return [account.joules(kind, name) for name in ("energy_low_j", "energy_j", "energy_high_j")]


def swinging(n: int, *lost: tuple[int, int]) -> np.ndarray:
    """A power of 300 ± 60 W, one a second, of which some stretches are lost."""
    power = 300 + 60 * np.sin(np.arange(n) / 20)
    for begin, end in lost:
        power[begin:end] = np.nan
    return power


def test_the_interval_of_an_energy_with_holes_contains_the_truth(tmp_path: Path) -> None:
    power = swinging(3601, (601, 658), (1501, 1558), (3001, 3058))
    account = energy_of(tmp_path, {"n1": power})
    low, energy, high = interval(account)
    assert account.coverage == pytest.approx(1 - 174 / 3600)
    assert low == energy < float(np.trapezoid(swinging(3601))) < high
    assert high == pytest.approx(energy + 174 * np.nanmax(power))


def test_a_node_that_lacks_most_is_null_among_many_that_lack_nothing(tmp_path: Path) -> None:
    powers = {f"n{i}": swinging(1001) for i in range(32)} | {"n3": swinging(1001, (400, 1000))}
    account = energy_of(tmp_path, powers)
    assert interval(account) == interval(account, "gpu") == [None] * 3
    assert account.coverage > 0.98 and account.joules(column="recorded_j") > 0
    assert account.devices[account.devices["energy_j"].isna()]["node"].to_list() == ["n3"]


def test_a_node_that_lacks_some_among_many_has_the_truth_in_its_interval(tmp_path: Path) -> None:
    powers = {f"n{i}": swinging(1001) for i in range(32)} | {"n3": swinging(1001, (800, 900))}
    account, true_j = energy_of(tmp_path, powers), float(np.trapezoid(swinging(1001)))
    low, high = account.devices.set_index("node").loc["n3", ["energy_low_j", "energy_high_j"]]
    assert low < true_j < high < low + 101 * 360
    low, _, high = interval(account)
    assert low < 32 * true_j < high


def test_what_a_run_did_outside_of_its_recording_is_in_the_interval(tmp_path: Path) -> None:
    stages = [(0, "startup", 0.0, 20.0), (0, "train", 20.0, 200.0)]
    run = make_run(tmp_path, stages=stages, gpus={"n1": [0]})
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    power = swinging(196)  # until 195 s
    sensors = {"CUDA:0_POWER": 1000 * power}
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", sensors, limits=False)
    account = scalewatt.energy(run)
    of_gpus = account.stages[account.stages["device_kind"] == "gpu"].set_index("stage")
    width_j = (of_gpus["energy_high_j"] - of_gpus["energy_j"]).to_dict()
    outside_j = pytest.approx(5 * power.max(), rel=1e-3)
    assert width_j == {"startup": 0.0, "train": 0.0, "unattributed": outside_j}
    low, energy, high = interval(account, "gpu")
    assert low == energy < float(np.trapezoid(swinging(201))) < high
