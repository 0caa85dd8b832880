"""A local batch that does not fit into a GPU's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    from scalewatt.training.trainer import Trainer

T = TypeVar("T")
_GIB = 2**30
_FULL = (
    *("out of memory", "ALLOC_FAILED", "unable to find an engine", "CUBLAS_STATUS_NOT_INITIALIZED"),
    "CUFFT_INTERNAL_ERROR",
)
"""How CUDA's libraries say, instead of torch's own error, that memory for their work is missing."""


def within_memory(trainer: Trainer, work: Callable[[], T]) -> T:
    """Return `work()`; InputError where a GPU's memory does not suffice for it."""
    try:
        return work()
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and not any(
            words in str(error) for words in _FULL
        ):
            raise
        spec, device = trainer.spec, trainer.device
        allocated_gib = torch.cuda.max_memory_allocated(device) / _GIB
        raise InputError(
            f"{spec.configuration}: a local batch of {spec.local_batch_size} does not fit into the memory"
            f" of {torch.cuda.get_device_name(device)}, of which it allocated {allocated_gib:.1f} GiB;"
            " lower local_batch_size"
        ) from error
