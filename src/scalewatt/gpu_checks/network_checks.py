"""Checks of how networks are trained: process group, memory layout, compiling, images."""

from __future__ import annotations

import math
from typing import Any

from scalewatt.gpu_checks.check_types import Bench, Check, CheckFailed, Finding
from scalewatt.run_files.work_directory import COMPILED

APART = {"fp32": 1e-3, "bf16": 3e-2}
"""By how much losses of the first updates may differ, relatively: other kernels sum in another order."""
COMPILED_APART = 1e-2
"""By how much those of a compiled network may differ from an eager one's, products in TF32 or fp32."""
DECODED_APART = 2.0
"""Grey levels by which pixels of two decoders may differ on average: what torchvision's own tests allow."""
SECOND = 0.5
"""How much of the first start's compiling the second may take."""


def most_apart(one: list[float], other: list[float]) -> float:
    """Return the largest relative difference of two rows of losses."""
    return max(abs(a - b) / abs(b) for a, b in zip(one, other, strict=True))


def nccl_one_rank(bench: Bench) -> Finding:
    """Look which backend a training of one rank has, and sum with it."""
    found = bench.part("one_rank_group")
    wanted = "gloo" if bench.rehearse else "nccl"
    right = math.isclose(found["sum"], found["expected"])
    measured = f"{found['backend']} on {found['device']}, sum {'right' if right else 'wrong'}"
    note = "on a CPU the backend is gloo" if bench.rehearse else None
    return Finding(measured, found["backend"] == wanted and right, note)


def channels_last(bench: Bench) -> Finding:
    """Compare losses in both memory layouts, and look where parameters and inputs lie."""
    found = bench.part("layouts")
    apart = {name: most_apart(*found[name]["losses"].values()) for name in found}
    said = [f"{name}: losses apart by {by:.1e}" for name, by in apart.items()]
    holds = all(apart[name] <= limit for name, limit in APART.items() if name in found)
    shares = [_in_layout(found[name]) for name in found]
    said.append(f"in the layout {min(shares):.0%} of parameters and inputs")
    note = "bf16 needs a GPU" if bench.rehearse else None
    return Finding("; ".join(said), holds and min(shares) == 1.0, note)


def _in_layout(found: dict[str, Any]) -> float:
    """Return the lesser share in the layout asked for; CheckFailed if the other layout is not another."""
    if found["contiguous"]["inputs"] > 0:
        raise CheckFailed(
            "inputs of the contiguous network lie in channels_last: nothing is compared"
        )
    return min(found["channels_last"]["inputs"], found["channels_last"]["parameters"])


def compiling(bench: Bench) -> Finding:
    """Compile a network in two starts that share a run's cache, and compare losses with the eager one's."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(bench.folder / COMPILED)}
    first = bench.part("compiling", cache, start=1)
    files = sum(1 for path in (bench.folder / COMPILED).rglob("*") if path.is_file())
    second = bench.part("compiling", cache, start=2)
    apart = most_apart(first["compiled_losses"], first["eager_losses"])
    again = most_apart(second["compiled_losses"], first["compiled_losses"])
    first_s, second_s = first["compiled_s"], second["compiled_s"]
    measured = (
        f"losses apart by {apart:.1e}; compiled in {first_s:.1f} s ({files} files), "
        f"at the second start in {second_s:.1f} s, losses then apart by {again:.1e}"
    )
    within = max(apart, again) <= COMPILED_APART
    return Finding(measured, within and files > 0 and second_s < SECOND * first_s)


def nvjpeg(bench: Bench) -> Finding:
    """Decode photos on the device as the loader `nvjpeg` does, and compare them with a CPU's."""
    found = bench.part("decoding")
    said = [
        f"{name} apart by {found[name][0]:.3f} grey levels on average, {found[name][1]:.0f} at most"
        for name in ("pixels", "views")
    ]
    where = f"{found['photos']} photos decoded on {found['device']}"
    there = found["device"].startswith(bench.torch_device)
    near = max(found["pixels"][0], found["views"][0]) <= DECODED_APART
    note = "on a CPU libjpeg-turbo decodes both" if bench.rehearse else None
    return Finding("; ".join([where, *said]), there and near, note)


CHECKS = (
    Check(
        "nccl_one_rank",
        "The process group of one rank on a GPU is NCCL's, and its sums are right.",
        "backend nccl, the exact sum",
        nccl_one_rank,
        limit_s=60,
    ),
    Check(
        "channels_last",
        "ResNet50 in channels_last has the losses of the contiguous one, and is in that layout.",
        "; ".join(f"{name} within {limit:g}" for name, limit in APART.items())
        + "; all parameters and inputs",
        channels_last,
    ),
    Check(
        "compile",
        "A compiled network has an eager one's losses, and a second start takes its graphs from the "
        "run's cache.",
        f"losses within {COMPILED_APART:g}; less than {SECOND:.0%} of the first start's seconds",
        compiling,
        limit_s=240,
        not_rehearsed="takes minutes on a CPU; --only compile rehearses it",
    ),
    Check(
        "nvjpeg",
        "Photos that the GPU decodes, crops and resizes are those that a CPU does.",
        f"decoded on the GPU; within {DECODED_APART:g} grey levels on average",
        nvjpeg,
    ),
)
