"""What the callbacks of other packages' Trainers keep of an epoch: its stages, results and training time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from scalewatt.events import stage


class EpochReport:
    """The present stage of a run, and the row that `scalewatt.events.report` takes of its epoch."""

    def __init__(self, **names: str | None) -> None:
        """`names`: what the Trainer calls each of the results; None if it has no such value."""
        self.names = {key: name for key, name in names.items() if name}
        self.row: dict[str, Any] = {"epoch": None, "train_s": None}
        self.stage: tuple[str, int | None] = ("startup", None)
        self._since_s = 0.0

    def enter(self, name: str, epoch: int | None, wait: Callable[[], None]) -> None:
        """Begin a stage, after waiting for the GPU to do what belongs to the one before."""
        if (name, epoch) != self.stage:
            wait()
            self.add_train_time()
            self.stage = (name, epoch)
            stage(name, epoch)

    def add_train_time(self) -> None:
        """Add what the epoch has trained since its stage began or this was called."""
        now_s = time.monotonic()
        if self.stage[0] == "train" and self.row["train_s"] is not None:
            self.row["train_s"] += now_s - self._since_s
        self._since_s = now_s
