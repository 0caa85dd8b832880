"""The watch of a rank over perun's sampler.

What may hang ends within these times (checks run every second):

- A sampler that takes no sample for 60 s, or ten sampling periods if that is longer, and at once one that
  has ended. The rank that started it ends it and asks the training to stop at a checkpoint.
- perun after training: 120 s (`closing_s` of the cluster file), by the rank itself; `launch` ends
  what is left 10 s later. The time begins when the images on the nodes' own disks are removed.

Ranks of which another has died are the launcher's to end: mpiexec does, and srun, which `launch` asks
to. A collective that waits for a node longer than `COLLECTIVE_TIMEOUT` fails.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import threading
import time
from collections.abc import Callable
from pathlib import Path

from scalewatt.common.termination import say

CHECK_INTERVAL_S = 1.0
SILENCE_S, SILENT_PERIODS = 60.0, 10
"""How long a sampler may take no sample, the longer of both."""


class SamplerWatch:
    """Watches the sampler that perun started as a child of this process, by its journal's growth.

    `on_loss` is called once, from the watching thread, with the reason, when the sampler has been ended.
    Without a `journal`, as in a rank that has no sampler, nothing is watched.
    """

    def __init__(
        self, journal: Path | None, limit_s: float, on_loss: Callable[[str], None]
    ) -> None:
        self.journal, self.limit_s, self.on_loss = journal, limit_s, on_loss
        self.lost: str | None = None
        self._lock = threading.Lock()
        self._is_over = True
        self._sampler: multiprocessing.process.BaseProcess | None = None
        self._size = 0
        self._quiet_s = 0.0

    def training_began(self) -> None:
        """Watch from now on: perun has started its sampler, this process's only child so far."""
        children = multiprocessing.active_children()
        self._sampler = children[0] if children else None
        self._is_over = self.journal is None

    def start(self) -> None:
        """Check every second, in a thread of its own."""
        threading.Thread(target=self._run, name="scalewatt-watch", daemon=True).start()

    def training_ended(self) -> str | None:
        """Note that training has ended, and the sampler may end; why it was lost before, if it was."""
        self.check(0.0)
        with self._lock:
            self._is_over = True
        return self.lost

    def check(self, elapsed_s: float) -> None:
        """Check the sampler `elapsed_s` after the last check; end it if it is lost."""
        with self._lock:
            if self._is_over:
                return
            self.lost = self._trouble(elapsed_s)
            if self.lost is not None:
                self._is_over = True
                if self._sampler is not None:
                    self._sampler.kill()
                self.on_loss(self.lost)

    def _trouble(self, elapsed_s: float) -> str | None:
        if self._sampler is None:
            return "perun runs no sampler"
        name = f"the sampler (process {self._sampler.pid})"
        if multiprocessing.connection.wait([self._sampler.sentinel], 0):
            return f"{name} has ended"
        try:
            size = self.journal.stat().st_size if self.journal else 0
        except OSError:
            size = self._size
        self._quiet_s = 0.0 if size != self._size else self._quiet_s + elapsed_s
        self._size = size
        if self._quiet_s <= self.limit_s:
            return None
        return f"{name} took no sample for {self._quiet_s:.0f} s"

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._is_over:
            time.sleep(CHECK_INTERVAL_S)
            now_s = time.monotonic()
            # A machine or job that was suspended has not waited for a sample.
            elapsed_s, last_s = min(now_s - last_s, 2 * CHECK_INTERVAL_S), now_s
            try:
                self.check(elapsed_s)
            except Exception as error:
                say(f"scalewatt: the check of the sampler failed, and continues: {error!r}")
