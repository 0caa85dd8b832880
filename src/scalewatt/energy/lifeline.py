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


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread of `parent` that started it has died."""
    with suppress(AttributeError):  # not Linux
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # type: ignore[union-attr]
    if os.getppid() != parent:  # it died before
        os._exit(0)
