"""Segments of a run that loses nodes, and what each segment does in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scalewatt.recordings.stage_log import EVALUATIONS
from scalewatt.scaling.simulation.faults import NodeLoss
from scalewatt.scaling.simulation.stage_schedule import Segment, Stage


@dataclass(frozen=True)
class Cut:
    """A segment, and the loss that ends it, if one does."""

    segment: Segment
    loss: NodeLoss | None = None


def with_node_losses(segments: Sequence[Segment], losses: Sequence[NodeLoss]) -> list[Cut]:
    """The segments of a run that loses nodes one after the other."""
    cuts = [Cut(segment) for segment in segments]
    for loss in losses:
        left = loss.at * sum(cut.segment.seconds for cut in cuts)
        place = 0
        while left > cuts[place].segment.seconds and place + 1 < len(cuts):
            left -= cuts[place].segment.seconds
            place += 1
        before = cuts[place]
        rest = _again(before.segment, saved_s(before.segment, left))
        again = [] if rest is None else [replace(before, segment=rest)]
        cuts[place : place + 1] = [Cut(_killed(before.segment, left), loss), *again]
    return [
        replace(cut, segment=replace(cut.segment, number=number)) for number, cut in enumerate(cuts)
    ]


def saved_s(segment: Segment, until_s: float) -> float:
    """Seconds from a segment's start to the end of its last whole checkpoint before a time, or 0."""
    ends = [one.end_s for one in segment.stages if one.name == "checkpoint"]
    return max((end for end in ends if end < until_s), default=0.0)


def in_vain(segments: Sequence[Segment], segment: Segment) -> tuple[float, float]:
    """From when to when a segment works in vain, in seconds from its start; the same twice: never.

    Of a killed one all since its last checkpoint; of another the evaluations that a stop broke off,
    which a later one makes again.
    """
    if segment.killed:
        return saved_s(segment, segment.seconds), segment.seconds
    later = {
        (stage.name, stage.epoch) for one in segments[segment.number + 1 :] for stage in one.stages
    }
    vain = [
        stage
        for stage in segment.stages
        if stage.name in EVALUATIONS and (stage.name, stage.epoch) in later
    ]
    return (vain[0].start_s, vain[-1].end_s) if vain else (0.0, 0.0)


def _killed(segment: Segment, at_s: float) -> Segment:
    """A segment that ends at a time."""
    *stages, last = (one for one in segment.stages if one.start_s < at_s)
    seconds = min(last.seconds, at_s - last.start_s)
    last = replace(last, seconds=seconds, dip_s=min(last.dip_s, seconds))
    return replace(segment, stages=(*stages, last), finished=False, killed=True)


def _again(segment: Segment, from_s: float) -> Segment | None:
    """A segment that does again what one did after a checkpoint; None where nothing is to do."""
    start = segment.stages[0]
    todo = [one for one in segment.stages[1:] if one.start_s >= from_s]
    if not segment.finished and not segment.killed and [one.name for one in todo] == ["shutdown"]:
        return None
    stages: list[Stage] = [start]
    for one in todo:
        stages.append(replace(one, start_s=stages[-1].end_s))
    return replace(segment, stages=tuple(stages))
