"""The stages of a simulated run over time, cut into segments by the wall-time limit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.scaling.simulation import assumptions


@dataclass(frozen=True)
class Stage:
    """One stage, in seconds from its segment's start."""

    name: str
    epoch: int | None
    start_s: float
    seconds: float
    dip_s: float = 0.0
    """How long GPUs wait for the first batch at its beginning."""

    @property
    def end_s(self) -> float:
        """Return when it ends."""
        return self.start_s + self.seconds


@dataclass(frozen=True)
class Segment:
    """One segment of a run: consecutive stages."""

    number: int
    stages: tuple[Stage, ...]
    finished: bool

    @property
    def outcome(self) -> str:
        """Return how it ended, as a provenance states it."""
        return "finished" if self.finished else "stopped"

    @property
    def seconds(self) -> float:
        """Return its length in s."""
        return self.stages[-1].end_s


Piece = tuple[str, int | None, float]
"""Stage, epoch, seconds."""


def uninterrupted(spec: RunSpec, runtime_s: float) -> list[Piece]:
    """Return the stages of a run that is never interrupted; their seconds add up to `runtime_s`."""
    epochs = spec.epochs
    start_s = min(assumptions.STARTUP_S, assumptions.MOST_OF_RUN * runtime_s)
    end_s = min(assumptions.SHUTDOWN_S, assumptions.MOST_OF_RUN * runtime_s)
    epoch_s = (runtime_s - start_s - end_s) / epochs
    usual_s = assumptions.CHECKPOINT_S.get(spec.model, assumptions.OTHER_CHECKPOINT_S)
    checkpoint_s = min(usual_s, assumptions.MOST_OF_RUN * epoch_s)
    weights = _weights(spec)
    unit_s = (epoch_s - checkpoint_s) / sum(weights.values())
    pieces: list[Piece] = [("startup", None, start_s)]
    for epoch in range(epochs):
        pieces += [(name, epoch, weight * unit_s) for name, weight in weights.items()]
        pieces.append(("checkpoint", epoch + 1, checkpoint_s))
    return [*pieces, ("shutdown", None, end_s)]


def _weights(spec: RunSpec) -> dict[str, float]:
    """Return the relative durations of an epoch's stages, in order."""
    train, validate = spec.dataset_samples, spec.validation_samples
    evaluates_train = spec.model == "resnet50" and spec.protocol == "paper"
    part = validate / train if train and validate else None
    validation = (
        assumptions.OTHER_VALIDATION if part is None else assumptions.EVALUATE_WEIGHT * part
    )
    return {
        "train": assumptions.TRAIN_WEIGHT,
        "validate": validation,
        **({"evaluate_train": assumptions.EVALUATE_WEIGHT} if evaluates_train else {}),
    }


def segments_of(spec: RunSpec, runtime_s: float, limit_s: float | None = None) -> list[Segment]:
    """Return the segments of a run whose jobs are told to stop after `limit_s`.

    After a stop in training the next segment continues there; after a stop in an evaluation it repeats
    the epoch's evaluations. Start, last checkpoint and end of each further segment are added to
    `runtime_s`. InputError if no segment could complete an epoch's evaluations.
    """
    pieces = uninterrupted(spec, runtime_s)
    start, shutdown = pieces[0], pieces[-1]
    checkpoint_s = next(seconds for name, _, seconds in pieces if name == "checkpoint")
    evaluations_s = sum(s for name, epoch, s in pieces if name in EVALUATIONS and epoch == 0)
    longest = math.inf if limit_s is None else limit_s
    if start[2] + evaluations_s >= longest:
        raise InputError(
            f"{spec.configuration}: cannot make progress in segments of {longest:.0f} s: start-up "
            f"and the evaluations of an epoch take {start[2] + evaluations_s:.0f} s; expected a "
            "longer time_limit_min"
        )
    work = deque(pieces[1:-1])
    found: list[Segment] = []
    while work:
        own, now = [start], start[2]
        evaluated: list[Piece] = []
        while work and now < longest:
            name, epoch, seconds = work.popleft()
            left = longest - now
            if name == "checkpoint" or seconds <= left:
                own.append((name, epoch, seconds))
                evaluated = [*evaluated, own[-1]] if name in EVALUATIONS else []
            elif name == "train":
                own.append((name, epoch, left))
                work.appendleft((name, epoch, seconds - left))
            else:
                own.append((name, epoch, left))
                work.extendleft(reversed([*evaluated, (name, epoch, seconds)]))
            now += own[-1][2]
        if work and own[-1][0] != "checkpoint":
            own.append(("checkpoint", own[-1][1], checkpoint_s))
        stages = _timed(spec, [*own, shutdown])
        found.append(Segment(len(found), stages, finished=not work))
    return found


def _timed(spec: RunSpec, pieces: Sequence[Piece]) -> tuple[Stage, ...]:
    per_sample = assumptions.FIRST_BATCH_S.get(spec.model, assumptions.OTHER_FIRST_BATCH_S)
    stages, now = [], 0.0
    for name, epoch, seconds in pieces:
        waits = name == "train" or name in EVALUATIONS
        dip = min(per_sample * spec.local_batch_size, assumptions.MOST_OF_STAGE * seconds)
        stages.append(Stage(name, epoch, now, seconds, dip if waits else 0.0))
        now += seconds
    return tuple(stages)
