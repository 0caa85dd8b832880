"""How processes of runs end, as numbers."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a process of a run ended, for its launcher, its attempts and the scheduler."""

    FINISHED = 0
    REFUSED = 64
    """Its input is wrong."""
    FAILED = 70
    HELD = 73
    """Another process has the run's lock."""
    STOPPED = 75
    """At a checkpoint; EX_TEMPFAIL of sysexits.h."""
