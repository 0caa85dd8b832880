"""Calls in a child process: what does not return is ended, and the next call is served."""

from __future__ import annotations

import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.common.limited_calls import CallFailed, Limits, call_limited, interrupt_call

LIMITS = Limits(cpu_s=1, wall_s=60, memory_bytes=1 << 30)


def pid() -> int:
    """Return the number of the child process that serves now."""
    return call_limited(os.getpid, limits=LIMITS)


def test_one_child_serves_all_calls() -> None:
    assert pid() == pid() != os.getpid()


def test_arrays_come_back_as_they_are() -> None:
    found = call_limited(np.arange, 1_000_000, limits=LIMITS)
    assert (found == np.arange(1_000_000)).all() and found.flags.writeable


def test_a_call_that_computes_for_ever_is_ended_and_the_next_is_served() -> None:
    before, began = pid(), time.monotonic()
    with pytest.raises(CallFailed, match="over 1 s of computing"):
        call_limited(re.fullmatch, "(a+)+$", "a" * 60 + "b", limits=LIMITS)
    assert time.monotonic() - began < 30 and pid() != before


def test_a_call_that_waits_for_ever_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalewatt.common.limited_calls._START_S", 0.5)
    with pytest.raises(CallFailed, match="over 0 s"):
        call_limited(time.sleep, 600, limits=Limits(1, 0.4, 1 << 30))
    assert pid()


def test_the_death_of_the_child_is_told_by_its_signal_or_its_last_words() -> None:
    with pytest.raises(CallFailed, match="SIGABRT"):
        call_limited(os.abort, limits=LIMITS)
    with pytest.raises(CallFailed, match="exit code 3: gone"):
        call_limited(os.execv, sys.executable, [sys.executable, "-c", GONE], limits=LIMITS)
    assert pid()


def test_a_call_of_another_thread_can_be_interrupted() -> None:
    with ThreadPoolExecutor(1) as other:
        before = pid()
        waiting = other.submit(call_limited, time.sleep, 600, limits=LIMITS)
        while not waiting.running():
            time.sleep(0.01)
        time.sleep(0.2)
        interrupt_call()
        with pytest.raises(CallFailed, match="SIGKILL"):
            waiting.result(30)
    interrupt_call()  # nobody waits: nothing ends
    assert pid() == pid() != before


GONE = "import sys; print('gone', file=sys.stderr); sys.exit(3)"


def test_memory_over_the_limit_is_refused_and_no_more_harm() -> None:
    with pytest.raises(CallFailed):
        call_limited(np.ones, 1 << 30, limits=LIMITS)
    assert pid()


def test_errors_keep_their_words() -> None:
    with pytest.raises(CallFailed, match="invalid literal"):
        call_limited(int, "x", limits=LIMITS)
    with pytest.raises(InputError, match="/no/such"):
        call_limited(read_json, Path("/no/such"), limits=LIMITS)


def test_a_forked_process_starts_a_child_of_its_own() -> None:
    ours = pid()
    read, write = os.pipe()
    if (forked := os.fork()) == 0:
        os.write(write, str(pid()).encode())
        os._exit(0)
    os.waitpid(forked, 0)
    assert int(os.read(read, 20)) != ours == pid()


def test_an_answer_that_was_broken_off_is_not_taken_for_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken_off(_: Any) -> Any:
        raise MemoryError

    before = pid()
    with monkeypatch.context() as broken:
        broken.setattr("scalewatt.common.limited_calls._receive", broken_off)
        with pytest.raises(MemoryError):
            pid()
    assert pid() != before
