"""From a campaign file to series and configurations.

Read from top to bottom: the file, its series one by one, the points of a series, ids, figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_file import CampaignFile, SeriesEntry, sample_counts
from scalewatt.campaign.campaign_types import (
    PASS_KEYS,
    Campaign,
    Configuration,
    Series,
    check_divides,
)
from scalewatt.campaign.cluster import Device, other_device
from scalewatt.campaign.external_command import DATASET, OVERRIDABLE
from scalewatt.campaign.model_registry import (
    COMMAND,
    MODELS,
    Command,
    ModelSettings,
    campaign_models,
    model_key,
    phases_of,
)
from scalewatt.campaign.operating_points import id_suffix, point_of, without_point
from scalewatt.campaign.registered_campaign import expand_registered
from scalewatt.campaign.table_definitions import check_variants
from scalewatt.common.errors import InputError, one_of, shown
from scalewatt.common.settings import validated

_OF_FIELDS = ("dataset", "samples", "epochs")
"""Settings of a model that are fields of a configuration."""


def expand(
    content: dict[str, Any], path: Path, devices: dict[str, Device], max_gpus: int | None = None
) -> Campaign:
    """Expand a campaign's content; InputError names `path`, the key and what is allowed.

    Points of more than `max_gpus` GPUs, which are left out afterwards, need not fit their device.
    """
    if content.get("registered"):
        campaign = expand_registered(content, path)
    else:
        campaign = _expand(validated(CampaignFile, content, str(path)), path, devices, max_gpus)
    _check_figures(campaign)
    return replace(campaign, known_devices=devices)


def _expand(
    file: CampaignFile, path: Path, devices: Mapping[str, Device], max_gpus: int | None
) -> Campaign:
    models = campaign_models(file.models, str(path))
    if file.protocol is None and not all(isinstance(model, Command) for model in models.values()):
        raise InputError(f"{path}: missing key 'protocol'; expected: paper, corrected")
    series: dict[str, Series] = {}
    points: dict[str, Configuration] = {}
    repeats: dict[str, int] = {}
    for name, entry in file.series.items():
        try:
            line = _line(file, entry, models, devices)
            of_series = [_point(line, gpus, max_gpus) for gpus in sorted(entry.gpus)]
            for point in of_series:
                known = points.setdefault(point.id, point)
                known_repeats = repeats.setdefault(point.id, entry.repeats)
                _check_same(point, entry.repeats, known, known_repeats, series)
        except InputError as error:
            raise InputError(f"{path}: series.{name}.{error}") from error
        series[name] = Series(
            name=name,
            label=name if entry.label is None else entry.label,
            model=entry.model,
            phase=line.phase,
            device=line.device.name,
            constant="local_batch_size" if entry.local_batch_size else "global_batch_size",
            fraction_rule=entry.fraction_rule,
            repeats=entry.repeats,
            points={point.gpus: point.id for point in of_series},
            torch_device=line.device.torch_device,
            changed=tuple(line.changed),
        )
    campaign = Campaign(
        name=file.name,
        path=path,
        protocol=file.protocol or "corrected",
        series=series,
        configurations=dict(sorted(points.items())),
        repeats=repeats,
        figures=file.figures.contents(),
        idle_probe=file.idle_probe,
        sampling_period_s=file.period_s,
        energy_budget_kwh=file.energy_budget_kwh,
    )
    started = {
        id_: replace(point, initial_weights=_initial_weights(point, campaign))
        for id_, point in campaign.configurations.items()
        if point.phase == "finetune"
    }
    return replace(campaign, configurations=campaign.configurations | started)


# --- a series: InputError begins with its key -----------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """A series with all that holds for each of its points."""

    file: CampaignFile
    entry: SeriesEntry
    key: str
    phase: str
    device: Device
    settings: dict[str, Any]
    changed: dict[str, Any]
    """Settings, and the protocol, in which it departs from its model's."""
    dataset: dict[str, Any]


