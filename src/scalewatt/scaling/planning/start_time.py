"""When a campaign would emit least: start times compared by a file of carbon intensity.

A run is taken to draw its mean power all through its predicted time. The runs that are still to be made
follow one another in the campaign's order without a pause, or all begin at once; waiting in a queue is not
in it. Start times are compared within each posterior sample, which share times and energies, so that a
saving is far more certain than what is emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.common.errors import InputError
from scalewatt.results.carbon.file_checks import stamp
from scalewatt.results.carbon.intensity import CarbonIntensity
from scalewatt.results.text.number_format import count, number, part_of
from scalewatt.scaling.model.cost_terms import Array
from scalewatt.scaling.model.predict import estimate
from scalewatt.scaling.planning.plan import PREDICTED, PlannedRun
from scalewatt.scaling.planning.plan_numbers import with_interval
from scalewatt.scaling.planning.recommend import SURE

MOST_STARTS = 10_000
"""How many start times are compared."""
_DRAWS = 200
"""How many of the posterior samples are taken, evenly."""


@dataclass(frozen=True)
class Request:
    """Between which times a campaign may start, and until when it must be over; unix s."""

    earliest_s: float
    latest_s: float
    finish_by_s: float | None = None
    at_once: bool = False
    """True if all runs begin together, else one after the other."""


@dataclass(frozen=True)
class Start:
    """A start time with what the campaign would emit: median and nominal 90 % interval."""

    time: str
    ends: str
    """When the campaign would be over, by the median."""
    carbon_kg: float
    carbon_kg_low: float
    carbon_kg_high: float


@dataclass(frozen=True)
class StartTimes:
    """What a file of carbon intensity says of when to start a campaign."""

    file: str
    runs: int
    """How many runs are counted: predicted, not finished."""
    left_out: int
    """How many others are not finished, and their time or energy is not known."""
    compared: int = 0
    """How many start times the file covers, and keep the deadline with 95 % probability."""
    considered: int = 0
    best: Start | None = None
    first: Start | None = None
    """At the earliest of the times, where that one is compared."""
    worst: Start | None = None
    saving_kg: float | None = None
    """How much less the best emits than the first; null without one."""
    saving_kg_low: float | None = None
    saving_kg_high: float | None = None
    told_apart: bool | None = None
    """True if the interval of that saving lies above 0; null where the first is the best."""
    reason: str | None = None
    """Why no time can be named."""
    at_once: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as `scalewatt plan --json` prints it."""
        return asdict(self)


def read_request(
    between: Sequence[str] | None, finish_by: str | None, at_once: bool
) -> Request | None:
    """Return what the options ask for; None without start times.

    InputError if a time is none or has no zone, or they are not in order.
    """
    if between is None:
        if finish_by is not None or at_once:
            option = "--finish-by" if finish_by is not None else "--at-once"
            raise InputError(f"{option}: is for --start-between A B; expected both, or none")
        return None
    earliest_s, latest_s = (_unix_s("--start-between", text) for text in between)
    if latest_s < earliest_s:
        raise InputError(
            f"--start-between: {between[1]} is before {between[0]}; expected the earlier time first"
        )
    by_s = None if finish_by is None else _unix_s("--finish-by", finish_by)
    if by_s is not None and by_s <= earliest_s:
        raise InputError(f"--finish-by: {finish_by} is not after {between[0]}, the earliest start")
    return Request(earliest_s, latest_s, by_s, at_once)


