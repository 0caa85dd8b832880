"""Exit codes of the processes of runs."""

from __future__ import annotations

from enum import IntEnum


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