def _line(
    file: CampaignFile,
    entry: SeriesEntry,
    models: Mapping[str, ModelSettings | Command],
    devices: Mapping[str, Device],
) -> _Line:
    """Check a series against its model, dataset and device."""
    phase = _phase(entry, models)
    key = model_key(entry.model, phase)
    if key not in models:
        raise InputError(f"model: `models` has no entry '{key}', which names its dataset")
    if entry.device not in devices:
        raise InputError(
            f"device: '{entry.device}' is in no cluster file (config/*.yaml); "
            f"{other_device(entry.device, devices)}"
        )
    # Settings of the model, with those that the series changes.
    kind = type(models[key])
    allowed = OVERRIDABLE if kind is Command else tuple(kind.model_fields)
    for name in entry.settings:
        if name not in allowed:
            raise InputError(f"settings: unknown key '{name}'; {one_of(name, sorted(allowed))}")
    given = {**models[key].model_dump(exclude_unset=True), **entry.settings}
    model = validated(kind, given, "settings")
    settings, usual = model.model_dump(), models[key].model_dump()
    changed = {name: settings[name] for name in entry.settings if settings[name] != usual[name]}
    if entry.protocol not in (None, file.protocol or "corrected"):
        changed["protocol"] = entry.protocol
    dataset = DATASET if kind is Command else _dataset(model, file)
    return _Line(file, entry, key, phase, devices[entry.device], settings, changed, dataset)


def _phase(entry: SeriesEntry, models: Mapping[str, Any]) -> str:
    """Phase of a series, which a model with a single phase need not be given."""
    phases = ("train",) if isinstance(models.get(entry.model), Command) else phases_of(entry.model)
    if not phases:
        names = [key.partition(".")[0] for key in (*MODELS, *models)]
        raise InputError(f"model: {shown(entry.model)} is not known; {one_of(entry.model, names)}")
    phase = entry.phase or (phases[0] if len(phases) == 1 else None)
    if phase not in phases:
        raise InputError(f"phase: {phase!r} for {entry.model}; {one_of(phase, phases)}")
    return phase


def _dataset(model: ModelSettings, file: CampaignFile) -> dict[str, Any]:
    """Definition of a model's dataset; InputError if the model cannot train on it."""
    name, loader = model.dataset, getattr(model, "loader", None)
    if name not in file.datasets:
        raise InputError(
            f"model: dataset '{name}' is not among `datasets`; {one_of(name, file.datasets)}"
        )
    dataset = {"name": name, **file.datasets[name].model_dump()}
    if dataset["source"] == "none" and loader != "synthetic":
        raise InputError(
            f"model: dataset '{name}' has source none, but loader is {loader}; allowed: loader "
            "synthetic, or a dataset with data"
        )
    if dataset["format"] != model.data_format:
        raise InputError(
            f"model: trains on a dataset of format {model.data_format}, but '{name}' is of format "
            f"{dataset['format']}"
        )
    model.check_dataset(dataset)
    return dataset


def _check_same(
    point: Configuration,
    repeats: int,
    known: Configuration,
    known_repeats: int,
    earlier: Mapping[str, Series],
) -> None:
    """Raise InputError if an earlier series has a configuration of this id that differs in anything."""
    ours, theirs = _facts(point, repeats), _facts(known, known_repeats)
    for key in {**ours, **theirs}:
        if (value := ours.get(key)) != (before := theirs.get(key)):
            other = next(name for name, line in earlier.items() if point.id in line.points.values())
            raise InputError(f"{key}: {value}, but series.{other} has {before} for {point.id}")


def _facts(point: Configuration, repeats: int) -> dict[str, Any]:
    """What runs of a configuration have in common, its settings and its dataset key by key."""
    facts = point.definition()
    settings, dataset = facts.pop("settings"), facts.pop("dataset")
    return {"seeds": point.seeds, "repeats": repeats, **facts, **settings, **dataset}


# --- a point --------------------------------------------------------------------------------------


