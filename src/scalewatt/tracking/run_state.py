"""What a run does right now, by its files and the jobs in Slurm's queue.

The first that holds:

done         its results are there, and they are of the campaign's spec
running      the holder of its working directory lives, or its job has begun
queued       its job waits in the queue
refused      its input is wrong
failed       it crashed, was killed, or gets no further tries
stopped      it waits at a checkpoint, or trained to its end, for its next job
out_of_date  its results are of another spec
not_started  nothing of the above
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.run_files.inventory import Published, last_used_s
from scalewatt.run_files.lock import BEAT_S, is_alive, read_holder, silence_s
from scalewatt.run_files.record import read_ended_run, read_segments, reason_to_end
from scalewatt.slurm.job_queue import QueuedJob

STATES = (
    *("done", "running", "queued", "stopped", "failed", "refused"),
    *("out_of_date", "not_started"),
)
GONE_SILENT_S = 4 * BEAT_S
Row = dict[str, Any]


def run_state(
    spec: RunSpec,
    published: Published | None,
    is_current: bool,
    folders: Sequence[Path],
    job: QueuedJob | None,
    crash_retries: int,
) -> Row:
    """State of a run with since when, where and why, by the keys of the status; None if unknown.

    `is_current`: what is published is of the campaign's spec; `folders`: its working directories, the last
    used first; `job`: its job in the queue. `since_s` of a run that is not under way is when it ended.
    """
    folder = folders[0] if folders else None
    if published is not None and is_current:
        log = str(published.folder / "train.log")
        return _row("done", folder, since_s=published.mtime_ns / 1e9, log=log)
    for path in folders:
        holder = read_holder(path)
        if holder is not None and is_alive(path, holder):
            silent_s = silence_s(path) or 0.0
            row = _row("running", path, since_s=holder.since_s, host=holder.host, job=holder.job)
            return {**row, "silent_s": silent_s if silent_s > GONE_SILENT_S else None}
    if job is not None:
        return _queued(job, folder)
    if folder is not None and (ended := _ended(folder, spec, crash_retries)):
        return ended
    if published is not None:
        reason = "its results are of another spec; the next start trains it again"
        return _row("out_of_date", since_s=published.mtime_ns / 1e9, reason=reason)
    return _row("not_started")


def _row(state: str, folder: Path | None = None, **facts: Any) -> Row:
    """State of a run with a working directory, and what is known of it."""
    log = folder / "train.log" if folder else None
    return {
        "state": state,
        **dict.fromkeys(("since_s", "host", "job", "silent_s", "reason")),
        "log": str(log) if log and log.exists() else None,
        "work_folder": str(folder) if folder else None,
        **facts,
    }


def _queued(job: QueuedJob, folder: Path | None) -> Row:
    """State of a run whose job has not come to its training, or waits."""
    if not job.is_waiting:
        return _row("running", folder, host=job.nodes or None, job=job.id)
    reason = job.waits_for
    if folder is not None and any(s.get("job") == job.id for s in read_segments(folder)):
        reason = f"its job was put back into the queue{f' ({reason})' if reason else ''}"
    return _row("queued", folder, job=job.id, reason=reason)


def _ended(folder: Path, spec: RunSpec, crash_retries: int) -> Row | None:
    """State of a run by what its last start left; None if it left nothing."""
    run = read_ended_run(folder, spec)
    if run["refusal"]:
        return _row("refused", folder, reason=run["refusal"])
    if not run["segments"]:
        return None
    last = run["segments"][-1]
    ended_s, no_further = last.get("ended_s"), reason_to_end(run, spec, crash_retries)
    since = {"since_s": ended_s or last_used_s(folder), "job": last.get("job")}
    detail = last.get("detail")
    match last["outcome"]:
        case "finished" if no_further is None:
            reason = "it is trained; the next start publishes its results"
            return _row("stopped", folder, reason=reason, **since)
        case "stopped" | "monitor_lost" if no_further is None:
            return _row("stopped", folder, reason=detail, **since)
        case "refused":
            return _row("refused", folder, reason=no_further, **since)
        case "killed":
            detail = detail or "it was killed, or its node was lost"
    return _row("failed", folder, reason=no_further or detail, **since)
