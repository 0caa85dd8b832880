"""Rank 0's record of a run's progress, for `scalewatt status`."""

from __future__ import annotations

import time
from contextlib import suppress

from scalewatt.run_files.record import Job, note_position, note_progress

INTERVAL_S = 5.0
"""Steps are recorded no more often than this; stages always."""


class ProgressNotes:
    """Writes progress.json after each checkpoint and as the training proceeds."""

    def __init__(self, job: Job, steps: int) -> None:
        self.job, self.steps = job, steps
        self._stage = ""
        self._samples_per_s: float | None = None
        self._noted_s, self._noted_updates = 0.0, 0

    def at_checkpoint(self, epoch: int, step: int) -> None:
        """Record the position of the checkpoint that has just been written."""
        updates = epoch * self.steps + step
        note_position(self.job.work, updates, epoch, step, self.job.require_lock)

    def at_step(self, epoch: int, step: int) -> None:
        """Record that an update is done, if the last record is old enough."""
        if time.monotonic() >= self._noted_s + INTERVAL_S:
            self.at_stage(self._stage, epoch, step)

    def at_stage(self, stage: str, epoch: int, step: int) -> None:
        """Record that a stage begins or goes on, with the rate of the training since the last record."""
        now_s, spec, updates = time.monotonic(), self.job.spec, epoch * self.steps + step
        if self._stage == "train" and updates > self._noted_updates and now_s > self._noted_s:
            samples = (updates - self._noted_updates) * spec.global_batch_size
            self._samples_per_s = samples / (now_s - self._noted_s)
        self._stage, self._noted_s, self._noted_updates = stage, now_s, updates
        with suppress(OSError):  # a full disk: the next checkpoint reports it
            note_progress(
                self.job.work,
                **{
                    "segment": self.job.segment,
                    "stage": stage,
                    "samples_per_s": self._samples_per_s,
                },
                **{"epoch": epoch, "epochs": spec.epochs, "step": step, "steps": self.steps},
                **{"updates": updates, "updates_total": spec.epochs * self.steps},
            )
