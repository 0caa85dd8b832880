"""A run's working directory and what it records: `run.json` by its launcher, `progress.json` by rank 0.

The folder is keyed by the hashes of spec and data; it is no output of Snakemake, which deletes outputs
before each attempt. Both files are written atomically and may be read while the run trains.

`run.json`: `segments`, each start of the ranks; `started_by`, the Snakemake (STARTED_BY) of the last of
them, which began with segment `since`; `refusal`, why a start did not come to its ranks, or why the trained
run could not be published; `order`, what the ranks are to do. A segment: `segment`, its number; `started_s`
and `ended_s` in Unix s, null if unknown; `outcome`: finished, stopped, failed, refused (its input was
wrong), killed, monitor_lost, or running; `detail`, why; `from_updates` and `to_updates`, all updates of the
run that were safe in a checkpoint when it began and ended, null if unknown; `job`, Slurm's, and `code`, the
exit code, both null if there is none; `software`, what it was made with.
`progress.json`: the position of the training (`segment`, `epoch` of `epochs`, `step` of the epoch's `steps`,
`updates` of `updates_total`, `stage`, `samples_per_s` of all ranks over the last interval, `written_s` in
Unix s); `checkpoint`, its position; `ended`, how the training ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import (
    NO_ROOM,
    Check,
    full_text,
    has_room,
    read_json_object,
    replace_json,
    write_json,
    write_text,
)
from scalewatt.run_files.inventory import find_workdirs, json_object, work_name
from scalewatt.run_files.lock import current_job, locked, require_token

RUN, PROGRESS, RESULT = "run.json", "progress.json", "result.json"
STARTED_BY = "SCALEWATT_STARTED_BY"
"""Variable that Snakemake hands to all of its jobs: its id."""
COMPILED = "compiled"
"""Folder of what torch.compile makes."""
FINISHED, STOPPED = "finished", "stopped"
MONITOR_LOST = "monitor_lost"
"""Outcome of a segment that stopped because its energy was no longer recorded."""


# --- progress.json: rank 0 ------------------------------------------------------------------------


def note_progress(workdir: Path, **changes: Any) -> None:
    """Change entries of progress.json without waiting for the disk."""
    # How an earlier segment ended says nothing of this one.
    known = {**json_object(workdir / PROGRESS), "ended": None}
    replace_json(workdir / PROGRESS, {**known, **changes, "written_s": time.time()})


def note_position(
    workdir: Path, updates: int, epoch: int, step: int, check: Check | None = None
) -> None:
    """Write the checkpoint's position, right after the checkpoint; `check` as in `atomic_path`.

    `updates` are those of the whole run, `step` those of the epoch.
    """
    position = {"updates": updates, "epoch": epoch, "step": step, "written_s": time.time()}
    known = json_object(workdir / PROGRESS)
    write_json(workdir / PROGRESS, {**known, "checkpoint": position}, check)


def note_outcome(workdir: Path, segment: int, outcome: dict[str, Any], check: Check) -> None:
    """Write how the training of a segment ended, before perun closes."""
    content = {**json_object(workdir / PROGRESS), "segment": segment, "ended": outcome}
    write_json(workdir / PROGRESS, content, check)


def read_position(workdir: Path) -> dict[str, Any] | None:
    """Position of a working directory's checkpoint: `updates`, `epoch`, `step`."""
    return json_object(workdir / PROGRESS).get("checkpoint")


def read_progress(workdir: Path) -> dict[str, Any] | None:
    """Position of a working directory's training, perhaps of an earlier segment."""
    content = json_object(workdir / PROGRESS)
    return content if "updates_total" in content else None


def read_outcome(workdir: Path, segment: int) -> dict[str, Any] | None:
    """How the training of a segment ended (`outcome`, `losses`); None while it goes on."""
    content = json_object(workdir / PROGRESS)
    return content.get("ended") if content.get("segment") == segment else None


def done_updates(work: Path, spec: RunSpec) -> int:
    """Updates up to a run's checkpoint, `work` being the campaign's folder; 0 without one.

    A finished training that is made again is one of other data.
    """
    folder = next(iter(find_workdirs(work, spec)), None)
    if folder is None or (folder / "result.json").exists():
        return 0
    position = read_position(folder)
    return position["updates"] if position else 0


# --- run.json ---------------------------------------------------------------------------------------


