"""Decide whether a run whose job ended gets another job.

By the rules, in this order:

- Input that is wrong, and a run that another still holds: no.
- No job of it was ever accepted by the scheduler: no.
- Jobs that ended before the training began in them: yes, `crash_retries` times in a row.
- No room on the file system: no.
- Given up because the energy was not recorded: yes, `crash_retries` times in a row, progress or not.
- Stopped at a checkpoint with progress, or finished and not published: yes.
- Two segments in a row that stopped without progress: no.
- Failed, or killed: yes, `crash_retries` times without progress in between.

Progress is that a segment left a checkpoint behind that is further than the one it began from.
Where that is unknown, as with commands, a stop at a checkpoint counts as progress and nothing else
does. Only jobs of this Snakemake count: starting it again resets the count. Jobs are identified by
their ids, never by the clocks of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import NO_ROOM, full_text, has_room
from scalewatt.run_files.attempt_log import (
    Attempt,
    one_line,
    read_attempt,
)
from scalewatt.run_files.progress_files import done_updates, read_run_segments

FRUITLESS_STOPS = 2
"""This many segments in a row that stopped without progress are the last."""
_STOPPED = ("stopped", "monitor_lost")


@dataclass(frozen=True)
class Verdict:
    """The decision whether a run is submitted again, with the reason."""

    again: bool
    reason: str


def verdict(
    work: Path,
    spec: RunSpec,
    jobs: Sequence[str],
    crash_retries: int,
    is_held: Callable[[], bool] = lambda: True,
) -> Verdict:
    """Say whether the run of `spec` is to be submitted again, now that the last of `jobs` has ended.

    `work` is the campaign's folder below the work root; `jobs` are those that this Snakemake
    submitted for the run, in order; `is_held` tells whether another holds the run by now, asked
    where the job ended because of that; the rules are the module's.
    """
    if not jobs:
        return Verdict(False, "no job of it was accepted by the scheduler")
    attempt = read_attempt(work, spec, jobs[-1])
    code = None if attempt is None else attempt.code
    if code == ExitCode.REFUSED or (code == ExitCode.HELD and is_held()):
        return Verdict(False, _why(attempt) or "its input was refused")
    if NO_ROOM in (_why(attempt) or ""):
        return Verdict(False, str(_why(attempt)))
    if not has_room(work):  # then the job could not note it either
        return Verdict(False, full_text(work))
    segments = [one for one in read_run_segments(work, spec) if one.get("job") in jobs]
    began = {one["job"] for one in segments}
    if jobs[-1] not in began:
        in_vain = next((n for n, job in enumerate(reversed(jobs)) if job in began), len(jobs))
        return _unstarted(jobs[-1], in_vain, attempt, crash_retries)
    # Of jobs that overlap (another Snakemake's, one put back) the one that ended counts.
    while segments[-1]["job"] != jobs[-1]:
        segments.pop()
    if segments[-1]["outcome"] == "running" and segments[-1].get("from_updates") is not None:
        segments[-1] = {**segments[-1], "to_updates": done_updates(work, spec)}
    return _by_segments(segments, spec, crash_retries)


def _unstarted(job: str, count: int, attempt: Attempt | None, crash_retries: int) -> Verdict:
    """Judge a job in which no segment began, the last of `count` in a row."""
    cause = _why(attempt)
    finished = attempt is not None and attempt.code == ExitCode.FINISHED
    ended = "after the run was published" if finished else "before its training began"
    reason = f"job {job} ended {ended}{f': {cause}' if cause else ''}"
    if count > crash_retries:
        return Verdict(False, f"{reason} (as {count} jobs in a row did)" if count > 1 else reason)
    return Verdict(True, f"{reason} ({count} of {crash_retries})")


def _by_segments(segments: Sequence[dict[str, Any]], spec: RunSpec, crash_retries: int) -> Verdict:
    last = segments[-1]
    outcome = _outcome(last)
    detail = f" ({one_line(str(last['detail']))})" if last.get("detail") else ""
    if last.get("detail") and NO_ROOM in str(last["detail"]):
        return Verdict(False, str(last["detail"]))
    if outcome == "refused":
        return Verdict(False, str(last.get("detail") or "its input was refused"))
    if outcome == "finished":
        return Verdict(True, "trained to its end, and not published yet")
    # Jobs in a row, up to the last, that ended because nothing was recorded.
    lasts = {one["job"]: one for one in segments}
    not_recorded = [
        one["outcome"] == "monitor_lost" and one.get("code") == ExitCode.FAILED
        for one in lasts.values()
    ]
    if unrecorded := len(list(takewhile(bool, reversed(not_recorded)))):
        reason = f"its energy was not recorded{detail}"
        if unrecorded > crash_retries:
            times = f" in {unrecorded} jobs in a row" if unrecorded > 1 else ""
            return Verdict(False, f"{reason}{times}; fix that, then restart Snakemake")
        return Verdict(True, f"{reason} ({unrecorded} of {crash_retries})")
    where = _where(last, spec)
    vain = _in_vain(segments)
    stops = [
        one
        for one in vain[-FRUITLESS_STOPS:]
        if one.get("from_updates") is not None and _outcome(one) in _STOPPED
    ]
    if len(stops) == FRUITLESS_STOPS:
        return Verdict(
            False,
            f"it makes no progress: its last {len(stops)} segments stopped {where}, without a "
            f"further checkpoint{detail}; give its jobs more time, then start Snakemake again",
        )
    if outcome in _STOPPED and not vain:
        return Verdict(True, f"stopped at a checkpoint {where}")
    failures = len(vain)
    before = len(segments) - len(vain) - 1
    if before >= 0 and _outcome(segments[before]) not in _STOPPED:
        failures += 1  # it had made progress before it failed
    if failures > crash_retries:
        times = f"{failures} times in a row" if failures > 1 else "once"
        return Verdict(
            False,
            f"{outcome} {times} {where}{detail}; start Snakemake again to go on from its checkpoint",
        )
    return Verdict(True, f"{outcome} {where}{detail} ({failures} of {crash_retries})")


def _in_vain(segments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last segments without progress, in order."""
    found: list[dict[str, Any]] = []
    for segment in reversed(segments):
        if _progress(segment):
            break
        found.insert(0, segment)
    return found


def _progress(segment: dict[str, Any]) -> bool:
    began, ended = segment.get("from_updates"), segment.get("to_updates")
    if began is None or ended is None:
        return _outcome(segment) == "stopped"
    return bool(ended > began)


def _outcome(segment: dict[str, Any]) -> str:
    return "killed" if segment["outcome"] == "running" else str(segment["outcome"])


def _where(segment: dict[str, Any], spec: RunSpec) -> str:
    done, total = segment.get("to_updates"), spec.updates
    if done is None:
        return "at an unknown update"
    return f"at update {done}" + (f" of {total}" if total else "")


def _why(attempt: Attempt | None) -> str | None:
    return attempt.reason if attempt is not None else None
