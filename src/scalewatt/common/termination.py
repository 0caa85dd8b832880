"""Stop requests to a rank, its last words, its exit code and its end, whatever state it is in."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

ABORT_S = 10.0
"""Seconds that a rank may take to end itself through MPI."""
LAST_RESORT_S = 5.0
"""Seconds after which the kernel ends a process that cannot even print its stack."""
FORWARDING_S = 0.5
"""Seconds that a launcher may need to pass on a rank's last words; after an abort it drops the rest."""
_FILE_CHECK_INTERVAL_S = 0.5
STOP_FILE = "stop"


class ExitCode(IntEnum):
    """Exit code of a process of a run, for its launcher, its attempts and the scheduler."""

    FINISHED = 0
    REFUSED = 64
    """Its input is wrong."""
    FAILED = 70
    HELD = 73
    """Another process has the run's lock."""
    STOPPED = 75
    """At a checkpoint; EX_TEMPFAIL of sysexits.h."""


def say(text: str) -> None:
    """Print to stderr. One that is closed, full, none, or read by nobody is no reason to fail."""
    with suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)


def end_within(seconds: float) -> None:
    """End this process that much later, whatever it waits for, unless it has ended by itself.

    It prints its stack first. If it hangs in that, an alarm ends it LAST_RESORT_S later.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds + LAST_RESORT_S)
    try:
        faulthandler.dump_traceback_later(seconds, exit=True)
    except (RuntimeError, ValueError, OSError):  # no stderr that can be written to
        nowhere = os.open(os.devnull, os.O_WRONLY)
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)


def abort(code: int, text: str | None = None) -> NoReturn:
    """Say why, end all ranks through MPI, and this one also where MPI cannot (ABORT_S)."""
    end_within(ABORT_S)
    try:
        if text:
            say(text)
            time.sleep(FORWARDING_S)
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(code)
    finally:
        os._exit(code)


class StopRequest:
    """Set from outside by USR1, TERM or once `stop_file` exists, and from within by `ask`.

    Ctrl-C is left to the launching process.
    """

    def __init__(self) -> None:
        self.stop_file: Path | str | None = None
        self.requests: set[str] = set()
        """Requests from outside: names of signals, and STOP_FILE."""
        self._asked = False
        self._next_look = 0.0

    def install(self) -> None:
        """Install the handlers; to be called before anything slow is imported."""
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_signal(self, number: int, *_: object) -> None:
        self.requests.add(signal.Signals(number).name)

    def ask(self) -> None:
        """Ask from within the process."""
        self._asked = True

    def asked(self) -> bool:
        """Tell whether this rank has been asked to stop, from outside or from within."""
        return self._asked or self.requested()

    def requested(self) -> bool:
        """Tell whether this rank has been asked to stop from outside."""
        now = time.monotonic()
        if not self.requests and self.stop_file and now >= self._next_look:
            self._next_look = now + _FILE_CHECK_INTERVAL_S
            if os.path.exists(self.stop_file):
                self.requests.add(STOP_FILE)
        return bool(self.requests)
