"""Power, energy and time on a GPU: what is measured, and what measuring costs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_recordings import of_gpu
from small_trainings import DEVICE, LARGE, RESNET50, in_child, small_spec, trainer_of

from scalewatt.common.termination import ABORT_S
from scalewatt.energies.integrate import validate
from scalewatt.monitoring.perun_session import monitored
from scalewatt.provenance.rank_placement import gpu_identity
from scalewatt.recordings.journal import journal_files, read_journal
from scalewatt.recordings.stage_log import EventLog
from scalewatt.statistics import quantile
from scalewatt.training.history import PHASES

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

IDLE_S, BURST_S, BURSTS = 2.0, 1.0, 4
MATRIX = 8192
BLOCK_S, GROUPS = 1.5, 4


def test_integrated_power_is_the_energy_of_nvmls_counter(tmp_path: Path, nvml: Any) -> None:
    counter_j, power_j, flags = in_child(energies_of_bursts, tmp_path)
    assert counter_j > 0
    assert power_j == pytest.approx(counter_j, rel=0.03), flags


def energies_of_bursts(folder: Path) -> tuple[float, float, list[str]]:
    """Return the energy of bursts of work by the counter and by the recorded power, and the power's flags."""
    # CUDA begins within: perun starts its sampler before, as in a training.
    result = monitored(bursts, (), folder, "segment-000", 0.1, ABORT_S)
    assert result is not None
    index, start_s, end_s, counter_j = result
    sensor = of_gpu(read_journal(journal_files(folder)[0].values()), index)
    power = validate(sensor.block, sensor.column, 0.1)
    return counter_j, float(power.curve.between(start_s, end_s)), [f["code"] for f in power.flags]


def bursts() -> tuple[int, float, float, float]:
    """Work in bursts, idle before, between and after; return the GPU's index, both ends, and its counter."""
    import pynvml

    pynvml.nvmlInit()
    device = torch.device(DEVICE)
    index = gpu_identity(torch.device("cuda", 0)).index if device.type == "cuda" else 0
    assert index is not None, "NVML does not know this GPU: a part of one has no power of its own"
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    kind = torch.float16 if device.type == "cuda" else torch.float32
    matrix = torch.randn((MATRIX, MATRIX), device=device, dtype=kind)
    torch.mm(matrix, matrix)
    torch.cuda.synchronize(device)
    time.sleep(IDLE_S)
    start_s, start_mj = time.time(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    time.sleep(IDLE_S)
    for _ in range(BURSTS):
        until_s = time.monotonic() + BURST_S
        while time.monotonic() < until_s:
            for _ in range(10):
                torch.mm(matrix, matrix)
            torch.cuda.synchronize(device)
        time.sleep(BURST_S)
    time.sleep(IDLE_S)
    end_s, end_mj = time.time(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    time.sleep(0.3)  # a sample after the end
    return index, start_s, end_s, (end_mj - start_mj) * 1e-3


@pytest.mark.parametrize("period_s", [1.0, 0.1])
def test_an_update_takes_no_longer_with_the_sampler(
    tmp_path: Path, nvml: Any, period_s: float
) -> None:
    without_s, with_s = in_child(blocks_with_and_without_sampler, tmp_path, period_s)
    logs = np.log(np.array(with_s) / np.array(without_s))
    half = quantile(logs.size - 1) * np.std(logs, ddof=1) / np.sqrt(logs.size)
    assert np.expm1(np.mean(logs) + half) <= 0.01, (without_s, with_s)


def blocks_with_and_without_sampler(
    folder: Path, period_s: float
) -> tuple[list[float], list[float]]:
    """Return the seconds of blocks of updates without and with the sampler, in the order ABBA."""
    result = monitored(blocks, (folder / "training",), folder, "blocks", period_s, ABORT_S)
    assert result is not None
    return result


def blocks(folder: Path) -> tuple[list[float], list[float]]:
    """Stop the sampler in every second pair of blocks: network, memory and kernels stay the same."""
    (sampler,) = multiprocessing.active_children()
    assert sampler.pid is not None
    trainer = trainer_of(small_spec(RESNET50, **LARGE), folder)
    step = partial(trainer.update, next(iter(trainer.loader)))

    def seconds(updates: int) -> float:
        torch.cuda.synchronize(trainer.device)
        began_s = time.perf_counter()
        for _ in range(updates):
            step()
        torch.cuda.synchronize(trainer.device)
        return time.perf_counter() - began_s

    seconds(3)  # kernels are chosen, and clocks settle
    updates = max(1, round(3 * BLOCK_S / seconds(3)))
    seconds(updates)
    without_s: list[float] = []
    with_s: list[float] = []
    try:
        for sampled in [False, True, True, False] * GROUPS:
            os.kill(sampler.pid, signal.SIGCONT if sampled else signal.SIGSTOP)
            (with_s if sampled else without_s).append(seconds(updates))
    finally:
        os.kill(sampler.pid, signal.SIGCONT)
    return without_s, with_s


def test_phases_add_up_and_train_ends_when_the_gpu_is_done(tmp_path: Path) -> None:
    ratios, left_s = in_child(phases_and_stages, tmp_path)
    # The median epoch counts: what else the node does shifts a short epoch's phases by some percent.
    assert np.median(ratios) == pytest.approx(1.0, abs=0.05), ratios
    assert max(left_s) <= 0.01


class WatchedEvents(EventLog):
    """Stages, and how long the device was still at work when each training stage had ended."""

    def __init__(self, path: Path) -> None:
        self.stage = ""
        self.left_s: list[float] = []
        super().__init__(path, 0)

    def enter(self, stage: str, epoch: int | None = None, at_s: float | None = None) -> None:
        super().enter(stage, epoch, at_s)
        if self.stage == "train":
            ended_s = time.perf_counter()
            torch.cuda.synchronize(torch.device(DEVICE))
            self.left_s.append(time.perf_counter() - ended_s)
        self.stage = stage


def phases_and_stages(folder: Path) -> tuple[list[float], list[float]]:
    """Return phases over clock of all epochs but the first, and what was left at the ends of `train`."""
    events = WatchedEvents(folder / "events.jsonl")
    trainer = trainer_of(small_spec(RESNET50, epochs=4, **LARGE), folder / "phases", events=events)
    trainer.warm_up()
    trainer.run()
    ratios = [
        sum(epoch[f"step_{phase}_s"] for phase in PHASES) * epoch["updates"] / epoch["train_s"]
        for epoch in trainer.history[1:]
    ]
    return ratios, events.left_s
