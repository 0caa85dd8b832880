"""From a campaign file to series and configurations.

Read from top to bottom: the file, its series one by one, the points of a series, ids, figures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_file import (
    CampaignFile,
    Command,
    ModelSettings,
    SeriesEntry,
    sample_counts,
)
from scalewatt.campaign.campaign_types import (
    PASS_KEYS,
    Campaign,
    Configuration,
    Series,
    check_accumulation,
    check_replicas,
    shared_points,
)
from scalewatt.campaign.cluster import Device, other_device
from scalewatt.campaign.external_command import DATASET, OVERRIDABLE, check_command
from scalewatt.campaign.model_registry import COMMAND, campaign_models, known_models, model_key
from scalewatt.campaign.operating_points import (
    by_id,
    id_suffix,
    point_of,
    without_point,
)
from scalewatt.campaign.registered_campaign import expand_registered
from scalewatt.campaign.table_definitions import check_variants
from scalewatt.common.errors import InputError, one_of, shown
from scalewatt.common.settings import validated

MOST_RUNS = 10_000
"""Runs of a campaign: as many jobs as Slurm's queue takes by default (MaxJobCount)."""


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
    total = sum(campaign.repeats.values())
    if total > MOST_RUNS:
        raise InputError(f"{path}: runs: {total}; allowed: at most {MOST_RUNS} in a campaign")
    _check_figures(campaign)
    return campaign


def _expand(
    file: CampaignFile, path: Path, devices: Mapping[str, Device], max_gpus: int | None
) -> Campaign:
    models = campaign_models(file.models, str(path))
    if file.protocol is None and not all(isinstance(model, Command) for model in models.values()):
        raise InputError(f"{path}: missing key 'protocol'; expected: paper, corrected")
    protocol = file.protocol or "corrected"
    series: dict[str, Series] = {}
    points: dict[str, list[tuple[Configuration, int]]] = {}
    for name, entry in file.series.items():
        line = _line(file, entry, f"{path}: series.{name}", protocol, models, devices)
        made = [_configuration(line, gpus, max_gpus) for gpus in sorted(entry.gpus)]
        points[name] = [(point, entry.repeats) for point in made]
        series[name] = _series(name, line, made)
    configurations, repeats, first = shared_points(points, str(path))
    configurations = {
        id_: _with_initial_weights(point, configurations, repeats, f"{path}: series.{first[id_]}")
        for id_, point in configurations.items()
    }
    return Campaign(
        name=file.name,
        path=path,
        protocol=protocol,
        series=series,
        configurations=by_id(configurations),
        repeats=repeats,
        figures=file.figures.contents(),
        idle_probe=file.idle_probe,
        sampling_period_s=file.period_s,
        energy_budget_kwh=file.energy_budget_kwh,
    )


# --- a series -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """A series with all that holds for each of its points; `where` begins messages."""

    where: str
    entry: SeriesEntry
    phase: str
    device: Device
    protocol: str
    settings: dict[str, Any]
    changed: dict[str, Any]
    """Settings, and the protocol, in which it departs from its model's."""
    dataset: dict[str, Any]
    file: CampaignFile

    @property
    def key(self) -> str:
        return model_key(self.entry.model, self.phase)

    @property
    def fraction_rule(self) -> str:
        """The dataset's part: a fraction in lowest terms, or with n for the GPUs."""
        rule = str(self.entry.dataset_fraction)
        return rule if "n" in rule else str(Fraction(rule))

    @property
    def operating_point(self) -> dict[str, float] | None:
        return point_of(self.entry.model_dump(exclude_none=True))


def _line(
    file: CampaignFile,
    entry: SeriesEntry,
    where: str,
    protocol: str,
    models: Mapping[str, ModelSettings | Command],
    devices: Mapping[str, Device],
) -> _Line:
    """Check a series against its model, dataset and device."""
    phase = _phase(entry, models, where)
    key = model_key(entry.model, phase)
    if key not in models:
        raise InputError(f"{where}: `models` has no entry '{key}', which names its dataset")
    if entry.device not in devices:
        raise InputError(
            f"{where}.device: '{entry.device}' is in no cluster file (config/*.yaml); "
            f"{other_device(entry.device, devices)}"
        )
    model = _model_of_series(entry, models[key], where)
    settings, usual = model.model_dump(), models[key].model_dump()
    changed = {name: settings[name] for name in entry.settings if settings[name] != usual[name]}
    if entry.protocol not in (None, protocol):
        changed["protocol"] = entry.protocol
    if isinstance(model, Command):
        check_command(settings, f"{where.partition(': ')[0]}: models.{key}.command")
        dataset = DATASET
    else:
        dataset = _dataset(entry.model, settings, file, where)
    return _Line(
        where=where,
        entry=entry,
        phase=phase,
        device=devices[entry.device],
        protocol=entry.protocol or protocol,
        # A single pass stays out of the spec.
        settings={k: v for k, v in settings.items() if k not in PASS_KEYS or v != 1},
        changed=changed,
        dataset=dataset,
        file=file,
    )


