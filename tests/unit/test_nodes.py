"""Jobs are held against what sinfo says of the cluster's nodes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewatt.slurm import partitions as nodes
from scalewatt.slurm.partitions import (
    Demand,
    Node,
    Partition,
    demand_of,
    is_named,
    misfit,
    read_partitions,
)

SINFO = [
    "accelerated|2-00:00:00|1-128|a1|152|501600|gpu:a100:4(S:0-1),lustre:1",
    "accelerated|2-00:00:00|1-128|a2|152|501600|gpu:4(S:0,2)",
    "accelerated-h100|8:00:00|1-infinite|h1|128|772000|gpu:h100:3,gpu:other:1",
    "cpuonly|infinite|1-infinite|c1|152|243200|(null)",
    "dev|30:00|2|a1|152|501600|gpu:a100:4",
    "damaged|line",
]


@pytest.fixture()
def partitions(monkeypatch: pytest.MonkeyPatch) -> dict[str, Partition]:
    monkeypatch.setattr(nodes, "ask", lambda *command: SINFO)
    return read_partitions()


def demand(**changes: Any) -> Demand:
    base = {
        **{"partition": "accelerated", "nodes": 1, "cpus": 152, "memory_mb": 0},
        **{"gpus": 4, "gpu_type": "", "runtime_min": 2880},
    }
    return Demand(**(base | changes))


def test_what_sinfo_prints_is_understood(partitions: dict[str, Partition]) -> None:
    accelerated = partitions["accelerated"]
    assert accelerated == Partition(
        "accelerated",
        2880,
        128,
        (Node("a1", 152, 501600, {"a100": 4}), Node("a2", 152, 501600, {"": 4})),
    )
    assert partitions["accelerated-h100"].time_limit_min == 480
    assert partitions["accelerated-h100"].nodes[0].gpus == {"h100": 3, "other": 1}
    assert partitions["cpuonly"].time_limit_min is None
    assert partitions["cpuonly"].nodes[0].gpus == {}
    assert (partitions["dev"].time_limit_min, partitions["dev"].max_nodes) == (30, 2)
    assert "damaged" not in partitions


def test_a_demand_is_what_the_executor_submits() -> None:
    resources = {
        **{"slurm_partition": "accelerated", "nodes": 64, "tasks_per_node": 4, "runtime": 600},
        **{"cpus_per_task": 38, "gres": "gpu:a100:4", "mem_mb": 1000, "mpi": ""},
    }
    assert demand_of(resources) == Demand("accelerated", 64, 152, 1000, 4, "a100", 600)
    assert demand_of({"_cores": 3, "mem_mb": None}) == Demand(None, 1, 3, 0, 0, "", None)


def test_a_job_that_its_partition_can_hold_has_no_problem(
    partitions: dict[str, Partition],
) -> None:
    assert misfit(demand(nodes=2), partitions) is None
    assert misfit(demand(gpu_type="a100"), partitions) is None
    assert misfit(demand(partition=None), partitions) is None
    assert misfit(demand(partition="cpuonly", gpus=0, runtime_min=10**6), partitions) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partition": "acelerated"}, ("no partition 'acelerated'", "did you mean 'accelerated'?")),
        ({"runtime_min": 2881}, ("2881 min", "allows 2880 min")),
        ({"nodes": 129}, ("129 nodes", "allows 128 to a job")),
        ({"nodes": 3}, ("3 nodes", "has 2 that can hold it")),
        ({"gpus": 8}, ("8 GPUs on a node", "at most 4")),
        ({"gpu_type": "h100"}, ("GPUs of type h100", "at most 0")),
        ({"cpus": 153}, ("153 CPUs", "at most 152")),
        ({"memory_mb": 501601}, ("501601 MB of memory", "at most 501600")),
        ({"nodes": 2, "gpu_type": "a100"}, ("2 nodes", "has 1 that can hold it")),
    ],
)
def test_what_no_node_can_hold_is_named(
    partitions: dict[str, Partition], changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    problem = misfit(demand(**changes), partitions)
    assert problem is not None
    assert all(word in problem for word in words), problem


@pytest.mark.parametrize("excluded", ["a2", "a[2-4]", "h1,a[02,2]", "x[1-3],a2,c1"])
def test_excluded_nodes_hold_nothing(partitions: dict[str, Partition], excluded: str) -> None:
    problem = misfit(demand(nodes=2, excluded=excluded), partitions)
    assert problem == (
        "asks for 2 nodes; partition accelerated without 1 excluded has 1 that can hold it"
    )


@pytest.mark.parametrize("excluded", ["", "a[02]", "a[3-9]", "a", "a2x", "a[x-2]", "a[2", "h1"])
def test_nodes_that_are_not_excluded_hold_a_job(
    partitions: dict[str, Partition], excluded: str
) -> None:
    assert misfit(demand(nodes=2, excluded=excluded), partitions) is None


def test_a_job_leaves_out_the_nodes_that_it_excludes_and_no_others() -> None:
    extra = "--ntasks-per-node=4 --exclusive '--exclude=n[01-02],m3' --nice=100"
    assert demand_of({"slurm_extra": extra}).excluded == "n[01-02],m3"
    assert demand_of({"slurm_extra": "--exclusive"}).excluded == ""


def test_hidden_partitions_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def sinfo(*command: str) -> list[str]:
        return [line for line in SINFO if "-a" in command or not line.startswith("accelerated|")]

    monkeypatch.setattr(nodes, "ask", sinfo)
    assert misfit(demand(), read_partitions()) is None


@given(st.integers(0, 120), st.integers(0, 30), st.integers(1, 4), st.integers(0, 160))
def test_a_range_names_its_numbers_in_their_width(
    first: int, more: int, width: int, number: int
) -> None:
    last = first + more
    pattern = f"n[{first:0{width}d}-{last:0{width}d}]-ib[0-1]"
    width = max(width, len(str(first)))
    names = {f"n{one:0{width}d}-ib{port}" for one in range(first, last + 1) for port in (0, 1)}
    assert all(is_named(name, pattern) for name in names)
    for digits in {str(number), f"{number:02d}", f"{number:03d}", f"{number:04d}"}:
        assert is_named(f"n{digits}-ib1", pattern) is (f"n{digits}-ib1" in names)
        assert not is_named(f"n{digits}-ib2", pattern)


@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_time_limits_are_read_in_whole_minutes(
    days: int, hours: int, minutes: int, seconds: int
) -> None:
    expected = days * 1440 + hours * 60 + minutes
    clock = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    assert nodes._minutes(f"{days}-{clock}") == expected
    if not days:
        assert nodes._minutes(clock) == expected
