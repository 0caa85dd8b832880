"""Nodes whose clocks differ: stages are noted by rank 0's clock, samples stamped by each node's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from energy_files import (
    T0,
    Accounted,
    accounted,
    gpu,
    make_run,
    read_traces,
    write_journal,
    write_perun,
)
from run_files import make_spec

from scalewatt.energies.account import write_energy

NO_POWERS: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}
STAGES = [(0, "startup", 0.0, 10.0), (0, "train", 10.0, 30.0), (0, "shutdown", 30.0, 40.0)]
TRAINING = slice(10, 31)
"""The samples of the stage, one each second."""


def two_nodes(folder: Path, ahead_s: float, offsets: list[dict[str, Any]] | None) -> Path:
    """Record two nodes that work alike, the clock of the second `ahead_s` ahead."""
    ranks = [
        {"rank": i, "local_rank": 0, "host": host, "gpu": 0, "gpu_uuid": None}
        for i, host in enumerate(("n1", "n2"))
    ]
    segment = {"segment": 0, "outcome": "finished", "ranks": ranks, "clock_offsets": offsets}
    make_run(
        folder,
        stages=STAGES,
        hostnames=("n1", "n2"),
        torch_device="cuda",
        segments=[segment],
    )
    watts = gpu(41, 100.0)
    watts[TRAINING] *= 3
    hosts = {"n1": {"CUDA:0_POWER": watts}, "n2": {"CUDA:0_POWER": watts}}
    write_perun(folder / "perun" / "segment-000.hdf5", hosts)
    for name, start_s in (("n1", T0), ("n2", T0 + ahead_s)):
        path = folder / "perun" / f"segment-000.{name}.csv"
        write_journal(path, name, hosts[name], start=start_s)
    return folder


def offset(ahead_s: float, at_s: float = 0.0) -> dict[str, Any]:
    return {"host": "n2", "at_s": T0 + at_s, "offset_s": ahead_s, "uncertainty_s": 1e-5}


def account_of(folder: Path) -> Accounted:
    return accounted(folder, make_spec(nodes=2, gpus=2, ranks_per_node=1), NO_POWERS)


def training_j(found: Accounted) -> dict[str, float]:
    rows = found.energy.to_pylist()
    place = ("gpu", "train")
    return {r["node"]: r["energy_j"] for r in rows if (r["device_kind"], r["stage"]) == place}


@pytest.mark.parametrize("ahead_s", [2.0, -2.0])
def test_a_clock_that_is_off_moves_no_energy_from_one_stage_to_another(
    tmp_path: Path, ahead_s: float
) -> None:
    unknown = training_j(account_of(two_nodes(tmp_path / "unknown", ahead_s, None)))
    assert abs(unknown["n2"] - unknown["n1"]) > 200.0  # what would be wrong
    found = account_of(two_nodes(tmp_path / "known", ahead_s, [offset(ahead_s)]))
    joules = training_j(found)
    assert joules["n2"] == pytest.approx(joules["n1"], rel=1e-6)
    (one,) = found.flags("clock")
    assert one["node"] == "n2"
    assert ("2.000 s ahead" if ahead_s > 0 else "2.000 s behind") in one["detail"]


def test_an_offset_below_half_a_sampling_period_is_corrected_without_a_flag(tmp_path: Path) -> None:
    found = account_of(two_nodes(tmp_path, 0.4, [offset(0.4)]))
    joules = training_j(found)
    assert joules["n2"] == pytest.approx(joules["n1"], rel=1e-6)
    assert "clock" not in found.codes()


def test_a_clock_that_was_set_during_the_run_is_flagged_and_corrects_nothing(
    tmp_path: Path,
) -> None:
    run = two_nodes(tmp_path, 0.0, [offset(0.0), offset(-2.0, at_s=40.0)])
    journal = run / "perun" / "segment-000.n2.csv"
    rows = pd.read_csv(journal)
    rows.loc[30:, "t"] -= 2.0
    rows.to_csv(journal, index=False)
    found = account_of(run)
    joules = training_j(found)
    assert joules["n2"] == pytest.approx(joules["n1"], rel=1e-6)
    _, one = found.flags("clock")
    assert one["detail"].endswith("its stages are not corrected: a clock was set meanwhile")


def test_the_samples_of_all_nodes_are_traced_by_one_clock(tmp_path: Path) -> None:
    run = two_nodes(tmp_path / "run", 2.0, [offset(2.0)])
    spec = make_spec(nodes=2, gpus=2, ranks_per_node=1)
    (tmp_path / "spec.json").write_text(spec.text)
    tables = tmp_path / "traces.parquet", tmp_path / "energy.parquet"
    write_energy(run, tmp_path / "spec.json", NO_POWERS, *tables)
    rows = read_traces(tables[0]).select(["node", "time", "power_w", "stage"]).to_pylist()
    first, second = ([{**r, "node": None} for r in rows if r["node"] == n] for n in ("n1", "n2"))
    assert first == second
