"""Being asked to stop: by a signal of the scheduler, or by a file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import FrameType

_FILE_CHECK_INTERVAL_S = 0.5


class StopRequest:
    """Set by USR1, TERM or `ask`, or once `stop_file` exists. Ctrl-C is left to the launching process."""

    def __init__(self) -> None:
        self.stop_file: Path | None = None
        self._asked = False
        self._next_look = 0.0

    def install(self) -> None:
        """Install the handlers; to be called before anything slow is imported."""
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._handle)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._asked = True

    def ask(self) -> None:
        """Ask from within the process."""
        self._asked = True

    def asked(self) -> bool:
        """Whether this rank has been asked to stop."""
        now = time.monotonic()
        if not self._asked and self.stop_file and now >= self._next_look:
            self._next_look = now + _FILE_CHECK_INTERVAL_S
            self._asked = os.path.exists(self.stop_file)
        return self._asked


def ignore_stop_signals(_worker: int = 0) -> None:
    """For helper processes (data-loader workers): the rank decides when they end."""
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