def read_run(workdir: Path) -> dict[str, Any]:
    """A run's record; an empty one if it cannot be read."""
    return _record(json_object(workdir / RUN))


def _record(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"since": 0, "refusal": None, "segments": [], **content}


def read_segments(workdir: Path) -> list[dict[str, Any]]:
    """Segments of a working directory; empty if its record cannot be read."""
    return list(read_run(workdir)["segments"])


def read_ended_run(workdir: Path, spec: RunSpec) -> dict[str, Any]:
    """The record of a run that nobody holds: its last segment has ended."""
    return _closed(read_run(workdir), workdir, spec)


def _closed(record: dict[str, Any], workdir: Path, spec: RunSpec) -> dict[str, Any]:
    """A record whose last segment ended as its ranks wrote, which may outlive their launcher.

    One that was left open was killed if they wrote nothing.
    """
    *before, last = record["segments"] or [{}]
    if last.get("outcome") not in ("running", "failed"):
        return record
    ended = read_outcome(workdir, last["segment"])
    if ended is None and last["outcome"] == "failed":
        return record
    to_updates = _safe_updates(workdir, spec, last["from_updates"])
    last = {
        **last,
        "outcome": (ended or {"outcome": "killed"})["outcome"],
        "to_updates": to_updates,
    }
    return {**record, "segments": [*before, last]}


def _safe_updates(workdir: Path, spec: RunSpec, otherwise: int | None) -> int | None:
    """Updates in the checkpoint; null for a command, which keeps its checkpoints itself."""
    if is_command_spec(spec):
        return None
    if position := read_position(workdir):
        return int(position["updates"])
    return None if (workdir / "checkpoint.pt").exists() else otherwise


# --- whether another job follows ------------------------------------------------------------------


def reason_to_end(run: Mapping[str, Any], spec: RunSpec, crash_retries: int) -> str | None:
    """Why no job follows a run's last segment; None if one does. Job, Snakemake and status ask this.

    A run goes on from its checkpoint unless its input was refused, its disk is full, it stopped twice in
    a row without progress, or crashed or was not recorded `crash_retries` + 1 times in a row without
    progress. Only segments of the present Snakemake count.
    """
    segments = run["segments"][run["since"] :]
    if run["refusal"] or not segments or segments[-1]["outcome"] == FINISHED:
        return run["refusal"]
    last = segments[-1]
    detail, outcome = last.get("detail") or "", last["outcome"]
    if outcome == "refused" or NO_ROOM in detail:
        return detail or "its input was refused"
    fruitless = [*takewhile(lambda segment: not _has_progressed(segment), reversed(segments))]
    has_stopped_twice = [segment["outcome"] for segment in fruitless[:2]] == [STOPPED] * 2
    if not has_stopped_twice and len(fruitless) <= max(crash_retries, outcome == STOPPED):
        return None
    done = last.get("to_updates")
    position = "an unknown update" if done is None else f"update {done} of {spec.updates}"
    reason = f"no progress in {len(fruitless)} segments in a row, the last {outcome} at {position}"
    return f"{reason} ({detail})" if detail else reason


def no_further_try(work: Path, spec: RunSpec, crash_retries: int) -> str | None:
    """Why the present Snakemake does not try a run again, by what its last job recorded; None if it does.

    `work` is the campaign's folder. Nothing of an earlier Snakemake's, or of a start by hand, is held
    against a run.
    """
    starter = os.environ.get(STARTED_BY)
    folder = next(iter(find_workdirs(work, spec)), None)
    if starter is None or folder is None:
        return None
    run = read_ended_run(folder, spec)
    if run.get("started_by") != starter:
        return None
    if (folder / RESULT).exists():
        return run["refusal"]
    reason = reason_to_end(run, spec, crash_retries)
    return reason or (None if has_room(folder) else full_text(folder))


def _has_progressed(segment: Mapping[str, Any]) -> bool:
    """Whether a segment left a further checkpoint; that of a command, which keeps its own, if it stopped."""
    began, ended = segment.get("from_updates"), segment.get("to_updates")
    if began is None or ended is None:
        return bool(segment["outcome"] == STOPPED)
    # Updates without energy do not count.
    return bool(ended > began and segment["outcome"] != MONITOR_LOST)


