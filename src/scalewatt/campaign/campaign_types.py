"""An expanded campaign: configurations, series, runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.campaign.campaign_file import Probe
from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    from scalewatt.campaign.cluster import Device

PASS_KEYS = {"gpus_per_replica": "gpr", "gradient_accumulation_steps": "ga"}
"""Settings of how a batch is spread over GPUs and passes, 1 by default, with their short form in ids."""


def check_divides(key: str, count: int, whole: int, where: str) -> None:
    """Raise InputError unless a key's count divides the GPUs, or the local batch, that it splits."""
    if whole % count:
        raise InputError(f"{where}: {key}: {count} does not divide {whole}; allowed: its divisors")


def epoch_work(dataset_samples: int, replicas: int, local_batch_size: int) -> tuple[int, int]:
    """Samples and updates of an epoch: all replicas have equal shares, the last, partial batch counts.

    A replica is one GPU, unless the model is split over several.
    """
    share = dataset_samples // replicas
    return replicas * share, -(-share // local_batch_size)


SAME, VARIED = "same", "varied"
"""Seeds of a configuration's repeats."""


@dataclass(frozen=True, kw_only=True)
class TrainingDefinition:
    """A training: model, data, batch and schedule. Batch sizes and counts are in samples."""

    model: str
    phase: str
    device: str
    gpus: int
    nodes: int
    ranks_per_node: int
    local_batch_size: int
    global_batch_size: int
    dataset: dict[str, Any]
    dataset_fraction: str
    dataset_samples: int | None
    """None if a command's are not known."""
    validation_samples: int | None = None
    """None if they are not known; seed and sampling period likewise."""
    protocol: str
    epochs: int
    seed: int | None = None
    sampling_period_s: float | None = None
    settings: dict[str, Any]
    operating_point: dict[str, float] | None = None
    """Clocks in MHz and power limit in W that it asks for (`operating_points`); None if for none."""

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that share a copy of the model."""
        return int(self.settings.get("gpus_per_replica") or 1)

    @property
    def replicas(self) -> int:
        """Copies of the model, which train on different samples."""
        return self.gpus // self.gpus_per_replica

    @property
    def gradient_accumulation_steps(self) -> int:
        """Passes whose gradients a copy of the model adds up for an update."""
        return int(self.settings.get("gradient_accumulation_steps") or 1)

    @property
    def samples_per_gpu(self) -> int | None:
        """Samples that a GPU trains on in an epoch; None if the samples are not known, as all that follow."""
        return None if self.dataset_samples is None else self.dataset_samples // self.replicas

    @property
    def samples_per_epoch(self) -> int | None:
        """Samples trained on in an epoch, over all GPUs."""
        return None if self.samples_per_gpu is None else self.replicas * self.samples_per_gpu

    @property
    def updates_per_epoch(self) -> int | None:
        """Gradient updates in an epoch, of which the last may be of a partial batch."""
        share = self.samples_per_gpu
        return None if share is None else -(-share // self.local_batch_size)

    @property
    def updates(self) -> int | None:
        """Gradient updates of the whole training."""
        return self.updates_per_epoch and self.epochs * self.updates_per_epoch

    def definition(self) -> dict[str, Any]:
        """What defines the training, by field: without what a subclass adds."""
        return {field.name: getattr(self, field.name) for field in fields(TrainingDefinition)}


@dataclass(frozen=True, kw_only=True)
class Configuration(TrainingDefinition):
    """One point of a series, fully determined."""

    id: str
    initial_weights: str | None = None
    """Id of the configuration whose weights it starts from."""
    seeds: str | None = SAME
    """`same`: all its repeats have `seed`; `varied`: repeat r has seed + r − 1. None if not known."""

    def seed_of(self, repeat: int) -> int | None:
        """Seed of a repeat; None if it is not known."""
        if self.seed is None or self.seeds != VARIED:
            return self.seed
        return self.seed + repeat - 1


@dataclass(frozen=True)
class Series:
    """A line in a figure."""

    name: str
    label: str
    model: str
    phase: str
    device: str
    constant: str
    """What stays constant along the line: local_batch_size or global_batch_size."""
    fraction_rule: str
    repeats: int
    points: dict[int, str]
    """Configuration id of each GPU count, ascending."""
    torch_device: str | None = None
    """As the cluster file has it: cuda, cpu, auto; None of registered runs."""
    changed: tuple[str, ...] = ()
    """Settings in which it departs from its model's."""

    @property
    def kind(self) -> str:
        """Its model and phase."""
        return f"{self.model} {self.phase}"

    @property
    def is_scaled(self) -> bool:
        """True if its dataset grows with n."""
        return "n" in self.fraction_rule


@dataclass(frozen=True)
class Campaign:
    """Everything that a campaign file asks for."""

    name: str
    path: Path
    protocol: str
    series: dict[str, Series]
    configurations: dict[str, Configuration]
    repeats: dict[str, int]
    """Number of repeats of each configuration."""
    figures: dict[str, dict[str, Any]]
    idle_probe: Probe | None = None
    """None if the campaign does not ask for it."""
    sampling_period_s: float = 1
    energy_budget_kwh: float | None = None
    """None if there is no limit."""
    known_devices: Mapping[str, Device] = field(default_factory=dict, repr=False)
    """Devices by name: the cluster's and those of all sites."""
    registered: bool = False
    """True if its runs were made elsewhere: nothing of it is ever trained."""
    only: Mapping[str, tuple[int, ...]] | None = None
    """The repeats that it is limited to, by configuration; None: all."""
    left_out: tuple[str, ...] = ()
    """What of the campaign file is left out of it, in sentences."""
    part_of: Campaign | None = None
    """The whole campaign; None if it is whole."""

    @property
    def whole(self) -> Campaign:
        """The campaign with all that its file asks for."""
        return self.part_of or self

    def repeats_of(self, configuration: str) -> Sequence[int]:
        """Numbers of a configuration's repeats, ascending."""
        if self.only is not None:
            return self.only[configuration]
        return range(1, self.repeats[configuration] + 1)

    def has_run(self, configuration: str, repeat: int) -> bool:
        """True if it has this run."""
        return configuration in self.configurations and repeat in self.repeats_of(configuration)

    def runs(self) -> Iterator[tuple[str, int]]:
        """Yield every run, its configuration's id and its repeat, in this order."""
        for id_ in self.configurations:
            for repeat in self.repeats_of(id_):
                yield id_, repeat

    def series_of(self, configuration: str) -> list[str]:
        """Names of the series that share a configuration."""
        return [s.name for s in self.series.values() if configuration in s.points.values()]

    @property
    def has_papers_models(self) -> bool:
        """True if it trains a model of the paper, which the paper's claims are about."""
        return any(series.model in {"resnet50", "fourcastnet"} for series in self.series.values())

    def devices(self) -> set[str]:
        """Names of the devices it runs on."""
        return {s.device for s in self.series.values()}

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Prepared datasets that its configurations use, by name."""
        return {
            c.dataset["name"]: c.dataset
            for c in self.configurations.values()
            if c.dataset["format"] != "command"
        }

    def command_settings(self) -> dict[str, dict[str, Any]]:
        """Settings of the models that are commands of the user's, by name."""
        configurations = self.configurations.values()
        return {c.model: c.settings for c in configurations if c.dataset["format"] == "command"}

    def figure_configurations(self, figure: str) -> list[str]:
        """Ids of the configurations that a figure (or table1) shows, each once."""
        content = self.figures[figure]
        if "points" in content:
            ids = [self.series[p["series"]].points[p["gpus"]] for p in content["points"]]
        else:
            ids = [id_ for name in content["series"] for id_ in self.series[name].points.values()]
        return list(dict.fromkeys(ids))
