"""Where a rank runs: told by the kernel and NVML, or not known, and never guessed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.energies.accounting.run_inputs import PlannedRun, Run
from scalewatt.execution.launcher_process import command_path
from scalewatt.provenance.rank_placement import (
    allowed_cpus,
    gpu_pci,
    kernels_pci,
    numa_of_cpus,
    numbers,
    pci_numa,
    ranges,
    rank_placement,
    slurm_allocation,
)
from scalewatt.provenance.versions import Gpu
from scalewatt.recordings.series import SensorSeries


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two NUMA nodes of four CPUs each, one GPU on the second, one device on none."""
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    for address, node in {"0000:31:00.0": "1", "0000:ca:00.0": "-1"}.items():
        folder = tmp_path / "bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
    return tmp_path


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    fake = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID={"GPU-aa": 0}.__getitem__,
        nvmlDeviceGetHandleByIndex=[0].__getitem__,
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=b"00000000:31:00.0"),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cpus_is_read_as_it_was_written(cpus: set[int]) -> None:
    assert numbers(ranges(cpus)) == cpus


@pytest.mark.parametrize(
    ("cpus", "text"), [({0}, "0"), ({3, 1, 2, 0, 8}, "0-3,8"), ({4, 6}, "4,6"), (set(), "")]
)
def test_cpus_are_written_as_the_kernel_does(cpus: set[int], text: str) -> None:
    assert ranges(cpus) == text


@pytest.mark.parametrize(
    ("cpus", "nodes"), [({0, 5}, [0]), ({1, 2}, [0, 1]), ({7}, [1]), ({7, 8}, None)]
)
def test_cpus_have_their_numa_nodes(machine: Path, cpus: set[int], nodes: list[int] | None) -> None:
    assert numa_of_cpus(cpus, machine) == nodes


def test_a_machine_that_does_not_tell_has_unknown_numa_nodes(tmp_path: Path) -> None:
    assert numa_of_cpus({0}, tmp_path) is None
    assert pci_numa("0000:31:00.0", tmp_path) is None


def test_a_device_of_no_node_has_none(machine: Path) -> None:
    assert pci_numa("0000:31:00.0", machine) == 1
    assert pci_numa("0000:ca:00.0", machine) is None


@pytest.mark.parametrize(
    ("said", "kernels"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3B:00.0\0\0", "0000:3b:00.0"),
        ("00010000:3B:00.0", "10000:3b:00.0"),
        ("3B:00", None),
    ],
)
def test_a_pci_address_is_written_as_the_kernel_does(said: str, kernels: str | None) -> None:
    assert kernels_pci(said) == kernels


def test_a_rank_on_a_gpu_knows_its_place(machine: Path, nvml: SimpleNamespace) -> None:
    found = rank_placement(5, 1, "n2", Gpu(3, "GPU-aa"), machine)
    assert found.pop("cpus") == ranges(os.sched_getaffinity(0))
    found.pop("numa")
    assert found == {
        "rank": 5,
        "local_rank": 1,
        "host": "n2",
        "gpu": 3,
        "gpu_uuid": "GPU-aa",
        "gpu_pci": "0000:31:00.0",
        "gpu_numa": 1,
    }


def test_a_rank_without_a_gpu_has_none_of_its_facts(machine: Path) -> None:
    found = rank_placement(0, 0, "n1", None, machine)
    assert [found[key] for key in ("gpu", "gpu_uuid", "gpu_pci", "gpu_numa")] == [None] * 4


def test_a_gpu_is_looked_up_by_uuid_before_its_index(nvml: SimpleNamespace) -> None:
    assert gpu_pci(Gpu(7, "GPU-aa")) == "0000:31:00.0"
    assert gpu_pci(Gpu(0, None)) == "0000:31:00.0"
    assert gpu_pci(Gpu(None, None)) is None
    assert gpu_pci(Gpu(0, "MIG-bb")) is None


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
    no_series: list[SensorSeries] = []
    held = [run.used_gpus("n1.cluster", no_series, number) for number in (0, 1, 2)]
    assert held == [[0], [2], None], "what the third held is not guessed"
    assert run.used_gpus("n1", no_series) == [0, 2]


def test_a_run_of_which_no_segment_noted_ranks_counts_the_gpus_that_it_noted_as_a_whole() -> None:
    run = run_of({"gpus": {"n1": [0, 2]}, "segments": [{"segment": 0}, {"segment": 1}]})
    assert [run.used_gpus("n1", [], number) for number in (0, 1)] == [[0, 2], [0, 2]]


def test_a_gpu_that_a_rank_does_not_know_is_not_guessed() -> None:
    run = run_of({"segments": [{"segment": 0, "ranks": [on("n1", 0, "a"), on("n1", None, "b")]}]})
    assert run.used_gpus("n1", [], 0) is None


# --- against its GPU ------------------------------------------------------------------------------
