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
from scalewatt.scaling.model.terms import Kind, kind_of_spec

UPDATES = 300
"""At least about so many updates per epoch, where the model can train on a part of its dataset."""
IMAGES = 100_000
"""And so many images per GPU, some minutes on an A100: the start should be a small part of a run."""
TRIAL_EPOCHS = (1, 2)
_PARTS = 1000
_DROPPED = ("series", "figures", "energy_budget_kwh", "idle_probe")
_OF_A_SERIES = ("model", "phase", "device", "protocol", *LEVERS)

Entry = dict[str, Any]


@dataclass(frozen=True)
class Pilot:
    """A campaign file that calibrates another campaign."""

    text: str
    runs: int
    left_out: tuple[str, ...]
    """Parts of the campaign that it cannot calibrate, and why."""


def write_pilot(path: Path, out: Path | None) -> str:
    """Write the pilot of the campaign at `path` to `out`; the text to print.

    InputError if nothing of the campaign can be calibrated, or `out` exists already.
    """
    pilot = make_pilot(path)
    out = out or path.with_name(f"{path.stem}-pilot.yaml")
    if out.exists():
        raise InputError(f"{out}: exists already; expected a new file (--out FILE)")
    write_text(out, pilot.text)
    name = yaml.safe_load(pilot.text)["name"]
    lines = [
        f"{out}: written, runs: {pilot.runs}",
        *(f"left out: {reason}" for reason in pilot.left_out),
        f"next: snakemake --profile profiles/<yours> tables --config campaign={out}",
        f"then: scalewatt calibrate results/{name} --out scaling_model.json",
    ]
    return "\n".join(lines)


def make_pilot(path: Path) -> Pilot:
    """Pilot of the campaign at `path`; InputError if nothing of it can be calibrated."""
    campaign = load_campaign(path)
    if campaign.registered:
        raise InputError(f"{path}: is of runs made elsewhere; expected a campaign that trains")
    content, devices = read_yaml(path), known_devices()
    kinds: dict[Kind, list[Configuration]] = {}
    for configuration in campaign.configurations.values():
        kind = kind_of_spec(run_spec(campaign, configuration.id, 1))
        kinds.setdefault(kind, []).append(configuration)
    series: dict[str, Entry] = {}
    left_out = []
    for kind, members in kinds.items():
        try:
            trials = _trials(kind, members, content, devices[members[0].device])
            series |= dict(_series(list(kinds), kind, members[0], trials, content, campaign))
        except InputError as error:
            left_out.append(str(error))
    if not series:
        raise InputError(f"{path}: nothing of it can be calibrated: {'; '.join(left_out)}")
    made = _campaign(content, series)
    # The checks of any campaign: a mistake is found before anybody submits it.
    checked = expand(made, path.with_name(f"{path.stem}-pilot.yaml"), devices)
    check_passed(checked)
    head = (
        f"# The short runs that calibrate the scaling model for {path}, by `scalewatt pilot`.\n"
        "# docs/scaling.md says what to do with their results.\n"
    )
    text = head + yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=100)
    return Pilot(text, sum(1 for _ in checked.runs()), tuple(left_out))


def _campaign(content: Mapping[str, Any], series: Mapping[str, Entry]) -> Entry:
    """Content of the pilot's file."""
    names = sorted(series, key=natural_order)
    used = {entry["model"] for entry in series.values()}
    used |= {model_key(e["model"], e.get("phase", "train")) for e in series.values()}
    models = {name: dict(entry) for name, entry in content["models"].items() if name in used}
    for entry in models.values():
        # Epochs that no trial has: each trial's are then in its name, which a fine-tuning shares with the
        # pre-training before it.
        if entry.get("epochs") in TRIAL_EPOCHS:
            entry["epochs"] = max(TRIAL_EPOCHS) + 1
    return {
        **{name: value for name, value in content.items() if name not in _DROPPED},
        "name": f"{content['name']}-pilot",
        "models": models,
        "series": {name: series[name] for name in names},
        "figures": {"breakdown": {"series": names}},
    }


