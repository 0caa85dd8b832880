"""What a campaign and a cluster consist of."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from scalewatt.common.errors import InputError


@dataclass(frozen=True)
class Device:
    """One kind of node of a cluster; powers in W are for estimation only."""

    name: str
    gpus_per_node: int
    cpus_per_rank: int
    cpu: dict[str, Any] = field(default_factory=dict)
    """Empty where nothing is known: then nothing is estimated, and no run of the project is trained."""
    cpus_per_node: int | None = None
    gpu: dict[str, float] | None = None
    ram: dict[str, float] | None = None
    max_gpus: int | None = None
    torch_device: str = "cuda"
    description: str = ""
    gpu_memory_gib: float | None = None
    max_local_batch_size: dict[str, int] = field(default_factory=dict)
    partition: str | None = None
    gres: str | None = None
    memory_mb: int = 0
    time_limit_min: int | None = None
    step_time: dict[str, dict[str, float]] = field(default_factory=dict)
    """Rough upper bound of an update's time by model or model.phase: base_s, per_sample_s."""

    @property
    def probe_ranks(self) -> int:
        """Return the ranks of an idle probe: one per GPU of a node, one where there is none to hold."""
        return 1 if self.torch_device == "cpu" else self.gpus_per_node


def is_made_here(dataset: dict[str, Any]) -> bool:
    """Return True if a dataset's definition alone makes it: nothing is read from a data root."""
    return bool(dataset["source"] != "data_root")


@dataclass(frozen=True)
class Cluster:
    """A cluster: devices, launcher, folders and limits."""

    name: str
    launcher: str
    devices: dict[str, Device]
    campaign: str = "config.yaml"
    results_only: bool | None = None
    mode: str = "train"
    """`train`, or `simulate`: the scaling model stands in for trainings."""
    simulate: dict[str, float] = field(default_factory=dict)
    """How mode `simulate` records: sampling_period_s, fine_start_s."""
    work_root: str = "work"
    data_roots: dict[str, str] = field(default_factory=dict)
    sources: dict[str, Any] = field(default_factory=dict)
    scratch: str | None = None
    setup: tuple[str, ...] = ()
    account: str | None = None
    """As the file has it: `scheduling.job_request.account_of` expands its environment variables."""
    exclude_nodes: tuple[str, ...] = ()
    stop_warning_s: int = 600
    closing_s: float = 120
    crash_retries: int = 3
    era5_years_per_job: int = 1
    min_free_gib: float = 1
    pue: dict[str, Any] | None = None
    carbon_intensity: dict[str, Any] | None = None
    price: dict[str, Any] | None = None
    levers: dict[str, dict[str, str]] = field(default_factory=dict)
    """How clocks and power limits are set (`operating_points`), by lever: launcher, or set and undo."""
    scaling_model: str | None = None
    """File of the scaling model that counts here: for plans, wall times and the energy budget."""
    reproduce_run: str | None = None
    """CONFIGURATION/REPEAT of the run that `reproduce` repeats; None: the cheapest."""
    max_gpus: int | None = None
    """Points of more GPUs are left out of a campaign; None: none is."""
    only: str | None = None
    """The runs that a campaign is limited to, as `campaign_part` reads them; None: all."""

    @property
    def simulates(self) -> bool:
        """Return True if runs are simulated and none is trained."""
        return self.mode == "simulate"

    def data_folder(self, dataset: dict[str, Any]) -> str:
        """Return the folder of the prepared dataset; by default below data/.

        That of a dataset from no data root carries its definition's hash: two campaigns may define one
        name differently.
        """
        name = dataset["name"]
        if is_made_here(dataset):
            text = json.dumps(dataset, sort_keys=True)
            return self.data_roots.get(
                name, f"data/{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
            )
        return self.data_roots.get(name, f"data/{name}")

    def source_text(self, dataset: str) -> str:
        """Return what `scalewatt prepare --source` gets: a path or URL, an object as JSON, or nothing."""
        source = self.sources.get(dataset, "")
        return source if isinstance(source, str) else json.dumps(source, sort_keys=True)


