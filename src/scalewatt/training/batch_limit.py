"""Local batches that do not fit into a GPU's memory: the largest that does is found by trying."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    from scalewatt.training.trainer import Trainer

T = TypeVar("T")
_FINE = 64
"""From here on sizes are tried in steps of 8, as GPUs compute best in."""
_GIB = 2**30
_MUCH_GIB = 1.0
"""Of other processes: what is worth a word."""


_FULL = (
    *("out of memory", "ALLOC_FAILED", "unable to find an engine", "CUBLAS_STATUS_NOT_INITIALIZED"),
    "CUFFT_INTERNAL_ERROR",
)
"""How CUDA's libraries say, instead of torch's own error, that memory for their work is missing."""


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return True if an error is that a GPU's memory did not suffice."""
    full = isinstance(error, torch.OutOfMemoryError)
    return full or any(words in str(error) for words in _FULL)


def within_memory(trainer: Trainer, work: Callable[[], T]) -> T:
    """Return `work()`; where a GPU's memory does not suffice, InputError names the largest LBS that fits."""
    try:
        return work()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    # Only here: until its handler ends, the error keeps all tensors of the failed step alive.
    raise InputError(_does_not_fit(trainer))


def _does_not_fit(trainer: Trainer) -> str:
    spec, device = trainer.spec, trainer.device
    largest = largest_that_fits(trials(trainer), spec.local_batch_size)
    free, total = torch.cuda.mem_get_info(device)
    others_gib = (total - free - torch.cuda.memory_reserved(device)) / _GIB
    others = (
        f", of which other processes and CUDA itself hold {others_gib:.1f} GiB"
        if others_gib > _MUCH_GIB
        else ""
    )
    found = (
        "not even a local batch of 1 fits"
        if largest is None
        else f"largest local batch size that fits: {largest}"
    )
    return (
        f"{spec.configuration}: a local batch of {spec.local_batch_size} does not fit into the"
        f" {total / _GIB:.1f} GiB of {torch.cuda.get_device_name(device)}{others}; {found}"
    )


def largest_that_fits(fits: Callable[[int], bool], too_large: int) -> int | None:
    """Return the largest size below `too_large` that fits; None if not even 1 does.

    Sizes above 64 are tried in multiples of 8.
    """
    sizes = [n for n in range(1, too_large) if n < _FINE or n % 8 == 0]
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        if fits(sizes[middle]):
            low = middle + 1
        else:
            high = middle
    return sizes[low - 1] if low else None


def trials(trainer: Trainer) -> Callable[[int], bool]:
    """Return what says whether an update with a local batch of a size fits into memory.

    It is tried with a copy of the network: what is data-parallel would wait for the other ranks.
    """
    _free_memory(trainer)
    network = copy.deepcopy(trainer.network.weights)
    optimizer = trainer.workload.optimizer(network)

    def fits(size: int) -> bool:
        chosen = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = False  # choosing kernels takes seconds for each size
        try:
            trainer.trial_pass(network, size)
            optimizer.step()  # its state takes memory too
            return True
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            torch.backends.cudnn.benchmark = chosen
            optimizer.zero_grad(set_to_none=True)
            _free_memory(trainer)

    return fits


def _free_memory(trainer: Trainer) -> None:
    trainer.optimizer.zero_grad(set_to_none=True)
    trainer.workload.release()  # batches of sizes that were tried before
    gc.collect()
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()
