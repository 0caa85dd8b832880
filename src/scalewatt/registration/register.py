"""`scalewatt register`: recordings from anywhere become runs like any other.

Everything is read and checked before anything is written, and nothing registered is overwritten.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import yaml

from scalewatt.campaign.campaign_file import CampaignName
from scalewatt.campaign.campaign_types import Configuration, TrainingDefinition
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.registered_campaign import (
    RegisteredFile,
    RegisteredRun,
    registered_runs,
    runs_folder,
)
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import (
    file_sha256,
    read_json_object,
    write_json,
    write_table,
    write_text,
)
from scalewatt.common.redaction import Redaction
from scalewatt.common.settings import validated
from scalewatt.common.yaml_files import read_yaml
from scalewatt.energies.tables import records
from scalewatt.recordings.stages import EVENTS_SCHEMA, read_stages
from scalewatt.registration.recordings import Recorded, copy_recording, read_recording
from scalewatt.registration.run_descriptions import Description, read_descriptions
from scalewatt.training.history import HISTORY_SCHEMA

_ALIKE = ("device_name", "torch_device", "metric_name", "metric_goal", "seeds", "kinds")
"""What repeats of a configuration have in common, where it is known."""
_CAMPAIGN = """\
# Runs that were made elsewhere, by `scalewatt register {name}`, which writes this file once. It is yours:
# labels of series and figures are chosen here (docs/recordings.md).
registered: true
name: {name}
"""


@dataclass(frozen=True)
class _Run:
    """A described run with its recording, checked against each other."""

    about: Description
    recorded: Recorded
    stages: pa.Table
    configuration: Configuration
    facts: dict[str, Any]
    """What its provenance says of it."""


_Entry = tuple[str, str, TrainingDefinition, dict[str, Any]]
"""A run, registered or new: where it is described, its configuration with its id, and facts of it."""


def register(
    name: str, paths: list[Path], table: Path | None, results: Path, campaigns: Path
) -> list[str]:
    """Make runs of campaign `name` from recordings; return what was done, in human-readable lines.

    InputError, before anything is written, for what is missing, unknown or contradictory.
    """
    validated(CampaignName, name, "name")
    path, folder = campaigns / f"{name}.yaml", results / name / "runs"
    relative, default = os.path.relpath(folder, campaigns), f"../results/{name}/runs"
    text = _CAMPAIGN.format(name=name) + ("" if relative == default else f"runs: {relative}\n")
    content = read_yaml(path) if path.exists() else yaml.safe_load(text)
    if content.get("registered") is not True or content.get("name") != name:
        raise InputError(
            f"{path}: is no campaign of registered runs called '{name}'; expected another name"
        )
    file = validated(RegisteredFile, content, str(path))
    if runs_folder(file, path).resolve() != folder.resolve():
        raise InputError(f"{path}: its runs are not in {folder}; expected --results of its `runs`")
    runs = [_read_run(about) for about in read_descriptions(paths, table)]
    known = registered_runs(folder)
    if known:
        expand(content, path, {})  # whether labels and figures are those of its series
    new, lines = _unregistered(runs, known)
    entries: list[_Entry] = [
        (str(run.folder), run.configuration, read_spec(run.folder / "spec.json"), run.provenance)
        for run in known
    ]
    entries += [(r.about.where, r.configuration.id, r.configuration, r.facts) for r in new]
    _check_alike(entries)
    _check_apart(entries)
    lines += _write(new, known, folder)
    if not path.exists():
        write_text(path, text)
    where = "" if Path("Snakefile").is_file() else ", in a clone"
    command = f"snakemake --profile profiles/local all --config campaign={path}"
    return [*lines, f"now{where}: {command}"]


def _write(runs: Iterable[_Run], known: Sequence[RegisteredRun], folder: Path) -> list[str]:
    """Write runs with the next free repeats of their configurations; return what was done."""
    lines = []
    taken = {(run.configuration, run.repeat) for run in known}
    names = [field.name for field in fields(TrainingDefinition)]
    first = 1 + max((run.provenance["number"] for run in known), default=0)
    for number, run in enumerate(runs, first):
        id_ = run.configuration.id
        repeat = next(n for n in count(1) if (id_, n) not in taken)
        taken.add((id_, repeat))
        definition = {name: getattr(run.configuration, name) for name in names}
        spec = RunSpec(configuration=id_, repeat=repeat, **definition)
        _write_run(folder / id_ / str(repeat), spec, run, number)
        lines.append(f"registered: {id_} repeat {repeat} ({run.about.path})")
        lines += [f"note: {run.about.path}: {text}" for text in run.recorded.notes]
    return lines


# --- a description and its recording --------------------------------------------------------------


def _read_run(about: Description) -> _Run:
    """Read the recording and the stages of a described run, and state what is known of it."""
    recorded, given = read_recording(about), about.given
    hosts = max(recorded.hosts.values(), key=len)
    nodes = given.nodes or len(hosts)
    if nodes < len(hosts) or given.gpus % nodes:
        raise InputError(
            f"{about.where}: gpus: {given.gpus} on {nodes} nodes, recorded hosts: {', '.join(hosts)}; "
            f"expected at least {len(hosts)} nodes, and a multiple of gpus"
        )
    events, stages = _stages(about, [*recorded.hosts])
    configuration = given.configuration(nodes)
    samples, updates = given.trained_samples, configuration.updates
    if samples != given.training_set * configuration.epochs:  # of a training to a target
        updates = samples and round(samples / configuration.global_batch_size)
    if given.window and not recorded.clock_known:
        raise InputError(
            f"{about.where}: window: {about.path} states no clock time for each host; leave window out"
        )
    same = ("metric_goal", "seeds", "torch_device", "device_name")
    lines = dict([given.main_line]) | given.lines
    facts = {
        **{key: getattr(given, key) for key in ("host", "time_zone", *same)},
        "columns_sha256": recorded.columns_sha256,
        "metric": None if given.metric is None else float(given.metric),
        "metric_name": given.metric_key,
        "samples": samples,
        "updates": updates,
        "gpus": _held_gpus(about, recorded, configuration.ranks_per_node),
        "kinds": sorted(recorded.devices["kind"].dropna().unique()),
        "windows": list(recorded.windows),
        "window": given.window and given.window.model_dump(),
        "events_sha256": file_sha256(events) if events else None,
        "lines": [{"series": name, "label": label} for name, label in lines.items()],
    }
    return _Run(about, recorded, stages, configuration, facts)


def _stages(about: Description, segments: Sequence[int]) -> tuple[Path | None, pa.Table]:
    """File of a run's stages, None without one, and the stages ordered by time.

    The file is the one given, else that of a run folder of ours. Stages without a segment are of the only
    one. InputError names the file, the row and the key.
    """
    given, path = about.given.events, about.path / "events.parquet"
    if given:
        path = about.folder / given
    elif not ((about.path / "perun").is_dir() and path.exists()):
        return None, EVENTS_SCHEMA.empty_table()
    rows = read_stages(path, segments=segments, unended=not given).to_pylist()
    if len(segments) > 1 and any(row["segment"] is None for row in rows):
        recorded = ", ".join(map(str, segments))
        raise InputError(f"{path}: missing key 'segment'; expected one of {recorded}, as recorded")
    full = [{**row, "segment": segments[0]} if row["segment"] is None else row for row in rows]
    full.sort(key=lambda row: (row["segment"], row["start_s"]))
    return path, pa.Table.from_pylist(full, schema=EVENTS_SCHEMA)


def _held_gpus(
    about: Description, recorded: Recorded, per_node: int
) -> dict[str, list[int]] | None:
    """GPUs that the run held, by host; None if fewer were recorded than it held."""
    if about.given.torch_device == "cpu":
        return None
    given = about.given.gpu_indices
    held = {host: sorted(given or indices) for host, indices in recorded.gpus.items()}
    for host, indices in held.items():
        is_whole = len(indices) == per_node or (not given and len(indices) < per_node)
        if not is_whole or not set(indices) <= set(recorded.gpus[host]):
            raise InputError(
                f"{about.where}: gpu_indices: {given or 'missing'}, but {host} recorded GPUs "
                f"{recorded.gpus[host]}; expected the {per_node} of them that the run held"
            )
    return held if all(len(indices) == per_node for indices in held.values()) else None


# --- runs among each other ------------------------------------------------------------------------


def _unregistered(
    runs: Iterable[_Run], known: Iterable[RegisteredRun]
) -> tuple[list[_Run], list[str]]:
    """Runs that are not there yet, and lines on those that are.

    InputError if one is described twice, or registered with another description.
    """
    registered = {
        key: run
        for run in known
        for key in _identities(run.provenance["identity"], run.provenance.get("samples_sha256"))
    }
    described: dict[tuple[str, ...], Description] = {}
    new, lines = [], []
    for run in runs:
        where = f"{run.about.where}: {run.about.path}"
        keys = _identities(run.recorded.identity, run.recorded.samples_sha256)
        for first in (described[key] for key in keys if key in described):
            raise InputError(
                f"{where} is the same recording as {first.path} ({first.where}); expected each once"
            )
        described |= dict.fromkeys(keys, run.about)
        other = next((registered[key] for key in keys if key in registered), None)
        if other is None:
            new.append(run)
            continue
        known_facts = {"configuration": other.configuration, **other.provenance}
        for key, value in {"configuration": run.configuration.id, **run.facts}.items():
            if known_facts.get(key) != value:
                raise InputError(
                    f"{where} is already registered, with {key} {known_facts.get(key)}, not {value}; "
                    f"expected the same description, or delete {other.folder} first"
                )
        name = f"{other.configuration} repeat {other.repeat}"
        lines.append(f"already there: {name} ({run.about.path})")
    return new, lines


def _identities(identity: Iterable[str], samples_sha256: str | None) -> list[tuple[str, ...]]:
    """What identifies a recording: its files, or its samples, the same in a file that has grown."""
    return [tuple(identity), *([(samples_sha256,)] if samples_sha256 else [])]


def _check_alike(entries: Iterable[_Entry]) -> None:
    """Raise InputError if repeats are unlike, or a series is of two things or two points on as many GPUs."""
    common: dict[tuple[str, str], Any] = {}
    for where, id_, point, facts in entries:
        same = {key: facts[key] for key in _ALIKE} | {"series": facts["lines"][0]["series"]}
        groups = [(f"another repeat of {id_}", "variant", same)]
        of_series = {key: getattr(point, key) for key in ("model", "phase", "device")}
        of_series |= {"metric_name": facts["metric_name"], f"{point.gpus} GPUs": id_}
        groups += [(f"series '{each['series']}'", "series", of_series) for each in facts["lines"]]
        for group, remedy, values in groups:
            for key, value in values.items():
                if value is None:  # what is not known does not differ
                    continue
                if (shared := common.setdefault((group, key), value)) != value:
                    raise InputError(
                        f"{where}: {key}: {value}, but {group} has {shared}; expected the same, or another "
                        f"{remedy}"
                    )


def _check_apart(entries: Iterable[_Entry]) -> None:
    """Raise InputError if two runs were recorded on one host at one time, which no energy tells apart.

    Only where both state wall-clock times.
    """
    windows = [
        {**window, "entry": number, "where": where}
        for number, (where, _, _, facts) in enumerate(entries)
        for window in facts["windows"]
    ]
    spans = pd.DataFrame(windows, columns=["entry", "where", "host", "start_s", "end_s"])
    pairs = spans.merge(spans, on="host", suffixes=("", "_other")).query(
        "entry > entry_other and start_s < end_s_other and start_s_other < end_s"
    )
    for pair in records(pairs)[:1]:
        raise InputError(
            f"{pair['where']}: was recorded on {pair['host']} at the same time as {pair['where_other']}, "
            "so that their energies cannot be told apart; expected one of them"
        )


# --- the folder -----------------------------------------------------------------------------------


def _segment_ends(path: Path) -> dict[int, dict[str, Any]]:
    """How the segments of a run folder of ours ended, and their clocks; empty for any other recording."""
    file, keys = path / "provenance.json", ("outcome", "detail", "clock_offsets")
    segments = (read_json_object(file).get("segments") or []) if file.exists() else []
    return {row["segment"]: {key: row[key] for key in keys if key in row} for row in segments}


def _write_run(folder: Path, spec: RunSpec, run: _Run, number: int) -> None:
    """Write a run folder, `<configuration>/<repeat>`, whole or not at all: as that of a trained run."""
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    recorded, last = run.recorded, max(run.recorded.hosts)
    ends = _segment_ends(run.about.path)
    # The history has the last epoch alone: what is known is the whole training's work and its end.
    work = {name: run.facts[name] for name in ("metric", "samples", "updates")}
    epoch = {"epoch": spec.epochs - 1, "segment": last, **work}
    history = [{**dict.fromkeys(HISTORY_SCHEMA.names), **epoch}]
    provenance = {
        **run.facts,
        "number": number,
        "spec_sha256": spec.sha256,
        "registered": True,
        "registered_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": Redaction.of(os.environ).text(str(run.about.path)),
        "identity": recorded.identity,
        "samples_sha256": recorded.samples_sha256,
        "recordings": [
            {
                "file": file.target,
                "original": file.path.name,
                "sha256": file.sha256,
                **({"options": dict(file.options)} if file.options else {}),
            }
            for file in recorded.files
        ],
        "hostnames": sorted(recorded.devices["host"].unique()),
        "metric_persistence": None,
        "parameters": None,
        "packages": {},
        "segments": [
            {"segment": n, "outcome": "finished" if n == last else None, **ends.get(n, {})}
            for n in recorded.hosts
        ],
    }
    try:
        (temporary / "perun").mkdir(parents=True)
        for file in recorded.files:
            copy_recording(file, temporary / "perun")
        write_text(temporary / "spec.json", spec.text + "\n")
        table = pa.Table.from_pylist(history, schema=HISTORY_SCHEMA)
        write_table(table, temporary / "history.parquet")
        write_table(run.stages, temporary / "events.parquet")
        write_json(temporary / "provenance.json", provenance)
        temporary.rename(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
