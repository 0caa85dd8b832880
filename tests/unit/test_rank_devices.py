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


def test_ranks_that_are_bound_to_a_gpu_each_exchange_gradients_by_nccl() -> None:
    report = two_ranks("cuda", [["aa"], ["bb"]])
    assert report == [{"device": "cuda:0", "backend": "nccl"}] * 2


def test_ranks_that_see_all_gpus_take_one_each() -> None:
    report = two_ranks("auto", [["aa", "bb"]] * 2)
    assert [rank["device"] for rank in report] == ["cuda:0", "cuda:1"]
    assert {rank["backend"] for rank in report} == {"nccl"}


def test_ranks_that_share_a_gpu_exchange_gradients_by_gloo() -> None:
    assert two_ranks("auto", [["aa"], ["aa"]]) == [{"device": "cuda:0", "backend": "gloo"}] * 2


def test_ranks_that_share_a_gpu_are_refused_where_each_was_to_have_one() -> None:
    first, second = two_ranks("cuda", [["aa"], ["aa"]])
    assert "refused" not in first
    assert second["refused"] == (
        "node: rank 1 has the GPU of rank 0 (GPU-aa); the cluster file's launcher must ask for one for each"
    )


def test_a_rank_without_a_gpu_is_refused_where_each_was_to_have_one() -> None:
    report = two_ranks("cuda", [["aa"], []])
    assert report[1]["refused"] == "node: rank 1 needs a GPU, but sees none"


def test_ranks_without_gpus_train_on_the_cpu_where_either_will_do() -> None:
    assert two_ranks("auto", [[], []]) == [{"device": "cpu", "backend": "gloo"}] * 2
