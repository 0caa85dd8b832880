"""The watch of a rank: over its sampler, by the journal's growth, and over its fellows."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from scalewatt.energy import watch as watch_module
from scalewatt.energy.watch import (
    Limits,
    PeerWatch,
    SamplerWatch,
    Watch,
    lost_path,
    read_losses,
)
from scalewatt.files import write_json

STEM = "segment-000"
LIMITS = Limits(journal_start_s=60, journal_silence_s=30)


@pytest.fixture
def child() -> Iterator[Callable[[], BaseProcess]]:
    """Starts child processes as perun starts its sampler."""
    started = []

    def start() -> BaseProcess:
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.fixture
def sampler(child: Callable[[], BaseProcess]) -> BaseProcess:
    return child()


@pytest.fixture
def losses() -> list[str]:
    return []


@pytest.fixture
def watch(tmp_path: Path, losses: list[str]) -> SamplerWatch:
    return SamplerWatch(tmp_path, STEM, 1.0, LIMITS, losses.append)


def grow(folder: Path, suffix: str = "", host: str | None = None) -> None:
    with open(folder / f"{STEM}.{host or socket.gethostname()}{suffix}.journal", "ab") as file:
        file.write(b"sample")


def look(watch: SamplerWatch, seconds: int) -> None:
    for _ in range(seconds):
        watch.check(1.0)


def test_a_sampler_whose_journal_grows_is_left_alone(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess
) -> None:
    watch.began()
    for _ in range(20):
        grow(tmp_path)
        look(watch, 25)
    assert watch.lost is None
    assert sampler.is_alive()


def test_a_sampler_that_takes_no_sample_is_ended_once(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    watch.began()
    grow(tmp_path)
    look(watch, 30)
    assert watch.lost is None
    look(watch, 40)
    sampler.join(30)
    assert sampler.exitcode == -9
    (reason,) = losses
    assert reason == watch.lost
    assert f"process {sampler.pid}" in reason and "no sample for 31 s" in reason


def test_a_slow_sampler_may_be_silent_for_ten_periods(
    tmp_path: Path, sampler: BaseProcess, losses: list[str]
) -> None:
    watch = SamplerWatch(tmp_path, STEM, 10.0, LIMITS, losses.append)
    watch.began()
    grow(tmp_path)
    look(watch, 100)
    assert watch.lost is None
    look(watch, 2)
    assert watch.lost is not None


def test_a_sampler_that_writes_no_journal_is_lost(
    watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    watch.began()
    look(watch, 60)
    assert not losses
    look(watch, 2)
    assert "no journal" in losses[0]


def test_a_sampler_that_holds_up_the_start_is_ended(
    watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    look(watch, 62)
    sampler.join(30)
    assert sampler.exitcode == -9
    assert losses


def test_the_start_may_take_its_time_once_there_is_a_journal(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess
) -> None:
    look(watch, 50)
    grow(tmp_path)
    look(watch, 500)
    assert watch.lost is None
    watch.began()
    look(watch, 30)
    assert watch.lost is None


def test_a_sampler_that_has_ended_is_lost_at_once(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    watch.began()
    grow(tmp_path)
    look(watch, 1)
    sampler.kill()
    sampler.join()
    look(watch, 1)
    assert "has ended" in losses[0]


def test_a_training_without_a_sampler_is_noticed(watch: SamplerWatch, losses: list[str]) -> None:
    look(watch, 100)
    assert not losses
    watch.began()
    look(watch, 1)
    assert losses == ["perun runs no sampler"]


def test_a_training_s_other_children_are_never_ended(
    watch: SamplerWatch, sampler: BaseProcess, child: Callable[[], BaseProcess]
) -> None:
    watch.began()
    loader = child()
    look(watch, 62)
    sampler.join(30)
    assert sampler.exitcode == -9
    assert loader.is_alive()


def test_only_this_host_s_journal_counts(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    watch.began()
    for _ in range(62):
        grow(tmp_path, host=f"{socket.gethostname()}0")
        look(watch, 1)
    assert "no journal" in losses[0]


def test_a_journal_of_a_second_start_counts(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess
) -> None:
    watch.began()
    grow(tmp_path)
    for _ in range(62):
        grow(tmp_path, suffix=".1")
        look(watch, 1)
    assert watch.lost is None


class Clock:
    """A machine that sleeps for an hour each time this process wants to sleep for a second."""

    def __init__(self, stop: Callable[[], None], rounds: int) -> None:
        self.now, self.stop, self.rounds = 0.0, stop, rounds

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 3600.0
        self.rounds -= 1
        if self.rounds == 0:
            self.stop()


def test_the_time_for_which_a_job_was_suspended_is_not_the_sampler_s_fault(
    tmp_path: Path, watch: SamplerWatch, sampler: BaseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watch(watch, PeerWatch([], pytest.fail))
    one.training_began()
    grow(tmp_path)
    monkeypatch.setattr(watch_module, "time", Clock(one.stop, rounds=10))
    one.start()
    one._thread.join(60)
    assert not one._thread.is_alive()
    assert watch.lost is None


def test_after_the_training_the_sampler_may_end(
    watch: SamplerWatch, sampler: BaseProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Watch(watch, PeerWatch([], pytest.fail))
    one.training_began()
    monkeypatch.setattr(watch_module, "time", Clock(one.stop, rounds=10))
    one._watching.set()
    assert one.training_ended() is False
    sampler.kill()
    sampler.join()
    one._run()
    assert watch.lost is None


def test_a_loss_is_told_when_the_training_ends(
    watch: SamplerWatch, sampler: BaseProcess, losses: list[str]
) -> None:
    one = Watch(watch, PeerWatch([], pytest.fail))
    one.training_began()
    sampler.kill()
    sampler.join()
    assert one.training_ended() is True
    assert len(losses) == 1
    assert Watch(None, PeerWatch([], pytest.fail)).training_ended() is False


# --- fellow ranks -------------------------------------------------------------------------------


@pytest.fixture
def peer() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def test_a_dead_fellow_is_told_at_the_second_look(peer: subprocess.Popen[bytes]) -> None:
    deaths: list[int] = []
    peers = PeerWatch([peer.pid], deaths.append)
    peers.check()
    peer.kill()
    peer.wait()
    peers.check()
    assert deaths == []
    peers.check()
    assert deaths == [peer.pid]


def test_a_fellow_whose_parent_has_not_noticed_its_death_is_dead(
    peer: subprocess.Popen[bytes],
) -> None:
    deaths: list[int] = []
    peers = PeerWatch([peer.pid], deaths.append)
    peer.kill()
    until = time.monotonic() + 30
    while not deaths and time.monotonic() < until:  # it is not waited for: a zombie
        peers.check()
    assert deaths == [peer.pid]


def test_living_fellows_and_unknown_ones_are_no_deaths(peer: subprocess.Popen[bytes]) -> None:
    unknown = subprocess.Popen([sys.executable, "-c", ""])
    unknown.wait()
    peers = PeerWatch([peer.pid, unknown.pid], pytest.fail)
    for _ in range(5):
        peers.check()


# --- ends ---------------------------------------------------------------------------------------


def exit_code_of(program: str) -> int:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, timeout=60).returncode


def test_a_process_that_waits_for_ever_ends_in_time() -> None:
    program = "from scalewatt.energy.watch import end_within; end_within(0.2); "
    assert exit_code_of(program + "import threading; threading.Event().wait()") == 1


def test_a_rank_ends_all_with_its_code() -> None:
    assert exit_code_of("from scalewatt.energy.watch import abort; abort(64)") == 64


def test_what_the_ranks_say_of_a_segment_s_losses_is_read(tmp_path: Path) -> None:
    for stem, host in ((STEM, "n2"), (STEM, "n1"), ("segment-001", "n1")):
        loss = {"host": host, "reason": "the sampler has ended", "t": 1.0}
        write_json(lost_path(tmp_path, stem, host), loss)
    assert [loss["host"] for loss in read_losses(tmp_path, STEM)] == ["n1", "n2"]
    assert read_losses(tmp_path, "segment-002") == []
