"""A network as it is trained: on its device, data-parallel, compiled if asked for; its arithmetic."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
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
    def of(
        cls,
        network: nn.Module,
        settings: dict[str, Any],
        device: torch.device,
        broadcast_buffers: bool = True,
    ) -> Network:
        """Return `network` set up as the run's settings ask; InputError if it cannot be compiled.

        Rank 0's buffers are the model's. No training step of ours reads them, so that sending them to all
        ranks at every step, which is DDP's habit, changes no result.
        """
        layout = torch.channels_last if settings.get("channels_last") else torch.contiguous_format
        weights = network.to(device)
        if layout == torch.channels_last:
            weights = network.to(memory_format=layout)  # type: ignore[call-overload]
        ids = [device.index] if device.type == "cuda" else None
        parallel = DistributedDataParallel(
            weights,
            device_ids=ids,
            broadcast_buffers=broadcast_buffers,
            gradient_as_bucket_view=True,  # else every gradient is copied twice a step
        )
        if not settings["compile"]:
            return cls(weights, parallel, weights, device, layout)
        _require_compiler(device)
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


def _require_compiler(device: torch.device) -> None:
    """Raise InputError if what torch.compile needs is missing."""
    wanted = (os.environ["CXX"],) if "CXX" in os.environ else _COMPILERS
    if not any(shutil.which(name) for name in wanted):
        raise InputError(f"compile: needs a C++ compiler; expected in PATH: {' or '.join(wanted)}")
    if device.type != "cuda":
        return
    # Triton compiles a stub in C against this Python.
    c = (os.environ["CC"],) if "CC" in os.environ else ("gcc", "clang")
    if not any(shutil.which(name) for name in c):
        raise InputError(
            f"compile: needs a C compiler for a GPU; expected in PATH: {' or '.join(c)}"
        )
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise InputError(
            f"compile: needs {header} for a GPU; expected: the package with Python's headers"
        )


# --- arithmetic -----------------------------------------------------------------------------------

_TF32 = {"fp32": (False, False), "tf32": (True, True)}
_TORCH_DEFAULT_TF32 = (True, False)


@dataclass(frozen=True)
class Precision:
    """A precision setting on one device."""

    used: str
    """What is computed in: fp32, tf32, tf32_convolutions (products in fp32), fp16 or bf16."""
    autocast: torch.dtype | None
    cudnn_tf32: bool
    matmul_tf32: bool

    @classmethod
    def of(cls, setting: str, device: torch.device) -> Precision:
        """Return the meaning of `setting`; a CPU has no TF32 and computes fp16 as fp32.

        InputError if the GPU cannot compute in it.
        """
        convolutions, products = _TF32.get(setting, _TORCH_DEFAULT_TF32)
        autocast = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(setting)
        if device.type != "cuda":
            autocast = None if setting == "fp16" else autocast
            return cls("bf16" if autocast else "fp32", autocast, convolutions, products)
        has_tf32 = torch.cuda.get_device_capability(device) >= (8, 0)
        if setting in ("tf32", "bf16") and not has_tf32:
            name = torch.cuda.get_device_name(device)
            raise InputError(f"precision {setting}: {name} has none; allowed: fp32, fp16")
        if autocast:
            used = setting
        elif not has_tf32 or not convolutions:
            used = "fp32"
        else:
            used = "tf32" if products else "tf32_convolutions"
        return cls(used, autocast, convolutions, products)

    def set_flags(self) -> None:
        """Set torch's flags for TF32.

        Not by `fp32_precision`, which torch has from 2.9 on: what compiles networks still reads these,
        and refuses a mixture.
        """
        torch.backends.cudnn.allow_tf32 = self.cudnn_tf32
        torch.backends.cuda.matmul.allow_tf32 = self.matmul_tf32

    def computing(self, device: torch.device) -> AbstractContextManager[Any]:
        """Return the context of a forward pass in training; evaluation is done without."""
        return torch.autocast(device.type, self.autocast, enabled=self.autocast is not None)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Return the gradient scaler, which is active in fp16 only."""
        return torch.amp.GradScaler(device.type, enabled=self.autocast == torch.float16)
