"""What there is of a campaign on disk: published runs and working directories.

Everything may change, vanish or be half there while it is read: that is skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.exclusions import REPLACED
from scalewatt.campaign.external_command import digest_of_files
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.files import read_content

PROVENANCE = "provenance.json"
SUPERSEDED = "superseded"
"""Folder of measurements that were set aside to be made again (`remeasure`)."""
RUN = "run"
"""A run's folder among what was set aside."""
SET_ASIDE = "set-aside.json"
"""Beside it: what was set aside, when and why."""
_WORK_FOLDER = re.compile(
    r"(?P<key>(?P<configuration>.+)-(?P<repeat>[1-9][0-9]*)-(?P<sha>[0-9a-f]{12}))"
    r"(?P<data>-[0-9a-z]{6,8})?"
)


@dataclass(frozen=True)
class Published:
    """A run whose results are there."""

    folder: Path
    configuration: str
    repeat: int
    spec_sha256: str
    dataset_sha256: str | None
    mtime_ns: int
    """When it was published."""
    files: dict[str, str] | None = None
    """SHA-256 of the files of a command that it was trained with; None of other runs."""
    began_s: float | None = None
    """Start of its first segment, in Unix s: by it a measurement is known again."""

    @property
    def key(self) -> str:
        """Return what its working directory and its notes are named by."""
        return f"{self.configuration}-{self.repeat}-{self.spec_sha256[:12]}"

    @property
    def work_name(self) -> str:
        """Return the name of its working directory."""
        return work_name(self.key, self.dataset_sha256, self.files)


@dataclass(frozen=True)
class WorkFolder:
    """A run's working directory."""

    path: Path
    key: str
    configuration: str
    repeat: int
    spec_sha256: str
    """Its first digits."""


def published_runs(results: Path) -> dict[tuple[str, int], Published]:
    """Return the published runs below a campaign's results, by configuration and repeat."""
    found = {}
    for configuration in folders(results / "runs"):
        for repeat in folders(configuration):
            if not repeat.name.isdigit():
                continue
            one = published_run(repeat, configuration.name, int(repeat.name))
            if one is not None:
                found[one.configuration, one.repeat] = one
    return found


def superseded_runs(results: Path) -> list[Published]:
    """Return the runs whose measurement was set aside; `folder.parent` holds their tables too."""
    kept = ((run, published_run(folder / RUN, *run)) for run, folder in _set_aside(results))
    return [one for _, one in kept if one is not None]


def set_aside_notes(results: Path) -> dict[tuple[str, int], list[Path]]:
    """Return the notes of what was set aside, by configuration and repeat.

    Whatever is made of a run depends on them: each is newer than what was made of that measurement.
    """
    found: dict[tuple[str, int], list[Path]] = {}
    for run, folder in _set_aside(results):
        if (folder / SET_ASIDE).exists():
            found.setdefault(run, []).append(folder / SET_ASIDE)
    return found


def missed_by_notes(results: Path) -> dict[tuple[str, int], list[Path]]:
    """Return the notes by which Snakemake sees that runs are to be made (again), by run.

    Of what was set aside by Snakemake itself only as long as the run is missing: what it made of the next
    measurement in the same call did not have the note among its inputs.
    """
    return {
        run: kept
        for run, notes in set_aside_notes(results).items()
        if (kept := [note for note in notes if not _is_replaced(results, run, note)])
    }


def _is_replaced(results: Path, run: tuple[str, int], note: Path) -> bool:
    """Return True if Snakemake itself set a measurement aside, and the next one is there."""
    there = (results / "runs" / run[0] / str(run[1]) / PROVENANCE).exists()
    return there and json_object(note).get("action") == REPLACED


def _set_aside(results: Path) -> Iterator[tuple[tuple[str, int], Path]]:
    """Return the folders of what was set aside, each with its run."""
    for configuration in folders(results / SUPERSEDED):
        for repeat in folders(configuration):
            for folder in folders(repeat) if repeat.name.isdigit() else ():
                yield (configuration.name, int(repeat.name)), folder


def published_run(folder: Path, configuration: str, repeat: int) -> Published | None:
    """Return the published run in a folder; None if there is none."""
    path = folder / PROVENANCE
    try:
        mtime_ns = path.stat().st_mtime_ns
    except OSError:
        return None
    content = json_object(path)
    spec, data = content.get("spec_sha256"), content.get("dataset_sha256")
    if not isinstance(spec, str):
        return None
    data = data if isinstance(data, str) else None
    files = content.get("files")
    files = files if isinstance(files, dict) else None
    segments = content.get("segments")
    return Published(folder, configuration, repeat, spec, data, mtime_ns, files, began_s(segments))


def began_s(segments: Any) -> float | None:
    """Return when the first of a run's segments began, in Unix s; None where that is not known."""
    first = segments[0] if isinstance(segments, list) and segments else None
    found = first.get("started_s") if isinstance(first, dict) else None
    return found if isinstance(found, int | float) else None


def work_name(key: str, dataset_sha256: str | None, files: Mapping[str, str] | None) -> str:
    """Return the name of the working directory of a run with this key, these data and a command's files."""
    data = digest_of_files(files) if files is not None else dataset_sha256 or "nodata"
    return f"{key}-{data[:8]}"


def find_workdirs(work: Path, spec: RunSpec) -> list[Path]:
    """A run's working directories below the campaign's folder, the last used first.

    A run has one for each content of its dataset: in most cases one, or none before its first job.
    """
    paths = [path for path in folders(work) if path.name.rpartition("-")[0] == spec.key]
    return sorted(paths, key=last_used_s, reverse=True)


def last_used_s(workdir: Path) -> float:
    """When a working directory's record was last written, in Unix s."""
    times = [0.0]
    for name in ("run.json", "progress.json", "spec.json"):
        with suppress(OSError):
            times.append((workdir / name).stat().st_mtime)
    return max(times)


def work_folders(work: Path) -> dict[str, list[WorkFolder]]:
    """Return the working directories below a campaign's folder, by run key."""
    found: dict[str, list[WorkFolder]] = {}
    for path in folders(work):
        if match := _WORK_FOLDER.fullmatch(path.name):
            repeat, sha256 = int(match["repeat"]), match["sha"]
            one = WorkFolder(path, match["key"], match["configuration"], repeat, sha256)
            found.setdefault(one.key, []).append(one)
    return found


def folders(path: Path) -> Iterator[Path]:
    """Return the folders in a folder, by name; none where there is no such folder."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return
    yield from (path / name for name in names)


def json_object(path: Path) -> dict[str, Any]:
    """Return a JSON object, an empty one where the file is missing, damaged or none."""
    found = read_content(path)
    return found if isinstance(found, dict) else {}