def _phase(entry: SeriesEntry, models: Mapping[str, Any], where: str) -> str:
    """Phase of a series, which a model with a single phase need not be given."""
    phases = {name: model.phases for name, model in known_models().items()}
    phases |= {name: ("train",) for name, model in models.items() if isinstance(model, Command)}
    if entry.model not in phases:
        raise InputError(
            f"{where}.model: {shown(entry.model)} is not known; {one_of(entry.model, phases)}"
        )
    allowed = phases[entry.model]
    phase = entry.phase or (allowed[0] if len(allowed) == 1 else None)
    if phase not in allowed:
        raise InputError(f"{where}.phase: {phase!r} for {entry.model}; {one_of(phase, allowed)}")
    return phase


def _model_of_series(
    entry: SeriesEntry, model: ModelSettings | Command, where: str
) -> ModelSettings | Command:
    """Settings of a model with those that the series changes."""
    allowed = OVERRIDABLE if isinstance(model, Command) else tuple(type(model).model_fields)
    for key in entry.settings:
        if key not in allowed:
            raise InputError(
                f"{where}.settings: unknown key '{key}'; {one_of(key, sorted(allowed))}"
            )
    given = {**model.model_dump(exclude_unset=True), **entry.settings}
    file, _, series = where.partition(": ")
    changed: ModelSettings | Command = validated(type(model), given, file, f"{series}.settings")
    return changed


def _dataset(
    model: str, settings: Mapping[str, Any], file: CampaignFile, where: str
) -> dict[str, Any]:
    """Definition of a model's dataset."""
    name, loader = settings["dataset"], settings.get("loader")
    if name not in file.datasets:
        raise InputError(
            f"{where}: dataset '{name}' is not among `datasets`; {one_of(name, file.datasets)}"
        )
    dataset = {"name": name, **file.datasets[name].model_dump()}
    if dataset["source"] == "none" and loader != "synthetic":
        raise InputError(
            f"{where}: dataset '{name}' has source none, but loader is {loader}; allowed: loader "
            "synthetic, or a dataset with data"
        )
    needed = known_models()[model].data_format
    if dataset["format"] != needed:
        raise InputError(
            f"{where}: {model} trains on a dataset of format {needed}, but '{name}' is of format "
            f"{dataset['format']}"
        )
    if model == "fourcastnet":
        _check_forecasts(settings, dataset, where)
    return dataset


def _check_forecasts(settings: Mapping[str, Any], dataset: dict[str, Any], where: str) -> None:
    """Refuse patches that do not divide the grid, and forecasts that do not fit the test years."""
    patch, grid = settings["patch_size"], dataset["grid"]
    if any(edge % patch for edge in grid):
        raise InputError(
            f"{where}: patch_size {patch} does not divide the grid {grid}; allowed: a divisor of both edges"
        )
    first, last = dataset["test_years"]
    times = (last - first + 1) * dataset["samples_per_year"]
    forecasts, spacing = settings["initial_conditions"], settings["initial_condition_spacing"]
    if (forecasts - 1) * spacing >= times:
        raise InputError(
            f"{where}: {forecasts} initial conditions {spacing} steps apart do not fit the {times} times of "
            f"the test years; allowed: at most {(times - 1) // spacing + 1}"
        )


def _series(name: str, line: _Line, points: Sequence[Configuration]) -> Series:
    entry = line.entry
    return Series(
        name=name,
        label=name if entry.label is None else entry.label,
        model=entry.model,
        phase=line.phase,
        device=line.device.name,
        constant="local_batch_size" if entry.local_batch_size else "global_batch_size",
        fraction_rule=line.fraction_rule,
        repeats=entry.repeats,
        points={point.gpus: point.id for point in points},
        torch_device=line.device.torch_device,
        changed=tuple(line.changed),
    )


# --- a point --------------------------------------------------------------------------------------


def _configuration(line: _Line, gpus: int, max_gpus: int | None) -> Configuration:
    """Configuration of a series at `gpus` GPUs."""
    replicas, local = _batches(line, gpus)
    if max_gpus is None or gpus <= max_gpus:
        _check_device(line, gpus, local)
    fraction = _fraction(line, gpus)
    samples, validation = _samples(line, fraction)
    if samples is not None:
        _check_samples(line, gpus, local, samples, validation)
    per_node = line.device.gpus_per_node
    of_fields = {"dataset", "samples", "epochs"}
    return Configuration(
        id=_id(line, gpus, local, None if fraction == 1 else samples),
        model=line.entry.model,
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
        protocol=line.protocol,
        epochs=line.settings["epochs"],
        seed=line.file.seed,
        seeds=line.entry.seeds,
        sampling_period_s=line.file.period_s,
        settings={key: value for key, value in line.settings.items() if key not in of_fields},
        operating_point=line.operating_point,
    )


