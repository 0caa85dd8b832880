"""Rank 0's record of the run's progress, for `scalewatt status`."""

from __future__ import annotations

import time
from contextlib import suppress

from scalewatt.run_files.progress_files import Progress, note_position, note_progress
from scalewatt.run_files.work_directory import Job

INTERVAL_S = 5.0
"""Steps are recorded no more often than this; stages always."""
TRAIN = "train"


class ProgressNotes:
    """Writes position.json after each checkpoint and progress.json as the training proceeds."""

    def __init__(self, job: Job, steps: int) -> None:
        self.job, self.steps = job, steps
        self._stage = ""
        self._next_s = 0.0
        self._mark = (0.0, 0)
        """Monotonic s and updates of the run, where the last interval of training began."""
        self._samples_per_s: float | None = None

    def at_checkpoint(self, epoch: int, step: int) -> None:
        """Record the position of the checkpoint that has just been written."""
        updates = self._updates(epoch, step)
        note_position(self.job.work, updates, epoch, step, self.job.require_lock)

    def at_stage(self, stage: str, epoch: int, step: int) -> None:
        """Record that a stage begins."""
        if self._stage == TRAIN:
            self._measure(epoch, step)
        self._stage, self._mark = stage, (time.monotonic(), self._updates(epoch, step))
        self._note(epoch, step)

    def at_step(self, epoch: int, step: int) -> None:
        """Record that an update is done, if the last record is old enough."""
        if time.monotonic() >= self._next_s:
            self._measure(epoch, step)
            self._note(epoch, step)

    def _measure(self, epoch: int, step: int) -> None:
        now, updates = time.monotonic(), self._updates(epoch, step)
        before_s, before = self._mark
        if updates > before and now > before_s:
            samples = (updates - before) * self.job.spec.global_batch_size
            self._samples_per_s = samples / (now - before_s)
            self._mark = now, updates

    def _note(self, epoch: int, step: int) -> None:
        self._next_s = time.monotonic() + INTERVAL_S
        epochs = self.job.spec.epochs
        progress = Progress(
            segment=self.job.segment,
            epoch=epoch,
            epochs=epochs,
            step=step,
            steps=self.steps,
            updates=self._updates(epoch, step),
            updates_total=epochs * self.steps,
            samples_per_s=self._samples_per_s,
            stage=self._stage,
            written_s=time.time(),
        )
        with suppress(OSError):  # a full disk: the next checkpoint reports it
            note_progress(self.job.work, progress)

    def _updates(self, epoch: int, step: int) -> int:
        return epoch * self.steps + step
