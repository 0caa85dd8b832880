"""What is checked before anything is submitted: account, partitions, nodes, folders.

All that is wrong is reported at once. What Slurm does not answer is reported and skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Cluster
from scalewatt.common.errors import InputError
from scalewatt.common.files import try_writing
from scalewatt.common.schema_validation import nearest
from scalewatt.slurm.partitions import PARTITIONS_QUESTION, Problems, misfits, parse_partitions
from scalewatt.slurm.slurm_commands import NoAnswerError, ask, own_accounts

_GIB = 1 << 30


def check_before_submission(
    jobs: Iterable[tuple[str, Mapping[str, Any]]],
    cluster: Cluster,
    where: str,
    folders: Iterable[Path | str],
    min_free_gib: float = 0.0,
) -> None:
    """Hold all jobs for the scheduler (what each does, its resources) against Slurm, and try the folders.

    `where` names the cluster file. InputError with everything that is wrong.
    """
    jobs = list(jobs)
    problems = [problem for folder in folders for problem in folder_problems(folder, min_free_gib)]
    if jobs:
        wrong = account_problems(cluster.account)
        if wrong:  # said once, and asked without
            jobs = [(label, dict(asks.items()) | {"slurm_account": None}) for label, asks in jobs]
        problems += [f"{where}: {problem}" for problem in wrong]
        problems += _slurm_problems(jobs, where)
    if problems:
        many = "\n  ".join(["nothing is started:", *problems])
        raise InputError(problems[0] if len(problems) == 1 else many)


def account_problems(account: str | None) -> list[str]:
    """Return what is wrong with the cluster file's account; nothing if it names none."""
    if account is None:
        return []
    unset = [name for name in re.findall(r"\$\{?(\w+)\}?", account) if not os.environ.get(name)]
    name = os.path.expandvars(account)
    if not unset and not name:
        return ["account: is empty; expected a project of yours, or no key for Slurm's default"]
    try:
        accounts = own_accounts()
    except NoAnswerError as error:
        _say(f"the account is not checked: {error}")
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
    """Return what is wrong with a folder that is to be written to; it is made where it is missing."""
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


def _slurm_problems(jobs: list[tuple[str, Mapping[str, Any]]], where: str) -> list[str]:
    if shutil.which("sbatch") is None:
        return [
            f"{where}: is of a Slurm cluster, and sbatch is not found; start Snakemake on its login "
            "node, or take another profile"
        ]
    try:
        partitions = parse_partitions(ask(*PARTITIONS_QUESTION))
    except NoAnswerError as error:
        _say(f"partitions and nodes are not checked: {error}")
        return []
    stay, pass_ = misfits(jobs, partitions, _problem)
    for line in _lines(pass_):
        _say(line)
    return [f"{where}: {line}" for line in _lines(stay)]


def _problem(command: Sequence[str]) -> str:
    try:
        ask(*command)
    except NoAnswerError as error:
        return str(error)
    return ""


def _lines(problems: Problems) -> list[str]:
    return [
        f"{first}{f' (and {len(others)} more)' if others else ''}: {problem}"
        for problem, (first, *others) in problems.items()
    ]


def _say(text: str) -> None:
    print(f"scalewatt: warning: {text}", file=sys.stderr, flush=True)