def _batches(line: _Line, gpus: int) -> tuple[int, int]:
    """Copies of the model and their local batch size."""
    per_replica = line.settings.get("gpus_per_replica", 1)
    check_replicas(gpus, per_replica, f"{line.where}.gpus")
    replicas, total = gpus // per_replica, line.entry.global_batch_size
    if total is not None and total % replicas:
        raise InputError(
            f"{line.where}.global_batch_size: {total} does not divide by {gpus} GPUs; allowed: GPU counts "
            "that divide it"
        )
    local = line.entry.local_batch_size or (total or 0) // replicas
    check_accumulation(local, line.settings.get("gradient_accumulation_steps", 1), line.where)
    return replicas, local


def _check_device(line: _Line, gpus: int, local: int) -> None:
    """Raise InputError if a point does not fit its device."""
    device, per_node = line.device, line.device.gpus_per_node
    if gpus > per_node and gpus % per_node:
        raise InputError(
            f"{line.where}.gpus: {gpus} does not fit nodes of {per_node} GPUs ({device.name}); "
            f"allowed: up to {per_node}, or a multiple of {per_node}"
        )
    if device.max_gpus and gpus > device.max_gpus:
        raise InputError(
            f"{line.where}.gpus: {gpus} is more than {device.name} has for one job; allowed: at most "
            f"{device.max_gpus}; to leave larger points out: --config max_gpus={device.max_gpus} for "
            f"snakemake, --max-gpus {device.max_gpus} for scalewatt"
        )
    limit = device.max_local_batch_size.get(line.key)
    if limit and local > limit:
        raise InputError(
            f"{line.where}: a local batch size of {local} at {gpus} GPUs is above what {device.name} is "
            f"known to hold of {line.key}; allowed: at most {limit}"
        )


def _fraction(line: _Line, gpus: int) -> Fraction:
    """Part of the dataset that a point trains on."""
    rule, where = line.fraction_rule, f"{line.where}.dataset_fraction"
    fraction = Fraction(rule.replace("n", str(gpus)))
    if fraction > 1:
        raise InputError(
            f"{where}: {rule} is {fraction} of the dataset at {gpus} GPUs; allowed: at most 1"
        )
    if fraction == 1:
        return fraction
    kind, loader = line.dataset["format"], line.settings.get("loader")
    if kind == COMMAND and line.settings["samples"] is None:
        raise InputError(
            f"{where}: {rule}: of how many samples is not known; allowed: 1, or `samples` in "
            f"models.{line.key}"
        )
    if kind == "era5" and loader != "synthetic":
        raise InputError(
            f"{where}: {rule}: {line.entry.model} trains on whole years; allowed: 1, or loader synthetic"
        )
    return fraction


def _samples(line: _Line, fraction: Fraction) -> tuple[int | None, int | None]:
    """Training and validation samples of a part of the dataset; None if they are not known."""
    if line.dataset["format"] == COMMAND:
        whole = line.settings["samples"]
        return None if whole is None else floor(whole * fraction), None
    train, validation = sample_counts(line.dataset)
    return floor(train * fraction), floor(validation * fraction)


def _check_samples(
    line: _Line, gpus: int, local: int, samples: int, validation: int | None
) -> None:
    """Raise InputError if a part of the dataset is too small for its GPUs."""
    if samples < gpus // line.settings.get("gpus_per_replica", 1) or validation == 0:
        raise InputError(
            f"{line.where}.dataset_fraction: leaves {samples} training samples for {gpus} GPUs; allowed: at "
            "least one per GPU (or copy of the model), and one for validation"
        )


# --- initial weights ------------------------------------------------------------------------------


def _with_initial_weights(
    point: Configuration,
    configurations: Mapping[str, Configuration],
    repeats: Mapping[str, int],
    where: str,
) -> Configuration:
    """Let fine-tuning start from the weights of the same configuration's pre-training."""
    if point.phase != "finetune":
        return point
    source = point.id.replace(".finetune-", ".pretrain-", 1)
    if source not in configurations:  # the weights are the same whatever the clock
        source = without_point(source)
    if repeats.get(source, 0) < repeats[point.id]:
        raise InputError(
            f"{where}: fine-tuning at {point.gpus} GPUs starts from the weights of {source}, of which no "
            f"series has {repeats[point.id]} repeats"
        )
    for key in known_models()[point.model].network:
        value, before = point.settings.get(key), configurations[source].settings.get(key)
        if value != before:
            raise InputError(
                f"{where}: fine-tuning has {key} {value}, but the weights of {source} have {before}; "
                "allowed: the same"
            )
    return replace(point, initial_weights=source)


# --- ids ------------------------------------------------------------------------------------------


def _id(line: _Line, gpus: int, local: int, samples: int | None) -> str:
    id_ = configuration_id(line.key, line.device.name, gpus, local, samples, line.changed)
    return id_ + id_suffix(line.operating_point)


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


def without_device(configuration: str, device: str) -> str:
    """Id of a configuration, of any campaign, with its device left out."""
    return re.sub(rf"-{re.escape(device)}-(?=n\d{{3}})", "-", configuration, count=1)


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
