"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
try:
    _LIBC: ctypes.CDLL | None = ctypes.CDLL(None)
except (OSError, TypeError):  # not Linux
    _LIBC = None


def signal_at_parents_death(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the thread that started it has died."""
    with suppress(AttributeError):  # not Linux
        _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)  # type: ignore[union-attr]


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread of `parent` that started it has died."""
    signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(0)