class EpochWork(NamedTuple):
    """Samples, updates and evaluations of one epoch."""

    samples_per_gpu: int
    samples: int
    """Over all GPUs."""
    updates: int


PASS_KEYS = {"gpus_per_replica": "gpr", "gradient_accumulation_steps": "ga"}
"""Settings of how a batch is spread over GPUs and passes, 1 by default, with their short form in ids."""


def check_replicas(gpus: int, per_replica: int, where: str) -> None:
    """Raise InputError if copies of the model, of `per_replica` GPUs each, do not fit the GPUs."""
    if gpus % per_replica:
        raise InputError(
            f"{where}: gpus_per_replica: {per_replica} of {gpus} GPUs; allowed: a divisor of {gpus}"
        )


def check_accumulation(local_batch_size: int, steps: int, where: str) -> None:
    """Raise InputError if a local batch is not made of `steps` passes of equal size."""
    if local_batch_size % steps:
        raise InputError(
            f"{where}: gradient_accumulation_steps: {steps} of a local batch of {local_batch_size}; "
            f"allowed: a divisor of {local_batch_size}"
        )


def epoch_work(dataset_samples: int, replicas: int, local_batch_size: int) -> EpochWork:
    """Return the work of an epoch: all replicas have equal shares, the last, partial batch counts.

    A replica is one GPU, unless the model is split over several.
    """
    share = dataset_samples // replicas
    return EpochWork(share, replicas * share, -(-share // local_batch_size))


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
    operating_point: dict[str, Any] | None = None
    """Clocks in MHz and power limit in W that it asks for (`operating_points`); None if for none."""

    @property
    def epoch_work(self) -> EpochWork | None:
        """Return what an epoch consists of; None if the samples are not known."""
        if self.dataset_samples is None:
            return None
        return epoch_work(self.dataset_samples, self.replicas, self.local_batch_size)

    @property
    def gpus_per_replica(self) -> int:
        """Return how many GPUs share one copy of the model; 1 where each GPU has a copy of its own."""
        return int(self.settings.get("gpus_per_replica") or 1)

    @property
    def replicas(self) -> int:
        """Return the copies of the model that train on different samples."""
        return self.gpus // self.gpus_per_replica

    @property
    def gradient_accumulation_steps(self) -> int:
        """Return the passes whose gradients a copy of the model adds up for one update."""
        return int(self.settings.get("gradient_accumulation_steps") or 1)

    @property
    def samples_per_gpu(self) -> int | None:
        """Return the samples that a GPU trains on in an epoch."""
        return self.epoch_work and self.epoch_work.samples_per_gpu

    @property
    def samples_per_epoch(self) -> int | None:
        """Return the samples trained on in an epoch, over all GPUs."""
        return self.epoch_work and self.epoch_work.samples

    @property
    def updates_per_epoch(self) -> int | None:
        """Return the gradient updates in an epoch."""
        return self.epoch_work and self.epoch_work.updates

    @property
    def updates(self) -> int | None:
        """Return the gradient updates of the whole training."""
        return self.epoch_work and self.epochs * self.epoch_work.updates


@dataclass(frozen=True, kw_only=True)
class Configuration(TrainingDefinition):
    """One point of a series, fully determined."""

    id: str
    initial_weights: str | None = None
    """Id of the configuration whose weights it starts from."""
    seeds: str | None = SAME
    """`same`: all its repeats have `seed`; `varied`: repeat r has seed + r − 1. None if not known."""

    def seed_of(self, repeat: int) -> int | None:
        """Return the seed of a repeat; None if it is not known."""
        if self.seed is None or self.seeds != VARIED:
            return self.seed
        return self.seed + repeat - 1


@dataclass(frozen=True)
class Series:
    """One line in a figure."""

    name: str
    written: str
    """Its name in the campaign file: one series there is several where it lists clocks or limits."""
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
    def is_scaled(self) -> bool:
        """Return True if its dataset grows with n."""
        return "n" in self.fraction_rule


@dataclass(frozen=True)
class Run:
    """Configuration × repeat: one row of the results. Repeats count from 1."""

    configuration: Configuration
    repeat: int


@dataclass(frozen=True)
class IdleProbe:
    """The measurement of a device's idle power."""

    seconds: float
    repeats: int
    sampling_period_s: float

    @property
    def job_minutes(self) -> int:
        """Return the wall time in min that a job needs for one probe, its start and end included."""
        return 15 + math.ceil(self.seconds / 60)


@dataclass(frozen=True)
class Imported:
    """The origin of an imported campaign (`scalewatt import`)."""

    name: str
    """Of the campaign and its results here."""
    cluster: str
    devices: dict[str, Device]
    pue: dict[str, Any] | None = None
    carbon_intensity: dict[str, Any] | None = None
    price: dict[str, Any] | None = None
    original: str | None = None
    """What it was called where it ran; None if it has that name here."""


PAPERS_MODELS = ("resnet50", "fourcastnet")
"""The names of the paper's models in campaigns."""


@dataclass(frozen=True)
class Campaign:
    """Everything one configuration file asks for."""

    name: str
    path: Path
    protocol: str
    series: dict[str, Series]
    configurations: dict[str, Configuration]
    repeats: dict[str, int]
    """Number of repeats of each configuration."""
    figures: dict[str, dict[str, Any]]
    idle_probe: IdleProbe | None = None
    """None if the campaign does not ask for it."""
    energy_budget_kwh: float | None = None
    """None if there is no limit."""
    registered: bool = False
    """True if its runs were made elsewhere: nothing of it is ever trained."""
    imported: Imported | None = None
    """Where it ran, if it came with an archive: nothing of it is ever trained here."""
    only: Mapping[str, tuple[int, ...]] | None = None
    """The repeats that it is limited to, by configuration; None: all."""
    left_out: tuple[str, ...] = ()
    """What of the campaign file is left out of it, in sentences."""
    part_of: Campaign | None = None
    """The whole campaign; None if it is whole."""

    @property
    def whole(self) -> Campaign:
        """Return the campaign with all that its file asks for."""
        return self.part_of or self

    def repeats_of(self, configuration: str) -> Sequence[int]:
        """Return the numbers of a configuration's repeats, ascending."""
        if self.only is not None:
            return self.only[configuration]
        return range(1, self.repeats[configuration] + 1)

    def has_run(self, configuration: str, repeat: int) -> bool:
        """Return True if it has this run."""
        return configuration in self.configurations and repeat in self.repeats_of(configuration)

    @property
    def recorded_name(self) -> str:
        """Return what its tables and claims call it: their bytes do not change with an import's name."""
        return (self.imported and self.imported.original) or self.name

    def runs(self) -> Iterator[Run]:
        """Yield every run, ordered by configuration and repeat."""
        for id_, configuration in self.configurations.items():
            for repeat in self.repeats_of(id_):
                yield Run(configuration, repeat)

    def series_of(self, configuration: str) -> list[str]:
        """Return names of the series that share a configuration."""
        return [s.name for s in self.series.values() if configuration in s.points.values()]

    @property
    def has_papers_models(self) -> bool:
        """Return True if it trains a model of the paper, which the paper's claims are about."""
        return any(series.model in PAPERS_MODELS for series in self.series.values())

    def devices(self) -> set[str]:
        """Return names of the devices it runs on."""
        return {s.device for s in self.series.values()}

    def datasets(self) -> dict[str, dict[str, Any]]:
        """Return the prepared datasets that its configurations use, by name."""
        return {
            c.dataset["name"]: c.dataset
            for c in self.configurations.values()
            if c.dataset["format"] != "command"
        }

    def commands(self) -> set[str]:
        """Return names of the models that are commands of the user's."""
        return {c.model for c in self.configurations.values() if c.dataset["format"] == "command"}

    def figure_configurations(self, figure: str) -> list[str]:
        """Return ids of the configurations that a figure (or table1) shows, each once."""
        content = self.figures[figure]
        if "points" in content:
            ids = [self.series[p["series"]].points[p["gpus"]] for p in content["points"]]
        else:
            ids = [id_ for name in content["series"] for id_ in self.series[name].points.values()]
        return list(dict.fromkeys(ids))
