"""Whether Slurm would ever take a job, by its own answer: `sbatch --test-only`.

sinfo is asked besides: sbatch does not test a partition's time limit (a job over it may wait for ever),
and of nodes that are down for now it says the same as of nodes that do not exist.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scalewatt.common.schema_validation import one_of
from scalewatt.slurm.submit_limits import UNREACHABLE, meaning

PARTITIONS_QUESTION = ("sinfo", "-a", "-h", "-o", "%R|%l|%F")
"""Command whose answer `parse_partitions` takes; hidden partitions are in it."""
_PARTITION = re.compile(r"\s*([^|]+)\|(?:(?:(\d+)-)?(?:(\d+):)?(\d+):\d+|[^|]*)\|.*/(\d+)/(\d+)\s*")
"""Name, days, hours and minutes of the time limit, nodes that are down or drained, nodes."""
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
_REFUSED = "sbatch failed ("
_OF_ORDER = ("--nice", "--signal")
"""Options that decide when a job starts or is warned, not whether it fits."""


class Partition(NamedTuple):
    """A partition: its time limit (None: none), its nodes, and those of them that are down or drained."""

    name: str
    time_limit_min: int | None
    nodes: int
    away: int


def parse_partitions(lines: Iterable[str]) -> dict[str, Partition]:
    """Read the partitions that `sinfo` printed, by name."""
    known = {}
    for row in filter(None, map(_PARTITION.fullmatch, lines)):
        name, days, hours, minutes, away, nodes = row.groups()
        limit = int(days or 0) * 1440 + int(hours or 0) * 60 + int(minutes) if minutes else None
        known[name] = Partition(name, limit, int(nodes), int(away))
    return known


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
    questions: dict[tuple[str | None, Sequence[str]], list[tuple[int, str]]] = defaultdict(list)
    for label, resources in jobs:
        name, minutes = resources.get("slurm_partition"), int(resources.get("runtime") or 0)
        problem = _limit_problem(name, minutes, partitions)
        if problem:
            stay[problem].append(label)
        else:
            questions[name, _options(resources)].append((minutes, label))

    for (name, options), asking in questions.items():
        minutes, labels = max(asking)[0], [label for _, label in asking]
        time = (f"--time={minutes}",) if minutes else ()
        problem = asked(("sbatch", "--test-only", *options, *time, "--wrap=true"))
        if problem and (UNREACHABLE.search(problem) or not problem.startswith(_REFUSED)):
            pass_[f"not checked: {problem}"] += labels
            break  # the next question would wait as long
        if problem:
            text, stays = _refusal(problem, options, partitions.get(name or ""))
            (stay if stays else pass_)[text] += labels
    return stay, pass_


def _refusal(problem: str, options: Sequence[str], partition: Partition | None) -> tuple[str, bool]:
    """Text of what sbatch refused, and whether it does so for ever."""
    words = problem.removeprefix(_REFUSED).removesuffix(")")
    words = words.replace("sbatch: error: ", "").replace("allocation failure: ", "")
    text = f"Slurm refuses {shlex.join(options)}: {words}"
    if partition and partition.away and "is not available" in problem:
        return f"{text} ({partition.away} of {partition.nodes} nodes are down or drained)", False
    return text, meaning(problem) == "final"


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
