"""`scalewatt pilot`: write a campaign of the few short runs that calibrate the scaling model for another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from scalewatt.campaign.campaign_types import Campaign, Configuration
from scalewatt.campaign.cluster import Device, known_devices
from scalewatt.campaign.command_text import placeholders
from scalewatt.campaign.expansion import expand
from scalewatt.campaign.external_command import check_passed, is_command
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.model_registry import model_key
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_text
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.text.number_format import natural_order
from scalewatt.scaling.model.predict import FAR
from scalewatt.scaling.model.training_kind import Kind, kind_of_spec

UPDATES = 300
"""At least about so many updates per epoch, where the model can train on a part of its dataset."""
IMAGES = 100_000
"""And so many images per GPU, some minutes on an A100: the start should be a small part of a run."""
TRIAL_EPOCHS = (1, 2)
_PARTS = 1000
_DROPPED = ("series", "figures", "energy_budget_kwh", "idle_probe")
_OF_A_SERIES = ("model", "phase", "device", "protocol", *LEVERS)


@dataclass(frozen=True)
class Trial:
    """One short run."""

    gpus: int
    local_batch_size: int
    epochs: int
    fraction: str


@dataclass(frozen=True)
class Pilot:
    """A campaign file that calibrates another campaign."""

    text: str
    runs: int
    left_out: tuple[str, ...]
    """Parts of the campaign that it cannot calibrate, and why."""


def write_pilot(path: Path, out: Path | None) -> str:
    """Write the pilot of the campaign at `path` to `out`; return what to print.

    InputError if nothing of the campaign can be calibrated, or `out` exists already.
    """
    found = make_pilot(path)
    out = out or path.with_name(f"{path.stem}-pilot.yaml")
    if out.exists():
        raise InputError(f"{out}: exists already; expected a new file (--out FILE)")
    write_text(out, found.text)
    name = yaml.safe_load(found.text)["name"]
    lines = [
        f"{out}: written, runs: {found.runs}",
        *(f"left out: {one}" for one in found.left_out),
        f"next: snakemake --profile profiles/<yours> tables --config campaign={out}",
        f"then: scalewatt calibrate results/{name} --out scaling_model.json",
    ]
    return "\n".join(lines)


def make_pilot(path: Path) -> Pilot:
    """Return the pilot of the campaign at `path`; InputError if nothing of it can be calibrated."""
    campaign = load_campaign(path)
    if campaign.registered:
        raise InputError(f"{path}: is of runs made elsewhere; expected a campaign that trains")
    content = read_yaml(path)
    devices = known_devices()
    series: dict[str, dict[str, Any]] = {}
    left_out = []
    kinds = _kinds(campaign)
    for kind, own in kinds.items():
        try:
            series |= dict(_series_of(kind, own, content, campaign, devices, kinds))
        except InputError as error:
            left_out.append(str(error))
    if not series:
        raise InputError(f"{path}: nothing of it can be calibrated: {'; '.join(left_out)}")
    names = sorted(series, key=natural_order)
    made = {
        **{name: value for name, value in content.items() if name not in _DROPPED},
        "name": f"{content['name']}-pilot",
        "series": {name: series[name] for name in names},
        "figures": {"breakdown": {"series": names}},
    }
    made["models"] = {
        name: _with_epochs_of_none(entry)
        for name, entry in made["models"].items()
        if any(name in (one["model"], _key(one)) for one in series.values())
    }
    # The checks of any campaign: a mistake is found before anybody submits it.
    checked = expand(made, path.with_name(f"{path.stem}-pilot.yaml"), devices)
    check_passed(checked)
    head = (
        f"# The short runs that calibrate the scaling model for {path}, by `scalewatt pilot`.\n"
        "# docs/scaling.md says what to do with their results.\n"
    )
    text = head + yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=100)
    return Pilot(text, sum(1 for _ in checked.runs()), tuple(left_out))


def _with_epochs_of_none(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's entry whose epochs no trial has.

    Each trial's epochs are then in its name, which a fine-tuning shares with the pre-training before it.
    """
    return {**model, "epochs": 3} if model.get("epochs") in TRIAL_EPOCHS else dict(model)


def _kinds(campaign: Campaign) -> dict[Kind, list[Configuration]]:
    found: dict[Kind, list[Configuration]] = {}
    for id_, configuration in campaign.configurations.items():
        found.setdefault(kind_of_spec(run_spec(campaign, id_, 1)), []).append(configuration)
    return found


