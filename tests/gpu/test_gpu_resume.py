"""Trainings on a GPU in several segments: stopped or killed, and resumed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from small_trainings import (
    FOURCASTNET,
    RESNET50,
    differences,
    distance,
    energies_of,
    prepared,
    run_updates,
    small_spec,
)
from training import Training, rank_processes

from scalewatt.run_files.record import read_position, read_progress, read_segments

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

BY_SPEED = 0.1
"""How far weights may be apart, relative to their way since the stop, where kernels are chosen by speed."""
INTO_EPOCH_S = 0.4


@pytest.mark.parametrize(
    ("model", "protocol"),
    [(RESNET50, "paper"), (RESNET50, "corrected"), (FOURCASTNET, "corrected")],
)
def test_a_resumed_training_equals_an_uninterrupted_one(
    tmp_path: Path, model: str, protocol: str
) -> None:
    made = small_spec(model, protocol=protocol)
    steps = made.updates_per_epoch or 0
    first, total = steps // 2, steps + steps // 3
    cut = prepared(tmp_path / "cut", made)
    stopped = run_updates(cut, first)
    resumed = run_updates(cut, total - first)
    whole = run_updates(prepared(tmp_path / "whole", made), total)
    for state in (whole, resumed):
        assert state["epoch"] * steps + state["step"] == total
        assert all(bool(torch.isfinite(part).all()) for part in state["network"].values())
    apart = differences(whole, resumed)
    if (model, protocol) == (RESNET50, "paper"):  # deterministic kernels
        assert not apart
    way = distance(whole["network"], stopped["network"])
    assert distance(whole["network"], resumed["network"]) <= BY_SPEED * way, apart


def test_after_a_killed_rank_the_next_start_resumes_and_lost_energy_is_known(
    tmp_path: Path,
) -> None:
    training = prepared(tmp_path / "killed", small_spec(FOURCASTNET, dataset_samples=960, epochs=3))
    process = training.start()
    while not is_within_second_epoch(training):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    (rank,) = rank_processes(process.pid)
    rank.kill()
    output, _ = process.communicate()
    assert process.returncode not in (0, 75), output
    (killed,) = read_segments(training.work)
    assert killed["outcome"] in ("failed", "killed")
    code, output = training.run()
    assert code == 0, output
    resumed = read_segments(training.work)[-1]
    assert resumed["from_updates"] == killed["to_updates"] > 0
    lost_j = energies_of(training).discarded_j("gpu")
    assert lost_j is not None and lost_j > 0


def is_within_second_epoch(training: Training) -> bool:
    """Return True once work of the second epoch is done that no checkpoint has yet."""
    if not list((training.folder / "work").glob("*/checkpoint.pt")):
        return False
    progress, position = read_progress(training.work), read_position(training.work)
    if (
        progress is None
        or position is None
        or progress["stage"] != "train"
        or progress["epoch"] < 1
    ):
        return False
    return time.time() - position["written_s"] > INTO_EPOCH_S
