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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.run_files.inventory import Published
from scalewatt.run_files.lock import BEAT_S, is_alive, read_holder, silence_s
from scalewatt.run_files.record import read_ended_run, read_segments
from scalewatt.scheduling.retries import reason_to_end
from scalewatt.slurm.job_queue import QueuedJob

State = Literal[
    "done", "running", "queued", "stopped", "failed", "refused", "out_of_date", "not_started"
]
STATES: tuple[State, ...] = get_args(State)
LOG = "train.log"
GONE_SILENT_S = 4 * BEAT_S


@dataclass(frozen=True)
class RunState:
    """A run's state, since when, where and why."""

    state: State
    since_s: float | None = None
    """Unix s; of a run that is not under way, when it ended."""
    host: str | None = None
    job: str | None = None
    silent_s: float | None = None
    """How long a running one has shown no sign of life, if that is too long."""
    reason: str | None = None
    log: Path | None = None
    folder: Path | None = None
    """Its working directory, if there is one."""


def run_state(
    spec: RunSpec,
    published: Published | None,
    is_current: bool,
    folders: Sequence[Path],
    job: QueuedJob | None,
    crash_retries: int,
) -> RunState:
    """The state of a run.

    `is_current`: what is published is of the campaign's spec; `folders`: its working directories, the last
    used first; `job`: its job in the queue.
    """
    folder = folders[0] if folders else None
    if published is not None and is_current:
        since_s = published.mtime_ns / 1e9
        return RunState("done", since_s, log=published.folder / LOG, folder=folder)
    for path in folders:
        if state := _held(path):
            return state
    if job is not None:
        return _queued(job, folder)
    if folder is not None and (state := _left(folder, spec, crash_retries)):
        return state
    if published is not None:
        reason = "its results are of another spec; the next start trains it again"
        return RunState("out_of_date", published.mtime_ns / 1e9, reason=reason)
    return RunState("not_started")


def _held(folder: Path) -> RunState | None:
    """The state of a run whose holder lives."""
    holder = read_holder(folder)
    if holder is None or not is_alive(folder, holder):
        return None
    silent_s = silence_s(folder)
    return RunState(
        "running",
        holder.since_s,
        holder.host,
        holder.job,
        silent_s if silent_s and silent_s > GONE_SILENT_S else None,
        log=_existing(folder / LOG),
        folder=folder,
    )


def _queued(job: QueuedJob, folder: Path | None) -> RunState:
    """The state of a run whose job has not come to its training, or waits."""
    if not job.is_waiting:
        return RunState("running", host=job.nodes or None, job=job.id, folder=folder)
    reason = job.waits_for
    if folder is not None and any(s.get("job") == job.id for s in read_segments(folder)):
        reason = f"its job was put back into the queue{f' ({reason})' if reason else ''}"
    return RunState("queued", job=job.id, reason=reason, folder=folder)


def _left(folder: Path, spec: RunSpec, crash_retries: int) -> RunState | None:
    """The state of a run by what its last start left."""
    run = read_ended_run(folder, spec)
    segments, log = run["segments"], _existing(folder / LOG)
    if run["refusal"]:
        return RunState("refused", reason=run["refusal"], log=log, folder=folder)
    if not segments:
        return None
    last = segments[-1]
    outcome, ended_s = last["outcome"], number(last.get("ended_s")) or _last_sign_s(folder)
    where = {"since_s": ended_s, "job": last.get("job"), "log": log, "folder": folder}
    no_further = reason_to_end(run, spec, crash_retries)
    if outcome == "finished" and no_further is None:
        reason = "it is trained; the next start publishes its results"
        return RunState("stopped", reason=reason, **where)
    if outcome == "refused":
        return RunState("refused", reason=no_further, **where)
    if outcome in ("stopped", "monitor_lost") and no_further is None:
        return RunState("stopped", reason=last.get("detail"), **where)
    killed = "it was killed, or its node was lost" if outcome == "killed" else None
    return RunState("failed", reason=no_further or last.get("detail") or killed, **where)


def _last_sign_s(folder: Path) -> float | None:
    """When a run that was killed last wrote something, in Unix s."""
    paths = [path for path in (folder / "progress.json", folder / "run.json") if path.exists()]
    return max((path.stat().st_mtime for path in paths), default=None)


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None


def number(value: Any) -> float | None:
    """A number as it is; None for anything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
