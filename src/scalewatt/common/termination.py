"""How a rank says something and ends, whatever state it is in."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

EXIT_STOPPED, EXIT_INPUT, EXIT_FAILURE = 75, 64, 70
ABORT_S = 10.0
"""How long a rank may take to end itself through MPI."""
LAST_RESORT_S = 5.0
"""How much later the kernel ends a process that cannot even print its stack."""

_NOWHERE: list[Any] = []


def say(text: str) -> None:
    """Print to stderr. One that is closed, full or read by nobody any more is no reason to fail."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def end_within(seconds: float) -> None:
    """End this process that much later, whatever it waits for, unless it has ended by itself.

    It prints its stack first. If it hangs in that, an alarm ends it LAST_RESORT_S later.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds + LAST_RESORT_S)
    try:
        faulthandler.dump_traceback_later(seconds, exit=True)
    except (RuntimeError, ValueError, OSError):  # no stderr that can be written to
        _NOWHERE.append(open(os.devnull, "w"))  # noqa: SIM115 (open until the end)
        faulthandler.dump_traceback_later(seconds, exit=True, file=_NOWHERE[-1])


FORWARDING_S = 0.5
"""What a launcher may need to pass on a rank's last words; after an abort it drops the rest."""


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
