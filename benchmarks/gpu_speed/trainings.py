"""Our training loop, and plain ones, as things to be measured."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from scalewatt.campaign.campaign_types import Device
from scalewatt.campaign.load import expand
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.termination import StopRequest
from scalewatt.provenance.rank_placement import Ranks
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import Job
from scalewatt.training import trainer as trainer_module
from scalewatt.training.history import PHASES
from scalewatt.training.network import Precision
from scalewatt.training.process_group import start_process_group
from scalewatt.training.trainer import Trainer
from scalewatt.workloads import workload_class

STEPS_AT_MOST = 4096
"""Of a window."""
_DEVICE = "local"
_YEAR = {"format": "era5", "source": "none", "samples_per_year": 1460}
_YEARS = {"train_years": [1979, 1988], "validation_years": [1989, 1989], "test_years": [1990, 1990]}


class Alone:
    """MPI's communicator of a world of one: a library of MPI may be missing where this runs."""

    def allgather(self, value: Any) -> list[Any]:
        """Return what all have."""
        return [value]

    def bcast(self, value: Any, root: int) -> Any:
        """Return what the root has."""
        return value


ALONE = Ranks(Alone(), 0, 1, 0, "here", 1)  # type: ignore[arg-type]


@contextlib.contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Be a world of one for as long as this lasts."""
    start_process_group(ALONE, device)
    try:
        yield
    finally:
        dist.destroy_process_group()


def resnet50_spec(
    batch: int, samples: int, protocol: str, settings: dict[str, Any], validation: int = 1
) -> RunSpec:
    """Return the spec of a ResNet50 on random images that stay on the device."""
    images = {
        **{"format": "imagenet", "source": "none", "classes": 1000},
        **{"train_samples": samples, "validation_samples": validation},
    }
    return _spec("resnet50", None, images, batch, protocol, settings)


def fourcastnet_spec(batch: int, grid: tuple[int, int], settings: dict[str, Any]) -> RunSpec:
    """Return the spec of FourCastNet's pre-training on a random sample that stays on the device."""
    fields = {**_YEAR, **_YEARS, "grid": list(grid)}
    return _spec("fourcastnet", "pretrain", fields, batch, "corrected", settings)


def _spec(
    model: str,
    phase: str | None,
    dataset: dict[str, Any],
    batch: int,
    protocol: str,
    settings: dict[str, Any],
) -> RunSpec:
    key = model if phase is None else f"{model}.{phase}"
    own = {**settings, "loader": "synthetic", "loader_workers": 0}
    series = {
        **{"model": model, "device": _DEVICE, "gpus": [1], "local_batch_size": batch},
        **({} if phase is None else {"phase": phase}),
        "settings": own,
    }
    content = {
        "name": "gpu-speed",
        "protocol": protocol,
        "sampling_period_s": 1,
        "datasets": {"data": dataset},
        "models": {key: {"dataset": "data", "epochs": 1000}},
        "series": {"one": series},
        "figures": {"breakdown": {"series": ["one"]}},
    }
    campaign = expand(content, Path("gpu-speed"), {_DEVICE: Device(_DEVICE, 1, 1, {})})
    (configuration,) = campaign.configurations
    return run_spec(campaign, configuration, 1)


def trainer_of(
    spec: RunSpec,
    device: torch.device,
    folder: Path,
    change: Callable[[nn.Module], nn.Module] | None = None,
) -> Trainer:
    """Return the trainer of a run, warmed up, whose network `change` may replace."""
    usual = workload_class(spec.model)

    class Changed(usual):  # type: ignore[misc, valid-type]
        def model(self) -> nn.Module:
            network = super().model()
            return network if change is None else change(network)

    own = folder / f"{spec.model}-{len(list(folder.iterdir()))}"
    own.mkdir()
    job = Job(spec, spec.sha256, str(own), own, 0)
    with mock.patch.object(trainer_module, "workload_class", lambda _: Changed):
        trainer = Trainer(job, ALONE, device, StopRequest(), EventLog(None, 0))
    set_cudnn(spec)
    trainer.warm_up()
    return trainer


