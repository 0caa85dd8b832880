"""`scalewatt register`: recordings from anywhere become runs like any other.

Everything is read and checked before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
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
class _Wanted:
    """One description with its recording, checked against each other."""

    one: Description
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
    with _alone_in(campaigns):
        wanted = [_wanted(one) for one in read_descriptions(paths, table)]
        return _register(name, wanted, results / name, campaigns)


def _register(name: str, wanted: list[_Wanted], folder: Path, campaigns: Path) -> list[str]:
    path = campaigns / f"{name}.yaml"
    before = _campaign(path, name)
    once: dict[tuple[str, ...], _Wanted] = {}
    for other in wanted:
        one = once.setdefault(tuple(other.recorded.identity), other)
        if one is not other:
            raise InputError(
                f"{other.one.where}: {other.one.path} is the same recording as {one.one.path} "
                f"({one.one.where}); allowed: each once"
            )
    known = known_runs(folder)
    repeats = _repeats(wanted, known, folder)
    placed = ((one.one, one.nodes, repeat) for one, repeat in zip(wanted, repeats, strict=True))
    content = campaign_file.with_runs(before, placed)
    for line, (label, points) in _further_lines(wanted).items():
        content = campaign_file.with_line(content, line, label, points)
    content = campaign_file.with_figures(content, before)
    campaign = expand(content, path, {})
    lines = []
    there = {(k.configuration, k.repeat) for k in known}
    for one, repeat in zip(wanted, repeats, strict=True):
        where = f"{one.id} repeat {repeat}"
        if (one.id, repeat) in there:
            lines.append(f"already there: {where} ({one.one.path})")
            continue
        write_run(
            folder / "runs" / one.id / str(repeat),
            campaign,
            one.recorded,
            one.stages,
            description_of(one),
            source=one.one.path,
        )
        lines.append(f"registered: {where} ({one.one.path})")
        lines += [f"note: {problem}" for problem in _problems(one)]
    write_concurrent_runs(folder)
    campaign_file.write_campaign(path, content)
    command = f"snakemake --profile profiles/local all --config campaign={path}"
    where = "" if Path("Snakefile").is_file() else ", in a clone"
    return [*lines, *_notes(folder, content), f"now{where}: {command}"]


def _further_lines(wanted: list[_Wanted]) -> dict[str, tuple[str, list[tuple[Any, Any]]]]:
    """Return lines that runs have beside their series: label, and series keys and point of each run."""
    lines: dict[str, tuple[str, list[tuple[Any, Any]]]] = {}
    for run in wanted:
        for name, label in run.one.given.get("lines", {}).items():
            _, points = lines.setdefault(name, (label, []))
            points.append((run.one.entry, point_of(run.one, run.nodes)))
    return lines


@contextmanager
def _alone_in(campaigns: Path) -> Iterator[None]:
    """Wait for another `register` that writes there: both change the same file."""
    try:
        campaigns.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{campaigns}: cannot be written ({error.strerror})") from error
    with waiting_lock(campaigns, f"{campaigns}: in use by another; waiting"):
        yield


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


def _wanted(one: Description) -> _Wanted:
    recorded = open_foreign(one.path, one.options) if one.path.exists() else None
    if recorded is None:
        run, round_ = one.given.get("run"), one.given.get("round")
        recorded = open_recording(one.path, run, round_, one.where)
    hosts = max(map(len, recorded.hosts.values()))
    nodes = one.given.get("nodes", hosts)
    gpus = one.point["gpus"]
    if nodes < hosts:
        raise InputError(
            f"{one.where}: nodes: {nodes}, but {one.path} recorded {hosts} hosts "
            f"({', '.join(recorded.hostnames)}); allowed: at least {hosts}"
        )
    if gpus % nodes:
        raise InputError(
            f"{one.where}: gpus: {gpus} on {nodes} nodes; allowed: a multiple of {nodes} (nodes: "
            "by default the hosts in the recording)"
        )
    events, stages = stages_of(one.events, one.path, recorded.segments)
    point = point_of(one, nodes)
    held = _held_gpus(one, recorded, gpus // nodes)
    return _Wanted(one, recorded, nodes, held, events, stages, configuration_id(one.entry, point))


def _held_gpus(one: Description, recorded: Recorded, per_node: int) -> dict[str, list[int]] | None:
    """Return the GPUs that the run held, by host; None if fewer were recorded than it held."""
    given = one.given.get("gpu_indices")
    if one.torch_device == "cpu":
        if given is not None:
            raise InputError(f"{one.where}: gpu_indices: {given}, but torch_device is cpu")
        return None
    if given is None:
        for host, indices in recorded.gpus.items():
            if len(indices) > per_node:
                raise InputError(
                    f"{one.where}: missing key 'gpu_indices': {host} recorded GPUs "
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
            raise InputError(f"{one.where}: gpu_indices: nothing for host {host}; allowed: a list")
        held[host] = sorted(by_host[name])
        if len(held[host]) != per_node or not set(held[host]) <= set(recorded_here):
            raise InputError(
                f"{one.where}: gpu_indices: {held[host]} on {host}; allowed: {per_node} of "
                f"{recorded_here}, the GPUs that were recorded"
            )
    return held


def _repeats(wanted: list[_Wanted], known: list[Registered], folder: Path) -> list[int]:
    """Return the repeat of each run: its own where it is already there, as asked for, or the next free."""
    taken = {(one.configuration, one.repeat) for one in known}
    repeats: dict[int, int] = {}
    by_identity = {tuple(one.identity): one for one in reversed(known)}
    for place, one in enumerate(wanted):
        there = by_identity.get(tuple(one.recorded.identity))
        if there is not None:
            _check_same(one, there, folder)
            repeats[place] = there.repeat
        if there is None and "repeat" in one.one.given:
            repeat = one.one.given["repeat"]
            if (one.id, repeat) in taken:
                raise InputError(
                    f"{one.one.where}: repeat: {repeat} of {one.id} is already another recording; "
                    "allowed: another number, or none"
                )
            repeats[place] = repeat
        if place in repeats:
            taken.add((one.id, repeats[place]))
    for place, one in enumerate(wanted):
        if place not in repeats:
            free = next(r for r in range(1, len(taken) + 2) if (one.id, r) not in taken)
            taken.add((one.id, free))
            repeats[place] = free
    return [repeats[place] for place in range(len(wanted))]


def _check_same(one: _Wanted, there: Registered, folder: Path) -> None:
    """Raise InputError if a recording is already registered under another description."""
    place = folder / "runs" / there.configuration / str(there.repeat)
    if there.configuration != one.id:
        problem = f"as {there.configuration} repeat {there.repeat}, not as {one.id}"
    else:
        described = description_of(one)
        other = [key for key in described if there.description.get(key) != described[key]]
        if not other:
            return
        key = other[0]
        problem = f"with {key} {there.description.get(key)}, not {described[key]}"
    raise InputError(
        f"{one.one.where}: {one.one.path} is already registered {problem}; allowed: the same "
        f"description, or delete {place} first"
    )


def description_of(one: _Wanted) -> dict[str, Any]:
    """Return what a registered run's provenance keeps of its description, beside its configuration."""
    return {
        "metric": one.one.metric,
        "metric_name": one.one.entry.get("metric_name"),
        "samples": one.one.samples,
        "torch_device": one.one.torch_device,
        **{key: one.one.given[key] for key in _IF_GIVEN if key in one.one.given},
        "device_name": one.one.given.get("device_name"),
        "gpus": one.gpus,
        "events": file_sha256(one.events) if one.events else None,
    }


