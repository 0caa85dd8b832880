"""Being asked to stop: by a signal of the scheduler, or by a file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType

_FILE_CHECK_INTERVAL_S = 0.5


class StopRequest:
    """Set from outside by USR1, TERM or once `stop_file` exists, and from within by `ask`.

    Ctrl-C is left to the launching process.
    """

    def __init__(self) -> None:
        self.stop_file: Path | None = None
        self._asked = False
        self._requested = False
        self._next_look = 0.0

    def install(self) -> None:
        """Install the handlers; to be called before anything slow is imported."""
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._handle)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._requested = True

    def ask(self) -> None:
        """Ask from within the process."""
        self._asked = True

    def asked(self) -> bool:
        """Return True if this rank has been asked to stop, from outside or from within."""
        return self._asked or self.requested()

    def requested(self) -> bool:
        """Return True if this rank has been asked to stop from outside."""
        now = time.monotonic()
        if not self._requested and self.stop_file and now >= self._next_look:
            self._next_look = now + _FILE_CHECK_INTERVAL_S
            self._requested = os.path.exists(self.stop_file)
        return self._requested


def ignore_stop_signals(_worker: int = 0) -> None:
    """For helper processes (data-loader workers): the rank decides when they end."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