def set_cudnn(spec: RunSpec) -> None:
    """Set cuDNN's flags as the workload of the spec does."""
    as_authors = spec.model == "resnet50" and spec.protocol == "paper"
    torch.backends.cudnn.deterministic = as_authors
    torch.backends.cudnn.benchmark = spec.model == "resnet50" and not as_authors


class OurSteps:
    """Epochs of so many steps by the training loop: loader, phases, metrics, stop check, progress."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.batch = trainer, trainer.spec.local_batch_size
        self._phases: dict[str, list[float]] = {name: [] for name in PHASES}
        self.losses: list[float] = []

    def prepare(self) -> None:
        """Set the run's flags."""
        self.trainer.precision.set_flags()
        set_cudnn(self.trainer.spec)

    def settle(self) -> None:
        """Do one step."""
        self.steps(1)

    def steps(self, count: int) -> int:
        """Train an epoch of `count` steps."""
        trainer = self.trainer
        count = min(count, STEPS_AT_MOST, len(trainer.loader.dataset) // self.batch)  # type: ignore[arg-type]
        trainer.batches.samples = count * self.batch
        trainer.phases.restore(None)
        trainer.sums, trainer.step = None, 0
        trainer._train_epoch()
        trainer.epoch += 1
        return count * self.batch

    def facts(self) -> dict[str, Any]:
        """Return the phases of the last window's steps, in s a step."""
        seconds, steps = self.trainer.phases.sums().T
        means = (float(s / n) if n else None for s, n in zip(seconds, steps, strict=True))
        return {
            "precision_used": self.trainer.precision.used,
            "phases_s": dict(zip(PHASES, means, strict=True)),
        }


class OurEpochs:
    """Whole epochs by the training loop, with all that follows the training, but no checkpoint."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.batch = trainer, trainer.spec.local_batch_size

    def prepare(self) -> None:
        """Set the run's flags."""
        self.trainer.precision.set_flags()
        set_cudnn(self.trainer.spec)

    def settle(self) -> None:
        """Do nothing: an epoch is long."""

    def steps(self, count: int) -> int:
        """Train and evaluate `count` epochs."""
        for _ in range(count):
            self.trainer._train_epoch()
            self.trainer.train_s = 1.0  # what the history says is not looked at
            with contextlib.redirect_stdout(io.StringIO()):
                self.trainer._end_epoch()
        return count * self.trainer.spec.dataset_samples

    def facts(self) -> dict[str, Any]:
        """Return the samples of an epoch."""
        spec = self.trainer.spec
        return {
            "training_samples": spec.dataset_samples,
            "validation_samples": spec.validation_samples,
        }


class PlainSteps:
    """A training as one writes it by hand, without metrics, timing or a parallel wrapper.

    `loss` takes the network and the batch. Nothing waits for the device within a window.
    """

    def __init__(
        self,
        network: nn.Module,
        batch: tuple[torch.Tensor, ...],
        loss: Callable[[nn.Module, tuple[torch.Tensor, ...]], torch.Tensor],
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        prepare: Callable[[], None],
    ) -> None:
        self.network, self.loss, self.optimizer = network, loss, optimizer
        self.inputs, self.batch = batch, len(batch[0])
        self.precision, self._prepare = precision, prepare
        self.device = batch[0].device
        self.scaler = precision.scaler(self.device)
        self.last: torch.Tensor | None = None

    def prepare(self) -> None:
        """Set the flags."""
        self.precision.set_flags()
        self._prepare()

    def settle(self) -> None:
        """Do one step."""
        self.steps(1)

    def steps(self, count: int) -> int:
        """Train `count` steps on the same batch."""
        self.network.train()
        for _ in range(count):
            self.optimizer.zero_grad()
            with self.precision.computing(self.device):
                loss = self.loss(self.network, self.inputs)
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.last = loss.detach()
        return count * self.batch

    def facts(self) -> dict[str, Any]:
        """Return the precision."""
        return {"precision_used": self.precision.used}
