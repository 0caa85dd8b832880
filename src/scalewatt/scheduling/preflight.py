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
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import Cluster
from scalewatt.common.errors import InputError
from scalewatt.common.files import try_writing
from scalewatt.slurm.slurm_commands import (
    UNREACHABLE,
    NoAnswerError,
    ask,
    job_of_run,
    may_pass,
    queued_jobs,
)

_GIB = 1 << 30
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

Jobs = Iterable[tuple[str, Mapping[str, Any]]]
"""What each job does, and its resources."""


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
        refused, warnings = misfits(jobs)
        for line in warnings:
            print(f"scalewatt: warning: {line}", file=sys.stderr, flush=True)
        problems += [f"{where}: {problem}" for problem in [*wrong, *refused]]
        problems += queued_runs(campaign, runs)
    if problems:
        lines = "\n  ".join(["nothing is started:", *problems])
        raise InputError(problems[0] if len(problems) == 1 else lines)


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
    """Variables of the cluster file's account that are not set; Slurm itself checks the rest."""
    names = re.findall(r"\$\{?(\w+)\}?", account or "")
    return [
        f"account: {name} is not set; export {name}=<your project>"
        for name in names
        if not os.environ.get(name)
    ]


def folder_problems(folder: Path | str, min_free_gib: float) -> list[str]:
    """What is wrong with a folder that is to be written to; it is made if it is missing."""
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


def misfits(jobs: Jobs) -> tuple[list[str], list[str]]:
    """Requests that Slurm refuses, by its words; and those that it may take later, or gave no answer to.

    Slurm answers itself (`sbatch --test-only`). Jobs that differ in their time alone are one question.
    """
    questions = defaultdict(list)
    for label, resources in jobs:
        questions[(*_options(resources),)].append((int(resources.get("runtime") or 0), label))
    refused: list[str] = []
    warnings: list[str] = []
    for options, asking in questions.items():
        minutes, label = max(asking)[0], asking[0][1]
        names = f"{label} (and {len(asking) - 1} more)" if len(asking) > 1 else label
        time = [f"--time={minutes}"] if minutes else []
        try:
            ask("sbatch", "--test-only", *options, *time, "--wrap=true")
        except NoAnswerError as error:
            answer = str(error).removeprefix("sbatch failed (").removesuffix(")")
            answer = answer.replace("sbatch: error: ", "").replace("allocation failure: ", "")
            if UNREACHABLE.search(answer):  # the next question would wait as long
                warnings.append(f"{names}: not checked: {answer}")
                break
            line = f"{names}: Slurm refuses {shlex.join(options)}: {answer}"
            (warnings if may_pass(answer) else refused).append(line)
    return refused, warnings


def _options(resources: Mapping[str, Any]) -> list[str]:
    """Options of sbatch in a job's resources, without its time and its place in the queue."""
    sizes = [f"{option}={resources[key]}" for key, option in _OPTIONS.items() if resources.get(key)]
    cpus = resources.get("cpus_per_task") or resources.get("_cores") or 1
    extra = shlex.split(str(resources.get("slurm_extra") or ""))
    extra = [word for word in extra if not word.startswith("--nice=")]
    return [*sizes, f"--cpus-per-task={cpus}", *extra]
