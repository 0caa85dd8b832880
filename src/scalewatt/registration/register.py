"""`scalewatt register`: recordings from anywhere become runs like any other.

Everything is read and checked before anything is written, and nothing registered is overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from scalewatt.campaign.campaign_file import CampaignName
from scalewatt.campaign.campaign_types import Campaign, Configuration, TrainingDefinition
from scalewatt.campaign.cluster import known_devices
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.registered_campaign import (
    RegisteredFile,
    RegisteredRun,
    registered_runs,
    runs_folder,
)
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import file_sha256, write_text
from scalewatt.common.settings import validated
from scalewatt.common.yaml_files import read_yaml
from scalewatt.recordings.node_names import same_node
from scalewatt.registration.recordings import Recorded, open_recording
from scalewatt.registration.run_descriptions import Description, RunDescription, read_descriptions
from scalewatt.registration.run_folder import note_concurrent_runs, read_run_stages, write_run
from scalewatt.results.text.number_format import listed

READING_ERROR = 0.05
"""NVML's own: readings are within 5 % of the power drawn (documentation of nvmlDeviceGetPowerUsage)."""
LEAST_W = 1.0
"""No GPU that trains draws less on average; a reading in kW as W is below it."""
_MOST_NAMED = 3
_ALIKE = ("device_name", "torch_device", "metric_name", "metric_goal", "seeds", "kinds")
"""What repeats of a configuration have in common, where it is known."""
_CAMPAIGN = """\
# Runs that were made elsewhere, by `scalewatt register {name}`, which writes this file once. It is yours:
# labels of series and figures are chosen here (docs/register.md).
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


def register(
    name: str, paths: list[Path], table: Path | None, results: Path, campaigns: Path
) -> list[str]:
    """Make runs of campaign `name` from recordings; return what was done, in human-readable lines.

    InputError, before anything is written, for what is missing, unknown or contradictory.
    """
    validated(CampaignName, name, "name")
    path, folder = campaigns / f"{name}.yaml", results / name / "runs"
    text = _campaign_text(name, os.path.relpath(folder, campaigns))
    content = read_yaml(path) if path.exists() else yaml.safe_load(text)
    if content.get("registered") is not True or content.get("name") != name:
        raise InputError(
            f"{path}: is no campaign of registered runs called '{name}'; allowed: another name"
        )
    file = validated(RegisteredFile, content, str(path))
    if runs_folder(file, path).resolve() != folder.resolve():
        raise InputError(f"{path}: its runs are not in {folder}; allowed: --results of its `runs`")
    runs = [_read_run(about) for about in read_descriptions(paths, table)]
    with _alone(results / name):
        known = registered_runs(folder)
        points = expand(content, path, {}).configurations if known else {}
        repeats = _number_repeats(runs, known)
        _check_lines(runs, known, points)
        lines = _write(runs, repeats, known, folder)
    if not path.exists():
        write_text(path, text)
    where = "" if Path("Snakefile").is_file() else ", in a clone"
    command = f"snakemake --profile profiles/local all --config campaign={path}"
    return [*lines, *_undrawn_note(expand(content, path, {})), f"now{where}: {command}"]


def _campaign_text(name: str, runs: str) -> str:
    """Content of a new campaign file; `runs`: their folder relative to it."""
    default = f"../results/{name}/runs"
    return _CAMPAIGN.format(name=name) + ("" if runs == default else f"runs: {runs}\n")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other calls out: they number repeats of the same campaign."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / ".register.lock"
    with waiting_lock(lock, f"{folder}: in use by another; waiting"):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            with suppress(OSError):  # nothing was registered
                folder.rmdir()


def _write(
    runs: Sequence[_Run], repeats: Sequence[int], known: list[RegisteredRun], folder: Path
) -> list[str]:
    """Write the runs that are not there yet; return what was done."""
    lines = []
    registered = {(run.configuration, run.repeat) for run in known}
    numbers = count(1 + max((run.provenance["number"] for run in known), default=0))
    written = list(known)
    for run, repeat in zip(runs, repeats, strict=True):
        id_, source = run.configuration.id, run.about.path
        if (id_, repeat) in registered:
            lines.append(f"already there: {id_} repeat {repeat} ({source})")
            continue
        facts = {**run.facts, "number": next(numbers)}
        to = folder / id_ / str(repeat)
        spec = _spec(run.configuration, repeat)
        written.append(write_run(to, spec, run.recorded, run.stages, facts, source))
        lines.append(f"registered: {id_} repeat {repeat} ({source})")
        lines += [f"note: {problem}" for problem in _problems(run)]
    for shared in note_concurrent_runs(written):
        first = shared.provenance["concurrent_runs"][0]
        lines.append(
            f"note: {shared.configuration} repeat {shared.repeat} shared {first['host']} with "
            f"{first['run']}: their energies cannot be separated, but for those of GPUs that only one "
            "of them held"
        )
    return lines


def _spec(configuration: Configuration, repeat: int) -> RunSpec:
    definition = {f.name: getattr(configuration, f.name) for f in fields(TrainingDefinition)}
    return RunSpec(configuration=configuration.id, repeat=repeat, **definition)


# --- a description and its recording --------------------------------------------------------------


def _read_run(about: Description) -> _Run:
    recorded, given = open_recording(about), about.given
    hosts = max(map(len, recorded.hosts.values()))
    nodes = hosts if given.nodes is None else given.nodes
    if nodes < hosts:
        names = ", ".join(sorted(set(recorded.sensors["host"])))
        raise InputError(
            f"{about.where}: nodes: {nodes}, but {about.path} recorded {hosts} hosts ({names}); allowed: "
            f"at least {hosts}"
        )
    if given.gpus % nodes:
        raise InputError(
            f"{about.where}: gpus: {given.gpus} on {nodes} nodes; allowed: a multiple of {nodes} (nodes: "
            "by default the hosts in the recording)"
        )
    events = about.folder / given.events if given.events else None
    events, stages = read_run_stages(events, about.path, [*recorded.hosts])
    configuration = about.configuration(nodes)
    samples, updates = given.trained_samples, configuration.updates
    if samples != given.training_set * configuration.epochs:  # of a training to a target
        updates = samples and round(samples / configuration.global_batch_size)
    facts = {
        "metric": None if given.metric is None else float(given.metric),
        "metric_name": given.metric_key,
        "metric_goal": given.metric_goal,
        "samples": samples,
        "updates": updates,
        "seeds": given.seeds,
        "torch_device": given.torch_device,
        "device_name": given.device_name,
        "gpus": _held_gpus(about, recorded, configuration.ranks_per_node),
        "kinds": recorded.kinds,
        "window": given.window and given.window.model_dump(),
        "events_sha256": file_sha256(events) if events else None,
        "lines": [
            {"series": name, "label": label}
            for name, label in {given.series or about.series: about.label, **given.lines}.items()
        ],
    }
    return _Run(about, recorded, stages, configuration, facts)


def _held_gpus(
    about: Description, recorded: Recorded, per_node: int
) -> dict[str, list[int]] | None:
    """GPUs that the run held, by host; None if fewer were recorded than it held."""
    given = about.given.gpu_indices
    if about.given.torch_device == "cpu":
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


# --- runs among each other ------------------------------------------------------------------------


def _number_repeats(runs: Sequence[_Run], known: Iterable[RegisteredRun]) -> list[int]:
    """Number the runs: as one that is already there, or with the next free repeat."""
    registered = {tuple(run.provenance["identity"]): run for run in known}
    taken = {(run.configuration, run.repeat) for run in known}
    numbers = {run.configuration.id: count(1) for run in runs}
    repeats: list[int] = []
    described: dict[tuple[str, ...], Description] = {}
    for run in runs:
        identity, id_ = tuple(run.recorded.identity), run.configuration.id
        first = described.setdefault(identity, run.about)
        if first is not run.about:
            raise InputError(
                f"{run.about.where}: {run.about.path} is the same recording as {first.path} "
                f"({first.where}); allowed: each once"
            )
        if identity in registered:
            _check_same(run, registered[identity])
            repeats.append(registered[identity].repeat)
        else:
            repeats.append(next(n for n in numbers[id_] if (id_, n) not in taken))
    return repeats


def _check_same(run: _Run, registered: RegisteredRun) -> None:
    """Raise InputError if a recording is already registered under another description."""
    known = registered.provenance
    other = [key for key, value in run.facts.items() if key != "lines" and known.get(key) != value]
    if registered.configuration != run.configuration.id:
        problem = f"as {registered.configuration} repeat {registered.repeat}, not as {run.configuration.id}"
    elif other:
        problem = f"with {other[0]} {known.get(other[0])}, not {run.facts[other[0]]}"
    else:
        return
    raise InputError(
        f"{run.about.where}: {run.about.path} is already registered {problem}; allowed: the same "
        f"description, or delete {registered.folder} first"
    )


def _check_lines(
    runs: Sequence[_Run], known: Iterable[RegisteredRun], points: Mapping[str, Configuration]
) -> None:
    """Put runs on their configuration's series; `points` are the configurations of known runs.

    InputError if repeats are unlike, or a series would be of two things or have two points on as many GPUs.
    """
    entries: list[tuple[Configuration, dict[str, Any], str, str | None]]
    entries = [(points[run.configuration], run.provenance, "", None) for run in known]
    entries += [
        (run.configuration, run.facts, run.about.where, run.about.given.series) for run in runs
    ]
    main: dict[str, dict[str, str]] = {}
    common: dict[tuple[str, str], Any] = {}
    at: dict[tuple[str, int], str] = {}
    for point, facts, where, asked in entries:
        line = main.setdefault(point.id, facts["lines"][0])
        if asked not in (None, line["series"]):
            raise InputError(
                f"{where}: series: '{asked}', but {point.id} is in series '{line['series']}'; allowed: "
                f"{line['series']}, or a variant that sets this configuration apart"
            )
        facts["lines"][0] = line
        repeats = {key: facts[key] for key in _ALIKE}
        _check_alike(where, f"another repeat of {point.id}", "variant", repeats, common)
        for name in (each["series"] for each in facts["lines"]):
            of = {"model": point.model, "phase": point.phase, "device": point.device}
            of["metric_name"] = facts["metric_name"]
            _check_alike(where, f"series '{name}'", "series", of, common)
            first = at.setdefault((name, point.gpus), point.id)
            if first != point.id:
                raise InputError(
                    f"{where}: series '{name}' has on {point.gpus} GPUs {first}, not {point.id}; allowed: "
                    "another series for this run"
                )


def _check_alike(
    where: str,
    group: str,
    remedy: str,
    facts: Mapping[str, Any],
    common: dict[tuple[str, str], Any],
) -> None:
    """Raise InputError if a fact differs from what the group has in common; what is not known does not."""
    for key, value in facts.items():
        if value is not None and (shared := common.setdefault((group, key), value)) != value:
            raise InputError(
                f"{where}: {key}: {value}, but {group} has {shared}; allowed: the same, or another {remedy}"
            )


# --- notes ----------------------------------------------------------------------------------------


def _problems(run: _Run) -> Iterator[str]:
    """Yield problems of the recording, for the user."""
    about, recorded, point = run.about, run.recorded, run.configuration
    yield from recorded.problems
    hosts = min(map(len, recorded.hosts.values()))
    if hosts < point.nodes:
        yield f"{about.path}: {hosts} of {point.nodes} nodes were recorded"
    gpus, per_node = recorded.gpus, point.ranks_per_node
    few = [h for h in sorted(set(recorded.sensors["host"])) if len(gpus.get(h, ())) < per_node]
    if few and about.given.torch_device != "cpu" and "node" not in recorded.kinds:
        missing = f"power of fewer GPUs was recorded than the run held ({per_node})"
        yield f"{about.path}: {', '.join(few)}: {missing}"
    sensors, held = recorded.sensors, run.facts["gpus"]
    powers = sensors[(sensors["kind"] == "gpu") & (sensors["quantity"] == "power")]
    for gpu in powers.drop_duplicates(["segment", "host", "index"]).to_dict("records"):
        if held is None or gpu["index"] in held.get(gpu["host"], ()):
            limits_w = {"its limit in the recording": gpu["limit_w"], **_limits_w(about.given)}
            if what := implausible(gpu["mean_w"], limits_w):
                drew = f"GPU {gpu['index']} of {gpu['host']} drew {gpu['mean_w']:.4g} W on average"
                yield f"{about.path}: {drew}, {what}"


def implausible(mean_w: float, limits_w: Mapping[str, float]) -> str | None:
    """Say why a GPU that trains cannot have a mean power: the wrong unit or device, most likely.

    `limits_w`: what it draws at most, by where that comes from; NaN where it is not known.
    """
    if mean_w < LEAST_W:
        return "which no GPU does that trains; expected powers in W"
    for source, limit_w in limits_w.items():
        if mean_w > (1 + READING_ERROR) * limit_w:
            expected = "expected powers in W, and the device that was used"
            return f"more than {limit_w:g} W, {source}; {expected}"
    return None


def _limits_w(given: RunDescription) -> dict[str, float]:
    """Highest powers of one of a run's GPUs in W, by where they come from."""
    limits = {}
    if given.gpu_power_limit_w is not None:
        limits["the gpu_power_limit_w of its description"] = float(given.gpu_power_limit_w)
    device = known_devices().get(given.device)
    if device is not None and device.gpu is not None:
        limits[f"the rated_w of '{given.device}' in config/*.yaml"] = device.gpu["rated_w"]
    return limits


def _undrawn_note(campaign: Campaign) -> list[str]:
    """Note on the series that no curve shows."""
    drawn = {name for figure in campaign.figures.values() for name in figure.get("series", ())}
    names = [name for name in campaign.series if name not in drawn]
    advice = "name them in a figure of the campaign file, or register them under another name"
    return [f"note: series in no curve: {listed(names, _MOST_NAMED)}; {advice}"] if names else []