def _series_of(
    kind: Kind,
    configurations: Sequence[Configuration],
    content: Mapping[str, Any],
    campaign: Campaign,
    devices: Mapping[str, Device],
    kinds: Mapping[Kind, Sequence[Configuration]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the series of a kind, one for each trial, and those whose weights a fine-tuning starts from."""
    first = configurations[0]
    if first.dataset_samples is None:
        raise InputError(
            f"{kind.name}: its samples are not known; allowed: `samples` in models.{first.model}"
        )
    entry = content["series"][campaign.series_of(first.id)[0]]
    limit = devices[first.device].max_local_batch_size.get(kind.key)
    images = 0 if is_command(content, entry) else IMAGES
    partial = first.dataset["format"] == "imagenet" or (
        not images and "samples" in placeholders(first.settings["command"])
    )
    least = images if partial else None
    for trial in trials(kind, configurations, devices[first.device], limit, least):
        yield _entry(kind, entry, trial, list(kinds).index(kind))
        if first.initial_weights is not None:
            before = campaign.configurations[first.initial_weights]
            own = next(k for k, found in kinds.items() if before in found)
            template = content["series"][campaign.series_of(before.id)[0]]
            yield _entry(own, template, trial, list(kinds).index(own))


def _entry(
    kind: Kind, template: Mapping[str, Any], trial: Trial, number: int
) -> tuple[str, dict[str, Any]]:
    """Return name and content of a trial's series, following a series of the campaign."""
    name = (
        f"{kind.key.replace('.', '-')}-{kind.device}-{number + 1}-n{trial.gpus:03d}"
        f"-lbs{trial.local_batch_size:04d}-epochs{trial.epochs}"
    )
    entry: dict[str, Any] = {key: template[key] for key in _OF_A_SERIES if key in template}
    entry |= {"gpus": [trial.gpus], "local_batch_size": trial.local_batch_size}
    if trial.fraction != "1":
        entry["dataset_fraction"] = trial.fraction
    settings = json.loads(json.dumps(template.get("settings", {})))  # no aliases in the file
    entry["settings"] = {**settings, "epochs": trial.epochs}
    return name, entry


def _key(entry: Mapping[str, Any]) -> str:
    return model_key(entry["model"], entry.get("phase", "train"))


# --- which runs -----------------------------------------------------------------------------------


def trials(
    kind: Kind,
    configurations: Sequence[Configuration],
    device: Device,
    limit: int | None,
    samples_per_gpu: int | None,
) -> list[Trial]:
    """Return two n × two LBS for one epoch, and two runs of two epochs, one of them with an LBS between.

    Where the device holds a single LBS: two n, one and two epochs. The larger n is so large that no
    prediction of the campaign lies beyond FAR times it; the largest LBS is the campaign's, beyond the
    knee where loading is slower than computing, if there is one. `limit`: the largest LBS that the
    device holds; `samples_per_gpu`: how many are enough where a part of the dataset can be used,
    besides UPDATES; None: the whole dataset is used. InputError if there is no second n.
    """
    counts = two_counts(kind, sorted({one.gpus for one in configurations}), device)
    batches = batch_sizes(sorted({one.local_batch_size for one in configurations}), limit)
    small, large = batches[0], batches[-1]
    few, more = TRIAL_EPOCHS
    chosen = [(n, lbs, few) for n in counts for lbs in (small, large)]
    chosen += [(counts[0], large, more), (counts[1], batches[min(1, len(batches) - 1)], more)]
    whole = _whole(configurations[0])
    return [
        Trial(n, lbs, epochs, _fraction(n, lbs, samples_per_gpu, whole))
        for n, lbs, epochs in dict.fromkeys(chosen)
    ]


def two_counts(kind: Kind, counts: Sequence[int], device: Device) -> tuple[int, int]:
    """Return the smallest n, and the smallest other that covers all of the campaign."""
    smallest, largest = counts[0], counts[-1]
    enough = [n for n in counts if n > smallest and FAR * n >= largest]
    if enough:
        return smallest, enough[0]
    for other in (2 * smallest, smallest // 2):
        fits = other <= device.gpus_per_node or other % device.gpus_per_node == 0
        if 1 <= other <= (device.max_gpus or other) and fits:
            return min(other, smallest), max(other, smallest)
    raise InputError(f"{kind.name}: {device.name} has no second number of GPUs beside {smallest}")


def batch_sizes(sizes: Sequence[int], limit: int | None) -> tuple[int, ...]:
    """Return the smallest LBS, one between where there is any, and the largest; one where no other fits."""
    if len(sizes) == 1:
        only = sizes[0]
        sizes = [only, 2 * only] if 2 * only <= (limit or 2 * only) else [only // 2, only]
    if sizes[0] < 1:
        return (sizes[-1],)
    middle = (sizes[0] * sizes[-1]) ** 0.5
    chosen = min(sizes[1:-1], key=lambda size: abs(size - middle), default=None)
    return (sizes[0], *([] if chosen is None else [chosen]), sizes[-1])


def _whole(configuration: Configuration) -> int:
    """Return the samples of the whole dataset."""
    dataset, samples = configuration.dataset, configuration.dataset_samples or 0
    if "train_samples" in dataset:
        return int(dataset["train_samples"])
    return int(samples / Fraction(configuration.dataset_fraction))


def _fraction(gpus: int, local_batch_size: int, samples_per_gpu: int | None, whole: int) -> str:
    """Return the part of the dataset that gives about UPDATES updates and so many samples per GPU."""
    if samples_per_gpu is None:
        return "1"
    samples = gpus * max(UPDATES * local_batch_size, samples_per_gpu)
    parts = -(-samples * _PARTS // whole)
    return "1" if parts >= _PARTS else str(Fraction(parts, _PARTS))
