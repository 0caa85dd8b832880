"""Arithmetic and memory of a training's device: TF32, autocast, gradient scaling, peak memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError

# --- arithmetic -----------------------------------------------------------------------------------

_TF32 = {"fp32": (False, False), "tf32": (True, True)}
_TORCH_DEFAULT_TF32 = (True, False)
_AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Precision:
    """A precision setting on one device."""

    used: str
    """Type of the computation: fp32, tf32, tf32_convolutions (products in fp32), fp16 or bf16."""
    autocast: torch.dtype | None
    cudnn_tf32: bool
    matmul_tf32: bool

    @classmethod
    def of(cls, setting: str, device: torch.device) -> Precision:
        """Meaning of `setting`; a CPU has no TF32 and computes fp16 as fp32.

        InputError if the GPU cannot compute in it.
        """
        convolutions, products = _TF32.get(setting, _TORCH_DEFAULT_TF32)
        autocast = _AUTOCAST.get(setting)
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
        """Context of a forward pass in training; evaluation is done without."""
        return torch.autocast(device.type, self.autocast, enabled=self.autocast is not None)

    def scaler(self, device: torch.device) -> torch.amp.GradScaler:
        """Gradient scaler, which is active in fp16 only."""
        return torch.amp.GradScaler(device.type, enabled=self.autocast == torch.float16)


# --- memory, and errors of the device ---------------------------------------------------------------


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was given: a GPU computes on while the loop goes on."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory of this rank: of its GPU since the last call, else of the process."""
    if device.type != "cuda":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return int(peak)


@contextmanager
def within_device(spec: RunSpec, device: torch.device) -> Iterator[None]:
    """Raise InputError where a GPU's memory does not suffice, or the network cannot be compiled."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        allocated_gib = torch.cuda.max_memory_allocated(device) / 2**30
        raise InputError(
            f"{spec.configuration}: a local batch of {spec.local_batch_size} does not fit into the memory"
            f" of {torch.cuda.get_device_name(device)}, of which it allocated {allocated_gib:.1f} GiB;"
            " lower local_batch_size"
        ) from error
    except RuntimeError as error:
        compiled = spec.settings.get("compile")
        if not (compiled and isinstance(error, torch._dynamo.exc.TorchDynamoException)):
            raise
        raise InputError(f"compile: {str(error).splitlines()[0]}") from error
