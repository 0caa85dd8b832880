"""Energy of which a part is missing: stated with what the missing time can have cost, or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def write_powers(
    folder: Path, devices: dict[tuple[str, int], np.ndarray], limit_w: float | None = None
) -> tuple[Path, Path]:
    """Write powers in W at each second of devices (node, index), NaN: no value; and what its columns mean."""
    rows = [
        {"t": T0 + t, "host": host, "gpu": index, "w": watts}
        for (host, index), power in devices.items()
        for t, watts in enumerate(power)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(folder / "powers.csv", index=False)
    rules = json.loads(json.dumps(RULES))
    if limit_w is not None:
        rules["sensors"][0]["limit_w"] = limit_w
    (folder / "columns.yaml").write_text(json.dumps(rules))
    return folder / "powers.csv", folder / "columns.yaml"


def energy_of(folder: Path, *powers: Any, stages: Path | None = None, **how: Any) -> Account:
    path, columns = write_powers(folder, *powers, **how)
    return scalewatt.energy(path, stages, columns=columns)


def interval(found: Account, kind: str = "all") -> list[float | None]:
    return [found.joules(kind, name) for name in ("energy_low_j", "energy_j", "energy_high_j")]


HOUR = 3601
HOLES = [(600, 658), (1500, 1558), (3000, 3058)]


def swinging(n: int = HOUR) -> np.ndarray:
    """Return a power of 300 ± 60 W, one a second."""
    return 300 + 60 * np.sin(np.arange(n) / 20)


def with_holes(power: np.ndarray) -> np.ndarray:
    power = power.copy()
    for begin, end in HOLES:
        power[begin + 1 : end] = np.nan
    return power


def test_the_interval_of_an_energy_with_holes_contains_the_truth(tmp_path: Path) -> None:
    power = swinging()
    true_j = float(np.trapezoid(power))
    recorded = with_holes(power)
    found = energy_of(tmp_path, {("n1", 0): recorded})
    low, energy, high = interval(found)
    assert found.coverage == pytest.approx(1 - 174 / 3600)
    assert low == energy < true_j < high
    assert high == pytest.approx(energy + 174 * np.nanmax(recorded))


def test_a_node_without_a_value_is_null_and_so_is_the_total(tmp_path: Path) -> None:
    powers = {(f"node{i:02d}", 0): np.full(60, 300.0) + i for i in range(64)}
    powers["node07", 0] = np.full(60, np.nan)
    found = energy_of(tmp_path, powers)
    energies = found.devices.set_index("node").energy_j
    assert energies.isna().to_dict() == {node: node == "node07" for node, _ in powers}
    assert energies["node08"] == pytest.approx(59 * 308)
    assert interval(found) == interval(found, "gpu") == [None] * 3
    assert found.joules(column="recorded_j") > 0


def test_a_node_that_lacks_most_is_null_among_many_that_lack_nothing(tmp_path: Path) -> None:
    powers = {(f"n{i}", 0): swinging(1001) for i in range(32)}
    powers["n3", 0][400:1000] = np.nan
    found = energy_of(tmp_path, powers)
    assert found.joules() is None and found.coverage > 0.98
    assert found.devices[found.devices.energy_j.isna()].node.to_list() == ["n3"]


def test_a_node_that_lacks_some_among_many_has_the_truth_in_its_interval(tmp_path: Path) -> None:
    powers = {(f"n{i}", 0): swinging(1001) for i in range(32)}
    powers["n3", 0][800:900] = np.nan
    true_j = float(np.trapezoid(swinging(1001)))
    found = energy_of(tmp_path, powers)
    low, high = found.devices.set_index("node").loc["n3", ["energy_low_j", "energy_high_j"]]
    assert low < true_j < high < low + 101 * 360
    low, _, high = interval(found)
    assert low < 32 * true_j < high


def test_what_a_run_did_outside_of_its_recording_is_in_the_interval(tmp_path: Path) -> None:
    stages = [(0, "startup", 0.0, 20.0), (0, "train", 20.0, 200.0)]
    run = make_run(tmp_path, stages=stages, gpus={"n1": [0]})
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    power = swinging(196)  # until 195 s
    sensors = {"CUDA:0_POWER": 1000 * power}
    write_journal(run / "perun" / "segment-000.n1.csv", "n1", sensors, limits=False)
    found = scalewatt.energy(run)
    gpus = found.stages[found.stages.device_kind == "gpu"].set_index("stage")
    width_j = gpus.energy_high_j - gpus.energy_j
    assert width_j.to_dict() == {
        **{"startup": 0.0, "train": 0.0, "unattributed": pytest.approx(5 * power.max(), rel=1e-3)}
    }
    low, energy, high = interval(found, "gpu")
    assert low == energy < float(np.trapezoid(swinging(201))) < high
