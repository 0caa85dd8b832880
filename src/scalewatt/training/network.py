"""A network as it is trained: on its device, data-parallel, compiled if asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from scalewatt.common.errors import InputError
from scalewatt.workloads.interface import Batch

_COMPILERS = ("g++", "clang++", "c++")


@dataclass(frozen=True)
class Network:
    """One network in three roles, with the same weights."""

    weights: nn.Module
    """The bare network, whose state is saved."""
    trained: nn.Module
    """What computes gradients, averaged over the ranks."""
    evaluated: nn.Module
    """What evaluates, each rank for itself."""
    device: torch.device
    layout: torch.memory_format

    @classmethod
    def of(cls, network: nn.Module, settings: dict[str, Any], device: torch.device) -> Network:
        """Return `network` set up as the run's settings ask; InputError if it cannot be compiled."""
        layout = torch.channels_last if settings.get("channels_last") else torch.contiguous_format
        weights = network.to(device)
        if layout == torch.channels_last:
            weights = network.to(memory_format=layout)  # type: ignore[call-overload]
        ids = [device.index] if device.type == "cuda" else None
        parallel = DistributedDataParallel(weights, device_ids=ids)
        if not settings["compile"]:
            return cls(weights, parallel, weights, device, layout)
        _require_compiler()
        # One graph for each shape, whichever batch a segment begins with.
        trained, evaluated = (torch.compile(part, dynamic=False) for part in (parallel, weights))
        return cls(weights, trained, evaluated, device, layout)  # type: ignore[arg-type]

    def inputs(self, batch: Iterable[torch.Tensor]) -> Batch:
        """Return the batch on the network's device, images in its layout."""
        return tuple(
            part.to(
                self.device,
                non_blocking=True,
                memory_format=self.layout if part.dim() == 4 else torch.preserve_format,
            )
            for part in batch
        )


def _require_compiler() -> None:
    """Raise InputError if there is no C++ compiler, which torch.compile needs."""
    wanted = (os.environ["CXX"],) if "CXX" in os.environ else _COMPILERS
    if not any(shutil.which(name) for name in wanted):
        raise InputError(f"compile: needs a C++ compiler; expected in PATH: {' or '.join(wanted)}")
