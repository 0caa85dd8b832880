"""One series entry of a campaign file on its way to configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from math import floor
from typing import Any

from scalewatt.campaign.campaign_types import (
    SAME,
    VARIED,
    Configuration,
    Device,
    Series,
    check_accumulation,
    check_replicas,
)
from scalewatt.campaign.cluster import other_device
from scalewatt.campaign.dataset_rules import check_dataset, sample_counts
from scalewatt.campaign.model_registry import known_models, model_key
from scalewatt.campaign.operating_points import id_suffix, point_of
from scalewatt.common.errors import InputError
from scalewatt.common.schema_validation import check, defaults, one_of

LARGEST_SEED = 2**32 - 1
"""As the schema has it."""
LONGEST_ID = 200
"""Of a configuration: file systems take names of 255 bytes, and files are named by it and more."""


class Expansion:
    """One series entry; InputError names the file, the key and what is allowed.

    `root` is the campaign's schema (`campaign_schema`). Points of more than `max_gpus` GPUs are left
    out afterwards, so they need not fit the device.
    """

    apart = ("dataset", "epochs")
    """Settings that a configuration has as fields of its own."""

    def __init__(
        self,
        content: dict[str, Any],
        entry: dict[str, Any],
        where: str,
        devices: dict[str, Device],
        root: dict[str, Any],
        max_gpus: int | None = None,
    ) -> None:
        self.content, self.entry, self.where, self.root = content, entry, where, root
        self.max_gpus = max_gpus
        self.model: str = entry["model"]
        self.phase = self._phase()
        self.key = model_key(self.model, self.phase)
        self.constant = self._batch_rule()
        self.protocol: str = entry.get("protocol", content["protocol"])
        if entry["device"] not in devices:
            raise InputError(
                f"{where}.device: '{entry['device']}' is in no cluster file (profiles/*/cluster.yaml); "
                f"{other_device(entry['device'], sorted(devices))}"
            )
        self.device = devices[entry["device"]]
        self.settings, self.overrides = self._settings()
        self.dataset = self._dataset()
        self.seed, self.seeds = self._seeds()
        self.operating_point = point_of(entry)

    def _phase(self) -> str:
        allowed = self._phases()
        phase = self.entry.get("phase", allowed[0] if len(allowed) == 1 else None)
        if phase not in allowed:
            raise InputError(
                f"{self.where}.phase: {phase!r} for {self.model}; {one_of(phase, allowed)}"
            )
        return phase

    def _phases(self) -> tuple[str, ...]:
        return known_models()[self.model].phases

    def _batch_rule(self) -> str:
        given = [k for k in ("local_batch_size", "global_batch_size") if k in self.entry]
        if len(given) != 1:
            raise InputError(
                f"{self.where}: {' and '.join(given) or 'no batch size'} given; allowed: either "
                "local_batch_size (constant per GPU) or global_batch_size (constant over all GPUs)"
            )
        return given[0]

    def _settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        models = self.content["models"]
        if self.key not in models:
            raise InputError(
                f"{self.where}: `models` has no entry '{self.key}', which names its dataset"
            )
        part = self._part()
        campaign_wide = _canonical({**defaults(part), **models[self.key]}, part)
        overrides = self.entry.get("settings", {})
        self._check_level(overrides, self._overridable(part))
        check(overrides, self._overridable(part), f"{self.where}.settings", self.root)
        overrides = _canonical(overrides, part)
        settings = {**campaign_wide, **overrides}
        changed = {k: v for k, v in overrides.items() if v != campaign_wide.get(k)}
        if self.protocol != self.content["protocol"]:
            changed["protocol"] = self.protocol
        return settings, changed

    def _check_level(self, overrides: Mapping[str, Any], part: Mapping[str, Any]) -> None:
        """Raise InputError for a key of the series that stands among its settings."""
        of_series = self.root["$defs"]["series"]["properties"].keys() - part["properties"].keys()
        for key in overrides:
            if key in of_series:
                raise InputError(
                    f"{self.where}.settings: '{key}' is a key of the series itself; allowed: one level "
                    f"up, as {self.where.rpartition(': ')[2]}.{key}"
                )

    def _part(self) -> dict[str, Any]:
        """Return the schema of the model's settings."""
        return self.root["$defs"][self.key]

    def _overridable(self, part: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a series' own settings."""
        return {**part, "required": []}

    def _dataset(self) -> dict[str, Any]:
        name = self.settings["dataset"]
        datasets = self.content.get("datasets", {})
        if name not in datasets:
            raise InputError(
                f"{self.where}: dataset '{name}' is not among `datasets`; {one_of(name, datasets)}"
            )
        if len(name.encode()) > LONGEST_ID:
            raise InputError(
                f"{self.where}: the dataset's name has {len(name.encode())} bytes "
                f"({name[:60]}…); allowed: at most {LONGEST_ID}, as files are named by it"
            )
        where = f"{self.where}: dataset '{name}'"
        check_dataset(where, datasets[name])
        if datasets[name]["source"] == "none" and not self._is_synthetic:
            raise InputError(
                f"{where} has source none, but loader is {self.settings.get('loader')}; allowed: "
                "loader synthetic, or a dataset with data"
            )
        needed = known_models()[self.model].data_format
        if datasets[name]["format"] != needed:
            raise InputError(
                f"{self.where}: {self.model} trains on a dataset of format {needed}, "
                f"but '{name}' is of format {datasets[name]['format']}"
            )
        if self.model == "fourcastnet":
            self._check_network(datasets[name]["grid"], name)
            self._check_forecasts(datasets[name])
        return {"name": name, **datasets[name]}

    @property
    def _is_synthetic(self) -> bool:
        return self.settings.get("loader") == "synthetic"

    def _check_network(self, grid: list[int], name: str) -> None:
        patch = self.settings["patch_size"]
        if any(edge % patch for edge in grid):
            raise InputError(
                f"{self.where}: patch_size {patch} does not divide the grid {grid} of '{name}'; "
                "allowed: a divisor of both edges"
            )
        embed, blocks = self.settings["embed_dim"], self.settings["num_blocks"]
        if embed % blocks:
            raise InputError(
                f"{self.where}: embed_dim {embed} is not a multiple of num_blocks {blocks}"
            )

    def _check_forecasts(self, dataset: dict[str, Any]) -> None:
        first, last = dataset["test_years"]
        times = (last - first + 1) * dataset["samples_per_year"]
        wanted = self.settings["initial_conditions"]
        spacing = self.settings["initial_condition_spacing"]
        if (wanted - 1) * spacing >= times:
            raise InputError(
                f"{self.where}: {wanted} initial conditions {spacing} steps apart do not fit the "
                f"{times} times of the test years; allowed: at most {(times - 1) // spacing + 1}"
            )

    def _seeds(self) -> tuple[int, str]:
        """Return the first repeat's seed, and whether the others have the same."""
        first, repeats = self.content.get("seed", 0), self.entry.get("repeats", 1)
        seeds: str = self.entry.get("seeds", SAME)
        last = first + repeats - 1
        if seeds == VARIED and last > LARGEST_SEED:
            raise InputError(
                f"{self.where}.seeds: {VARIED}: its {repeats} repeats have seeds up to {last}; allowed: "
                f"up to {LARGEST_SEED}, so a `seed` of at most {LARGEST_SEED - repeats + 1}"
            )
        return first, seeds

    def _batch_sizes(self, gpus: int) -> tuple[int, int]:
        size, per_replica = self.entry[self.constant], self._per_replica
        check_replicas(gpus, per_replica, f"{self.where}.gpus")
        replicas = gpus // per_replica
        if self.constant == "local_batch_size":
            local, global_ = size, size * replicas
        else:
            if size % replicas:
                counts = range(per_replica, max(self.entry["gpus"]) + 1, per_replica)
                allowed = [str(n) for n in counts if size % (n // per_replica) == 0]
                raise InputError(
                    f"{self.where}.global_batch_size: {size} does not divide by {gpus} GPUs; "
                    f"allowed GPU counts: {', '.join(allowed)}"
                )
            local, global_ = size // replicas, size
        check_accumulation(local, self.settings.get("gradient_accumulation_steps", 1), self.where)
        return local, global_

    @property
    def _per_replica(self) -> int:
        return int(self.settings.get("gpus_per_replica", 1))

    def _check_device(self, gpus: int, local_batch_size: int) -> None:
        device = self.device
        if self.max_gpus is not None and gpus > self.max_gpus:
            return
        per_node = device.gpus_per_node
        if gpus > per_node and gpus % per_node:
            raise InputError(
                f"{self.where}.gpus: {gpus} does not fit nodes of {per_node} GPUs ({device.name}); "
                f"allowed: up to {per_node}, or a multiple of {per_node}"
            )
        if device.max_gpus and gpus > device.max_gpus:
            raise InputError(
                f"{self.where}.gpus: {gpus} is more than {device.name} has for one job; "
                f"allowed: at most {device.max_gpus}; to leave larger points out: --config "
                f"max_gpus={device.max_gpus} for snakemake, --max-gpus {device.max_gpus} for scalewatt"
            )
        limit = device.max_local_batch_size.get(self.key)
        if limit and local_batch_size > limit:
            raise InputError(
                f"{self.where}: a local batch size of {local_batch_size} at {gpus} GPUs is above what "
                f"{device.name} is known to hold of {self.key}; allowed: at most {limit}"
            )

    def _fraction(self, gpus: int) -> Fraction:
        rule = _fraction_rule(self.entry)
        fraction = Fraction(rule.replace("n", str(gpus)))
        if fraction > 1:
            raise InputError(
                f"{self.where}.dataset_fraction: {rule} is {fraction} of the dataset at {gpus} GPUs; "
                "allowed: at most 1"
            )
        if fraction != 1:
            self._check_part(rule)
        return fraction

    def _check_part(self, rule: str) -> None:
        """Raise InputError if the model cannot train on a part of its dataset."""
        if self.dataset["format"] != "imagenet" and not self._is_synthetic:
            raise InputError(
                f"{self.where}.dataset_fraction: {rule}: {self.model} trains on whole years; allowed: 1, "
                "or loader synthetic"
            )

    def _check_validation(self, gpus: int, samples: int) -> None:
        """Check that samples are left to validate on: `paper` drops what the ranks do not divide."""
        if self.protocol == "paper" and self.model == "resnet50" and samples < gpus:
            raise InputError(
                f"{self.where}: {samples} validation samples for {gpus} GPUs leave none for "
                "protocol paper; allowed: at least one per GPU"
            )

    def _check_last_batch(self, gpus: int, local: int, share: int) -> None:
        """Check the last batch: ResNet50's batch normalisation needs two values, and 32 pixels give one."""
        if (
            self.model == "resnet50"
            and self.settings["image_size"] <= 32
            and share % local == 1 % local
        ):
            raise InputError(
                f"{self.where}: at {gpus} GPUs the last batch of an epoch is one image ({share} per GPU "
                f"in batches of {local}), too few for batch normalisation at image_size "
                f"{self.settings['image_size']}; allowed: another batch size or number of samples"
            )

    def _samples(self, gpus: int, local: int, fraction: Fraction) -> tuple[Any, Any]:
        """Return training and validation samples of a point; None if they are not known."""
        train, validation = (floor(n * fraction) for n in sample_counts(self.dataset))
        if train // gpus < 1 or validation < 1:
            raise InputError(
                f"{self.where}.dataset_fraction: leaves {train} training samples for {gpus} GPUs; "
                "allowed: at least one per GPU, and one for validation"
            )
        self._check_last_batch(gpus, local, train // gpus)
        self._check_validation(gpus, validation)
        return train, validation

    def configuration(self, gpus: int) -> Configuration:
        """Return the configuration at `gpus` GPUs."""
        local, global_ = self._batch_sizes(gpus)
        self._check_device(gpus, local)
        fraction = self._fraction(gpus)
        samples, validation = self._samples(gpus, local, fraction)
        settings = dict(self.settings)
        for key in self.apart:
            settings.pop(key)
        return Configuration(
            id=self._id(gpus, local, fraction, samples),
            model=self.model,
            phase=self.phase,
            device=self.device.name,
            gpus=gpus,
            nodes=-(-gpus // self.device.gpus_per_node),
            ranks_per_node=min(gpus, self.device.gpus_per_node),
            local_batch_size=local,
            global_batch_size=global_,
            dataset=self.dataset,
            dataset_fraction=str(fraction),
            dataset_samples=samples,
            validation_samples=validation,
            protocol=self.protocol,
            epochs=self.settings["epochs"],
            seed=self.seed,
            seeds=self.seeds,
            sampling_period_s=sampling_period_s(self.content),
            settings=settings,
            operating_point=self.operating_point,
        )

    def _id(self, gpus: int, local: int, fraction: Fraction, samples: int | None) -> str:
        part = None if fraction == 1 else samples
        id_ = configuration_id(self.key, self.device.name, gpus, local, part, self.overrides)
        id_ += id_suffix(self.operating_point)
        if len(id_) > LONGEST_ID:
            raise InputError(
                f"{self.where}: its folders would have names of {len(id_)} letters ({id_[:60]}…): "
                f"model, device and the series' own settings; allowed: at most {LONGEST_ID}"
            )
        return id_

    def series(self, name: str, written: str, points: dict[int, str]) -> Series:
        """Return the series with its points; `written`: its name in the campaign file."""
        return Series(
            name=name,
            written=written,
            label=self.entry.get("label", name),
            model=self.model,
            phase=self.phase,
            device=self.device.name,
            constant=self.constant,
            fraction_rule=_fraction_rule(self.entry),
            repeats=self.entry.get("repeats", 1),
            points=points,
            torch_device=self.device.torch_device,
            changed=tuple(self.overrides),
        )


def configuration_id(
    key: str,
    device: str,
    gpus: int,
    local_batch_size: int,
    samples: int | None,
    overrides: Mapping[str, Any],
) -> str:
    """Return a configuration's id; `samples` are those of a part of the dataset, None of all of it."""
    part = "full" if samples is None else f"s{samples:07d}"
    extra = "".join(f"-{k}{_id_value(v)}" for k, v in sorted(overrides.items()))
    return f"{key}-{device}-n{gpus:03d}-lbs{local_batch_size:04d}-{part}{extra}"


def without_device(configuration: str, device: str) -> str:
    """Return a configuration's id, of any campaign, with its device left out."""
    return re.sub(rf"-{re.escape(device)}-(?=n\d{{3}})", "-", configuration, count=1)


def _fraction_rule(entry: dict[str, Any]) -> str:
    rule = str(entry.get("dataset_fraction", 1))
    return rule if "n" in rule else str(Fraction(rule))


def _id_value(value: Any) -> str:
    value = _canonical(value, {})
    text = "x".join(map(str, value)) if isinstance(value, list) else str(value).lower()
    return "".join(c if c.isalnum() or c in "._" else "_" for c in text)


def sampling_period_s(content: Mapping[str, Any]) -> float:
    """Return a campaign's sampling period in s."""
    period_s: float = _canonical(content.get("sampling_period_s", 1), {})
    return period_s


def _canonical(value: Any, part: Any) -> Any:
    """Return a value with equal numbers as one, at any depth: a spec's text is hashed.

    A float where the schema says `number`; elsewhere a whole number is an int.
    """
    part = part if isinstance(part, Mapping) else {}  # a schema may be `true`
    if isinstance(value, dict):
        properties = part.get("properties", {})
        return {key: _canonical(one, properties.get(key, {})) for key, one in value.items()}
    if isinstance(value, list):
        items = part.get("items", {})
        return [_canonical(one, items) for one in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    kinds = part.get("type", ())
    if "number" in ((kinds,) if isinstance(kinds, str) else kinds):
        return float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
