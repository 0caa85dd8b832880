"""Processes of a training: MPI's ranks, their devices, torch's process group, and what they agree on."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from scalewatt.common.errors import InputError
from scalewatt.provenance.rank_placement import Ranks, gpu_identity

if TYPE_CHECKING:
    import torch

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
_LOOK_S = 0.05


def join_ranks(name: str, expected: int, expected_nodes: int) -> Ranks:
    """Place of this process among the ranks; InputError unless there are as many as expected."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.Get_size() != expected:
        hint = "check the launcher of the cluster file (Slurm with 1 rank: srun --mpi=pmi2)"
        raise InputError(
            f"{name}: MPI has {comm.Get_size()} ranks, the spec asks for {expected}; {hint}"
        )
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    local_rank = node.Get_rank()
    node.Free()
    host = socket.gethostname()
    nodes = len(set(comm.allgather(host)))
    if nodes != expected_nodes:
        raise InputError(f"{name}: runs on {nodes} nodes, the spec asks for {expected_nodes}")
    return Ranks(comm, comm.Get_rank(), expected, local_rank, host, nodes)


def wait_for_ranks(ranks: Ranks) -> None:
    """Wait asleep until all ranks have called this, for long: MPI's own collectives keep a core busy."""
    request = ranks.comm.Ibarrier()
    while not request.Test():
        time.sleep(_LOOK_S)


def choose_device(torch_device: str, ranks: Ranks) -> torch.device:
    """Device of this rank: a GPU of its own, or the CPU. All ranks call this.

    `auto` takes GPUs where there are any; ranks share them if there are fewer than ranks. InputError
    where `cuda` was asked for and a rank has none, or that of a rank before it.
    """
    import torch

    available = 0 if torch_device == "cpu" else torch.cuda.device_count()
    device = torch.device("cpu")
    if available:  # a launcher may show each rank all GPUs of the node, or its own alone
        device = torch.device("cuda", ranks.local_rank % available)
        torch.cuda.set_device(device)
    if torch_device == "cuda":
        gpus = _gathered_gpus(ranks, device)
        if (gpu := gpus[ranks.rank][1]) is None:
            raise InputError(f"{ranks.host}: rank {ranks.rank} needs a GPU, but sees none")
        if (first := gpus.index(gpus[ranks.rank])) < ranks.rank:
            ours = f"{ranks.host}: rank {ranks.rank} has the GPU of rank {first} ({gpu})"
            raise InputError(f"{ours}; the cluster file's launcher must ask for one for each")
    return device


def _gathered_gpus(ranks: Ranks, device: torch.device) -> list[tuple[str, str | None]]:
    """Host and GPU of each rank, the latter None on a CPU."""
    gpu = None if device.type == "cpu" else gpu_identity(device).uuid or str(device)
    return ranks.comm.allgather((ranks.host, gpu))


def start_process_group(ranks: Ranks, device: torch.device) -> None:
    """Start torch.distributed: rank 0 takes a free port and MPI carries host and port to all."""
    import torch.distributed as dist

    if ranks.nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    host = ranks.comm.bcast("127.0.0.1" if ranks.nodes == 1 else ranks.host)
    if ranks.rank == 0:
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    port = ranks.comm.bcast(store.port if ranks.rank == 0 else None)
    if ranks.rank > 0:
        store = dist.TCPStore(host, port, is_master=False)
    # NCCL refuses two ranks on one GPU; gloo does not.
    gpus = _gathered_gpus(ranks, device)
    backend = "nccl" if device.type == "cuda" and len(set(gpus)) == len(gpus) else "gloo"
    dist.init_process_group(
        backend, store=store, rank=ranks.rank, world_size=ranks.size, timeout=COLLECTIVE_TIMEOUT
    )
