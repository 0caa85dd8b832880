"""What a training has to do, and on what: all that the scaling model knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scalewatt.campaign.model import Configuration
from scalewatt.errors import InputError


@dataclass(frozen=True)
class Load:
    """One training: its machines and its work. Counts are of the whole training, over all GPUs."""

    gpus: int
    nodes: int
    local_batch_size: int
    epochs: int
    samples: int
    updates: int

    @property
    def passes(self) -> int:
        """One forward and backward on one GPU each."""
        return self.updates * self.gpus

    def after(self, epochs: int) -> Load:
        """The same training, ended after fewer or more epochs."""
        return replace(
            self,
            epochs=epochs,
            samples=self.samples // self.epochs * epochs,
            updates=self.updates // self.epochs * epochs,
        )


def load_of(configuration: Configuration) -> Load:
    """The load of a configuration; InputError where its samples are not known (a command's)."""
    samples, updates = configuration.samples_per_epoch, configuration.updates
    if samples is None or updates is None:
        raise InputError(_unknown_samples(configuration.id))
    return Load(
        gpus=configuration.gpus,
        nodes=configuration.nodes,
        local_batch_size=configuration.local_batch_size,
        epochs=configuration.epochs,
        samples=samples * configuration.epochs,
        updates=updates,
    )


def load_of_spec(spec: Mapping[str, Any]) -> Load:
    """The load of a run's spec; InputError as of `load_of`."""
    if spec["samples_per_epoch"] is None or spec["updates"] is None:
        raise InputError(_unknown_samples(spec["configuration"]))
    return Load(
        **{name: spec[name] for name in ("gpus", "nodes", "local_batch_size", "epochs", "updates")},
        samples=spec["samples_per_epoch"] * spec["epochs"],
    )


def _unknown_samples(configuration: str) -> str:
    return (
        f"{configuration}: its samples are not known; the scaling model needs a model whose "
        "samples the campaign says (`samples` of a command)"
    )
