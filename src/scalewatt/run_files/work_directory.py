"""The working directory of a run: locked while in use, kept until its results are published.

It is keyed by the hashes of spec and data and is no output of Snakemake, which deletes outputs before each
attempt.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import exists
from scalewatt.common.files import read_json, write_json, write_text
from scalewatt.run_files.attempt_log import current_job
from scalewatt.run_files.progress_files import find_workdirs, read_position
from scalewatt.run_files.run_inventory import work_name
from scalewatt.run_files.run_lock import locked, require_lock, run_target

COMPILED = "compiled"
"""Folder of what torch.compile makes."""


@dataclass(frozen=True)
class WorkDir:
    """A run's working directory."""

    path: Path
    spec: RunSpec
    spec_sha256: str
    dataset_sha256: str | None
    """None if the run has no dataset of ours."""
    lock: int
    """File descriptor of the lock, for the processes that must hold it as well."""
    lock_token: str | None = None
    """Of the owner's record, for `require_lock`."""
    files: dict[str, str] | None = None
    """SHA-256 of the files that a command depends on, by name; None of other runs."""

    @property
    def perun(self) -> Path:
        """Folder of perun's files and the journals."""
        return self.path / "perun"

    @property
    def finished(self) -> bool:
        """Return True if training has come to its end."""
        return bool(exists(self.path / "result.json"))

    def segments(self) -> list[dict[str, Any]]:
        """Return the segments so far: segment, started_s, ended_s (Unix s, null if unknown), outcome.

        Outcomes: finished, stopped, failed, refused (its input was wrong), killed, monitor_lost (it
        stopped at a checkpoint because its energy was no longer recorded), and running. `detail`
        says why. `from_updates` and `to_updates` are all updates of the run that were safe in a
        checkpoint when it began and ended, null if that is unknown; `job` is Slurm's, `code`
        the exit code, both null if there is none.
        """
        path = self.path / "segments.json"
        found = [] if exists(path) is False else read_json(path)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise InputError(f"{path}: is no list of segments: it is damaged, or of something else")
        return found

    def begin_segment(self) -> int:
        """Note the start of a new segment; one left open before is closed."""
        self.close_segment()
        segments = self.segments()
        number = len(segments)
        segments.append(
            {
                "segment": number,
                "started_s": time.time(),
                "ended_s": None,
                "outcome": "running",
                "from_updates": self._updates_before(segments),
                "to_updates": None,
                "job": current_job(),
                "code": None,
            }
        )
        self._write(segments)
        return number

    def end_segment(self, outcome: str, detail: str | None = None, code: int | None = None) -> None:
        """Note how the last segment ended."""
        self._close(outcome, time.time(), detail, code)

    def close_segment(self) -> None:
        """Note of a segment left open by a process that was killed how it ended, as far as known."""
        segments = self.segments()
        if not segments or segments[-1]["outcome"] != "running":
            return
        outcome_file = outcome_path(self.path, segments[-1]["segment"])
        if exists(outcome_file):  # its ranks came to their end without the launching process
            self._close(str(read_json(outcome_file)["outcome"]), None, None, None)
        else:
            self._close("killed", None, None, None)

    def _close(
        self, outcome: str, ended_s: float | None, detail: str | None, code: int | None
    ) -> None:
        segments = self.segments()
        segments[-1] |= {"ended_s": ended_s, "outcome": outcome, "code": code}
        if detail:
            segments[-1]["detail"] = detail
        segments[-1]["to_updates"] = self._updates_after(segments[-1])
        self._write(segments)

    def _write(self, segments: list[dict[str, Any]]) -> None:
        """Write the segments; LockedError where the run was taken over, this process being presumed dead."""
        require_lock(self.path, self.lock_token)
        write_json(self.path / "segments.json", segments)

    def _updates_before(self, segments: list[dict[str, Any]]) -> int | None:
        """Updates that a new segment goes on from; 0 without a checkpoint of anybody's."""
        if is_command_spec(self.spec):
            return None
        position = read_position(self.path)
        if position is None:
            return 0 if exists(self.path / "checkpoint.pt") is False else None
        return position.updates

    def _updates_after(self, segment: dict[str, Any]) -> int | None:
        """Updates in the last checkpoint; those before a segment that has written none."""
        position = None if is_command_spec(self.spec) else read_position(self.path)
        return segment.get("from_updates") if position is None else position.updates


def segment_name(segment: int) -> str:
    """Stem of a segment's files."""
    return f"segment-{segment:03d}"


def began_path(work: Path, segment: int) -> Path:
    """Return what the ranks of a segment make as they begin."""
    return work / f"{segment_name(segment)}.began"


def outcome_path(work: Path, segment: int) -> Path:
    """Return where rank 0 says how the training of a segment ended, before perun closes (`outcome_of`)."""
    return work / f"{segment_name(segment)}.outcome"


def failure_path(work: Path, segment: int) -> Path:
    """Return where the first rank that failed in a segment says why (`reasons.Failure`)."""
    return work / f"{segment_name(segment)}.failure"


def description_path(work: Path, segment: int) -> Path:
    """Return where rank 0 says what a segment runs on."""
    return work / f"{segment_name(segment)}.json"


def made_with_path(work: Path, segment: int) -> Path:
    """Return where the launching process says with what code and packages a segment was started."""
    return work / f"{segment_name(segment)}.made-with.json"


@contextmanager
def open_workdir(
    root: Path, spec: RunSpec, dataset_sha256: str | None, files: dict[str, str] | None = None
) -> Iterator[WorkDir]:
    """Open and lock the working directory of `spec`, trained on this very dataset, under `root`.

    That of a command is one with these very `files`, so that no run mixes two versions of a script; a run
    that is trained to its end is published whatever its files have become.

    Held by another process of this machine, wait for it: it may be a training whose Snakemake was
    killed. Held by another machine's, or still held after a minute in a Slurm job (ten minutes where
    nobody can tell whether the owner lives), LockedError says by which. A dead owner's is taken over.
    """
    sha = spec.sha256
    path = root / work_name(spec.key, dataset_sha256, files)
    if files is not None:
        trained = (folder for folder in find_workdirs(root, spec) if exists(folder / "result.json"))
        path = next(trained, path)
    (path / "perun").mkdir(parents=True, exist_ok=True)
    with locked(run_target(path)) as hold:
        if not (path / "spec.json").exists():
            write_text(path / "spec.json", spec.text)
        yield WorkDir(path, spec, sha, dataset_sha256, hold.lock, hold.token, files)


FINISHED, STOPPED = "finished", "stopped"
"""Outcomes of a segment that does not fail."""


@dataclass(frozen=True)
class Job:
    """A training to start: spec, folders, starting weights."""

    spec: RunSpec
    spec_sha256: str
    data_folder: str
    work: Path
    """The run's working directory; rank 0 writes checkpoint.pt, result.json and weights.pt there."""
    segment: int
    scratch: str | None = None
    """Folder of the node for a copy of the data; null for none."""
    initial_weights: Path | None = None
    max_updates: int | None = None
    """Stop after so many updates of this segment."""
    lock_token: str | None = None
    """The token of this process's lock of the working directory (`run_lock`)."""

    def require_lock(self) -> None:
        """Raise LockedError if another process has taken over the run: nothing more may be written."""
        require_lock(self.work, self.lock_token)
