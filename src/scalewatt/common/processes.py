"""Processes of this machine: which one has a number, which ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def runs_still(pid: int) -> bool:
    """Tell whether a process of this number is there, be it stopped."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD))
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # some machines hide their processes
        return True


def signal_at_parents_death(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the thread that started it has died."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread of `parent` that started it has died."""
    signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(0)


def adopt_orphans() -> None:
    """Have the kernel give this process the descendants whose parents die."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ignore_stop_signals(_worker: int = 0) -> None:
    """Ignore them in helper processes (data-loader workers): the rank decides when these end."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