def _series(
    kinds: Sequence[Kind],
    kind: Kind,
    configuration: Configuration,
    trials: Sequence[Entry],
    content: Mapping[str, Any],
    campaign: Campaign,
) -> Iterator[tuple[str, Entry]]:
    """A series of each trial, and those whose weights a fine-tuning starts from."""
    sources = [(kind, configuration.id)]
    if before := configuration.initial_weights:
        sources.append((kind_of_spec(run_spec(campaign, before, 1)), before))
    for trial in trials:
        for source, id_ in sources:
            template = content["series"][campaign.series_of(id_)[0]]
            entry = {key: template[key] for key in _OF_A_SERIES if key in template} | trial
            entry["settings"] = template.get("settings", {}) | trial["settings"]
            entry = json.loads(json.dumps(entry))  # no aliases in the file
            name = f"{source.key.replace('.', '-')}-{source.device}-{kinds.index(source) + 1}"
            (gpus,), epochs = trial["gpus"], trial["settings"]["epochs"]
            yield f"{name}-n{gpus:03d}-lbs{trial['local_batch_size']:04d}-epochs{epochs}", entry


# --- which runs -----------------------------------------------------------------------------------


def _trials(
    kind: Kind, members: Sequence[Configuration], content: Mapping[str, Any], device: Device
) -> list[Entry]:
    """Two n × two LBS for one epoch, and two runs of two epochs, one of them with an LBS between.

    Where the device holds a single LBS: two n, one and two epochs. The larger n is so large that no
    prediction of the campaign lies beyond FAR times it; the largest LBS is the campaign's. InputError if
    there is no second n, or the samples are not known.
    """
    first = members[0]
    if first.dataset_samples is None:
        raise InputError(
            f"{kind.name}: its samples are not known; allowed: `samples` in models.{first.model}"
        )
    counts = two_counts(kind, sorted({each.gpus for each in members}), device)
    limit = device.max_local_batch_size.get(kind.key)
    batches = batch_sizes(sorted({each.local_batch_size for each in members}), limit)
    small, large = batches[0], batches[-1]
    few, more = TRIAL_EPOCHS
    chosen = [(n, lbs, few) for n in counts for lbs in (small, large)]
    chosen += [(counts[0], large, more), (counts[1], batches[min(1, len(batches) - 1)], more)]
    return [
        {
            "gpus": [n],
            "local_batch_size": lbs,
            **_fraction(n, lbs, first, content),
            "settings": {"epochs": epochs},
        }
        for n, lbs, epochs in dict.fromkeys(chosen)
    ]


def two_counts(kind: Kind, counts: Sequence[int], device: Device) -> tuple[int, int]:
    """The smallest n, and the smallest other that covers all of the campaign."""
    smallest, largest = counts[0], counts[-1]
    enough = [n for n in counts if n > smallest and FAR * n >= largest]
    if enough:
        return smallest, enough[0]
    for other in (2 * smallest, smallest // 2):
        fits = other <= device.gpus_per_node or other % device.gpus_per_node == 0
        if 1 <= other <= (device.max_gpus or other) and fits:
            return min(other, smallest), max(other, smallest)
    raise InputError(f"{kind.name}: {device.name} has no second number of GPUs beside {smallest}")


def batch_sizes(sizes: Sequence[int], limit: int | None) -> list[int]:
    """The smallest LBS, one between where there is any, and the largest; one where no other fits."""
    if len(sizes) == 1:
        only = sizes[0]
        sizes = [only, 2 * only] if 2 * only <= (limit or 2 * only) else [only // 2, only]
    if sizes[0] < 1:
        return [sizes[-1]]
    middle = (sizes[0] * sizes[-1]) ** 0.5
    between = sorted(sizes[1:-1], key=lambda size: abs(size - middle))[:1]
    return [sizes[0], *between, sizes[-1]]


def _fraction(
    gpus: int, local_batch_size: int, configuration: Configuration, content: Mapping[str, Any]
) -> Entry:
    """The part of the dataset that gives about UPDATES updates and IMAGES per GPU, where it can vary."""
    of_command = is_command(content, {"model": configuration.model})
    if of_command:
        is_partial = "samples" in placeholders(configuration.settings["command"])
    else:
        is_partial = configuration.dataset["format"] == "imagenet"
    if not is_partial:
        return {}
    samples = gpus * max(UPDATES * local_batch_size, 0 if of_command else IMAGES)
    whole = configuration.dataset.get("train_samples") or (configuration.dataset_samples or 0) / (
        Fraction(configuration.dataset_fraction)
    )
    parts = -(-samples * _PARTS // int(whole))
    return {} if parts >= _PARTS else {"dataset_fraction": str(Fraction(parts, _PARTS))}
