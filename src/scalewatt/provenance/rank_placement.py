"""Where a rank runs: its node, its GPU and its CPUs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalewatt.provenance.node_description import grouped, node_description
from scalewatt.provenance.versions import Gpu, held_gpus

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


def rank_placement(rank: int, local_rank: int, host: str, gpu: Gpu | None) -> dict[str, Any]:
    """Return where this process, a rank, runs; null if unknown, and a GPU's without one.

    rank, local_rank, host; gpu (NVML's index), gpu_uuid; cpus (the CPUs it may use, as "0-3,8").
    """
    cpus = allowed_cpus()
    return {
        "rank": rank,
        "local_rank": local_rank,
        "host": host,
        "gpu": None if gpu is None else gpu.index,
        "gpu_uuid": None if gpu is None else gpu.uuid,
        "cpus": None if cpus is None else ranges(cpus),
    }


def gathered_placement(ranks: Ranks, gpu: Gpu | None) -> dict[str, Any] | None:
    """Return what a segment's description says of its place, on rank 0; None on others. All take part.

    hostnames; gpus and gpu_uuids (`held_gpus`); nodes (`node_description.grouped`, each by its
    first rank); ranks (`rank_placement` of each, in order); allocation (`slurm_allocation`).
    """
    own = rank_placement(ranks.rank, ranks.local_rank, ranks.host, gpu)
    node = node_description() if ranks.local_rank == 0 else None
    found = ranks.comm.gather((own, gpu, node), root=0)
    if found is None:
        return None
    places = [place for place, _, _ in found]
    return {
        "hostnames": sorted({place["host"] for place in places}),
        **held_gpus((place["host"], one) for place, one, _ in found),
        "nodes": grouped((place["host"], told) for place, _, told in found if told is not None),
        "ranks": places,
        "allocation": slurm_allocation(os.environ),
    }


def allowed_cpus() -> set[int] | None:
    """Return the CPUs that this process may use; None if the system does not tell."""
    try:
        return set(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        return None


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as the kernel writes a list of CPUs: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def slurm_allocation(environment: Mapping[str, str]) -> dict[str, str | None] | None:
    """Job and nodes of the Slurm allocation that a process runs in; None outside of one."""
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if not job:
        return None
    return {
        "job": job,
        "step": environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID") or None,
        "nodes": environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST") or None,
        "partition": environment.get("SLURM_JOB_PARTITION") or None,
    }
