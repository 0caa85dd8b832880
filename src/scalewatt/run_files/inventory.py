"""What there is of a campaign on disk: published runs and working directories.

Everything may change, vanish or be half there while it is read: that is skipped.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import REPLACED
from scalewatt.campaign.external_command import digest_of_files
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.files import read_content

PROVENANCE = "provenance.json"
SUPERSEDED = "superseded"
"""Folder of measurements that were set aside to be made again (`remeasure`)."""
RUN = "run"
"""A run's folder among what was set aside."""
SET_ASIDE = "set-aside.json"
"""Next to it: what was set aside, when and why."""
_WORK_NAME = re.compile(r"(?P<key>.+-[1-9][0-9]*-[0-9a-f]{12})-[0-9a-z]{6,8}")

RunName = tuple[str, int]
"""Configuration and repeat."""


def run_folder(results: Path, run: RunName) -> Path:
    """Folder of a run's files, below a campaign's results."""
    return results / "runs" / run[0] / str(run[1])


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
    """SHA-256 of the files of a command that it was trained with; None for other runs."""
    began_s: float | None = None
    """Start of its first segment, in Unix s, which identifies the measurement."""

    @property
    def key(self) -> str:
        """Run key: what its working directory and its notes are named by."""
        return f"{self.configuration}-{self.repeat}-{self.spec_sha256[:12]}"

    @property
    def work_name(self) -> str:
        """Name of its working directory."""
        return work_name(self.key, self.dataset_sha256, self.files)


@dataclass(frozen=True, eq=False)
class Inventory:
    """What a campaign's folders of results and of working directories hold, read once."""

    published: dict[RunName, Published]
    superseded: list[Published]
    working: dict[str, list[Path]]
    """Working directories by run key."""

    @classmethod
    def of(cls, results: Path, work: Path) -> Inventory:
        """Read a campaign's folders."""
        return cls(published_runs(results), superseded_runs(results), work_folders(work))


# --- results ----------------------------------------------------------------------------------------


def published_runs(results: Path) -> dict[RunName, Published]:
    """The published runs below a campaign's results."""
    runs = ((run, published_run(folder, *run)) for run, folder in _run_folders(results / "runs"))
    return {run: published for run, published in runs if published is not None}


def superseded_runs(results: Path) -> list[Published]:
    """Runs whose measurement was set aside; `folder.parent` holds their tables too."""
    runs = (published_run(folder / RUN, *run) for run, folder in _set_aside(results))
    return [run for run in runs if run is not None]


def published_run(folder: Path, configuration: str, repeat: int) -> Published | None:
    """The published run in a folder; None if there is none."""
    path = folder / PROVENANCE
    content = json_object(path)
    with suppress(OSError, KeyError):
        sha256, mtime_ns = content["spec_sha256"], path.stat().st_mtime_ns
        return Published(
            *(folder, configuration, repeat, sha256, content.get("dataset_sha256"), mtime_ns),
            *(content.get("files"), began_s(content.get("segments"))),
        )
    return None


def is_of_campaign(campaign: Campaign, results: Path | str, run: RunName) -> bool:
    """True if a run was made with a campaign's present settings; a registered run has no others.

    How its GPUs are spread over nodes is not compared: the site may be another.
    """
    if campaign.registered:
        return True
    made, spec = json_object(run_folder(Path(results), run) / "spec.json"), run_spec(campaign, *run)
    unlike = {k for k, value in json.loads(spec.text).items() if made.get(k) != value}
    if spec.initial_weights and "initial_weights" in unlike:  # whose hash has the nodes in it
        source = spec.initial_weights.configuration, spec.initial_weights.repeat
        same = made.get("initial_weights") or {}
        if (same.get("configuration"), same.get("repeat")) == source:
            unlike -= {"initial_weights"} if is_of_campaign(campaign, results, source) else set()
    return unlike <= {"nodes", "ranks_per_node"}


def began_s(segments: list[dict[str, Any]] | None) -> float | None:
    """Start of the first of a run's segments, in Unix s; None if unknown."""
    return segments[0].get("started_s") if segments else None


def set_aside_notes(results: Path) -> dict[RunName, list[Path]]:
    """The notes of what was set aside, by run.

    Whatever is made of a run depends on them: each is newer than what was made of that measurement.
    """
    notes = defaultdict(list)
    for run, folder in _set_aside(results):
        if (folder / SET_ASIDE).exists():
            notes[run].append(folder / SET_ASIDE)
    return dict(notes)


def missed_by_notes(results: Path) -> dict[RunName, list[Path]]:
    """The notes by which Snakemake sees that runs are to be made (again), by run.

    A note of what Snakemake itself set aside counts only as long as the run is missing: what it made of
    the next measurement in the same call did not have the note among its inputs.
    """
    missed = {}
    for run, notes in set_aside_notes(results).items():
        is_made = (run_folder(results, run) / PROVENANCE).exists()
        kept = [n for n in notes if not (is_made and json_object(n).get("action") == REPLACED)]
        if kept:
            missed[run] = kept
    return missed


def _set_aside(results: Path) -> Iterator[tuple[RunName, Path]]:
    for run, parent in _run_folders(results / SUPERSEDED):
        yield from ((run, folder) for folder in folders(parent))


def _run_folders(root: Path) -> Iterator[tuple[RunName, Path]]:
    """The folders of runs below `root`, each with its run."""
    for configuration in folders(root):
        for repeat in folders(configuration):
            if repeat.name.isdigit():
                yield (configuration.name, int(repeat.name)), repeat


# --- working directories ----------------------------------------------------------------------------


def work_name(key: str, dataset_sha256: str | None, files: Mapping[str, str] | None) -> str:
    """Name of the working directory of a run with this key, these data and a command's files."""
    data = digest_of_files(files) if files is not None else dataset_sha256 or "nodata"
    return f"{key}-{data[:8]}"


def work_folders(work: Path) -> dict[str, list[Path]]:
    """The working directories below a campaign's folder, by run key."""
    by_key = defaultdict(list)
    for path in folders(work):
        if match := _WORK_NAME.fullmatch(path.name):
            by_key[match["key"]].append(path)
    return dict(by_key)


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


def folders(path: Path) -> Iterator[Path]:
    """The folders in a folder, by name; none if it does not exist."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return
    yield from (path / name for name in names)


def json_object(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one if the file is missing, damaged or holds anything else."""
    content = read_content(path)
    return content if isinstance(content, dict) else {}
