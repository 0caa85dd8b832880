"""Being asked to stop: by USR1, by TERM, or by a file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalewatt.common import termination
from scalewatt.common.termination import StopRequest

SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(termination, "time", clock)
    return clock


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_the_schedulers_signal_asks_and_does_not_end_the_process(number: int) -> None:
    request = StopRequest()
    request.install()
    assert not request.asked()
    signal.raise_signal(number)
    assert request.asked()
    assert request.asked(), "a request is not forgotten"
    assert request.requested()


def test_a_stop_file_asks(tmp_path: Path, clock: Clock) -> None:
    request = StopRequest()
    request.stop_file = tmp_path / "stop"
    assert not request.asked()
    request.stop_file.touch()
    clock.now += 1
    assert request.asked()
    request.stop_file.unlink()
    clock.now += 1
    assert request.asked(), "a request is not forgotten"
