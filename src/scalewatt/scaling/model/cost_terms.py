"""The load of a training, and the terms of the scaling model: a few physical costs, none negative.

Run time of a training, in s::

    T = startup + epochs · (epoch + first_batch · LBS + straggler · log2 n)
        + updates · (max(update + sample · LBS, input · LBS) + synchronisation · log2 n)

`epoch` is what an epoch costs whatever its size (validation, checkpoint, barriers). `first_batch`: at
the start of an epoch one loader worker makes the first batch alone, so the ranks wait in proportion
to LBS. `input` beats `update + sample · LBS` from the LBS called `knee` on, where loading is slower
than computing. In the columns here the maximum is `sample · LBS + input_excess · max(LBS, knee)`,
which for a given knee is linear and the same. Where gradients are accumulated, LBS stands here for the
samples of one pass, and `update` is paid for each pass.

Energy, in J::

    E = node · node hours + gpu · GPU hours + sample · samples + pass · passes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalewatt.campaign.campaign_types import epoch_work
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError

Array = npt.NDArray[np.float64]

TIME_UNITS = {
    "startup": "s",
    "epoch": "s per epoch",
    "first_batch": "s per epoch and sample of the local batch",
    "straggler": "s per epoch and doubling of n",
    "sample": "s per sample of a GPU",
    "update": "s per update",
    "input_excess": "s per sample of a GPU, beyond `sample`",
    "synchronisation": "s per update and doubling of n",
}
ENERGY_UNITS = {
    "node": "J per node hour",
    "gpu": "J per GPU hour",
    "sample": "J per sample",
    "pass": "J per pass",
}


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
        """Return the copies of the model that train on different samples."""
        return self.gpus // self.gpus_per_replica

    @property
    def passes(self) -> int:
        """Return the number of passes: one forward and backward of one replica each."""
        return self.updates * self.gradient_accumulation_steps * self.replicas

    @property
    def pass_size(self) -> float:
        """Return the samples of one pass: the local batch, or its part where gradients are added up."""
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
    """Return the load of a training: each replica has the same share, the last batch is partial."""
    samples, updates = epoch_work(dataset_samples, gpus // gpus_per_replica, local_batch_size)
    return Load(
        gpus_per_replica=gpus_per_replica,
        gradient_accumulation_steps=gradient_accumulation_steps,
        gpus=gpus,
        nodes=nodes,
        local_batch_size=local_batch_size,
        epochs=epochs,
        samples=samples * epochs,
        updates=updates * epochs,
    )


def load_of_spec(spec: RunSpec) -> Load:
    """Return the load of a run's spec; InputError if its samples are not known (a command's)."""
    if spec.dataset_samples is None:
        raise InputError(
            f"{spec.configuration}: its samples are not known; the scaling model needs a model whose "
            "samples the campaign states (`samples` of a command)"
        )
    return load_of(
        *(spec.gpus, spec.nodes, spec.local_batch_size, spec.dataset_samples, spec.epochs),
        spec.gpus_per_replica,
        spec.gradient_accumulation_steps,
    )


@dataclass(frozen=True)
class TimeTerms:
    """The terms of a run time, and where its knee is."""

    names: tuple[str, ...]
    knee: float | None = None
    """The LBS above which input is slower than computing; None if there is none."""

    def columns(self, loads: Sequence[Load]) -> Array:
        """Return one row per load, one column per term, all ≥ 0."""
        return np.array([[self._column(name, load) for name in self.names] for load in loads])

    def _column(self, name: str, load: Load) -> float:
        doublings = math.log2(load.gpus)
        size = load.pass_size
        columns = {
            "startup": 1.0,
            "epoch": load.epochs,
            "first_batch": load.epochs * size,
            "straggler": load.epochs * doublings,
            "sample": load.samples / load.gpus,
            "update": load.updates * load.gradient_accumulation_steps,
            "input_excess": load.samples / load.gpus / size * max(size, self.knee or 0.0),
            "synchronisation": load.updates * doublings,
        }
        return columns[name]


@dataclass(frozen=True)
class EnergyTerms:
    """The terms of an energy."""

    names: tuple[str, ...] = tuple(ENERGY_UNITS)

    def columns(self, loads: Sequence[Load], runtimes_s: Array) -> Array:
        """Return columns (..., loads, terms) for run times (..., loads): each draw of a time has its own."""
        hours = np.asarray(runtimes_s, dtype=float) / 3600
        ones = np.ones_like(hours)
        columns = {
            "node": hours * [load.nodes for load in loads],
            "gpu": hours * [load.gpus for load in loads],
            "sample": ones * [load.samples for load in loads],
            "pass": ones * [load.passes for load in loads],
        }
        return np.stack([columns[name] for name in self.names], axis=-1)
