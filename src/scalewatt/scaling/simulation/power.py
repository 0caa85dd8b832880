"""Stages of a simulated run, and the mean power of its devices over time.

A device's power is constant within a stage, but for the time in which GPUs wait for the first batch. It
follows from the run's energy, which it gives exactly when it is integrated over the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.recordings.terms import Floats
from scalewatt.scaling.simulation import assumptions

WORKING = ("train", *EVALUATIONS)


@dataclass(frozen=True)
class Stage:
    """A stage, in s from the run's start; in its first `first_batch_s` GPUs wait for a batch."""

    name: str
    epoch: int | None
    start_s: float
    seconds: float
    first_batch_s: float = 0.0

    @property
    def end_s(self) -> float:
        """End in s from the run's start."""
        return self.start_s + self.seconds


def schedule(spec: RunSpec, runtime_s: float) -> tuple[Stage, ...]:
    """Divide a run's time into stages: start-up, those of each epoch with a checkpoint, shutdown."""
    start_s = min(assumptions.STARTUP_S, assumptions.MOST_OF_RUN * runtime_s)
    shutdown_s = min(assumptions.SHUTDOWN_S, assumptions.MOST_OF_RUN * runtime_s)
    epoch_s = (runtime_s - start_s - shutdown_s) / spec.epochs
    training = assumptions.of_training(spec)
    checkpoint_s = min(training.checkpoint_s, assumptions.MOST_OF_RUN * epoch_s)
    weights = _weights(spec)
    unit_s = (epoch_s - checkpoint_s) / sum(weights.values())
    pieces: list[tuple[str, int | None, float]] = [("startup", None, start_s)]
    for epoch in range(spec.epochs):
        pieces += [(name, epoch, weight * unit_s) for name, weight in weights.items()]
        pieces.append(("checkpoint", epoch + 1, checkpoint_s))
    batch_s = training.first_batch_s * spec.local_batch_size
    stages, now = [], 0.0
    for name, number, seconds in [*pieces, ("shutdown", None, shutdown_s)]:
        waits_s = min(batch_s, assumptions.MOST_OF_STAGE * seconds)
        stages.append(Stage(name, number, now, seconds, waits_s if name in WORKING else 0.0))
        now += seconds
    return tuple(stages)


def _weights(spec: RunSpec) -> dict[str, float]:
    """Relative durations of an epoch's stages, in order."""
    train, validate = spec.dataset_samples, spec.validation_samples
    validation = assumptions.OTHER_VALIDATION
    if train and validate:
        validation = assumptions.EVALUATE_WEIGHT * (validate / train)
    weights = {"train": assumptions.TRAIN_WEIGHT, "validate": validation}
    if spec.model == "resnet50" and spec.protocol == "paper":
        weights["evaluate_train"] = assumptions.EVALUATE_WEIGHT
    return weights


@dataclass(frozen=True, eq=False)
class Course:
    """A device's mean power: constant from each of `start_s` to the next, and to `end_s`; arrays (k,)."""

    start_s: Floats
    watts: Floats
    works: NDArray[np.bool_]
    idle_w: float
    end_s: float

    @classmethod
    def of(cls, kind: str, joules: float, idle_w: float, stages: Sequence[Stage]) -> Course:
        """Find the power at which a device of a kind uses `joules` in stages."""
        levels = assumptions.LEVELS[kind]
        rows: list[tuple[float, float, bool]] = []
        for stage in stages:
            if stage.first_batch_s:
                rows.append((stage.start_s, levels[assumptions.FIRST_BATCH], False))
            above = levels.get(stage.name, assumptions.OTHER_LEVEL)
            rows.append((stage.start_s + stage.first_batch_s, above, stage.name in WORKING))
        start, relative, works = (np.array(column) for column in zip(*rows, strict=True))
        end_s = stages[-1].end_s
        idle_w = min(idle_w, assumptions.IDLE_OF_MEAN * joules / end_s)
        seconds_at_full = float(relative @ np.diff(start, append=end_s))
        above_w = (joules - idle_w * end_s) / seconds_at_full
        return cls(start, idle_w + above_w * relative, works, idle_w, end_s)

    @property
    def total_j(self) -> float:
        """Energy until its end in J."""
        return float(self.joules(np.array([self.end_s]))[0])

    def at(self, time_s: Floats) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Power in W, and whether the device works, at any times."""
        row = np.searchsorted(self.start_s, time_s, side="right") - 1
        return self.watts.astype(np.float32)[row], self.works[row]

    def joules(self, time_s: Floats) -> Floats:
        """Energy in J from the start until any times up to the end, and a second more."""
        ends = np.append(self.start_s, self.end_s + 1.0)
        energy = np.concatenate(([0.0], np.cumsum(self.watts * np.diff(ends))))
        return np.interp(time_s, ends, energy)

    def means(self, time_s: Floats, over_s: float) -> NDArray[np.float32]:
        """Mean power in W over the time before each of any times; at 0 the power then."""
        before = np.maximum(time_s - over_s, 0.0)
        seconds, joules = time_s - before, self.joules(time_s) - self.joules(before)
        means = np.divide(joules, seconds, out=self.at(time_s)[0].astype(float), where=seconds > 0)
        return means.astype(np.float32)