# --- the launcher ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkDir:
    """A run's working directory, held by this process."""

    path: Path
    spec: RunSpec
    dataset_sha256: str | None
    """None if the run has no dataset of ours."""
    lock: int
    """File descriptor of the lock, for the processes that must hold it as well."""
    token: str
    """By it ranks see that the run is still theirs."""
    files: dict[str, str] | None = None
    """SHA-256 of the files that a command depends on, by name; None for other runs."""

    @property
    def perun(self) -> Path:
        """Folder of perun's files and the journals."""
        return self.path / "perun"

    @property
    def finished(self) -> bool:
        """Whether training has come to its end."""
        return (self.path / RESULT).exists()

    def record(self) -> dict[str, Any]:
        """The content of run.json; InputError if it is damaged: segments must not be forgotten."""
        path = self.path / RUN
        return _record(read_json_object(path, "segments") if path.exists() else {})

    def open_record(self) -> None:
        """Close a segment that was left open; each Snakemake, and each start by hand, counts anew."""
        before = self.record()
        record = _closed(before, self.path, self.spec)
        starter = os.environ.get(STARTED_BY)
        if starter is None or starter != record.get("started_by"):
            count = {"started_by": starter, "since": len(record["segments"])}
            record = {**record, **count, "refusal": None}
        if record != before:
            self._write(record)

    def refuse(self, reason: str) -> None:
        """Note why no rank was started, or why the trained run could not be published."""
        self._write({**self.record(), "refusal": reason})

    def begin_segment(self, order: dict[str, Any], software: dict[str, Any]) -> int:
        """Note the start of a new segment and what its ranks are to do; its number."""
        record = self.record()
        number = len(record["segments"])
        segment = {
            **{"segment": number, "started_s": time.time(), "ended_s": None, "outcome": "running"},
            "from_updates": _safe_updates(self.path, self.spec, 0),
            **{"to_updates": None, "job": current_job(), "code": None, "software": software},
        }
        record["segments"].append(segment)
        self._write({**record, "order": {"segment": number, **order}, "refusal": None})
        return number

    def end_segment(self, outcome: str, detail: str | None = None, code: int | None = None) -> None:
        """Note how the last segment ended."""
        record = self.record()
        last = record["segments"][-1]
        updates = _safe_updates(self.path, self.spec, last["from_updates"])
        last |= {"ended_s": time.time(), "outcome": outcome, "code": code, "to_updates": updates}
        last |= {"detail": detail} if detail else {}
        self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        """Write the record; HeldError if the run was taken over, this process being taken for dead."""
        write_json(self.path / RUN, record, lambda: require_token(self.path, self.token))


@contextmanager
def open_workdir(
    root: Path, spec: RunSpec, dataset_sha256: str | None, files: dict[str, str] | None = None
) -> Iterator[WorkDir]:
    """Open and lock (`lock.locked`) a run's working directory under `root`.

    That of a command is one with these very `files`, so that no run mixes two versions of a script; a run
    that is trained to its end is published whatever its files have become.
    """
    path = root / work_name(spec.key, dataset_sha256, files)
    if files is not None:
        path = next((f for f in find_workdirs(root, spec) if (f / RESULT).exists()), path)
    (path / "perun").mkdir(parents=True, exist_ok=True)
    with locked(path) as (lock, token):
        if not (path / "spec.json").exists():
            write_text(path / "spec.json", spec.text)
        yield WorkDir(path, spec, dataset_sha256, lock, token, files)


def segment_name(segment: int) -> str:
    """Stem of a segment's files."""
    return f"segment-{segment:03d}"


def description_path(work: Path, segment: int) -> Path:
    """Where rank 0 describes what a segment runs on."""
    return work / f"{segment_name(segment)}.json"


# --- the ranks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A training to start: spec, folders, starting weights."""

    spec: RunSpec
    data_folder: str
    work: Path
    """The run's working directory; rank 0 writes checkpoint.pt, result.json and weights.pt there."""
    segment: int
    scratch: str | None = None
    """Folder of the node for a copy of the data; None for none."""
    initial_weights: str | None = None
    max_updates: int | None = None
    """Stop after so many updates of this segment."""
    checkpoint_every_s: float = 600.0
    """How old a checkpoint is when the next is written."""
    token: str | None = None
    """The token of the run's lock."""
    torch_device: str = "auto"
    closing_s: float = 120.0
    """From the training's return to the end of the ranks."""

    def require_lock(self) -> None:
        """Raise HeldError if another process has taken over the run: nothing more may be written."""
        require_token(self.work, self.token)
