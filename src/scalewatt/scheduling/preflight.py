"""What is checked before anything is submitted: account, partitions, nodes, folders, jobs of others.

All that is wrong is reported at once. What Slurm does not answer is reported and skipped.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import Cluster
from scalewatt.common.errors import InputError, nearest, one_of
from scalewatt.common.files import try_writing
from scalewatt.slurm.job_queue import job_of_run, queued_jobs
from scalewatt.slurm.slurm_commands import (
    UNREACHABLE,
    NoAnswerError,
    ask,
    may_pass,
    user_accounts,
)

_GIB = 1 << 30
_PARTITION = re.compile(r"\s*([^|]+)\|(?:(?:(\d+)-)?(?:(\d+):)?(\d+):\d+|[^|]*)\|.*/(\d+)/(\d+)\s*")
"""sinfo's name, days, hours and minutes of the time limit, nodes that are down or drained, nodes."""
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
_NOT_OF_SIZE = ("--nice", "--signal", "--requeue", "--no-requeue", "--open-mode")
"""Options that do not decide whether a job fits."""

Jobs = Iterable[tuple[str, Mapping[str, Any]]]
"""What each job does, and its resources."""
Problems = dict[str, list[str]]
"""Labels of jobs by problem."""


def check_before_submission(
    jobs: Jobs,
    cluster: Cluster,
    where: str,
    folders: Iterable[Path | str],
    min_free_gib: float = 0.0,
    runs: Iterable[tuple[str, int]] = (),
    campaign: str = "",
) -> None:
    """Hold all jobs for the scheduler against Slurm, and try the folders; InputError with all that is wrong.

    `where` names the cluster file; `runs` of the campaign are to be trained, and may have a job already.
    """
    jobs = list(jobs)
    problems = [problem for folder in folders for problem in folder_problems(folder, min_free_gib)]
    if jobs and shutil.which("sbatch") is None:
        problems.append(
            f"{where}: is of a Slurm cluster, and sbatch is not found; start Snakemake on its login "
            "node, or take another profile"
        )
    elif jobs:
        wrong = account_problems(cluster.account)
        if wrong:  # reported once, and asked without
            jobs = [(label, {**asks, "slurm_account": None}) for label, asks in jobs]
        refused, may_be = misfits(jobs)
        for line in _lines(may_be):
            _warn(line)
        problems += [f"{where}: {problem}" for problem in [*wrong, *_lines(refused)]]
        problems += queued_runs(campaign, runs)
    if problems:
        many = "\n  ".join(["nothing is started:", *problems])
        raise InputError(problems[0] if len(problems) == 1 else many)


def queued_runs(campaign: str, runs: Iterable[tuple[str, int]]) -> list[str]:
    """Jobs in Slurm's queue that another Snakemake submitted here for these runs of the campaign."""
    try:
        queue = queued_jobs()
    except NoAnswerError:  # the runs' locks decide
        return []
    jobs = [(run, job_of_run(queue, Path.cwd(), campaign, *run)) for run in runs]
    return [
        f"{name} repeat {repeat}: its job {job.id} is in Slurm's queue ({job.state}); wait for it or end it "
        f"(scancel {job.id}), then start Snakemake again"
        for (name, repeat), job in jobs
        if job is not None and job.state != "COMPLETING"
    ]


def account_problems(account: str | None) -> list[str]:
    """What is wrong with the cluster file's account; nothing if it names none."""
    if account is None:
        return []
    unset = [name for name in re.findall(r"\$\{?(\w+)\}?", account) if not os.environ.get(name)]
    try:
        accounts = user_accounts()
    except NoAnswerError as error:
        _warn(f"the account is not checked: {error}")
        accounts = []
    yours = ", ".join(accounts) or "`sacctmgr -nP show assoc user=$USER format=account`"
    if unset:
        return [
            f"account: {name} is not set; export {name}=<your project> (yours: {yours})"
            for name in unset
        ]
    name = os.path.expandvars(account)
    if not name or (accounts and name.lower() not in map(str.lower, accounts)):
        hint = nearest(name, accounts)
        return [f"account: Slurm does not let you use '{name}'; allowed: {yours}{hint}"]
    return []


