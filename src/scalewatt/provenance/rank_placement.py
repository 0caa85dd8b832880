"""Where a rank runs: its node, its GPU, its CPUs, and their NUMA nodes, as the kernel tells them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.provenance.node_description import grouped, node_description
from scalewatt.provenance.versions import Gpu, held_gpus

if TYPE_CHECKING:
    from mpi4py import MPI

_SYS = Path("/sys")
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])")


@dataclass(frozen=True)
class Ranks:
    """This process among the MPI ranks of a training."""

    comm: MPI.Intracomm
    rank: int
    size: int
    local_rank: int
    host: str
    nodes: int


def rank_placement(
    rank: int, local_rank: int, host: str, gpu: Gpu | None, sys: Path = _SYS
) -> dict[str, Any]:
    """Return where this process, a rank, runs; null if unknown, and a GPU's without one.

    rank, local_rank, host; gpu (NVML's index), gpu_uuid, gpu_pci ("0000:31:00.0"), gpu_numa (node);
    cpus (the CPUs it may use, as "0-3,8"), numa (the nodes of these, in order).
    """
    cpus = allowed_cpus()
    pci = None if gpu is None else gpu_pci(gpu)
    return {
        "rank": rank,
        "local_rank": local_rank,
        "host": host,
        "gpu": None if gpu is None else gpu.index,
        "gpu_uuid": None if gpu is None else gpu.uuid,
        "gpu_pci": pci,
        "gpu_numa": None if pci is None else pci_numa(pci, sys),
        "cpus": None if cpus is None else ranges(cpus),
        "numa": None if cpus is None else numa_of_cpus(cpus, sys),
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


def numbers(text: str) -> set[int]:
    """Return the numbers of a list as the kernel writes it; ValueError if it is none."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def numa_of_cpus(cpus: set[int], sys: Path = _SYS) -> list[int] | None:
    """Return the NUMA nodes that CPUs belong to; None if the kernel does not tell of each of them."""
    of_node: dict[int, set[int]] = {}
    try:
        for folder in (sys / "devices/system/node").glob("node[0-9]*"):
            node = int(folder.name.removeprefix("node"))
            of_node[node] = numbers((folder / "cpulist").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    if not cpus <= set().union(*of_node.values()):
        return None
    return sorted(node for node, theirs in of_node.items() if theirs & cpus)


def gpu_pci(gpu: Gpu) -> str | None:
    """Return the PCI address of a GPU as the kernel writes it, by NVML; None if unknown."""
    try:
        import pynvml

        pynvml.nvmlInit()
        if gpu.uuid is not None:
            handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        elif gpu.index is not None:
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        else:
            return None
        address = pynvml.nvmlDeviceGetPciInfo(handle).busId
    except Exception:  # no NVML, or a partitioned GPU
        return None
    return kernels_pci(address.decode() if isinstance(address, bytes) else str(address))


def kernels_pci(address: str) -> str | None:
    """NVML's PCI address ("00000000:3B:00.0") as the kernel writes it; None if it is none."""
    found = _PCI.fullmatch(address.strip("\0 ").lower())
    if found is None:
        return None
    domain = int(found[1], 16)
    return f"{domain:04x}:{found[2]}"


def pci_numa(address: str, sys: Path = _SYS) -> int | None:
    """Return the NUMA node of a PCI device; None if the machine has none or does not tell."""
    try:
        text = (sys / "bus/pci/devices" / address / "numa_node").read_text(encoding="ascii")
        node = int(text)
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


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
