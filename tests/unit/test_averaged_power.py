"""GPUs whose sensor reports the mean over the second before: the edges of stages are where they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from energy_files import make_run, record
from run_files import make_spec

import scalewatt

SECONDS = 130
LOW_W, HIGH_W = 100.0, 500.0
END_S = 90.0
MOST_MISPLACED_S = 9 / 32
"""Seconds of a step in power that are put to the wrong side of an edge at most. With the edge x s after a
sample, the next one shows 1 - x of the step, at the middle between them; the power is even between such
middles: before the edge (x + 1/2) (1 - x) / 2 of the step are too much, 9/32 at most."""


def true_j(time_s: np.ndarray, begin_s: float, after_w: float) -> np.ndarray:
    """Energy until a time of 100 W, in training 500 W, then `after_w`."""
    knots = np.array([-10.0, begin_s, END_S, 1e3])
    used = np.cumsum(np.array([LOW_W, HIGH_W, after_w]) * np.diff(knots))
    return np.interp(time_s, knots, [0.0, *used])


def read_w(begin_s: float, after_w: float) -> np.ndarray:
    """Mean power over the second before each second."""
    time_s = np.arange(SECONDS + 1.0)
    until_j = true_j(time_s, begin_s, after_w)
    return until_j - true_j(time_s - 1, begin_s, after_w)


def stage_energies(folder: Path, watts: np.ndarray, begin_s: float, device: str) -> np.ndarray:
    """Energies of start-up, training and validation by the account of a run on one GPU."""
    edges = [0.0, begin_s, END_S, float(SECONDS)]
    names = ("startup", "train", "validate")
    stages = [(0, name, *edges[i : i + 2]) for i, name in enumerate(names)]
    run = make_run(folder, stages=stages, gpus={"n1": [0]}, device_name=device)
    (run / "spec.json").write_text(make_spec(ranks_per_node=1).text)
    record(run, {"n1": {"CUDA:0_POWER": 1000 * watts}})
    account = scalewatt.energy(run)
    of_gpus = account.stages[account.stages["device_kind"] == "gpu"]
    assert account.coverage == 1.0 and of_gpus["stage"].tolist() == list(names)
    return of_gpus["energy_j"].to_numpy()


@pytest.mark.parametrize("begin_s", [40.0, 40.25, 40.5, 40.9])
@pytest.mark.parametrize("after_w", [LOW_W, 300.0, HIGH_W])
def test_a_stage_of_an_h100_has_the_energy_that_was_used_in_it(
    tmp_path: Path, begin_s: float, after_w: float
) -> None:
    watts = read_w(begin_s, after_w)
    energies = stage_energies(tmp_path, watts, begin_s, "NVIDIA H100 80GB HBM3")
    until_j = true_j(np.array([0.0, begin_s, END_S, SECONDS]), begin_s, after_w)
    first_w, last_w = HIGH_W - LOW_W, HIGH_W - after_w
    steps_w = np.array([first_w, first_w + last_w, last_w])
    assert (np.abs(energies - np.diff(until_j)) <= MOST_MISPLACED_S * steps_w + 1e-3).all()
    assert energies.sum() == pytest.approx(until_j[-1] - until_j[0], rel=1e-9)


@pytest.mark.parametrize("device_name", ["NVIDIA A100-SXM4-40GB", "a GPU that nobody knows"])
def test_a_power_that_is_not_known_to_be_averaged_counts_at_its_stamp(
    tmp_path: Path, device_name: str
) -> None:
    watts = read_w(40.0, LOW_W)
    edges = [(0, 40), (40, 90), (90, SECONDS)]
    expected = [np.trapezoid(watts[begin : end + 1]) for begin, end in edges]
    energies = stage_energies(tmp_path, watts, 40.0, device_name)
    assert energies.tolist() == pytest.approx(expected)
