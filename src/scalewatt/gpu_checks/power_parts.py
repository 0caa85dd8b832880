"""What checks do under perun and this project's sampler, in their own process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scalewatt.common.termination import ABORT_S
from scalewatt.energies.integration.integrate import validate
from scalewatt.gpu_checks.check_types import CheckSkipped
from scalewatt.gpu_checks.measuring_checks import PERIODS_S
from scalewatt.gpu_checks.network_parts import joined, large_images, trainer_of
from scalewatt.gpu_checks.small_trainings import FOURCASTNET, small_spec
from scalewatt.monitoring.perun_session import monitored
from scalewatt.provenance.versions import gpu_identity
from scalewatt.recordings.journal import read_journal
from scalewatt.recordings.series import SensorSeries
from scalewatt.training.step_timer import finish

_STEM = "check"


@dataclass(frozen=True)
class Counted:
    """NVML's counter of a GPU at two moments (Unix s, J)."""

    start_s: float
    end_s: float
    start_j: float
    end_j: float


def working_nvml() -> Any:
    """Return pynvml; CheckSkipped if it does not answer, or knows no GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetHandleByIndex(0)
    except Exception as error:  # no binding, no driver, no GPU
        raise CheckSkipped(f"NVML does not answer ({error!r})") from error
    return pynvml


# --- power against the counter --------------------------------------------------------------------


def power_and_counter(folder: Path, rehearse: bool) -> dict[str, Any]:
    """Return a GPU's energy over bursts of work, by its power as recorded and by its counter, in J."""
    nvml = working_nvml()
    recording = folder / "perun"
    recording.mkdir()
    # CUDA begins within: perun starts its sampler before, as in a training.
    found = monitored(_bursts, (nvml, rehearse), recording, _STEM, 0.1, "gpu-check", ABORT_S)
    if found is None:
        raise RuntimeError("perun caught an error in the bursts of work")
    index, counted = found
    if counted is None:
        raise CheckSkipped(
            "NVML does not know this GPU (a partition of one has no power of its own)"
        )
    series = _power_series(recording, index)
    validated = validate(series, 0.1)
    return {
        **asdict(counted),
        "counter_j": counted.end_j - counted.start_j,
        "power_j": float(validated.curve.between(counted.start_s, counted.end_s)),
        "samples": int(series.time_s.size),
        "flags": sorted({one["code"] for one in validated.flags}),
    }


def _power_series(recording: Path, index: int) -> SensorSeries:
    (path,) = recording.glob("*.journal")
    wanted = ("gpu", index, "power")
    (found,) = (
        one
        for one in read_journal(path).series
        if (one.device_kind, one.device_index, one.quantity) == wanted
    )
    return found


def _bursts(nvml: Any, rehearse: bool) -> tuple[int | None, Counted | None]:
    """Work in bursts of a second, idle before, between and after; both ends at idle power.

    Returns NVML's index of the GPU and its counter; None if NVML does not know it.
    """
    index = 0 if rehearse else gpu_identity(torch.device("cuda", 0)).index
    if index is None:
        return None, None
    idle_s, burst_s, bursts = (0.5, 0.5, 3) if rehearse else (2.0, 1.0, 4)
    device = torch.device("cpu" if rehearse else "cuda")
    work = _multiplications(device, 64 if rehearse else 8192)
    work()
    finish(device)
    time.sleep(idle_s)
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    start_s, start_j = time.time(), nvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3
    time.sleep(idle_s)
    for _ in range(bursts):
        until_s = time.monotonic() + burst_s
        while time.monotonic() < until_s:
            work()
            finish(device)
        time.sleep(burst_s)
    time.sleep(idle_s)
    end_s, end_j = time.time(), nvml.nvmlDeviceGetTotalEnergyConsumption(handle) * 1e-3
    time.sleep(0.3)  # a sample after the end
    return index, Counted(start_s, end_s, start_j, end_j)


def _multiplications(device: torch.device, size: int) -> Callable[[], None]:
    kind = torch.float32 if device.type == "cpu" else torch.float16
    one = torch.randn((size, size), device=device, dtype=kind)

    def work() -> None:
        for _ in range(10):
            torch.mm(one, one)

    return work


# --- what the sampler costs -----------------------------------------------------------------------


def sampler_cost(folder: Path, rehearse: bool) -> dict[str, Any]:
    """Return, by sampling period, the seconds of blocks of updates without and with the sampler.

    Blocks come in the order ABBA (A without, B with). For A the sampler is stopped, so that network,
    memory and kernels are the same in both.
    """
    working_nvml()
    found = {}
    for period_s in PERIODS_S:
        recording = folder / f"perun-{period_s:g}"
        recording.mkdir()
        args = (folder / f"training-{period_s:g}", rehearse)
        blocks = monitored(_blocks, args, recording, _STEM, period_s, "gpu-check", ABORT_S)
        if blocks is None:
            raise RuntimeError("perun caught an error in the training")
        found[f"{period_s:g}"] = blocks
    return found


def _blocks(folder: Path, rehearse: bool) -> dict[str, Any]:
    block_s, groups = (0.2, 2) if rehearse else (1.5, 4)
    (sampler,) = multiprocessing.active_children()
    assert sampler.pid is not None
    spec = small_spec(True, FOURCASTNET) if rehearse else large_images()
    trainer = trainer_of(spec, folder, rehearse)
    step = partial(trainer.update, next(iter(trainer.loader)), trainer.batches.steps)
    _, device = joined(rehearse)
    updates = _updates_in(step, block_s, device)
    without: list[float] = []
    with_it: list[float] = []
    try:
        for sampled in [False, True, True, False] * groups:
            os.kill(sampler.pid, signal.SIGCONT if sampled else signal.SIGSTOP)
            (with_it if sampled else without).append(_seconds(step, updates, device))
    finally:
        os.kill(sampler.pid, signal.SIGCONT)
    return {"updates": updates, "without_s": without, "with_s": with_it}


def _updates_in(step: Callable[[], None], seconds: float, device: torch.device) -> int:
    """Return how many updates take so long, once kernels are chosen and clocks have settled."""
    few = 3
    _seconds(step, few, device)
    for _ in range(2):
        few = max(1, round(few * seconds / 2 / _seconds(step, few, device)))
    return max(1, 2 * few)


def _seconds(step: Callable[[], None], updates: int, device: torch.device) -> float:
    finish(device)
    began_s = time.perf_counter()
    for _ in range(updates):
        step()
    finish(device)
    return time.perf_counter() - began_s