def _point(line: _Line, gpus: int, max_gpus: int | None) -> Configuration:
    """Configuration of a series at `gpus` GPUs."""
    entry, settings, per_node = line.entry, line.settings, line.device.gpus_per_node
    # Copies of the model, and the batch of each.
    per_replica, total = settings.get("gpus_per_replica", 1), entry.global_batch_size
    check_divides("gpus_per_replica", per_replica, gpus, "settings")
    replicas = gpus // per_replica
    if total is not None and total % replicas:
        raise InputError(
            f"global_batch_size: {total} does not divide by {gpus} GPUs; allowed: GPU counts that divide it"
        )
    local = entry.local_batch_size or (total or 0) // replicas
    steps = settings["gradient_accumulation_steps"]
    check_divides("gradient_accumulation_steps", steps, local, "settings")
    is_asked = max_gpus is None or gpus <= max_gpus
    if is_asked:
        _check_device(line, gpus, local)
    # The part of the dataset.
    fraction = Fraction(entry.fraction_rule.replace("n", str(gpus)))
    samples, validation = _samples(line, gpus, fraction)
    if validation == 0 or (samples is not None and samples < replicas):
        raise InputError(
            f"dataset_fraction: leaves {samples} training samples for {gpus} GPUs; allowed: at least one "
            "per GPU (or copy of the model), and one for validation"
        )
    protocol = entry.protocol or line.file.protocol or "corrected"
    if is_asked and entry.model == "resnet50" and samples and validation:
        _check_images(settings, protocol, replicas, (samples, validation), local // steps)
    operating_point = point_of(entry.model_dump(exclude_none=True))
    part = None if fraction == 1 else samples
    id_ = configuration_id(line.key, line.device.name, gpus, local, part, line.changed)
    return Configuration(
        id=id_ + id_suffix(operating_point),
        model=entry.model,
        phase=line.phase,
        device=line.device.name,
        gpus=gpus,
        nodes=-(-gpus // per_node),
        ranks_per_node=min(gpus, per_node),
        local_batch_size=local,
        global_batch_size=local * replicas,
        dataset=line.dataset,
        dataset_fraction=str(fraction),
        dataset_samples=samples,
        validation_samples=validation,
        protocol=protocol,
        epochs=settings["epochs"],
        seed=line.file.seed,
        seeds=entry.seeds,
        sampling_period_s=line.file.period_s,
        settings={
            key: value
            for key, value in settings.items()
            if key not in _OF_FIELDS and (key not in PASS_KEYS or value != 1)
        },
        operating_point=operating_point,
    )


def _check_images(
    settings: Mapping[str, Any], protocol: str, ranks: int, counts: tuple[int, int], size: int
) -> None:
    """Raise InputError for images by which ResNet50 would end at the end of its first epoch.

    `counts`: samples of training and validation; `size`: those of a pass.
    """
    samples, validation = counts
    if protocol == "paper" and validation < ranks:
        raise InputError(
            f"dataset_fraction: leaves {validation} validation images for {ranks} GPUs; allowed: at least "
            "one per GPU (protocol paper drops what does not divide by them)"
        )
    if settings["image_size"] <= SMALLEST_IMAGE and 1 in (size, samples // ranks % size):
        raise InputError(
            f"image_size: {settings['image_size']} makes a map of one pixel, which cannot be normalised over "
            f"a pass of one sample ({samples} samples, {ranks} GPUs, {size} a pass); allowed: larger images, "
            "or another batch size"
        )


SMALLEST_IMAGE = 32
"""Pixels that ResNet50 makes one of."""


def _check_device(line: _Line, gpus: int, local: int) -> None:
    """Raise InputError if a point does not fit its device."""
    device, per_node = line.device, line.device.gpus_per_node
    if gpus > per_node and gpus % per_node:
        raise InputError(
            f"gpus: {gpus} does not fit nodes of {per_node} GPUs ({device.name}); allowed: up to "
            f"{per_node}, or a multiple of {per_node}"
        )
    if device.max_gpus and gpus > device.max_gpus:
        raise InputError(
            f"gpus: {gpus} is more than {device.name} has for one job; allowed: at most "
            f"{device.max_gpus}; to leave larger points out: --config max_gpus={device.max_gpus} for "
            f"snakemake, --max-gpus {device.max_gpus} for scalewatt"
        )
    limit = device.max_local_batch_size.get(line.key)
    if limit and local > limit:
        raise InputError(
            f"gpus: a local batch size of {local} at {gpus} GPUs is above what {device.name} is known to "
            f"hold of {line.key}; allowed: at most {limit}"
        )


def _samples(line: _Line, gpus: int, fraction: Fraction) -> tuple[int | None, int | None]:
    """Training and validation samples of a part of the dataset; None where a command's are not known."""
    rule, format_ = f"dataset_fraction: {line.entry.fraction_rule}", line.dataset["format"]
    if fraction > 1:
        raise InputError(f"{rule} is {fraction} of the dataset at {gpus} GPUs; allowed: at most 1")
    if format_ == COMMAND:
        whole = line.settings["samples"]
        if whole is None and fraction < 1:
            raise InputError(
                f"{rule} of unknown samples; allowed: 1, or `samples` in models.{line.key}"
            )
        return whole and floor(whole * fraction), None
    if fraction < 1 and format_ == "era5" and line.settings["loader"] != "synthetic":
        raise InputError(
            f"{rule}: {line.entry.model} trains on whole years; allowed: 1, or loader synthetic"
        )
    train, validation = sample_counts(line.dataset)
    return floor(train * fraction), floor(validation * fraction)


# --- initial weights ------------------------------------------------------------------------------


def _initial_weights(point: Configuration, campaign: Campaign) -> str:
    """Configuration of the pre-training whose weights a fine-tuning starts from: the same otherwise."""
    configurations, repeats = campaign.configurations, campaign.repeats
    where = f"{campaign.path}: series.{campaign.series_of(point.id)[0]}: fine-tuning"
    source = point.id.replace(".finetune-", ".pretrain-", 1)
    if source not in configurations:  # the weights are the same whatever the clock
        source = without_point(source)
    if repeats.get(source, 0) < repeats[point.id]:
        raise InputError(
            f"{where} at {point.gpus} GPUs starts from the weights of {source}, of which no series has "
            f"{repeats[point.id]} repeats"
        )
    for key in MODELS[model_key(point.model, point.phase)].network:
        value, before = point.settings.get(key), configurations[source].settings.get(key)
        if value != before:
            raise InputError(
                f"{where} has {key} {value}, but the weights of {source} have {before}; allowed: the same"
            )
    return source


# --- ids ------------------------------------------------------------------------------------------


def configuration_id(
    key: str,
    device: str,
    gpus: int,
    local_batch_size: int,
    samples: int | None,
    overrides: Mapping[str, Any],
) -> str:
    """Id of a configuration; `samples` are those of a part of the dataset, None of all of it."""
    part = "full" if samples is None else f"s{samples:07d}"
    extra = "".join(f"-{k}{_id_value(v)}" for k, v in sorted(overrides.items()))
    return f"{key}-{device}-n{gpus:03d}-lbs{local_batch_size:04d}-{part}{extra}"


def _id_value(value: Any) -> str:
    """A setting's value in an id; 2 and 2.0 are one."""
    if isinstance(value, list):
        return "x".join(map(_id_value, value))
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    return "".join(c if c.isalnum() or c in "._" else "_" for c in text.lower())


# --- figures --------------------------------------------------------------------------------------


def _check_figures(campaign: Campaign) -> None:
    """Raise InputError if a figure names a series or point that does not exist."""
    series, where = campaign.series, f"{campaign.path}: figures"
    for figure, content in campaign.figures.items():
        points = content.get("points", [{"series": name} for name in content.get("series", [])])
        for point in points:
            name = point["series"]
            if name not in series:
                raise InputError(f"{where}.{figure}: no series '{name}'; {one_of(name, series)}")
            if "gpus" in point and point["gpus"] not in series[name].points:
                raise InputError(
                    f"{where}.{figure}: series.{name} has no point at "
                    f"{point['gpus']} GPUs; {one_of(point['gpus'], series[name].points)}"
                )
        if figure == "variants":
            check_variants(content, series, str(campaign.path))