def _unix_s(option: str, text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{option}: '{text[:40]}' is no time; {_ALLOWED}") from error
    if found.tzinfo is None:
        raise InputError(f"{option}: {text} names no zone; {_ALLOWED}")
    return found.timestamp()


_ALLOWED = "allowed: a date with a zone, such as 2026-01-31T12:00Z or 2026-01-31T13:00+01:00"


def start_times(
    runs: Iterable[PlannedRun], intensity: CarbonIntensity, request: Request
) -> StartTimes:
    """Compare the times at which the intensity changes, and both ends of the request.

    `runs` have their energy with the PUE. InputError for more than MOST_STARTS times.
    """
    missing = [run for run in runs if run.basis in (None, PREDICTED)]
    known = [run for run in missing if "facility_energy_kwh" in run.amounts]
    counts = len(known), len(missing) - len(known)
    found = StartTimes(intensity.name, *counts, at_once=request.at_once)
    if not known:
        reason = "the energy of no run is known" if missing else "all runs have finished"
        return replace(found, reason=reason)
    starts = _starts(intensity, request)
    hours, kwh = (_draws(known, name) for name in ("runtime_h", "facility_energy_kwh"))
    spans_s = _spans(3600 * hours, request.at_once)
    length_s = spans_s[1].max(axis=1)
    kg = np.stack([_emitted(intensity, start, *spans_s, kwh) for start in starts])
    covered = np.asarray(np.isfinite(kg).all(axis=1))
    kept = covered & _in_time(starts, length_s, request.finish_by_s)
    found = replace(found, compared=int(kept.sum()), considered=int(starts.size))
    if not kept.any():
        return replace(found, reason=_why_none(intensity, starts, covered, length_s))
    return _with_best(found, starts, float(np.median(length_s)), kg, kept)


def _with_best(
    found: StartTimes, starts: Array, length_s: float, kg: Array, kept: NDArray[np.bool_]
) -> StartTimes:
    """Add the best, worst and earliest of the start times that are `kept`; `kg` is (starts, draws)."""
    median = np.full(starts.shape, np.nan)
    median[kept] = np.median(kg[kept], axis=1)
    best, worst = int(np.nanargmin(median)), int(np.nanargmax(median))
    named = [_start(starts[place], length_s, kg[place]) for place in (best, worst)]
    found = replace(found, best=named[0], worst=named[1])
    if not kept[0]:
        return found
    saving = estimate(kg[0] - kg[best])
    return replace(
        found,
        first=_start(starts[0], length_s, kg[0]),
        saving_kg=saving.median,
        saving_kg_low=saving.low,
        saving_kg_high=saving.high,
        told_apart=saving.low > 0 if best else None,
    )


def _starts(intensity: CarbonIntensity, request: Request) -> Array:
    ends = [request.earliest_s, request.latest_s]
    found = np.unique(np.concatenate([ends, intensity.edges_within(*ends)]))
    if found.size > MOST_STARTS:
        raise InputError(
            f"--start-between: {found.size} start times; allowed: {MOST_STARTS} at most, so a shorter span"
        )
    return found


def _draws(runs: Sequence[PlannedRun], name: str) -> Array:
    """Return some of the posterior samples of an amount, (draws, runs)."""
    columns = np.broadcast_arrays(*(run.amounts[name] for run in runs))
    every = max(1, columns[0].size // _DRAWS)
    return np.stack([column[::every] for column in columns], axis=1)


def _spans(runtime_s: Array, at_once: bool) -> tuple[Array, Array]:
    """Return begin and end of each run after the start, in s, (draws, runs)."""
    ends_s = runtime_s if at_once else np.cumsum(runtime_s, axis=1)
    return ends_s - runtime_s, ends_s


def _emitted(
    intensity: CarbonIntensity, start_s: float, begins_s: Array, ends_s: Array, kwh: Array
) -> Array:
    """Return what is emitted in kg in each sample, (draws,), from a start; NaN outside of the cover."""
    means = intensity.mean(start_s + begins_s, start_s + ends_s)
    return np.asarray((kwh * means).sum(axis=1) / 1000)


def _in_time(starts: Array, length_s: Array, finish_by_s: float | None) -> NDArray[np.bool_]:
    """Return which start times keep the deadline with 95 % probability."""
    if finish_by_s is None:
        return np.ones(starts.shape, dtype=bool)
    return np.asarray(starts + float(np.quantile(length_s, SURE)) <= finish_by_s)


def _why_none(
    intensity: CarbonIntensity, starts: Array, covered: NDArray[np.bool_], length_s: Array
) -> str:
    hours = estimate(length_s / 3600)
    takes = f"the campaign takes {with_interval(hours.median, hours.low, hours.high, 'h')}"
    if covered.any():
        return f"no start from {stamp(starts[0])} on keeps the deadline: {takes}"
    begin, end = intensity.cover_s
    return (
        f"{intensity.name} covers {stamp(begin)} to {stamp(end)}, gaps apart, and no campaign that starts "
        f"between {stamp(starts[0])} and {stamp(starts[-1])}: {takes}"
    )


def _start(start_s: float, length_s: float, kg: Array) -> Start:
    found = estimate(kg)
    ends_s = 60 * round((start_s + length_s) / 60)  # it is not known to the second
    return Start(_iso(start_s), _iso(ends_s), found.median, found.low, found.high)


def _iso(time_s: float) -> str:
    return datetime.fromtimestamp(round(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def start_sentences(found: StartTimes) -> list[str]:
    """Return what is found in sentences, with the assumptions."""
    how = "all at once" if found.at_once else "one after the other, without a pause"
    are = "is" if found.left_out == 1 else "are"
    left = (
        f"; {count(found.left_out, 'run')} whose energy is not known {are} not in it"
        if found.left_out
        else ""
    )
    basis = (
        f"By {found.file}, of {count(found.runs, 'run')}, {how}, each at its mean power{left}. Waiting in a "
        "queue is not in it."
    )
    if found.best is None or found.worst is None:
        return [f"When to start cannot be told: {found.reason}.", basis]
    best = found.best
    head = f"Least CO2e: start at {best.time}: {_kg(best)}, over at {best.ends}"
    return [
        f"{head}; most at {found.worst.time}: {_kg(found.worst)}. "
        f"{part_of(found.compared, found.considered, 'start time')} covered and in time.",
        _saving(found),
        basis,
    ]


def _saving(found: StartTimes) -> str:
    if found.first is None or found.saving_kg is None:
        return "At the earliest of the times it is not covered or too late to be compared."
    first = f"At {found.first.time}, the earliest, it is {_kg(found.first)}"
    if found.told_apart is None:
        return "No later start emits less than the earliest of the times."
    if not found.told_apart:
        return f"{first}: the two cannot be told apart."
    share = number(100 * found.saving_kg / found.first.carbon_kg, 3)
    saved = with_interval(found.saving_kg, found.saving_kg_low, found.saving_kg_high, "kg")
    return f"{first}: the best saves {saved}, {share} %."


def _kg(one: Start) -> str:
    return with_interval(one.carbon_kg, one.carbon_kg_low, one.carbon_kg_high, "kg")
