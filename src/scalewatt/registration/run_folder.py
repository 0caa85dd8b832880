"""The folder of a registered run: the same files as a trained one's."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import RunSpec, run_spec, text_sha256
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object, write_json, write_table, write_text
from scalewatt.common.redaction import Redaction
from scalewatt.recordings.node_names import same_node
from scalewatt.recordings.stages import EVENTS_SCHEMA, STAGES_SCHEMA, read_stages
from scalewatt.registration.recording_discovery import Recorded, Window, place
from scalewatt.training.history import HISTORY_SCHEMA


@dataclass(frozen=True)
class Registered:
    """A registered run, by its provenance."""

    folder: Path
    configuration: str
    repeat: int
    identity: list[str]
    description: dict[str, Any]
    windows: tuple[Window, ...]
    concurrent_runs: list[dict[str, Any]]


def known_runs(results: Path) -> list[Registered]:
    """Find the registered runs below a campaign's results; InputError if there are trained ones."""
    found = []
    for path in sorted(results.glob("runs/*/*/provenance.json")):
        if path.parent.name.startswith("."):
            continue
        provenance = read_json_object(path)
        if not provenance.get("registered"):
            raise InputError(f"{path.parent}: is a trained run; allowed: another campaign name")
        try:
            found.append(_registered(path.parent, provenance))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}: is not what `scalewatt register` wrote ({error!r}); expected identity, "
                "description and windows"
            ) from error
    return found


def _registered(folder: Path, provenance: dict[str, Any]) -> Registered:
    return Registered(
        folder=folder,
        configuration=folder.parent.name,
        repeat=int(folder.name),
        identity=provenance["identity"],
        description=provenance["description"],
        windows=tuple(Window(**window) for window in provenance["windows"]),
        concurrent_runs=provenance.get("concurrent_runs") or [],
    )


def write_run(
    folder: Path,
    campaign: Campaign,
    recorded: Recorded,
    events: pa.Table,
    description: dict[str, Any],
    source: Path,
) -> None:
    """Write a run folder, `<configuration>/<repeat>`, whole or not at all."""
    configuration, repeat = folder.parent.name, int(folder.name)
    spec = run_spec(campaign, configuration, repeat)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        (temporary / "perun").mkdir(parents=True)
        for file in recorded.files:
            place(file, temporary / "perun")
        write_text(temporary / "spec.json", spec.text + "\n")
        write_table(_history(spec, recorded, description), temporary / "history.parquet")
        write_table(events, temporary / "events.parquet")
        provenance = _provenance(spec, recorded, description, source)
        write_json(temporary / "provenance.json", provenance)
        temporary.rename(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _history(spec: RunSpec, recorded: Recorded, description: dict[str, Any]) -> pa.Table:
    """Make a history of the last epoch alone: what is known is the whole training's work and its end."""
    row = {
        **dict.fromkeys(HISTORY_SCHEMA.names),
        "epoch": spec.epochs - 1,
        "segment": recorded.segments[-1],
        "metric": description["metric"],
        "samples": description["samples"],
        "updates": description.get("updates", spec.updates),
    }
    return pa.Table.from_pylist([row], schema=HISTORY_SCHEMA)


def _provenance(
    spec: RunSpec, recorded: Recorded, description: dict[str, Any], source: Path
) -> dict[str, Any]:
    last = recorded.segments[-1]
    return {
        "spec_sha256": text_sha256(spec.text),
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
                **({"options": dict(file.options)} if file.options else {}),
            }
            for file in recorded.files
        ],
        "description": description,
        "hostnames": recorded.hostnames,
        "gpus": description["gpus"],
        "torch_device": description["torch_device"],
        "device_name": description["device_name"],
        "metric_name": description["metric_name"],
        "metric_goal": description.get("metric_goal"),
        "window": description.get("window"),
        "metric_persistence": None,
        "parameters": None,
        "packages": {},
        "segments": [
            {"segment": n, "outcome": "finished" if n == last else "stopped"}
            for n in recorded.segments
        ],
        "windows": [asdict(window) for window in recorded.windows],
        "concurrent_runs": [],
    }


def write_concurrent_runs(results: Path) -> None:
    """Note in each run's provenance which others were recorded on one of its hosts at the time.

    Only where both state wall-clock times.
    """
    runs = known_runs(results)
    for one in runs:
        found = [met for other in runs if other is not one for met in _met(one, other)]
        if found != one.concurrent_runs:
            provenance = read_json_object(one.folder / "provenance.json")
            write_json(one.folder / "provenance.json", {**provenance, "concurrent_runs": found})


def _met(one: Registered, other: Registered) -> list[dict[str, Any]]:
    met = []
    for own in one.windows:
        for theirs in other.windows:
            begin, end = max(own.start_s, theirs.start_s), min(own.end_s, theirs.end_s)
            if same_node(own.host, [theirs.host]) and begin < end:
                run = f"{other.configuration} repeat {other.repeat}"
                gpus = _gpus_on(theirs.host, other.description)
                where = {"host": own.host, "run": run, "gpus": gpus}
                met.append({**where, "start_s": begin, "end_s": end})
    return met


def _gpus_on(host: str, description: dict[str, Any]) -> list[int] | None:
    """Indices of the GPUs that a run held on a host; None if not known."""
    if description["torch_device"] == "cpu":
        return []
    return (description["gpus"] or {}).get(host)


def stages_of(
    given: Path | None, folder: Path, segments: Sequence[int]
) -> tuple[Path | None, pa.Table]:
    """File with a run's stages, None without one, and the stages ordered by time.

    The file is the `given` one, else the run folder's own. A table that states no segment is of the
    only one. InputError names the file, the row and the key.
    """
    own = folder / "events.parquet"
    path = given or (own if (folder / "perun").is_dir() and own.exists() else None)
    if path is None:
        return None, EVENTS_SCHEMA.empty_table()
    rows = read_stages(path, segments=segments, own=given is None).to_pylist()
    if len(segments) > 1 and any(row["segment"] is None for row in rows):
        allowed = ", ".join(map(str, segments))
        raise InputError(f"{path}: missing key 'segment'; allowed: {allowed}, as recorded")
    full = [{**row, "segment": segments[0]} if row["segment"] is None else row for row in rows]
    full.sort(key=lambda row: (row["segment"], row["start_s"]))
    ended = all(row["end_s"] is not None for row in full)
    return path, pa.Table.from_pylist(full, schema=EVENTS_SCHEMA if ended else STAGES_SCHEMA)
