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


def check_before_submission(
    jobs: Jobs,
    cluster: Cluster,
    where: str,
    folders: Iterable[Path | str],
    min_free_gib: float = 0.0,
    runs: Iterable[tuple[str, int]] = (),
) -> None:
    """Hold all jobs for the scheduler against Slurm, and try the folders; InputError with all that is wrong.

    `where` names the cluster file; `runs` are those to be trained, which may have a job already.
    """
    jobs = list(jobs)
    problems = [problem for folder in folders for problem in folder_problems(folder, min_free_gib)]
    if jobs:
        wrong = account_problems(cluster.account)
        if wrong:  # reported once, and asked without
            jobs = [(label, dict(asks.items()) | {"slurm_account": None}) for label, asks in jobs]
        slurm = [*wrong, *_slurm_problems(jobs)]
        problems += [f"{where}: {problem}" for problem in slurm] + queued_runs(runs)
    if problems:
        many = "\n  ".join(["nothing is started:", *problems])
        raise InputError(problems[0] if len(problems) == 1 else many)


def queued_runs(runs: Iterable[tuple[str, int]]) -> list[str]:
    """Jobs in Slurm's queue that another Snakemake submitted here for these runs."""
    try:
        queue = queued_jobs()
    except NoAnswerError:  # the runs' locks decide
        return []
    jobs = [(f"{run[0]} repeat {run[1]}", job_of_run(queue, Path.cwd(), *run)) for run in runs]
    return [
        f"{name}: its job {job.id} is in Slurm's queue ({job.state}); wait for it or end it "
        f"(scancel {job.id}), then start Snakemake again"
        for name, job in jobs
        if job is not None and job.state != "COMPLETING"
    ]


def account_problems(account: str | None) -> list[str]:
    """What is wrong with the cluster file's account; nothing if it names none."""
    if account is None:
        return []
    unset = [name for name in re.findall(r"\$\{?(\w+)\}?", account) if not os.environ.get(name)]
    name = os.path.expandvars(account)
    if not unset and not name:
        return ["account: is empty; expected a project of yours, or no key for Slurm's default"]
    try:
        accounts = user_accounts()
    except NoAnswerError as error:
        _warn(f"the account is not checked: {error}")
        accounts = []
    if unset:
        yours = ", ".join(accounts) or "`sacctmgr -nP show assoc user=$USER format=account`"
        return [
            f"account: {variable} is not set; export {variable}=<your project> (yours: {yours})"
            for variable in unset
        ]
    if accounts and name.lower() not in [known.lower() for known in accounts]:
        allowed = ", ".join(accounts)
        return [
            f"account: Slurm does not let you use '{name}'; "
            f"allowed: {allowed}{nearest(name, accounts)}"
        ]
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


def _slurm_problems(jobs: Jobs) -> list[str]:
    if shutil.which("sbatch") is None:
        return [
            "is of a Slurm cluster, and sbatch is not found; start Snakemake on its login node, or "
            "take another profile"
        ]
    problems, may_be = misfits(jobs)
    for line in _lines(may_be):
        _warn(line)
    return _lines(problems)


def misfits(jobs: Jobs) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Labels of jobs that Slurm would never take, by problem; and those with problems that may pass.

    The latter are nodes that are down or drained now, limits of the queue, and no answer. Slurm answers
    itself (`sbatch --test-only`), but for a partition's time limit, which it does not test. Jobs that
    differ in their time alone are one question.
    """
    stay: dict[str, list[str]] = defaultdict(list)
    pass_: dict[str, list[str]] = defaultdict(list)
    questions: dict[tuple[str | None, Sequence[str]], list[tuple[int, str]]] = defaultdict(list)
    try:
        partitions = _partitions()
    except NoAnswerError as error:
        return {}, {f"not checked: {error}": [label for label, _ in jobs]}
    for label, resources in jobs:
        name, minutes = resources.get("slurm_partition"), int(resources.get("runtime") or 0)
        limit_min, _ = partitions.get(name or "", (None, ""))
        if name is not None and name not in partitions:
            stay[f"Slurm has no partition '{name}'; {one_of(name, sorted(partitions))}"].append(
                label
            )
        elif limit_min is not None and minutes > limit_min:
            problem = f"asks for {minutes} min; partition {name} allows {limit_min} min"
            stay[problem].append(label)
        else:
            questions[name, _options(resources)].append((minutes, label))
    for (name, options), asking in questions.items():
        minutes, labels = max(asking)[0], [label for _, label in asking]
        time = (f"--time={minutes}",) if minutes else ()
        try:
            ask("sbatch", "--test-only", *options, *time, "--wrap=true")
        except NoAnswerError as error:
            if UNREACHABLE.search(str(error)):  # the next question would wait as long
                pass_[f"not checked: {error}"] += labels
                break
            words = str(error).removeprefix("sbatch failed (").removesuffix(")")
            words = words.replace("sbatch: error: ", "").replace("allocation failure: ", "")
            text, away = f"Slurm refuses {shlex.join(options)}: {words}", partitions.get(name or "")
            # Of nodes that are down for now sbatch says the same as of nodes that do not exist.
            is_down = bool(away and away[1]) and "is not available" in words
            if is_down and away:
                text += f" ({away[1]} are down or drained)"
            is_passing = is_down or may_pass(words) or not str(error).startswith("sbatch failed")
            (pass_ if is_passing else stay)[text] += labels
    return stay, pass_


def _partitions() -> dict[str, tuple[int | None, str]]:
    """Partitions by name, hidden ones too: time limit in minutes, and nodes down ("" for none)."""
    known = {}
    for row in filter(None, map(_PARTITION.fullmatch, ask("sinfo", "-a", "-h", "-o", "%R|%l|%F"))):
        name, days, hours, minutes, away, nodes = row.groups()
        limit = int(days or 0) * 1440 + int(hours or 0) * 60 + int(minutes) if minutes else None
        known[name] = limit, f"{away} of {nodes} nodes" if int(away) else ""
    return known


def _options(resources: Mapping[str, Any]) -> tuple[str, ...]:
    """Options of sbatch in a job's resources, without its time and what decides nothing."""
    given = [f"{option}={resources[key]}" for key, option in _OPTIONS.items() if resources.get(key)]
    cpus = resources.get("cpus_per_task") or resources.get("_cores") or 1
    extra = shlex.split(str(resources.get("slurm_extra") or ""))
    return (
        *given,
        f"--cpus-per-task={cpus}",
        *(w for w in extra if not w.startswith(_NOT_OF_SIZE)),
    )


def _lines(problems: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"{first}{f' (and {len(others)} more)' if others else ''}: {problem}"
        for problem, (first, *others) in problems.items()
    ]


def _warn(text: str) -> None:
    print(f"scalewatt: warning: {text}", file=sys.stderr, flush=True)
