"""`scalewatt register`: recordings from anywhere become runs like any other.

Everything is read and checked before anything is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.registered_campaign import configuration_id
from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import file_sha256
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.node_names import same_node
from scalewatt.registration import campaign_file
from scalewatt.registration.campaign_file import point_of
from scalewatt.registration.foreign_discovery import open_foreign
from scalewatt.registration.recording_discovery import GpuPower, Recorded, open_recording
from scalewatt.registration.run_descriptions import Description, read_descriptions
from scalewatt.registration.run_folder import (
    Registered,
    known_runs,
    stages_of,
    write_concurrent_runs,
    write_run,
)

_IF_GIVEN = ("metric_goal", "window", "updates")
"""What a description has only where it is known."""
_MOST_NOTES = 10
READING_ERROR = 0.05
"""NVML's own: readings are within 5 % of the power drawn (documentation of nvmlDeviceGetPowerUsage)."""
LEAST_W = 1.0
"""No GPU that trains draws less on average; a reading in kW as W is below it."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class _Run:
    """One description with its recording, checked against each other."""

    about: Description
    recorded: Recorded
    nodes: int
    gpus: dict[str, list[int]] | None
    events: Path | None
    stages: pa.Table
    id: str


def register(
    name: str, paths: list[Path], table: Path | None, results: Path, campaigns: Path
) -> list[str]:
    """Make runs of campaign `name` from recordings; return what was done, in human-readable lines.

    InputError, before anything is written, for what is missing, unknown or contradictory.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"campaign '{name}': allowed: lower-case letters, digits and hyphens")
    # Another `register` changes the same file.
    with waiting_lock(campaigns / ".register.lock", f"{campaigns}: in use by another; waiting"):
        runs = [_read_run(one) for one in read_descriptions(paths, table)]
        return _register(name, runs, results / name, campaigns)


def _register(name: str, runs: list[_Run], folder: Path, campaigns: Path) -> list[str]:
    path = campaigns / f"{name}.yaml"
    before = _campaign(path, name)
    _check_each_once(runs)
    known = known_runs(folder)
    repeats = _repeats(runs, known, folder)
    placed = ((run.about, run.nodes, repeat) for run, repeat in zip(runs, repeats, strict=True))
    content = campaign_file.with_runs(before, placed)
    for line, (label, points) in _further_lines(runs).items():
        content = campaign_file.with_line(content, line, label, points)
    content = campaign_file.with_figures(content, before)
    campaign = expand(content, path, {})
    lines = []
    there = {(k.configuration, k.repeat) for k in known}
    for run, repeat in zip(runs, repeats, strict=True):
        where = f"{run.id} repeat {repeat}"
        if (run.id, repeat) in there:
            lines.append(f"already there: {where} ({run.about.path})")
            continue
        write_run(
            folder / "runs" / run.id / str(repeat),
            campaign,
            run.recorded,
            run.stages,
            description_of(run),
            source=run.about.path,
        )
        lines.append(f"registered: {where} ({run.about.path})")
        lines += [f"note: {problem}" for problem in _problems(run)]
    write_concurrent_runs(folder)
    campaign_file.write_campaign(path, content)
    command = f"snakemake --profile profiles/local all --config campaign={path}"
    where = "" if Path("Snakefile").is_file() else ", in a clone"
    return [*lines, *_notes(folder, content), f"now{where}: {command}"]


def _check_each_once(runs: list[_Run]) -> None:
    """Raise InputError if two descriptions are of the same recording."""
    described: dict[tuple[str, ...], Description] = {}
    for run in runs:
        first, second = described.setdefault(tuple(run.recorded.identity), run.about), run.about
        if first is not second:
            raise InputError(
                f"{second.where}: {second.path} is the same recording as {first.path} "
                f"({first.where}); allowed: each once"
            )


def _further_lines(runs: list[_Run]) -> dict[str, tuple[str, list[tuple[Any, Any]]]]:
    """Further lines through runs' points, by name: label, and series keys and point of each run."""
    lines: dict[str, tuple[str, list[tuple[Any, Any]]]] = {}
    for run in runs:
        for name, label in run.about.given.get("lines", {}).items():
            _, points = lines.setdefault(name, (label, []))
            points.append((run.about.entry, point_of(run.about, run.nodes)))
    return lines


