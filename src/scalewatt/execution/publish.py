"""From a finished working directory to a run's declared outputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.external_command import is_command_spec
from scalewatt.common.files import atomic_path, read_json, read_json_object, write_json, write_table
from scalewatt.common.redaction import Redaction
from scalewatt.execution.script_events import joined_events
from scalewatt.provenance.node_description import joined
from scalewatt.provenance.versions import is_clean, joined_gpus, source_commit
from scalewatt.recordings.journal import journal_files, last_sample_s
from scalewatt.recordings.stage_log import read_events
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.run_files.work_directory import COMPILED, WorkDir, description_path, made_with_path
from scalewatt.training.history import SUBSETS, history_table

_BASELINES = ("metric_persistence", "metric_climatology")


def already_published(out: Path, work: WorkDir) -> bool:
    """Return True if `out` has this run, finished. The provenance is written last."""
    path = out / "provenance.json"
    if not path.exists():
        return False
    found = read_json_object(path)
    return all(found.get(name) == getattr(work, name) for name in ("spec_sha256", "dataset_sha256"))


def publish(work: WorkDir, out: Path, rated_powers: Mapping[str, Any] | None = None) -> None:
    """Write a finished run's files to `out`. The working directory keeps them as well.

    `rated_powers` of its device in W are noted, for estimates of what was not measured.
    """
    result = read_json(work.path / "result.json")
    command = is_command_spec(work.spec)
    marks = joined_events(work.path) if command else work.path / "events.jsonl"
    events = read_events(marks, _segment_ends(work.perun))
    out.mkdir(parents=True, exist_ok=True)
    _place_folder(work.perun, out / "perun")
    if not command:  # its weights are up to the command
        _place_file(work.path / "weights.pt", out / "weights.pt")
    if (work.path / SUBSETS).exists():
        _place_file(work.path / SUBSETS, out / SUBSETS)
    with atomic_path(out / "train.log") as temporary:
        shutil.copyfile(work.path / "train.log", temporary)
    write_table(history_table(result["history"]), out / "history.parquet")
    write_table(pa.Table.from_pylist(events, EVENTS_SCHEMA), out / "events.parquet")
    provenance = _provenance(work, result) | {"rated_powers": rated_powers}
    write_json(out / "provenance.json", provenance)
    (work.path / "checkpoint.pt").unlink(missing_ok=True)
    shutil.rmtree(work.path / COMPILED, ignore_errors=True)


def _segment_ends(folder: Path) -> dict[int, float]:
    """Return the wall-clock time of each segment's last recorded sample, in Unix s."""
    ends = {
        segment: [last for path in paths.values() if (last := last_sample_s(path)) is not None]
        for segment, paths in journal_files(folder).items()
    }
    return {segment: max(last) for segment, last in ends.items() if last}


def _provenance(work: WorkDir, result: dict[str, Any]) -> dict[str, Any]:
    segments = work.segments()
    numbers = [segment["segment"] for segment in segments]
    by_segment = _read(numbers, work.path, description_path)
    software = _read(numbers, work.path, made_with_path)
    described = list(by_segment.values())
    last = {key: value for key, value in described[-1].items() if key not in _OF_SEGMENT}
    commit = source_commit()
    return {
        "spec_sha256": work.spec_sha256,
        "dataset_sha256": work.dataset_sha256,
        "commit": commit,
        "commit_clean": is_clean(commit),
        **{name: software.get(numbers[-1], {}).get(name) for name in _OF_PACKAGES},
        "claims_sha256": software.get(numbers[0], {}).get("claims_sha256"),
        **(
            {"files": software.get(numbers[-1], {}).get("files")}
            if is_command_spec(work.spec)
            else {}
        ),
        **last,
        **joined_gpus(described),
        "nodes": joined(one.get("nodes") for one in described),
        "hostnames": sorted({host for d in described for host in d["hostnames"]}),
        "metric_name": result["metric_name"],
        "metric_goal": result.get("metric_goal", "min"),
        **{name: result["history"][-1].get(name) for name in _BASELINES},
        "parameters": result["parameters"],
        **({"reports": result["reports"]} if "reports" in result else {}),
        "segments": [
            _impersonal(s)
            | {name: by_segment.get(s["segment"], {}).get(name) for name in _OF_PLACE}
            | {name: software.get(s["segment"], {}).get(name) for name in _OF_CODE}
            for s in segments
        ],
    }


_OF_PLACE = ("ranks", "allocation", "clock_offsets")
_OF_SEGMENT = ("slurm", *_OF_PLACE)
_OF_PACKAGES = ("packages_installed", "lock")
_OF_CODE = ("commit", "commit_clean")


def _read(
    numbers: list[int], work: Path, path_of: Callable[[Path, int], Path]
) -> dict[int, dict[str, Any]]:
    """Return the records of segments by number, without those that have none."""
    paths = {number: path_of(work, number) for number in numbers}
    return {number: read_json(path) for number, path in paths.items() if path.exists()}


def _impersonal(segment: dict[str, Any]) -> dict[str, Any]:
    """Return a segment's record without the paths that the reason of its end may name."""
    if not segment.get("detail"):
        return segment
    return segment | {"detail": Redaction.of(os.environ).text(segment["detail"])}


def _place_file(source: Path, target: Path) -> None:
    """Place a file at `target`, without copying where the file system allows it."""
    with atomic_path(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)
        os.utime(temporary)


def _place_folder(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        _place_file(path, temporary / path.name)
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
