"""Whether a run whose job ended is worth another job.

By the rules, in this order:

- Input that is wrong, and a run that another job holds: no.
- No job of it was ever accepted by the scheduler: no.
- Jobs that ended before the training began in them: yes, `crash_retries` times in a row.
- No room on the file system: no.
- Stopped at a checkpoint with progress, or finished and not published: yes.
- Two segments in a row that were cut (stopped or killed as a whole) without progress: no.
- Failed, or killed: yes, `crash_retries` times without progress in between.

Progress is that a segment left a checkpoint behind that is further than the one it began from.
Where that is unknown, as with commands, a stop at a checkpoint counts as progress and nothing else
does. Only what began since `since_s` counts: whoever starts Snakemake again begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.jobs.attempts import (
    FINISHED,
    HELD,
    NO_ROOM,
    REFUSED,
    Attempt,
    Submission,
    one_line,
    read_attempt,
    read_submission,
    segments_of,
    started,
)
from scalewatt.jobs.position import done_updates, find_workdirs, read_segments

FRUITLESS_CUTS = 2
"""This many segments in a row that were cut without progress are the last."""


@dataclass(frozen=True)
class Verdict:
    """Whether a run is submitted again, and why or why not."""

    again: bool
    reason: str


def verdict(work: Path, spec: dict[str, Any], since_s: float, crash_retries: int) -> Verdict:
    """Say whether the run of `spec`, whose job has ended, is to be submitted again.

    `work` is the campaign's folder below the work root; `since_s` (Unix s) when this Snakemake
    started; the rules are the module's.
    """
    submission, attempt = read_submission(work, spec), read_attempt(work, spec)
    if submission is not None and submission.submitted_s < since_s:
        submission = None
    if attempt is not None and attempt.started_s < since_s:
        attempt = None
    if submission is not None and not started(submission, attempt):
        attempt = None
    if submission is None and attempt is None:
        return Verdict(False, "no job of it was accepted by the scheduler")
    if attempt is not None and attempt.code in (REFUSED, HELD):
        return Verdict(False, attempt.reason or "its input was refused")
    if submission is not None and not segments_of(work, spec, submission):
        return _unstarted(submission, attempt, crash_retries)
    segments = _segments(work, spec, since_s)
    if not segments:
        return Verdict(False, _why(attempt) or "it ended before its training began")
    return _by_segments(segments, spec, crash_retries)


def _unstarted(submission: Submission, attempt: Attempt | None, crash_retries: int) -> Verdict:
    """Judge a job in which no segment began."""
    said = _why(attempt)
    if said and NO_ROOM in said:
        return Verdict(False, said)
    finished = attempt is not None and attempt.code == FINISHED
    ended = "after the run was published" if finished else "before its training began"
    count = submission.unstarted + 1
    reason = f"job {submission.job} ended {ended}{f': {said}' if said else ''}"
    if count > crash_retries:
        return Verdict(False, f"{reason} (as {count} jobs in a row did)" if count > 1 else reason)
    return Verdict(True, f"{reason} ({count} of {crash_retries})")


def _by_segments(
    segments: Sequence[dict[str, Any]], spec: dict[str, Any], crash_retries: int
) -> Verdict:
    last = segments[-1]
    outcome, said = _outcome(last), _detail(last)
    if last.get("detail") and NO_ROOM in str(last["detail"]):
        return Verdict(False, str(last["detail"]))
    if outcome == "refused":
        return Verdict(False, str(last.get("detail") or "its input was refused"))
    if outcome == "finished":
        return Verdict(True, "trained to its end, and not published yet")
    where = _where(last, spec)
    vain = _in_vain(segments)
    cut = [one for one in vain[-FRUITLESS_CUTS:] if _is_cut(one)]
    if len(cut) == FRUITLESS_CUTS:
        return Verdict(
            False,
            f"it makes no progress: its last {len(cut)} segments were cut {where}, without a "
            f"further checkpoint{said}; give its jobs more time, then start Snakemake again",
        )
    if outcome in ("stopped", "monitor_lost") and not vain:
        return Verdict(True, f"stopped at a checkpoint {where}")
    failures = len(vain)
    before = len(segments) - len(vain) - 1
    if before >= 0 and _outcome(segments[before]) not in ("stopped", "monitor_lost"):
        failures += 1  # it had made progress before it failed
    if failures > crash_retries:
        times = f"{failures} times in a row" if failures > 1 else "once"
        return Verdict(
            False,
            f"{outcome} {times} {where}{said}; start Snakemake again to go on from its checkpoint",
        )
    return Verdict(True, f"{outcome} {where}{said} ({failures} of {crash_retries})")


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


def _segments(work: Path, spec: dict[str, Any], since_s: float) -> list[dict[str, Any]]:
    """Return the segments since then; one left open with the updates that its checkpoint holds."""
    found = [one for path in find_workdirs(work, spec)[:1] for one in read_segments(path)]
    recent = [one for one in found if (one.get("started_s") or 0.0) >= since_s]
    if recent and recent[-1]["outcome"] == "running" and recent[-1].get("from_updates") is not None:
        recent[-1] = {**recent[-1], "to_updates": done_updates(work, spec)}
    return recent


def _is_cut(segment: dict[str, Any]) -> bool:
    """Whether a segment of known progress was ended from outside as a whole."""
    known = segment.get("from_updates") is not None
    return known and _outcome(segment) in ("stopped", "killed", "monitor_lost")


def _outcome(segment: dict[str, Any]) -> str:
    return "killed" if segment["outcome"] == "running" else str(segment["outcome"])


def _where(segment: dict[str, Any], spec: dict[str, Any]) -> str:
    done, total = segment.get("to_updates"), spec.get("updates")
    if done is None:
        return "at an unknown update"
    return f"at update {done}" + (f" of {total}" if total else "")


def _detail(segment: dict[str, Any]) -> str:
    return f" ({one_line(str(segment['detail']))})" if segment.get("detail") else ""


def _why(attempt: Attempt | None) -> str | None:
    return attempt.reason if attempt is not None else None
