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
visible = json.loads(sys.argv[2])[ranks.rank]
torch.cuda.device_count = lambda: len(visible)
torch.cuda.set_device = lambda device: None
torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid=visible[device.index])
report = {}
def note(backend, store, **_):
    report["backend"] = backend
    ranks.comm.Barrier()  # the store is rank 0's
dist.init_process_group = note
try:
    device = choose_device(sys.argv[1], ranks)
    report["device"] = str(device)
except InputError as error:
    report["refused"] = str(error).replace(ranks.host, "node")
if not any(ranks.comm.allgather("refused" in report)):
    start_process_group(ranks, device)
reports = ranks.comm.gather(report, root=0)
if reports:
    print(json.dumps(reports), flush=True)
"""


def two_ranks(torch_device: str, visible: list[list[str]]) -> list[dict[str, Any]]:
    """What two ranks of one node say, each of which sees these GPUs."""
    words = [sys.executable, "-c", PROGRAM, torch_device, json.dumps(visible)]
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


@pytest.mark.parametrize(
    ("torch_device", "visible", "devices", "backend"),
    [
        ("cuda", [["aa"], ["bb"]], ["cuda:0", "cuda:0"], "nccl"),
        ("auto", [["aa", "bb"], ["aa", "bb"]], ["cuda:0", "cuda:1"], "nccl"),
        ("auto", [["aa"], ["aa"]], ["cuda:0", "cuda:0"], "gloo"),
        ("auto", [[], []], ["cpu", "cpu"], "gloo"),
    ],
    ids=["bound", "all-visible", "shared", "none"],
)
def test_each_rank_takes_a_gpu_and_gradients_go_by_nccl_where_none_is_shared(
    torch_device: str, visible: list[list[str]], devices: list[str], backend: str
) -> None:
    report = two_ranks(torch_device, visible)
    assert report == [{"device": device, "backend": backend} for device in devices]


@pytest.mark.parametrize("visible", [[["aa"], ["aa"]], [["aa"], []]], ids=["shared", "none"])
def test_a_rank_without_a_gpu_of_its_own_is_refused_where_each_was_to_have_one(
    visible: list[list[str]],
) -> None:
    first, second = two_ranks("cuda", visible)
    assert "refused" not in first and second["refused"] in REFUSALS
