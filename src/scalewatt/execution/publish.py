"""From a finished working directory to a run's declared outputs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.external_command import is_command_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, read_json, read_json_object, write_json, write_table
from scalewatt.common.redaction import Redaction
from scalewatt.execution.command_rank import stage_marks
from scalewatt.provenance.node_description import grouped
from scalewatt.provenance.rank_placement import held_gpus
from scalewatt.provenance.versions import is_clean, source_commit
from scalewatt.recordings.journal import journal_files, last_stamps
from scalewatt.recordings.stage_log import stages_between
from scalewatt.recordings.stages import EVENTS_SCHEMA
from scalewatt.run_files.record import COMPILED, WorkDir, description_path
from scalewatt.training.history import history_table

_OF_PLACE = ("ranks", "clock_offsets")
_OF_PACKAGES = ("packages_installed", "lock")
_OF_CODE = ("commit", "commit_clean")
_BASELINES = ("metric_persistence", "metric_climatology")


def already_published(out: Path, work: WorkDir) -> bool:
    """Whether `out` has this run, finished. The provenance is written last."""
    path = out / "provenance.json"
    published = read_json_object(path) if path.exists() else {}
    ours = {"spec_sha256": work.spec.sha256, "dataset_sha256": work.dataset_sha256}
    return published.items() >= ours.items()


def publish(work: WorkDir, out: Path, rated_powers: Mapping[str, Any] | None = None) -> None:
    """Write a finished run's files to `out`, the provenance last. The working directory keeps them as well.

    `rated_powers` of its device in W are noted, for estimates of what was not measured.
    """
    result = read_json(work.path / "result.json")
    marks = stage_marks(work.path)
    if not marks:
        raise InputError(f"{work.path / 'events.jsonl'}: no stages, so no energy can be accounted")
    events = stages_between(marks, _segment_ends(work.perun))
    out.mkdir(parents=True, exist_ok=True)
    # The recordings, whole or not at all.
    temporary = out / ".perun.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(work.perun, temporary, copy_function=_link)
    shutil.rmtree(out / "perun", ignore_errors=True)
    os.utime(temporary)
    temporary.rename(out / "perun")
    if not is_command_spec(work.spec):  # a command's weights are its own affair
        with atomic_path(out / "weights.pt") as temporary:
            _link(work.path / "weights.pt", temporary)
    with atomic_path(out / "train.log") as temporary:
        shutil.copyfile(work.path / "train.log", temporary)
    write_table(history_table(result["history"]), out / "history.parquet")
    write_table(pa.Table.from_pylist(events, EVENTS_SCHEMA), out / "events.parquet")
    write_json(out / "provenance.json", _provenance(work, result) | {"rated_powers": rated_powers})
    (work.path / "checkpoint.pt").unlink(missing_ok=True)
    shutil.rmtree(work.path / COMPILED, ignore_errors=True)


def _link(source: Path | str, target: Path | str) -> None:
    """Give a file a second name where the file system allows it; else copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    os.utime(target)


def _segment_ends(folder: Path) -> dict[int, float]:
    """Time of each segment's last recorded sample, in Unix s."""
    ends: dict[int, float] = {}
    for segment, paths in journal_files(folder).items():
        if stamps := [*filter(None, map(last_stamps, paths.values()))]:
            ends[segment], _ = max(stamps)
    return ends


def _provenance(work: WorkDir, result: dict[str, Any]) -> dict[str, Any]:
    segments = work.record()["segments"]
    software = [segment.get("software") or {} for segment in segments]
    paths = {s["segment"]: description_path(work.path, s["segment"]) for s in segments}
    described = {number: read_json(path) for number, path in paths.items() if path.exists()}
    last = {k: v for k, v in [*described.values()][-1].items() if k not in _OF_PLACE}
    commit, redaction = source_commit(), Redaction.of(os.environ)
    for segment in segments:  # the reason of its end may name paths of a person's
        segment.pop("software", None)
        if segment.get("detail"):
            segment["detail"] = redaction.text(segment["detail"])
    return {
        "spec_sha256": work.spec.sha256,
        "dataset_sha256": work.dataset_sha256,
        "commit": commit,
        "commit_clean": is_clean(commit),
        **{name: software[-1].get(name) for name in _OF_PACKAGES},
        "claims_sha256": software[0].get("claims_sha256"),
        **({"files": software[-1].get("files")} if is_command_spec(work.spec) else {}),
        **last,
        **held_gpus(rank for d in described.values() for rank in d["ranks"]),
        "nodes": grouped(node for d in described.values() for node in d["nodes"]),
        "hostnames": sorted({host for d in described.values() for host in d["hostnames"]}),
        "metric_name": result["metric_name"],
        "metric_goal": result.get("metric_goal", "min"),
        **{name: result["history"][-1].get(name) for name in _BASELINES},
        "parameters": result["parameters"],
        **({"reports": result["reports"]} if "reports" in result else {}),
        "segments": [
            segment
            | {name: described.get(segment["segment"], {}).get(name) for name in _OF_PLACE}
            | {name: made.get(name) for name in _OF_CODE}
            for segment, made in zip(segments, software, strict=True)
        ],
    }
