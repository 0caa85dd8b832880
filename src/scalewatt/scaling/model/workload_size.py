"""The load of a training: its work and its machines, all that the scaling model uses."""

from __future__ import annotations

from dataclasses import dataclass

from scalewatt.campaign.campaign_types import epoch_work
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError


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
        """Return the number of passes: one forward and backward on one GPU each."""
        return self.updates * self.gpus


def load_of(
    gpus: int, nodes: int, local_batch_size: int, dataset_samples: int, epochs: int
) -> Load:
    """Return the load of a training: each GPU has the same share, the last batch is partial."""
    work = epoch_work(dataset_samples, gpus, local_batch_size)
    return Load(
        gpus=gpus,
        nodes=nodes,
        local_batch_size=local_batch_size,
        epochs=epochs,
        samples=work.samples * epochs,
        updates=work.updates * epochs,
    )


def load_of_spec(spec: RunSpec) -> Load:
    """Return the load of a run's spec; InputError where its samples are not known (a command's)."""
    if spec.dataset_samples is None:
        raise InputError(_unknown_samples(spec.configuration))
    return load_of(spec.gpus, spec.nodes, spec.local_batch_size, spec.dataset_samples, spec.epochs)


def _unknown_samples(configuration: str) -> str:
    return (
        f"{configuration}: its samples are not known; the scaling model needs a model whose "
        "samples the campaign states (`samples` of a command)"
    )
