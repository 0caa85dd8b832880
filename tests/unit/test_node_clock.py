"""Nodes whose clocks differ: stages are noted by rank 0's clock, samples stamped by each node's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from energy_files import T0, Accounted, accounted, gpu, make_run, record
from run_files import make_spec

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
    run = make_run(folder, stages=STAGES, hostnames=("n1", "n2"), segments=[segment])
    watts = gpu(41, 100.0)
    watts[TRAINING] *= 3
    record(run, {"n1": {"CUDA:0_POWER": watts}})
    record(run, {"n2": {"CUDA:0_POWER": watts}}, start=T0 + ahead_s)
    return run


def offset(ahead_s: float, at_s: float = 0.0) -> dict[str, Any]:
    return {"host": "n2", "at_s": T0 + at_s, "offset_s": ahead_s, "uncertainty_s": 1e-5}


def account_of(run: Path) -> Accounted:
    return accounted(run, make_spec(nodes=2, gpus=2, ranks_per_node=1))


def training_j(run: Accounted) -> tuple[float, float]:
    """Energy of training on both nodes."""
    rows = run.tables.energy.query("device_kind == 'gpu' and stage == 'train'").set_index("node")
    return rows["energy_j"]["n1"], rows["energy_j"]["n2"]


@pytest.mark.parametrize(("ahead_s", "words"), [(2.0, "+2.000 s"), (-2.0, "-2.000 s"), (0.4, None)])
def test_a_clock_that_is_off_moves_no_energy_from_one_stage_to_another(
    tmp_path: Path, ahead_s: float, words: str | None
) -> None:
    """An offset below half a sampling period is corrected without a flag."""
    run = account_of(two_nodes(tmp_path / "known", ahead_s, [offset(ahead_s)]))
    first_j, second_j = training_j(run)
    assert first_j == pytest.approx(second_j, rel=1e-6)
    flags = run.flags("clock")
    assert [flag["node"] for flag in flags] == ["n2"] * bool(words)
    assert not words or words in flags[0]["detail"]


def test_the_samples_of_all_nodes_are_traced_by_one_clock(tmp_path: Path) -> None:
    traces = account_of(two_nodes(tmp_path, 2.0, [offset(2.0)])).traces
    rows = traces.select(["node", "time", "power_w", "stage"]).to_pandas()
    first, second = (rows[rows["node"] == node].drop(columns="node") for node in ("n1", "n2"))
    pd.testing.assert_frame_equal(first.reset_index(drop=True), second.reset_index(drop=True))
