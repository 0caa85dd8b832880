"""Where the ranks of a training run: nodes and GPUs."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalewatt.provenance.node_description import node_description

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Ranks:
    """This process among the MPI ranks of a training."""

    comm: MPI.Intracomm
    rank: int
    size: int
    local_rank: int
    host: str
    nodes: int


@dataclass(frozen=True)
class Gpu:
    """GPU of a rank; None: not known."""

    index: int | None
    """NVML's, which perun's sensors carry; CUDA's own may be masked."""
    uuid: str | None
    """As NVML writes it."""
    name: str | None = None


def gpu_identity(device: Any) -> Gpu:
    """GPU of a CUDA device, by its uuid."""
    import torch

    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    return _gpu_by_nvml([uuid]) or Gpu(None, uuid)


def visible_gpu(torch_device: str, local_rank: int) -> Gpu | None:
    """GPU that a program takes on its local rank, without a context on it.

    None if it takes none (`cpu`, or `auto` on a machine without GPUs).
    """
    if torch_device == "cpu":
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = None if visible is None else visible.split(",")
    return _gpu_by_nvml(words, local_rank) or (Gpu(None, None) if torch_device == "cuda" else None)


def _gpu_by_nvml(words: list[str] | None, local_rank: int = 0) -> Gpu | None:
    """GPU of a local rank among indices and uuids, by default all of the node; None if not known."""
    try:
        import pynvml

        pynvml.nvmlInit()
        words = words or [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
        word = words[local_rank % len(words)].strip()
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(word))
            if word.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(word)
        )
        return Gpu(
            pynvml.nvmlDeviceGetIndex(handle),
            pynvml.nvmlDeviceGetUUID(handle),
            pynvml.nvmlDeviceGetName(handle),
        )
    except Exception:  # no NVML, or a partitioned GPU: perun has no sensor of it either
        return None


def gathered_placement(ranks: Ranks, gpu: Gpu | None) -> dict[str, Any] | None:
    """Nodes and GPUs of all ranks, on rank 0; None on the others. All must call this.

    `ranks` and `nodes` have a row each, `gpus` and `gpu_uuids` are `held_gpus`.
    """
    row = {
        "rank": ranks.rank,
        "local_rank": ranks.local_rank,
        "host": ranks.host,
        "gpu": gpu and gpu.index,
        "gpu_uuid": gpu and gpu.uuid,
    }
    node = {"host": ranks.host, **node_description()} if ranks.local_rank == 0 else None
    gathered = ranks.comm.gather((row, node), root=0)
    if gathered is None:
        return None
    rows = [row for row, _ in gathered]
    return {
        "hostnames": sorted({row["host"] for row in rows}),
        **held_gpus(rows),
        "nodes": [node for _, node in gathered if node],
        "ranks": rows,
    }


def held_gpus(ranks: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, list[Any] | None] | None]:
    """`gpus` ({host: indices}) and `gpu_uuids` ({host: uuids}) of rows of ranks.

    A host's are null where a rank's GPU is not known, and both are null where none is.
    """
    rows = list(ranks)
    return {
        "gpus": _by_host((row["host"], row["gpu"]) for row in rows),
        "gpu_uuids": _by_host((row["host"], row["gpu_uuid"]) for row in rows),
    }


def _by_host(gpus: Iterable[tuple[str, Any]]) -> dict[str, list[Any] | None] | None:
    sets: dict[str, set[Any]] = defaultdict(set)
    for host, gpu in gpus:
        sets[host].add(gpu)
    lists = {h: None if None in sets[h] else sorted(sets[h]) for h in sorted(sets)}
    return lists if any(lists.values()) else None
