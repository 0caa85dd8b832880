"""A rank ends in time and with its code, whatever has become of its stderr."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

PATIENCE_S = 60
MODULES = "from scalewatt.common import termination; from scalewatt.execution import rank; "
SHORT = MODULES + "termination.LAST_RESORT_S = termination.ABORT_S = rank.ABORT_S = 0.2; "
WAIT = "import threading; threading.Event().wait()"
# An MPI whose abort never returns, without a real one.
DEAF = """
import sys, threading, types
world = types.SimpleNamespace(Abort=lambda code: threading.Event().wait())
sys.modules["mpi4py"] = types.SimpleNamespace(MPI=types.SimpleNamespace(COMM_WORLD=world))
"""


def full_pipe() -> tuple[int, int]:
    """A pipe that nobody reads and that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(writer, True)
    return reader, writer


def broken_pipe() -> tuple[int, int]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer, writer


@pytest.fixture(params=["broken", "full", "closed"])
def stderr(request: pytest.FixtureRequest) -> Iterator[int | None]:
    """What a rank has for stderr: none that works; None is a closed one."""
    kind = request.param
    if kind == "closed":
        yield None
        return
    ends = broken_pipe() if kind == "broken" else full_pipe()
    yield ends[1]
    for end in set(ends):
        os.close(end)


def code_of(program: str, stderr: int | None) -> int:
    """Exit code of a Python program with this stderr."""
    command = [sys.executable, "-c", program]
    if stderr is None:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
        stderr = subprocess.DEVNULL
    return subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=stderr, timeout=PATIENCE_S
    ).returncode


def test_a_process_that_waits_for_ever_ends_in_time(stderr: int | None) -> None:
    assert code_of(SHORT + "termination.end_within(0.2); " + WAIT, stderr) != 0


def test_a_rank_that_must_end_ends_also_where_mpi_does_not_end_it(stderr: int | None) -> None:
    assert code_of(DEAF + SHORT + "termination.abort(64, 'why')", stderr) != 0


FAILING = """
from pathlib import Path
from types import SimpleNamespace
def fails(): raise OSError("the disk is full")
watch = SimpleNamespace(training_began=fails)
job, ranks = SimpleNamespace(work=Path("/dev/null"), segment=0), SimpleNamespace(rank=0)
rank.guarded_train(watch, job, ranks, None, 0.0)
"""


@pytest.mark.parametrize("stderr", ["broken"], indirect=True)
def test_a_failed_training_ends_the_process_with_its_code(stderr: int | None) -> None:
    assert code_of(MODULES + FAILING, stderr) == 70


@pytest.mark.parametrize("stderr", ["broken"], indirect=True)
def test_a_batch_that_does_not_fit_into_a_gpus_memory_is_refused(stderr: int | None) -> None:
    too_large = FAILING.replace('OSError("the disk', 'OutOfMemoryError("the memory')
    program = f"class OutOfMemoryError(RuntimeError): pass\n{MODULES}{too_large}"
    assert code_of(program, stderr) == 64


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_the_schedulers_signal_asks_for_a_stop_and_does_not_end_the_process(number: int) -> None:
    asks = (
        "request = termination.StopRequest(); request.install(); before = request.asked(); "
        f"signal.raise_signal({number}); said = [before, request.asked(), request.requested()]; "
        "sys.exit(7 if said == [False, True, True] else 1)"
    )
    assert code_of(f"import signal, sys; {MODULES}{asks}", subprocess.DEVNULL) == 7
