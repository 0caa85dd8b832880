"""Sizes, device and time of one comparison, and what it has found so far."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from gpu_speed.measuring import Clock, Comparison, Contestant, EnergyMeter


@dataclass(frozen=True)
class Sizes:
    """What is trained, and for how long."""

    image_size: int
    image_batch: int
    grid: tuple[int, int]
    field_batch: int
    fourcastnet: dict[str, Any]
    window_s: float
    rounds: int
    epoch_s: float
    """About the shortest time of an epoch by the corrected protocol."""
    profiled_steps: int


REAL = Sizes(
    image_size=224,
    image_batch=256,
    grid=(720, 1440),
    field_batch=1,
    fourcastnet={},
    window_s=2.5,
    rounds=7,
    epoch_s=3.0,
    profiled_steps=2,
)
TINY = Sizes(
    image_size=32,
    image_batch=2,
    grid=(16, 32),
    field_batch=1,
    fourcastnet={"patch_size": 4, "embed_dim": 32, "depth": 2, "num_blocks": 4},
    window_s=0.05,
    rounds=2,
    epoch_s=0.2,
    profiled_steps=1,
)


@dataclass
class Bench:
    """One run of the comparison."""

    device: torch.device
    sizes: Sizes
    clock: Clock
    meter: EnergyMeter
    folder: Path
    """For results."""
    scratch: Path
    """For the files that trainings write."""
    write: Callable[[str], None]
    """Writes what there is so far; the text says up to where that is."""
    say: Callable[[str], None] = print
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def rehearses(self) -> bool:
        """Return True on a CPU."""
        return self.device.type != "cuda"

    def free(self) -> None:
        """Give back memory that nothing holds any more."""
        gc.collect()
        if not self.rehearses:
            torch.cuda.empty_cache()


def section(
    batch: int,
    contestants: Sequence[Contestant],
    comparisons: Sequence[Comparison],
    **more: Any,
) -> dict[str, Any]:
    """Return what was measured of some trainings as JSON."""
    return {
        "batch": batch,
        "trainings": {one.name: one.as_json() for one in contestants},
        "comparisons": [one.as_json() for one in comparisons],
        **more,
    }
