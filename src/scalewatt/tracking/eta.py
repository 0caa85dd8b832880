"""How long a running training still takes, by the stages that it has marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from scalewatt.run_files.record import Progress

_BETWEEN_EPOCHS = ("evaluate_train", "validate", "checkpoint")
_TRAIN = "train"


@dataclass(frozen=True)
class TimeLeft:
    """Seconds from the note of progress to the end of the training, without waiting for jobs."""

    seconds: float
    at_least: bool
    """True if evaluations come on top, of which none has been seen yet."""


@dataclass(frozen=True)
class _Stage:
    segment: int
    stage: str
    epoch: int | None
    seconds: float


def time_left(
    progress: Progress, before: int | None, marks: Sequence[Mapping[str, Any]]
) -> TimeLeft | None:
    """Return how long a training still takes after its note of progress; None if unknown.

    `before`: updates of the run when the segment began; `marks`: lines of events.jsonl. An update
    takes as long as those of this segment on average. What lies between epochs takes as long as it
    did on average between all epochs so far.
    """
    if before is None and progress.segment:
        return None
    stages = list(_stages(marks, progress))
    trained_s = sum(
        s.seconds for s in stages if s.stage == _TRAIN and s.segment == progress.segment
    )
    here = progress.updates - (before or 0)
    if here <= 0 or trained_s <= 0 or progress.updates_total < progress.updates:
        return None
    seconds = (progress.updates_total - progress.updates) * trained_s / here
    epochs_left = progress.epochs - progress.epoch
    if epochs_left <= 0:
        return TimeLeft(0.0, at_least=False)
    between_s = _between_epochs_s(stages, progress)
    if between_s is None:
        return TimeLeft(seconds, at_least=True)
    return TimeLeft(seconds + epochs_left * between_s, at_least=False)


def _between_epochs_s(stages: Sequence[_Stage], progress: Progress) -> float | None:
    """Return the mean seconds that a finished epoch spent on anything but updates; None before the first."""
    finished = {s.epoch for s in stages if s.stage == _TRAIN and _ended(s, progress)}
    if not finished:
        return None
    between = [s.seconds for s in stages if s.stage in _BETWEEN_EPOCHS and _ended(s, progress)]
    return sum(between) / len(finished)


def _ended(stage: _Stage, progress: Progress) -> bool:
    # An epoch's checkpoint bears the number of the next one.
    limit = progress.epoch + (stage.stage == "checkpoint")
    return stage.epoch is not None and stage.epoch < limit


def _stages(marks: Iterable[Mapping[str, Any]], progress: Progress) -> Iterator[_Stage]:
    """Return the marked stages with their lengths; the one under way lasts until the note of progress."""
    known = [mark for mark in marks if _is_mark(mark)]
    for mark, following in zip_longest(known, known[1:]):
        if mark["stage"] is None:
            continue
        end_s = mark["start_s"]
        if following is not None and following["segment"] == mark["segment"]:
            end_s = following["start_s"]
        elif mark["segment"] == progress.segment:
            end_s = progress.written_s
        seconds = max(float(end_s - mark["start_s"]), 0.0)
        yield _Stage(mark["segment"], mark["stage"], mark.get("epoch"), seconds)


def _is_mark(mark: Any) -> bool:
    return (
        isinstance(mark, dict)
        and type(mark.get("segment")) is int
        and isinstance(mark.get("stage"), str | None)
        and isinstance(mark.get("epoch"), int | None)
        and type(mark.get("start_s")) in (int, float)
    )
