"""Which GPU each rank of a node takes, and what carries their gradients: real MPI, stand-in GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from scalewatt.execution.launch import command_path

pytestmark = pytest.mark.slow
PROGRAM = """
import json, sys
from types import SimpleNamespace
import torch
import torch.distributed as dist
from scalewatt.common.errors import InputError
from scalewatt.training.distributed import choose_device, join_ranks, start_process_group

ranks = join_ranks("c", 2, 1)
reports = []
for torch_device, visible in json.loads(sys.argv[1]):
    seen = visible[ranks.rank]
    torch.cuda.device_count = lambda: len(seen)
    torch.cuda.set_device = lambda device: None
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid=seen[device.index])
    report = {}
    def note(backend, store, **_):
        report["backend"] = backend
        ranks.comm.Barrier()  # the store is rank 0's
    dist.init_process_group = note
    try:
        device = choose_device(torch_device, ranks)
        report["device"] = str(device)
    except InputError as error:
        report["refused"] = str(error).replace(ranks.host, "node")
    if not any(ranks.comm.allgather("refused" in report)):
        start_process_group(ranks, device)
    reports.append(ranks.comm.gather(report, root=0))
if ranks.rank == 0:
    print(json.dumps(reports), flush=True)
"""
STARTED = {
    "bound": ("cuda", [["aa"], ["bb"]], ["cuda:0", "cuda:0"], "nccl"),
    "all visible": ("auto", [["aa", "bb"], ["aa", "bb"]], ["cuda:0", "cuda:1"], "nccl"),
    "shared": ("auto", [["aa"], ["aa"]], ["cuda:0", "cuda:0"], "gloo"),
    "none": ("auto", [[], []], ["cpu", "cpu"], "gloo"),
}
"""torch_device, the GPUs that each rank sees, and what the ranks then take."""
REFUSED = {"shared": ("cuda", [["aa"], ["aa"]]), "none": ("cuda", [["aa"], []])}


@pytest.fixture(scope="module")
def reports() -> list[list[dict[str, Any]]]:
    """What the two ranks of a node say in each case of STARTED, then of REFUSED."""
    cases = json.dumps([case[:2] for case in [*STARTED.values(), *REFUSED.values()]])
    words = [sys.executable, "-c", PROGRAM, cases]
    environment = {**os.environ, "PATH": command_path()}
    done = subprocess.run(
        ["mpiexec", "-n", "2", *words], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


REFUSALS = {
    "node: rank 1 has the GPU of rank 0 (GPU-aa); the cluster file's launcher must ask for one for each",
    "node: rank 1 needs a GPU, but sees none",
}


@pytest.mark.parametrize("case", STARTED)
def test_each_rank_takes_a_gpu_and_gradients_go_by_nccl_where_none_is_shared(
    reports: list[list[dict[str, Any]]], case: str
) -> None:
    *_, devices, backend = STARTED[case]
    report = reports[[*STARTED].index(case)]
    assert report == [{"device": device, "backend": backend} for device in devices]


@pytest.mark.parametrize("case", REFUSED)
def test_a_rank_without_a_gpu_of_its_own_is_refused_where_each_was_to_have_one(
    reports: list[list[dict[str, Any]]], case: str
) -> None:
    first, second = reports[len(STARTED) + [*REFUSED].index(case)]
    assert "refused" not in first and second["refused"] in REFUSALS
