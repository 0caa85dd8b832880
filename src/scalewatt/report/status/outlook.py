"""When a campaign will be over and what it will have used, as far as pace and scaling model tell."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.recordings.series import J_PER_KWH
from scalewatt.results.text.number_format import count, number
from scalewatt.scaling.planning.forecast import Forecaster
from scalewatt.tracking.run_state import State
from scalewatt.tracking.status import CampaignStatus, RunStatus

_OVER: tuple[State, ...] = ("done", "failed", "refused")
"""States of runs that nothing more is expected of."""


@dataclass(frozen=True)
class Outlook:
    """What is expected of a campaign."""

    ends_s: float | None
    """When its last run will have finished, in Unix s; None if that is not known."""
    basis: str
    """What the end rests on, or why it is not known, in a sentence."""
    more_kwh: float | None = None
    """What its runs will still use, by the scaling model's medians; None if that is not known."""


@dataclass(frozen=True)
class _Rest:
    """What is left of a run: seconds, and kWh where they are known."""

    seconds: float
    kwh: float | None


def outlook(status: CampaignStatus, forecaster: Forecaster | None) -> Outlook:
    """Return what is expected, by the pace of running trainings and by the scaling model for the others."""
    left = [run for run in status.runs if run.state.state not in _OVER]
    stuck = sum(run.state.state in ("failed", "refused") for run in status.runs)
    apart = (
        f"; {count(stuck, 'run')} that failed or {'was' if stuck == 1 else 'were'} refused left out"
    )
    apart = apart if stuck else ""
    if not left:
        return Outlook(None, f"No run is left to be made{apart}.", 0.0)
    rests = [_rest(status, run, forecaster) for run in left]
    known = [one for one in rests if one is not None]
    kwh = _sum([one.kwh for one in known]) if len(known) == len(rests) else None
    by_pace = status.ends_s
    if by_pace is not None:
        return Outlook(by_pace, "By the pace of the running trainings.", kwh)
    if len(known) < len(rests):
        missing = count(len(rests) - len(known), "run")
        lack = "cannot be predicted by the scaling model"
        if forecaster is None:
            lack = "cannot be predicted: the cluster file names no scaling model"
        return Outlook(None, f"Not known: {missing} {lack}.")
    lanes = sum(run.state.state == "running" for run in left)
    if not lanes:  # nobody knows how many of the queued runs will run at a time
        hours = number(sum(one.seconds for one in known) / 3600, 3)
        takes = f"one after the other, what is left takes {hours} h by the scaling model{apart}"
        return Outlook(None, f"Not known, as no run is running; {takes}.", kwh)
    order = sorted(range(len(left)), key=lambda place: left[place].state.state != "running")
    ends_s = status.asked_s + _length_s([known[place].seconds for place in order], lanes)
    how = "one after the other" if lanes == 1 else f"{lanes} at a time, as now"
    by = "By the pace of the running trainings"
    if any(run.ends_s is None for run in left):
        by = "Running trainings by their pace, the others by the scaling model"
    basis = f"{by}, {how}; waiting in a queue is not in it{apart}."
    return Outlook(ends_s, basis, kwh)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _length_s(seconds: Sequence[float], lanes: int) -> float:
    """Return how long runs take, in order, each begun as soon as one of `lanes` is free."""
    free = [0.0] * lanes
    for one in seconds:
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def _rest(status: CampaignStatus, run: RunStatus, forecaster: Forecaster | None) -> _Rest | None:
    """Return what is left of a run; None if it is not known."""
    share = 1.0
    if run.updates is not None and run.updates_total:
        share = 1 - min(1.0, run.updates / run.updates_total)
    whole = None if forecaster is None else _whole(status, run, forecaster)
    kwh = None if whole is None or whole.kwh is None else whole.kwh * share
    if run.ends_s is not None:
        return _Rest(max(0.0, run.ends_s - status.asked_s), kwh)
    return None if whole is None else _Rest(whole.seconds * share, kwh)


def _whole(status: CampaignStatus, run: RunStatus, forecaster: Forecaster) -> _Rest | None:
    try:
        found = forecaster.runs(run_spec(status.campaign, run.configuration, run.repeat))
    except InputError:
        return None
    joules = found.total_j
    kwh = None if joules is None else float(np.median(joules)) / J_PER_KWH
    return _Rest(float(np.median(found.runtime_s)), kwh)
