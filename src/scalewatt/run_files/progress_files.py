"""How far a run is, by the files of its working directory: checkpoint, training, segments.

All of them are written atomically and may be read while the run trains. What is missing or damaged
is None, or an empty list.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import Check, read_content, read_note, write_json

_FILES = ("segments.json", "position.json", "spec.json")


@dataclass(frozen=True)
class Position:
    """The position of a run's checkpoint."""

    updates: int
    """Of the whole run."""
    epoch: int
    step: int
    """Updates done of the epoch."""
    written_s: float
    """Unix s."""


@dataclass(frozen=True)
class Progress:
    """The position of a run's training, checkpoint or not."""

    segment: int
    epoch: int
    epochs: int
    step: int
    """Updates done of the epoch."""
    steps: int
    """Updates of an epoch."""
    updates: int
    updates_total: int
    samples_per_s: float | None
    """Of all ranks, over the last interval; None before there is one."""
    stage: str
    written_s: float
    """Unix s."""


def find_workdirs(work: Path, spec: RunSpec) -> list[Path]:
    """Return a run's working directories below the campaign's folder, the last used one first.

    A run has one for each content of its dataset: in most cases one, or none before its first job.
    """
    names = _names_by_run(work).get(spec.key, [])
    found = [path for path in map(work.joinpath, names) if _is_folder(path)]
    return sorted(found, key=_last_used_s, reverse=True)


_LISTED: dict[Path, tuple[int, dict[str, list[str]]]] = {}
"""Campaigns' folders as they were listed: their time of change in ns, and the names in them by run."""
_SETTLED_S = 2.0
"""How long ago a folder must have changed for the next change to show in its time, on any file system."""


def _names_by_run(work: Path) -> dict[str, list[str]]:
    """Return the names in a campaign's folder by the key of their run; listed anew when it has changed."""
    try:
        changed_ns = work.stat().st_mtime_ns
        known = _LISTED.get(work.absolute())
        if known is not None and known[0] == changed_ns:
            return known[1]
        listed_s, names = time.time(), defaultdict(list)
        for name in os.listdir(work):
            names[name.rpartition("-")[0]].append(name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    if listed_s - changed_ns / 1e9 > _SETTLED_S:
        _LISTED[work.absolute()] = changed_ns, names
    return names


def done_updates(work: Path, spec: RunSpec) -> int:
    """Return the updates up to a run's checkpoint; 0 where there is none, or none can be read."""
    try:
        found = [read_position(path) for path in find_workdirs(work, spec)[:1]]
    except OSError:
        return 0
    return max((position.updates for position in found if position), default=0)


def note_position(
    workdir: Path, updates: int, epoch: int, step: int, check: Check | None = None
) -> None:
    """Write where the checkpoint stands; right after the checkpoint itself.

    `check` as in `atomic_path`.
    """
    position = Position(updates, epoch, step, written_s=time.time())
    write_json(workdir / "position.json", asdict(position), check)


def read_position(workdir: Path) -> Position | None:
    """Return where the checkpoint in a working directory stands."""
    return read_note(workdir / "position.json", Position)


def note_progress(workdir: Path, progress: Progress) -> None:
    """Write where the training stands, without waiting for the disk."""
    path = workdir / "progress.json"
    temporary = workdir / ".progress.tmp.json"
    temporary.write_text(json.dumps(asdict(progress)) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_progress(workdir: Path) -> Progress | None:
    """Return where the training in a working directory stood last, perhaps in an earlier segment."""
    return read_note(workdir / "progress.json", Progress)


def read_segments(workdir: Path) -> list[dict[str, Any]]:
    """Return the segments of a working directory, each with at least `segment` and `outcome`."""
    found = read_content(workdir / "segments.json")
    if not isinstance(found, list):
        return []
    return [one for one in found if isinstance(one, dict) and {"segment", "outcome"} <= set(one)]


def read_run_segments(work: Path, spec: RunSpec) -> list[dict[str, Any]]:
    """Return the segments of the working directory that a run used last."""
    return [one for path in find_workdirs(work, spec)[:1] for one in read_segments(path)]


def _is_folder(path: Path) -> bool:
    """Return True for a folder, and for what its file system does not tell of just now (NFS)."""
    try:
        return path.is_dir()
    except OSError:
        return True


def _last_used_s(workdir: Path) -> float:
    times = []
    for name in _FILES:
        try:
            times.append((workdir / name).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)
