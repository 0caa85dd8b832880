"""Kinds of training, their loads, and the terms of their time and energy.

Run time of a training, in s::

    T = startup + epochs · (epoch + first_batch · LBS + straggler · log2 n)
        + updates · (update + sample · LBS + synchronisation · log2 n)

`epoch` is what an epoch costs whatever its size (validation, checkpoint, barriers). `first_batch`: at
the start of an epoch one loader worker makes the first batch alone, so the ranks wait in proportion
to LBS. Where gradients are accumulated, LBS stands here for the samples of one pass, and `update` is
paid for each pass.

Energy, in J::

    E = node · node hours + gpu · GPU hours + sample · samples + pass · passes
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import PlainSerializer, PlainValidator

from scalewatt.campaign.campaign_types import PASS_KEYS, epoch_work
from scalewatt.campaign.model_registry import MODELS, defaults_of, model_key
from scalewatt.campaign.operating_points import LEVERS
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError

Array = npt.NDArray[np.float64]

LEARNING = frozenset(
    {
        *("base_learning_rate", "learning_rate", "warmup_epochs", "warmup_start", "momentum"),
        *("weight_decay", "plateau_factor", "plateau_patience", "horizontal_flip", "crop_scale"),
        *("sparsity_threshold", "initial_conditions", "initial_condition_spacing"),
    }
)
"""Settings that change what is learnt, but hardly time and energy."""
_DATA_FACTS = ("format", "source", "grid")
"""What of a dataset matters to a kind; its size belongs to the load."""


# --- kinds ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What trainings have in common that share one set of costs: one model in one setting on one device."""

    key: str
    """The model, with its phase where it has several: fourcastnet.pretrain."""
    device: str
    protocol: str
    settings: str
    """All other relevant settings, as canonical JSON."""

    @property
    def name(self) -> str:
        """Name for people, unique among kinds that differ only in what it states."""
        changed = [f"{name}={value}" for name, value in self.changed().items()]
        protocol = [] if self.protocol == "paper" else [self.protocol]
        return ", ".join([f"{self.key} on {self.device}", *protocol, *changed])

    def changed(self) -> dict[str, Any]:
        """Settings that are not the model's defaults."""
        usual = defaults_of(self.key) | dict.fromkeys(LEVERS)
        settings = json.loads(self.settings)
        return {name: value for name, value in settings.items() if usual.get(name, value) != value}


def kind_of_spec(spec: RunSpec) -> Kind:
    """Kind of a run's spec."""
    settings = {**spec.settings, **(spec.operating_point or {})}
    key = model_key(spec.model, spec.phase)
    return _kind(key, spec.device, spec.protocol, settings, spec.dataset)


def kind_of_published(row: Mapping[str, Any]) -> Kind:
    """Kind of a published row: settings that it lacks are the model's defaults, its data the official."""
    key = model_key(row["model"], row["phase"])
    usual = defaults_of(key)
    settings = {name: row[name] for name in (*usual, *LEVERS) if row.get(name) is not None}
    dataset: dict[str, Any] = {"source": "data_root", "format": MODELS[key].data_format}
    if row["model"] == "fourcastnet":
        dataset["grid"] = [720, 1440]
    return _kind(key, row["device"], row["protocol"], {**usual, **settings}, dataset)


def _kind(
    key: str, device: str, protocol: str, settings: Mapping[str, Any], dataset: Mapping[str, Any]
) -> Kind:
    of_the_load = {"epochs", *PASS_KEYS}
    kept = {name: settings[name] for name in settings if name not in LEARNING | of_the_load}
    kept |= {f"data_{name}": dataset[name] for name in _DATA_FACTS if name in dataset}
    # 4 and 4.0 are one value
    text = json.dumps(json.loads(json.dumps(kept), parse_int=float), sort_keys=True)
    return Kind(key, device, protocol, text)


# --- loads ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """One training: its machines and its work. Counts are of the whole training, over all GPUs."""

    gpus: int
    nodes: int
    local_batch_size: int
    epochs: int
    samples: int
    updates: int
    gpus_per_replica: int = 1
    """How many GPUs share one copy of the model."""
    gradient_accumulation_steps: int = 1
    """Passes whose gradients a copy of the model adds up for one update."""

    @property
    def replicas(self) -> int:
        """Copies of the model that train on different samples."""
        return self.gpus // self.gpus_per_replica

    @property
    def passes(self) -> int:
        """Number of passes: one forward and backward of one replica each."""
        return self.updates * self.gradient_accumulation_steps * self.replicas

    @property
    def pass_size(self) -> float:
        """Samples of one pass: the local batch, or its part where gradients are added up."""
        return self.local_batch_size / self.gradient_accumulation_steps


