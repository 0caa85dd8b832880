"""Arithmetic and memory of a training's device: TF32, autocast, peak memory."""

from __future__ import annotations

import resource

import torch

from scalewatt.common.errors import InputError

AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}


def set_precision(setting: str, device: torch.device) -> tuple[str, torch.dtype | None]:
    """Set torch's flags for TF32; the precision that is used, and the type of autocast.

    Used is fp32, tf32, tf32_convolutions (products in fp32), fp16 or bf16. A CPU has no TF32 and computes
    fp16 as fp32. InputError if the GPU cannot compute in `setting`.
    """
    # Torch's default is TF32 in convolutions alone.
    convolutions, products = setting != "fp32", setting == "tf32"
    # Not by `fp32_precision`, which torch has from 2.9 on: what compiles networks still reads these, and
    # refuses a mixture.
    torch.backends.cudnn.allow_tf32 = convolutions
    torch.backends.cuda.matmul.allow_tf32 = products
    if device.type != "cuda":
        return ("bf16", AUTOCAST["bf16"]) if setting == "bf16" else ("fp32", None)
    has_tf32 = torch.cuda.get_device_capability(device) >= (8, 0)
    if setting in ("tf32", "bf16") and not has_tf32:
        name = torch.cuda.get_device_name(device)
        raise InputError(f"precision {setting}: {name} has none; allowed: fp32, fp16")
    if setting in AUTOCAST:
        return setting, AUTOCAST[setting]
    if not (has_tf32 and convolutions):
        return "fp32", None
    return "tf32" if products else "tf32_convolutions", None


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