def folder_problems(folder: Path | str, min_free_gib: float) -> list[str]:
    """What is wrong with a folder that is to be written to; it is made where it is missing."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        free_gib = shutil.disk_usage(folder).free / _GIB
        if free_gib < min_free_gib:
            return [
                f"{folder}: {free_gib:.2g} GiB are free; at least {min_free_gib:g} are needed "
                "(min_free_gib of the cluster file)"
            ]
        try_writing(Path(folder))
    except OSError as error:
        return [f"{folder}: cannot be written to ({error.strerror}); expected a folder of yours"]
    return []


# --- Slurm's own answers --------------------------------------------------------------------------


def misfits(jobs: Jobs) -> tuple[Problems, Problems]:
    """Jobs that Slurm would never take, by problem; and those with problems that may pass.

    The latter are nodes that are down or drained now, limits of the queue, and no answer. Slurm answers
    itself (`sbatch --test-only`), but for a partition's time limit, which it does not test. Jobs that
    differ in their time alone are one question.
    """
    never: Problems = defaultdict(list)
    may_be: Problems = defaultdict(list)
    try:
        partitions = _partitions()
    except NoAnswerError as error:
        return {}, {f"not checked: {error}": [label for label, _ in jobs]}
    questions: dict[tuple[str, ...], list[tuple[int, str]]] = defaultdict(list)
    for label, resources in jobs:
        name, minutes = resources.get("slurm_partition"), int(resources.get("runtime") or 0)
        limit_min, _ = partitions.get(name or "", (None, ""))
        if name is not None and name not in partitions:
            problem = f"Slurm has no partition '{name}'; {one_of(name, sorted(partitions))}"
            never[problem].append(label)
        elif limit_min is not None and minutes > limit_min:
            problem = f"asks for {minutes} min; partition {name} allows {limit_min} min"
            never[problem].append(label)
        else:
            questions[name or "", *_options(resources)].append((minutes, label))
    for (name, *options), asking in questions.items():
        labels, minutes = [label for _, label in asking], max(asking)[0]
        answer = _refusal([*options, *([f"--time={minutes}"] if minutes else [])])
        if answer is None:
            continue
        text = f"Slurm refuses {shlex.join(options)}: {answer}"
        away = partitions[name][1] if name else ""
        if UNREACHABLE.search(answer):  # the next question would wait as long
            may_be[f"not checked: {answer}"] += labels
            break
        # Of nodes that are down for now sbatch says the same as of nodes that do not exist.
        if away and "is not available" in answer:
            may_be[f"{text} ({away} are down or drained)"] += labels
        else:
            (may_be if may_pass(answer) else never)[text] += labels
    return never, may_be


def _partitions() -> dict[str, tuple[int | None, str]]:
    """Partitions by name, hidden ones too: time limit in minutes, and nodes down ("" for none)."""
    known = {}
    for row in filter(None, map(_PARTITION.fullmatch, ask("sinfo", "-a", "-h", "-o", "%R|%l|%F"))):
        name, days, hours, minutes, away, nodes = row.groups()
        limit = int(days or 0) * 1440 + int(hours or 0) * 60 + int(minutes) if minutes else None
        known[name] = limit, f"{away} of {nodes} nodes" if int(away) else ""
    return known


def _refusal(options: Sequence[str]) -> str | None:
    """Slurm's words if it would not take a job with these options."""
    try:
        ask("sbatch", "--test-only", *options, "--wrap=true")
    except NoAnswerError as error:
        words = str(error).removeprefix("sbatch failed (").removesuffix(")")
        return words.replace("sbatch: error: ", "").replace("allocation failure: ", "")
    return None


def _options(resources: Mapping[str, Any]) -> list[str]:
    """Options of sbatch in a job's resources, without its time and what decides nothing."""
    given = [f"{option}={resources[key]}" for key, option in _OPTIONS.items() if resources.get(key)]
    cpus = resources.get("cpus_per_task") or resources.get("_cores") or 1
    extra = shlex.split(str(resources.get("slurm_extra") or ""))
    sizes = [word for word in extra if not word.startswith(_NOT_OF_SIZE)]
    return [*given, f"--cpus-per-task={cpus}", *sizes]


def _lines(problems: Problems) -> list[str]:
    return [
        f"{first}{f' (and {len(others)} more)' if others else ''}: {problem}"
        for problem, (first, *others) in problems.items()
    ]


def _warn(text: str) -> None:
    print(f"scalewatt: warning: {text}", file=sys.stderr, flush=True)
