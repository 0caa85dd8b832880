"""The folder of a registered run: the same files as a trained one's."""

from __future__ import annotations

import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.registered_campaign import RegisteredRun
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json, write_table, write_text
from scalewatt.common.redaction import Redaction
from scalewatt.recordings.node_names import same_node
from scalewatt.recordings.stages import EVENTS_SCHEMA, STAGES_SCHEMA, read_stages
from scalewatt.registration.recordings import Recorded, copy_recording
from scalewatt.training.history import HISTORY_SCHEMA


def write_run(
    folder: Path,
    spec: RunSpec,
    recorded: Recorded,
    stages: pa.Table,
    facts: Mapping[str, Any],
    source: Path,
) -> RegisteredRun:
    """Write a run folder, `<configuration>/<repeat>`, whole or not at all.

    `facts`: what the provenance says of the run besides its files.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    provenance = {**facts, **_origin(spec, recorded, source)}
    try:
        (temporary / "perun").mkdir(parents=True)
        for file in recorded.files:
            copy_recording(file, temporary / "perun")
        write_text(temporary / "spec.json", spec.text + "\n")
        write_table(_history(spec, recorded, facts), temporary / "history.parquet")
        write_table(stages, temporary / "events.parquet")
        write_json(temporary / "provenance.json", provenance)
        temporary.rename(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return RegisteredRun(folder, provenance)


def _history(spec: RunSpec, recorded: Recorded, facts: Mapping[str, Any]) -> pa.Table:
    """History of the last epoch alone: what is known is the whole training's work and its end."""
    row = {
        **dict.fromkeys(HISTORY_SCHEMA.names),
        "epoch": spec.epochs - 1,
        "segment": max(recorded.hosts),
        **{name: facts[name] for name in ("metric", "samples", "updates")},
    }
    return pa.Table.from_pylist([row], schema=HISTORY_SCHEMA)


def _origin(spec: RunSpec, recorded: Recorded, source: Path) -> dict[str, Any]:
    """What the provenance says of the recording."""
    last = max(recorded.hosts)
    return {
        "spec_sha256": spec.sha256,
        "registered": True,
        "registered_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": Redaction.of(os.environ).text(str(source)),
        "identity": recorded.identity,
        "recordings": [
            {
                "file": file.target,
                "original": file.path.name,
                "sha256": file.sha256,
                "part": "/".join(file.part) if file.part else None,
                **({"options": dict(sorted(file.options.items()))} if file.options else {}),
            }
            for file in recorded.files
        ],
        "hostnames": sorted(set(recorded.sensors["host"])),
        "metric_persistence": None,
        "parameters": None,
        "packages": {},
        "segments": [
            {"segment": n, "outcome": "finished" if n == last else "stopped"}
            for n in recorded.hosts
        ],
        "windows": list(recorded.windows),
        "concurrent_runs": [],
    }


def read_run_stages(
    given: Path | None, folder: Path, segments: Sequence[int]
) -> tuple[Path | None, pa.Table]:
    """File with a run's stages, None without one, and the stages ordered by time.

    The file is the `given` one, else that of a run folder of ours. A table that states no segment is of the
    only one. InputError names the file, the row and the key.
    """
    events = folder / "events.parquet"
    path = given or (events if (folder / "perun").is_dir() and events.exists() else None)
    if path is None:
        return None, EVENTS_SCHEMA.empty_table()
    rows = read_stages(path, segments=segments, unended=given is None).to_pylist()
    if len(segments) > 1 and any(row["segment"] is None for row in rows):
        allowed = ", ".join(map(str, segments))
        raise InputError(f"{path}: missing key 'segment'; allowed: {allowed}, as recorded")
    full = [{**row, "segment": segments[0]} if row["segment"] is None else row for row in rows]
    full.sort(key=lambda row: (row["segment"], row["start_s"]))
    ended = all(row["end_s"] is not None for row in full)
    return path, pa.Table.from_pylist(full, schema=EVENTS_SCHEMA if ended else STAGES_SCHEMA)


# --- runs that shared a node ----------------------------------------------------------------------


def note_concurrent_runs(runs: Iterable[RegisteredRun]) -> list[RegisteredRun]:
    """Note in each run's provenance which others were recorded on one of its hosts at the time.

    Only where both state wall-clock times. Returns the runs that shared a host.
    """
    runs = list(runs)
    notes: dict[Path, list[dict[str, Any]]] = defaultdict(list)
    for first, second in _overlapping(runs):
        for (run, window), (other, theirs) in ((first, second), (second, first)):
            notes[run.folder].append(
                {
                    "host": window["host"],
                    "run": f"{other.configuration} repeat {other.repeat}",
                    "gpus": _held_gpus(theirs["host"], other.provenance),
                    "start_s": max(window["start_s"], theirs["start_s"]),
                    "end_s": min(window["end_s"], theirs["end_s"]),
                }
            )
    shared = []
    for run in runs:
        others = sorted(notes[run.folder], key=lambda note: (note["run"], note["start_s"]))
        if others != run.provenance["concurrent_runs"]:
            run.provenance["concurrent_runs"] = others
            write_json(run.folder / "provenance.json", run.provenance)
        shared += [run] if others else []
    return shared


_Span = tuple[RegisteredRun, dict[str, Any]]


def _overlapping(runs: Iterable[RegisteredRun]) -> Iterator[tuple[_Span, _Span]]:
    """Yield pairs of windows of two runs on one host that overlap in time."""
    by_host: dict[str, list[_Span]] = defaultdict(list)
    for run in runs:
        for window in run.provenance["windows"]:
            by_host[window["host"].partition(".")[0]].append((run, window))
    for spans in by_host.values():
        open_spans: list[_Span] = []
        for span in sorted(spans, key=lambda span: span[1]["start_s"]):
            run, window = span
            open_spans = [other for other in open_spans if other[1]["end_s"] > window["start_s"]]
            for other in open_spans:
                is_same_host = same_node(window["host"], [other[1]["host"]])
                if other[0].folder != run.folder and is_same_host:
                    yield other, span
            open_spans.append(span)


def _held_gpus(host: str, provenance: Mapping[str, Any]) -> list[int] | None:
    """Indices of the GPUs that a run held on a host; None if not known."""
    if provenance["torch_device"] == "cpu":
        return []
    return (provenance["gpus"] or {}).get(host)