def _campaign(path: Path, name: str) -> dict[str, Any]:
    """Read the campaign as it is; InputError if the file is of another kind or name."""
    if not path.exists():
        return campaign_file.new_content(name)
    content = read_yaml(path)
    if content.get("registered") is not True or content.get("name") != name:
        raise InputError(
            f"{path}: is no campaign of registered runs called '{name}'; allowed: another name"
        )
    expand(content, path, {})
    return content


def _read_run(about: Description) -> _Run:
    recorded = open_foreign(about.path, about.options) if about.path.exists() else None
    if recorded is None:
        run, round_ = about.given.get("run"), about.given.get("round")
        recorded = open_recording(about.path, run, round_, about.where)
    hosts = max(map(len, recorded.hosts.values()))
    nodes = about.given.get("nodes", hosts)
    gpus = about.point["gpus"]
    if nodes < hosts:
        raise InputError(
            f"{about.where}: nodes: {nodes}, but {about.path} recorded {hosts} hosts "
            f"({', '.join(recorded.hostnames)}); allowed: at least {hosts}"
        )
    if gpus % nodes:
        raise InputError(
            f"{about.where}: gpus: {gpus} on {nodes} nodes; allowed: a multiple of {nodes} (nodes: "
            "by default the hosts in the recording)"
        )
    events, stages = stages_of(about.events, about.path, recorded.segments)
    point = point_of(about, nodes)
    held = _held_gpus(about, recorded, gpus // nodes)
    return _Run(about, recorded, nodes, held, events, stages, configuration_id(about.entry, point))


def _held_gpus(
    about: Description, recorded: Recorded, per_node: int
) -> dict[str, list[int]] | None:
    """GPUs that the run held, by host; None if fewer were recorded than it held."""
    given = about.given.get("gpu_indices")
    if about.torch_device == "cpu":
        if given is not None:
            raise InputError(f"{about.where}: gpu_indices: {given}, but torch_device is cpu")
        return None
    if given is None:
        for host, indices in recorded.gpus.items():
            if len(indices) > per_node:
                raise InputError(
                    f"{about.where}: missing key 'gpu_indices': {host} recorded GPUs "
                    f"{', '.join(map(str, indices))}, of which the run held {per_node}; "
                    "allowed: a list of theirs, such as " + str(indices[:per_node])
                )
        complete = all(len(indices) == per_node for indices in recorded.gpus.values())
        return recorded.gpus if complete else None
    by_host = given if isinstance(given, dict) else dict.fromkeys(recorded.gpus, given)
    held = {}
    for host, recorded_here in recorded.gpus.items():
        name = same_node(host, by_host, recorded.gpus)
        if name is None:
            raise InputError(
                f"{about.where}: gpu_indices: nothing for host {host}; allowed: a list"
            )
        held[host] = sorted(by_host[name])
        if len(held[host]) != per_node or not set(held[host]) <= set(recorded_here):
            raise InputError(
                f"{about.where}: gpu_indices: {held[host]} on {host}; allowed: {per_node} of "
                f"{recorded_here}, the GPUs that were recorded"
            )
    return held


def _repeats(runs: list[_Run], known: list[Registered], folder: Path) -> list[int]:
    """Number the runs: as one that is already there, as asked for, or with the next free repeat."""
    taken = {(run.configuration, run.repeat) for run in known}
    repeats: dict[int, int] = {}
    by_identity = {tuple(run.identity): run for run in reversed(known)}
    for place, run in enumerate(runs):
        there = by_identity.get(tuple(run.recorded.identity))
        if there is not None:
            _check_same(run, there, folder)
            repeats[place] = there.repeat
        if there is None and "repeat" in run.about.given:
            repeat = run.about.given["repeat"]
            if (run.id, repeat) in taken:
                raise InputError(
                    f"{run.about.where}: repeat: {repeat} of {run.id} is already another recording; "
                    "allowed: another number, or none"
                )
            repeats[place] = repeat
        if place in repeats:
            taken.add((run.id, repeats[place]))
    for place, run in enumerate(runs):
        if place not in repeats:
            free = next(r for r in range(1, len(taken) + 2) if (run.id, r) not in taken)
            taken.add((run.id, free))
            repeats[place] = free
    return [repeats[place] for place in range(len(runs))]


def _check_same(run: _Run, there: Registered, folder: Path) -> None:
    """Raise InputError if a recording is already registered under another description."""
    place = folder / "runs" / there.configuration / str(there.repeat)
    if there.configuration != run.id:
        problem = f"as {there.configuration} repeat {there.repeat}, not as {run.id}"
    else:
        described = description_of(run)
        other = [key for key in described if there.description.get(key) != described[key]]
        if not other:
            return
        key = other[0]
        problem = f"with {key} {there.description.get(key)}, not {described[key]}"
    raise InputError(
        f"{run.about.where}: {run.about.path} is already registered {problem}; allowed: the same "
        f"description, or delete {place} first"
    )


def description_of(run: _Run) -> dict[str, Any]:
    """Description of a registered run in its provenance, beside its configuration."""
    return {
        "metric": run.about.metric,
        "metric_name": run.about.entry.get("metric_name"),
        "samples": run.about.samples,
        "torch_device": run.about.torch_device,
        **{key: run.about.given[key] for key in _IF_GIVEN if key in run.about.given},
        "device_name": run.about.given.get("device_name"),
        "gpus": run.gpus,
        "events": file_sha256(run.events) if run.events else None,
    }


def _problems(run: _Run) -> list[str]:
    """Problems of the recording, for the user."""
    found = list(run.recorded.problems)
    hosts = min(map(len, run.recorded.hosts.values()))
    if hosts < run.nodes:
        found.append(f"{run.about.path}: {hosts} of {run.nodes} nodes were recorded")
    per_node = run.about.point["gpus"] // run.nodes
    few = [host for host, found in run.recorded.gpus.items() if len(found) < per_node]
    if few and run.about.torch_device != "cpu":
        missing = f"power of fewer GPUs was recorded than the run held ({per_node})"
        found.append(f"{run.about.path}: {', '.join(few)}: {missing}")
    powers, gpus = run.recorded.powers, run.gpus
    held = [g for g in powers if gpus is None or g.index in gpus.get(g.host, ())]
    limits_w = _limits_w(run.about) if held else {}
    found += [f"{run.about.path}: {text}" for gpu in held if (text := implausible(gpu, limits_w))]
    return found


def implausible(gpu: GpuPower, limits_w: dict[str, float]) -> str | None:
    """Say why a GPU that trains cannot have its mean power: the wrong unit or device, most likely.

    `limits_w`: what it draws at most, by where that comes from.
    """
    if gpu.mean_w < LEAST_W:
        return (
            f"GPU {gpu.index} of {gpu.host} drew {gpu.mean_w:.3g} W on average, which no GPU does that "
            "trains; expected powers in W"
        )
    if np.isfinite(gpu.limit_w):
        limits_w = {"its limit in the recording": gpu.limit_w, **limits_w}
    for source, limit_w in limits_w.items():
        if gpu.mean_w > (1 + READING_ERROR) * limit_w:
            return (
                f"GPU {gpu.index} of {gpu.host} drew {gpu.mean_w:.4g} W on average, more than "
                f"{limit_w:g} W, {source}; expected powers in W, and the device that was used"
            )
    return None


def _limits_w(about: Description) -> dict[str, float]:
    """Highest powers of one of a run's GPUs in W, by where they come from."""
    limits, device = {}, about.entry["device"]
    if "gpu_power_limit_w" in about.point:
        limits["the gpu_power_limit_w of its description"] = float(about.point["gpu_power_limit_w"])
    known = known_devices().get(device)
    if known is not None and known.gpu is not None:
        limits[f"the rated_w of '{device}' in config/*.yaml"] = known.gpu["rated_w"]
    return limits


def _notes(folder: Path, content: dict[str, Any]) -> list[str]:
    """Notes on the campaign for the user."""
    names = campaign_file.not_drawn(content)
    advice = "put it to a figure in the campaign file, or register it under another name"
    notes = [f"note: series '{name}' is in no curve; {advice}" for name in names]
    if len(names) > _MOST_NOTES:
        notes = [f"note: {len(names)} series are in no curve, such as '{names[0]}'; {advice}"]
    shared = [run for run in known_runs(folder) if run.concurrent_runs]
    return notes + [
        f"note: {run.configuration} repeat {run.repeat} shared {run.concurrent_runs[0]['host']} with "
        f"{run.concurrent_runs[0]['run']}: their energies cannot be separated, but for those of GPUs that "
        "only one of them held"
        for run in shared
    ]
