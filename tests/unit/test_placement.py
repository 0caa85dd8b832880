"""Where a rank runs, and which GPUs count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scalewatt.energies.run_inputs import PlannedRun, Run
from scalewatt.execution.launcher_process import command_path
from scalewatt.provenance.rank_placement import (
    allowed_cpus,
    ranges,
    rank_placement,
    slurm_allocation,
)
from scalewatt.provenance.versions import Gpu


@pytest.mark.parametrize(
    ("cpus", "text"), [({0}, "0"), ({3, 1, 2, 0, 8}, "0-3,8"), ({4, 6}, "4,6"), (set(), "")]
)
def test_cpus_are_written_as_the_kernel_does(cpus: set[int], text: str) -> None:
    assert ranges(cpus) == text


def test_a_rank_on_a_gpu_knows_its_place() -> None:
    cpus = ranges(os.sched_getaffinity(0))
    known = {"rank": 5, "local_rank": 1, "host": "n2", "gpu": 3, "gpu_uuid": "GPU-aa", "cpus": cpus}
    assert rank_placement(5, 1, "n2", Gpu(3, "GPU-aa")) == known
    assert rank_placement(5, 1, "n2", None) == known | {"gpu": None, "gpu_uuid": None}


def test_cpus_are_those_that_the_process_was_bound_to() -> None:
    first = min(os.sched_getaffinity(0))
    code = (
        f"import os\nos.sched_setaffinity(0, {{{first}}})\n"
        "from scalewatt.provenance.rank_placement import allowed_cpus\nprint(allowed_cpus())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"{{{first}}}"
    assert first in (allowed_cpus() or ())


def test_an_allocation_is_what_slurm_says_and_none_outside() -> None:
    assert slurm_allocation({"SLURM_CPUS_ON_NODE": "3"}) is None
    job = {"SLURM_JOB_ID": "7"}
    bare = {"job": "7", "step": None, "nodes": None, "partition": None}
    assert slurm_allocation(job) == bare
    more = {"SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_PARTITION": "a"}
    whole = {"job": "7", "step": "0", "nodes": "n[1-2]", "partition": "a"}
    assert slurm_allocation(job | more) == whole


GATHER = """
import json
from scalewatt.provenance.rank_placement import gathered_placement
from scalewatt.provenance.versions import Gpu
from scalewatt.training.process_group import join_ranks
ranks = join_ranks("c", 2, 1)
found = gathered_placement(ranks, Gpu(2 + ranks.rank, None))
if found is not None:
    print(json.dumps(found), flush=True)
"""


def test_rank_0_gathers_the_place_of_each_rank() -> None:
    command = ["mpiexec", "-n", "2", sys.executable, "-c", GATHER]
    environment = {**os.environ, "PATH": command_path()}
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    assert [(r["rank"], r["local_rank"], r["gpu"]) for r in said["ranks"]] == [(0, 0, 2), (1, 1, 3)]
    [host] = said["hostnames"]
    assert said["gpus"] == {host: [2, 3]}
    assert said["gpu_uuids"] == {host: None}


# --- only the GPUs of the run count -------------------------------------------------------------


def run_of(provenance: dict[str, object]) -> Run:
    return Run(Path(), PlannedRun(), {}, {"torch_device": "cuda", **provenance}, None)


def on(host: str, gpu: int | None, uuid: str | None) -> dict[str, object]:
    return {"host": host, "gpu": gpu, "gpu_uuid": uuid}


def test_each_segment_counts_the_gpus_that_it_held_itself() -> None:
    segments = [
        {"segment": 0, "ranks": [on("n1", 0, "a")]},
        {"segment": 1, "ranks": [on("n1", 2, "c")]},
        {"segment": 2, "ranks": None},
    ]
    run = run_of({"gpus": {"n1": [0, 2]}, "gpu_uuids": {"n1": ["a", "c"]}, "segments": segments})
    held = [run.used_gpus("n1.cluster", [], number) for number in (0, 1, 2)]
    assert held == [[0], [2], None], "what the third held is not guessed"
    assert run.used_gpus("n1", []) == [0, 2]


def test_a_run_of_which_no_segment_noted_ranks_counts_the_gpus_that_it_noted_as_a_whole() -> None:
    run = run_of({"gpus": {"n1": [0, 2]}, "segments": [{"segment": 0}, {"segment": 1}]})
    assert [run.used_gpus("n1", [], number) for number in (0, 1)] == [[0, 2], [0, 2]]


def test_a_gpu_that_a_rank_does_not_know_is_not_guessed() -> None:
    run = run_of({"segments": [{"segment": 0, "ranks": [on("n1", 0, "a"), on("n1", None, "b")]}]})
    assert run.used_gpus("n1", [], 0) is None


# --- against its GPU ------------------------------------------------------------------------------
