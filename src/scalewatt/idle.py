"""The command of an idle probe: each rank opens its GPU, and computes nothing.

Rank 0 marks the beginning of the window as the stage `train`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from scalewatt.events import stage

SETTLE_S = 5.0
"""Left out before the window: clocks and fans settle after the GPUs were opened."""


def main(torch_device: str, seconds: float) -> None:
    """Open this rank's GPU, wait until all have opened theirs, and sleep for the window."""
    context = _open_gpu() if torch_device == "cuda" else None
    _wait_for_ranks()
    time.sleep(SETTLE_S)
    stage("train")
    time.sleep(seconds)
    del context


def _open_gpu() -> Any:
    """Create a CUDA context with a few bytes in it."""
    import torch

    # A launcher may show each rank its GPU alone.
    index = int(os.environ["LOCAL_RANK"]) if torch.cuda.device_count() > 1 else 0
    context = torch.zeros(16, device=f"cuda:{index}")
    torch.cuda.synchronize(index)
    return context


def _wait_for_ranks() -> None:
    """Wait asleep for the ranks of the node: a barrier of MPI or NCCL keeps a core or GPU busy."""
    folder, segment = Path(os.environ["SCALEWATT_WORK"]), os.environ["SCALEWATT_SEGMENT"]
    (folder / f"{segment}-{os.environ['RANK']}").touch()
    while len(list(folder.glob(f"{segment}-*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
