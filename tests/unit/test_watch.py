"""The watch of a rank over its sampler, by the journal's growth."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from scalewatt.execution import rank
from scalewatt.execution.rank import SamplerWatch

STEM = "segment-000"
LIMIT_S = 30


@pytest.fixture
def sampler() -> Iterator[BaseProcess]:
    """A child process as perun starts its sampler."""
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    yield process
    process.kill()
    process.join()


@pytest.fixture
def losses() -> list[str]:
    return []


@pytest.fixture
def watch(tmp_path: Path, losses: list[str], monkeypatch: pytest.MonkeyPatch) -> SamplerWatch:
    monkeypatch.setattr(rank, "CHECK_INTERVAL_S", 600.0)  # the tests check themselves
    journal = tmp_path / f"{STEM}.{socket.gethostname()}.csv"
    return SamplerWatch(journal, LIMIT_S, losses.append)


def grow(folder: Path) -> None:
    with open(folder / f"{STEM}.{socket.gethostname()}.csv", "ab") as file:
        file.write(b"sample")


def look(watch: SamplerWatch, seconds: int) -> None:
    for _ in range(seconds):
        watch.check(1.0)


def test_a_sampler_whose_journal_grows_is_left_alone(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess
) -> None:
    watch.training_began()
    for _ in range(20):
        grow(tmp_path)
        look(watch, 25)
    assert watch.lost is None
    assert sampler.is_alive()


def test_a_sampler_that_takes_no_sample_is_ended_once(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    watch.training_began()
    grow(tmp_path)
    look(watch, 30)
    assert watch.lost is None
    look(watch, 40)
    sampler.join(30)
    assert sampler.exitcode == -9
    (reason,) = losses
    assert reason == watch.lost
    assert f"process {sampler.pid}" in reason and "no sample for 31 s" in reason


def test_a_loss_is_reported_when_the_training_ends(
    watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    watch.training_began()
    sampler.kill()
    sampler.join()
    assert watch.training_ended() == losses[0] and "has ended" in losses[0]
    assert len(losses) == 1
    without = SamplerWatch(None, LIMIT_S, losses.append)
    without.training_began()
    assert without.training_ended() is None