def load_of(
    gpus: int,
    nodes: int,
    local_batch_size: int,
    dataset_samples: int,
    epochs: int,
    gpus_per_replica: int = 1,
    gradient_accumulation_steps: int = 1,
) -> Load:
    """Load of a training: each replica has the same share, the last batch is partial."""
    samples, updates = epoch_work(dataset_samples, gpus // gpus_per_replica, local_batch_size)
    return Load(
        *(gpus, nodes, local_batch_size, epochs, samples * epochs, updates * epochs),
        *(gpus_per_replica, gradient_accumulation_steps),
    )


def load_of_spec(spec: RunSpec) -> Load:
    """Load of a run's spec; InputError if its samples are not known (a command's)."""
    if spec.dataset_samples is None:
        raise InputError(
            f"{spec.configuration}: its samples are not known; expected `samples` of the command in the "
            "campaign"
        )
    return load_of(
        *(spec.gpus, spec.nodes, spec.local_batch_size, spec.dataset_samples, spec.epochs),
        *(spec.gpus_per_replica, spec.gradient_accumulation_steps),
    )


# --- terms ----------------------------------------------------------------------------------------


TIME_TERMS: dict[str, Callable[[Load], float]] = {
    "startup": lambda load: 1.0,
    "epoch": lambda load: load.epochs,
    "first_batch": lambda load: load.epochs * load.pass_size,
    "straggler": lambda load: load.epochs * math.log2(load.gpus),
    "sample": lambda load: load.samples / load.gpus,
    "update": lambda load: load.updates * load.gradient_accumulation_steps,
    "synchronisation": lambda load: load.updates * math.log2(load.gpus),
}
"""What the costs of a time's terms are multiplied by, all ≥ 0."""
ENERGY_TERMS = ("node", "gpu", "sample", "pass")


def time_columns(loads: Sequence[Load], names: Sequence[str]) -> Array:
    """One row per load, one column per term."""
    return np.array([[TIME_TERMS[name](load) for name in names] for load in loads], dtype=float)


def energy_columns(loads: Sequence[Load], runtimes_s: Array) -> Array:
    """Columns ENERGY_TERMS (..., loads, terms) for run times (..., loads), each draw its own."""
    facts = [(load.nodes, load.gpus, load.samples, load.passes) for load in loads]
    nodes, gpus, samples, passes = np.array(facts, dtype=float).T
    hours = np.asarray(runtimes_s, dtype=float) / 3600
    columns = np.broadcast_arrays(hours * nodes, hours * gpus, samples, passes)
    return np.stack(columns, axis=-1)


# --- calibrated models ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Means of one configuration over its repeats; null where not known."""

    campaign: str
    configuration: str
    load: Load
    runtime_s: float
    energy_j: float | None
    origin: str | None
    """Of the energy, as its scope."""
    scope: str | None


def _as_lines(draws: Array) -> list[str]:
    """A line for each draw. To five digits: processors round otherwise."""
    return [" ".join(f"{value:.5g}" for value in row) for row in draws.reshape(len(draws), -1)]


Lines = Annotated[Array, PlainValidator(np.loadtxt), PlainSerializer(_as_lines)]
"""An array that is a text with a line for each row in a file."""


@dataclass(frozen=True)
class Draws:
    """Draws of the posterior."""

    terms: Lines
    """(draws, terms): the cost of each term."""
    spread: Lines
    """(draws,): relative standard deviation of a point around the model."""

    def means(self, columns: Array) -> Array:
        """Values (draws, points) of columns (points, terms) or (draws, points, terms)."""
        if columns.ndim == 2:
            return self.terms @ columns.T
        return np.einsum("dt,dpt->dp", self.terms, columns)


@dataclass(frozen=True)
class KindModel:
    """Time and energy of one kind of training."""

    kind: Kind
    points: tuple[Point, ...]
    time_terms: tuple[str, ...]
    time: Draws
    """Of the costs of `time_terms`, in s."""
    energy: Draws | None
    """Of the costs of ENERGY_TERMS in J; None if no energy is known."""
    scores: tuple[dict[str, Any], ...] = ()
    """Of its validation: rows of `calibrate.score`."""
    assumed: str | None = None
    """The assumption where it was not calibrated itself: a sentence that goes with all its predictions."""

    def __post_init__(self) -> None:
        for draws, terms in ((self.time, self.time_terms), (self.energy, ENERGY_TERMS)):
            if draws and draws.terms.shape != (expected := (draws.spread.size, len(terms))):
                raise ValueError(f"draws of {self.kind.name}: {draws.terms.shape}, not {expected}")
        if unknown := set(self.time_terms) - set(TIME_TERMS):
            raise ValueError(f"time_terms of {self.kind.name}: {', '.join(sorted(unknown))}")

    @property
    def energy_facts(self) -> tuple[str | None, str | None]:
        """Origin and scope of the energies that it was calibrated on; null without any."""
        known = [(p.origin, p.scope) for p in self.points if p.energy_j is not None]
        return known[0] if known and self.energy else (None, None)
