"""Whether Slurm would ever take a job, by its own answer: `sbatch --test-only`.

sinfo is asked besides: sbatch does not test a partition's time limit (a job over it may wait for ever),
and of nodes that are down for now it says the same as of nodes that do not exist.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scalewatt.common.schema_validation import one_of
from scalewatt.slurm.submit_limits import UNREACHABLE, meaning

PARTITIONS_QUESTION = ("sinfo", "-a", "-h", "-o", "%R|%l|%F")
"""Command whose answer `parse_partitions` takes; hidden partitions are in it."""
_PARTITION = re.compile(r"\s*([^|]+)\|([^|]+)\|.*/([0-9]+)/([0-9]+)\s*")
_OPTIONS = {
    "slurm_partition": "--partition",
    "slurm_account": "--account",
    "nodes": "--nodes",
    "tasks": "--ntasks",
    "gres": "--gres",
    "mem_mb": "--mem",
    "constraint": "--constraint",
    "qos": "--qos",
}
_OF_ORDER = ("--nice", "--signal")
_NO_ANSWER = "not checked: "


@dataclass(frozen=True)
class Partition:
    """A partition: its time limit (None: none), its nodes, and those of them that are down or drained."""

    name: str
    time_limit_min: int | None
    nodes: int
    away: int


def parse_partitions(lines: Iterable[str]) -> dict[str, Partition]:
    """Read the partitions that `sinfo` printed, by name."""
    rows = (row.groups() for line in lines if (row := _PARTITION.fullmatch(line)))
    return {
        name: Partition(name, _minutes(limit), nodes=int(nodes), away=int(away))
        for name, limit, away, nodes in rows
    }


Problems = dict[str, list[str]]
"""Labels of the jobs that have a problem, by its text."""


def misfits(
    jobs: Iterable[tuple[str, Mapping[str, Any]]],
    partitions: Mapping[str, Partition],
    asked: Callable[[Sequence[str]], str],
) -> tuple[Problems, Problems]:
    """Ask Slurm about jobs (label, resources): problems that stay, and those that may pass.

    The latter are nodes that are down or drained now, limits of the queue, and no answer. `asked`
    runs a command and says what went wrong, or ''. Jobs that differ in their time are one question.
    """
    stay: Problems = defaultdict(list)
    pass_: Problems = defaultdict(list)
    alike: dict[tuple[str | None, Sequence[str]], list[tuple[int, str]]] = defaultdict(list)
    for label, resources in jobs:
        name, minutes = resources.get("slurm_partition"), int(resources.get("runtime") or 0)
        problem = _limit_problem(name, minutes, partitions)
        if problem:
            stay[problem].append(label)
        else:
            alike[name, _options(resources)].append((minutes, label))
    for (name, options), labels in alike.items():
        minutes = max(labels)[0]
        time = (f"--time={minutes}",) if minutes else ()
        problem = asked(("sbatch", "--test-only", *options, *time, "--wrap=true"))
        if problem:
            text, stays = _worded(problem, options, partitions.get(name or ""))
            (stay if stays else pass_)[text] += [label for _, label in labels]
            if text.startswith(_NO_ANSWER):
                break  # the next question would wait as long
    return stay, pass_


def _limit_problem(
    name: str | None, minutes: int, partitions: Mapping[str, Partition]
) -> str | None:
    if name is None:
        return None
    if name not in partitions:
        return f"Slurm has no partition '{name}'; {one_of(name, sorted(partitions))}"
    limit = partitions[name].time_limit_min
    if limit is None or minutes <= limit:
        return None
    return f"asks for {minutes} min; partition {name} allows {limit} min"


def _options(resources: Mapping[str, Any]) -> tuple[str, ...]:
    """Options of sbatch in a job's resources, without its time and what only orders the queue."""
    given = [f"{option}={resources[key]}" for key, option in _OPTIONS.items() if resources.get(key)]
    cpus = resources.get("cpus_per_task") or resources.get("_cores") or 1
    extra = shlex.split(str(resources.get("slurm_extra") or ""))
    return (*given, f"--cpus-per-task={cpus}", *(w for w in extra if not w.startswith(_OF_ORDER)))


def _worded(problem: str, options: Sequence[str], partition: Partition | None) -> tuple[str, bool]:
    """Text of what sbatch said, and whether it says so for ever."""
    said = problem.removeprefix("sbatch failed (").removesuffix(")")
    if said == problem or UNREACHABLE.search(problem):
        return f"{_NO_ANSWER}{problem}", False
    words = said.replace("sbatch: error: ", "").replace("allocation failure: ", "")
    text = f"Slurm refuses {shlex.join(options)}: {words}"
    if partition is not None and partition.away and "is not available" in problem:
        return f"{text} ({partition.away} of {partition.nodes} nodes are down or drained)", False
    return text, meaning(problem) == "final"


def _minutes(limit: str) -> int | None:
    """Minutes in sinfo's [[days-]hours:]minutes:seconds; None for no limit."""
    days, _, clock = limit.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in (days or "0", *parts)):
        return None
    hours, minutes, _seconds = [0, 0, 0, *map(int, parts)][-3:]
    return int(days or 0) * 1440 + hours * 60 + minutes
