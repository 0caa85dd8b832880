"""Processes of this machine: which one has a number, which ends with its parent."""

from __future__ import annotations

import ctypes
import os
import signal
from functools import lru_cache
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_DEAD = ("Z", "X", "x")
_PR_SET_PDEATHSIG = 1


@lru_cache(maxsize=1)
def machine_id() -> str | None:
    """Name of this boot of the machine and this PID namespace; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


def process_started_s(pid: int) -> float | None:
    """Start of a process, in s after the machine's start; None if unknown."""
    stat = _stat(pid)
    return None if stat is None else stat[1]


def runs_still(pid: int, started_s: float | None) -> bool:
    """Tell whether the process with this number that was started then is there, be it stopped."""
    stat = _stat(pid)
    if stat is None:
        import psutil

        return psutil.pid_exists(pid)  # some machines hide their processes
    state, since_s = stat
    same = started_s is None or abs(since_s - started_s) < 2 * _TICK_S
    return same and state not in _DEAD


def _stat(pid: int) -> tuple[str, float] | None:
    """State and start of a process, in s after the machine's start, which no clock's change moves."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = text.rpartition(")")[2].split()
    return words[0], int(words[19]) * _TICK_S


def signal_at_parents_death(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the thread that started it has died."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread of `parent` that started it has died."""
    signal_at_parents_death(signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(0)


def ignore_stop_signals(_worker: int = 0) -> None:
    """Ignore them in helper processes (data-loader workers): the rank decides when these end."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
