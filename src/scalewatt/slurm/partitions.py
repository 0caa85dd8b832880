"""What `sinfo` says of partitions and their nodes, and whether they can hold a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from scalewatt.common.schema_validation import one_of
from scalewatt.slurm.slurm_commands import ask

_FIELDS = "%R|%l|%s|%N|%c|%m|%G"
PARTITIONS_QUESTION = ("sinfo", "-a", "-h", "-N", "-o", _FIELDS)
"""The command whose answer `parse_partitions` takes; hidden partitions are in it."""
_EXCLUDE = re.compile(r"--exclude=([^\s'\"]+)")


@dataclass(frozen=True)
class Node:
    """One node of a cluster."""

    name: str
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]
    """GPUs by type; a type that is not named is ''."""

    def gpus_of(self, type_: str) -> int:
        """Return how many GPUs of a type it has, of all types for ''."""
        return self.gpus.get(type_, 0) if type_ else sum(self.gpus.values())


@dataclass(frozen=True)
class Partition:
    """A partition; None is no limit."""

    name: str
    time_limit_min: int | None
    max_nodes: int | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Demand:
    """A job's demand on each of its nodes; memory_mb 0 is Slurm's default."""

    partition: str | None
    nodes: int
    cpus: int
    memory_mb: int
    gpus: int
    gpu_type: str
    runtime_min: int | None
    excluded: str = ""
    """Nodes it may not get: names and Slurm's patterns of names, with commas between."""


def demand_of(resources: Mapping[str, Any]) -> Demand:
    """Return the demand in a job's resources, as the Slurm executor understands them."""
    gpu_type, gpus = gpus_in(str(resources.get("gres") or ""))
    tasks = int(resources.get("tasks_per_node") or 1)
    return Demand(
        partition=resources.get("slurm_partition"),
        nodes=int(resources.get("nodes") or 1),
        cpus=tasks * int(resources.get("cpus_per_task") or resources.get("_cores") or 1),
        memory_mb=int(resources.get("mem_mb") or 0),
        gpus=gpus,
        gpu_type=gpu_type,
        runtime_min=resources.get("runtime"),
        excluded=",".join(_EXCLUDE.findall(str(resources.get("slurm_extra") or ""))),
    )


def gpus_in(gres: str) -> tuple[str, int]:
    """Type ('' for any) and number of GPUs in a request such as gpu:4 or gpu:a100:4; any other is ('', 0)."""
    name, *rest = gres.split(":")
    if name != "gpu":
        return "", 0
    number = int(rest.pop()) if rest and rest[-1].isdigit() else 1
    return (rest[0] if rest else ""), number


def read_partitions() -> dict[str, Partition]:
    """Ask `sinfo` for all partitions, hidden ones too; NoAnswerError where it gives no answer."""
    return parse_partitions(ask(*PARTITIONS_QUESTION))


def parse_partitions(lines: Iterable[str]) -> dict[str, Partition]:
    """Partitions by name of what `sinfo` printed."""
    found: dict[str, Partition] = {}
    for line in lines:
        values = [value.strip() for value in line.split("|")]
        if len(values) != _FIELDS.count("|") + 1:
            continue
        name, limit, size, node, cpus, memory, gres = values
        before = found.get(name)
        nodes = () if before is None else before.nodes
        entry = Node(node, _number(cpus), _number(memory), _gpus_of_node(gres))
        most = size.split("-")[-1]  # of 1-infinite, 1-64 or 8
        max_nodes = int(most) if most.isdigit() else None
        found[name] = Partition(name, _minutes(limit), max_nodes, (*nodes, entry))
    return found


def misfit(demand: Demand, partitions: Mapping[str, Partition]) -> str | None:
    """Return why no nodes of its partition can ever hold a job; None if they can."""
    if demand.partition is None:
        return None
    partition = partitions.get(demand.partition)
    if partition is None:
        known = one_of(demand.partition, sorted(partitions))
        return f"Slurm has no partition '{demand.partition}'; {known}"
    limit = partition.time_limit_min
    if limit is not None and (demand.runtime_min or 0) > limit:
        return f"asks for {demand.runtime_min} min; partition {partition.name} allows {limit} min"
    if partition.max_nodes is not None and demand.nodes > partition.max_nodes:
        return (
            f"asks for {demand.nodes} nodes; "
            f"partition {partition.name} allows {partition.max_nodes} to a job"
        )
    return _too_few(demand, partition)


def is_named(node: str, pattern: str) -> bool:
    """Return True if a node is one of those of a pattern of Slurm's, such as n1,n[03-05,7]-ib[0-1]."""
    return any(_is_of_part(node, part) for part in re.split(r",(?![^\[]*\])", pattern))


def _is_of_part(name: str, part: str) -> bool:
    before, _, rest = part.partition("[")
    ranges, closed, after = rest.partition("]")
    if not closed:
        return name == part
    if not name.startswith(before):
        return False
    left = name.removeprefix(before)
    digits = re.match(r"[0-9]*", left).group()  # type: ignore[union-attr]
    return any(
        _is_in_ranges(digits[:length], ranges) and _is_of_part(left[length:], after)
        for length in range(1, len(digits) + 1)
    )


def _is_in_ranges(digits: str, ranges: str) -> bool:
    for range_ in ranges.split(","):
        first, dash, last = range_.partition("-")
        if not dash:
            last = first
        if (
            (first.isdecimal() and last.isdecimal())
            and int(first) <= int(digits) <= int(last)
            and digits == str(int(digits)).zfill(len(first))
        ):
            return True
    return False


def _too_few(demand: Demand, partition: Partition) -> str | None:
    nodes = [node for node in partition.nodes if not is_named(node.name, demand.excluded)]
    excluded = len(partition.nodes) - len(nodes)
    without = f" without {excluded} excluded" if excluded else ""
    type_ = f" of type {demand.gpu_type}" if demand.gpu_type else ""
    wishes = (
        (f"GPUs{type_}", demand.gpus, lambda node: node.gpus_of(demand.gpu_type)),
        ("CPUs", demand.cpus, lambda node: node.cpus),
        ("MB of memory", demand.memory_mb, lambda node: node.memory_mb),
    )
    for what, wanted, has in wishes:
        most = max(map(has, nodes), default=0)
        if wanted > most:
            return (
                f"asks for {wanted} {what} on a node; a node of partition {partition.name}"
                f"{without} has at most {most}"
            )
    fitting = sum(all(has(node) >= wanted for _, wanted, has in wishes) for node in nodes)
    if fitting < demand.nodes:
        return (
            f"asks for {demand.nodes} nodes; partition {partition.name}{without} has {fitting} "
            "that can hold it"
        )
    return None


def _gpus_of_node(gres: str) -> dict[str, int]:
    """GPUs by type in what sinfo prints, such as gpu:a100:4(S:0-1),lustre:1."""
    gpus: dict[str, int] = {}
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        type_, number = gpus_in(entry.strip())
        if number:
            gpus[type_] = gpus.get(type_, 0) + number
    return gpus


def _number(text: str) -> int:
    return int(re.match(r"\d*", text).group() or 0)  # type: ignore[union-attr]


def _minutes(limit: str) -> int | None:
    """Minutes in sinfo's [[days-]hours:]minutes:seconds; None for no limit."""
    days, _, clock = limit.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in (days or "0", *parts)):
        return None
    hours, minutes, _seconds = [0, 0, 0, *map(int, parts)][-3:]
    return int(days or 0) * 1440 + hours * 60 + minutes