def _problems(one: _Wanted) -> list[str]:
    """Return what the user should know of the recording."""
    found = list(one.recorded.problems)
    hosts = min(map(len, one.recorded.hosts.values()))
    if hosts < one.nodes:
        found.append(f"{one.one.path}: {hosts} of {one.nodes} nodes were recorded")
    per_node = one.one.point["gpus"] // one.nodes
    few = [host for host, found in one.recorded.gpus.items() if len(found) < per_node]
    if few and one.one.torch_device != "cpu":
        missing = f"power of fewer GPUs was recorded than the run held ({per_node})"
        found.append(f"{one.one.path}: {', '.join(few)}: {missing}")
    powers, gpus = one.recorded.powers, one.gpus
    held = [g for g in powers if gpus is None or g.index in gpus.get(g.host, ())]
    limits_w = _limits_w(one.one) if held else {}
    found += [f"{one.one.path}: {text}" for gpu in held if (text := implausible(gpu, limits_w))]
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


def _limits_w(one: Description) -> dict[str, float]:
    """Return what one of a run's GPUs draws at most, in W, by where that comes from."""
    limits, device = {}, one.entry["device"]
    if "gpu_power_limit_w" in one.point:
        limits["the gpu_power_limit_w of its description"] = float(one.point["gpu_power_limit_w"])
    known = known_devices().get(device)
    if known is not None and known.gpu is not None:
        limits[f"the rated_w of '{device}' in config/*.yaml"] = known.gpu["rated_w"]
    return limits


def _notes(folder: Path, content: dict[str, Any]) -> list[str]:
    """Return what the user should know of the campaign."""
    names = campaign_file.not_drawn(content)
    advice = "put it to a figure in the campaign file, or register it under another name"
    notes = [f"note: series '{name}' is in no curve; {advice}" for name in names]
    if len(names) > _MOST_NOTES:
        notes = [f"note: {len(names)} series are in no curve, such as '{names[0]}'; {advice}"]
    shared = [one for one in known_runs(folder) if one.concurrent_runs]
    return notes + [
        f"note: {one.configuration} repeat {one.repeat} shared {one.concurrent_runs[0]['host']} with "
        f"{one.concurrent_runs[0]['run']}: their energies cannot be separated, but for those of GPUs that "
        "only one of them held"
        for one in shared
    ]
