"""What a refusal of sbatch means: that Slurm takes the job later, or that it never will.

At submission Slurm compares two kinds of limits (slurmctld's acct_policy, with `limits` in
AccountingStorageEnforce). How many jobs there may be, at once in the queue: the refusal ends when
others have ended. What one job may ask for (time, nodes, GPUs), of which a QOS with DenyOnLimit and an
association look at the job alone: that is never met. All other limits let a job wait in the queue.
"""

from __future__ import annotations

import re
from typing import Literal

Meaning = Literal["own", "shared", "unclear", "final"]
"""own: this user has too many jobs. shared: all users of an account, a QOS or the cluster have.
unclear: Slurm names no limit, so either kind. final: asking again does not help."""

_POLICY = "violates accounting/qos policy"
_LIMIT = re.compile(r"\b(?:QOS|Assoc|Max|Grp)[A-Z]\w*")
"""Slurm's names of limits, which its commands and `scontrol show job` print as reasons."""
_OF_JOBS = re.compile(
    r"(?:(?:QOS|Assoc)?(?:Max|Grp)(?:Submit)?Jobs?(?:PerUser|PerAccount)?|(?:QOS|Association)Job)(?:Limit)?"
)
"""The limits of how many jobs there may be."""
_FULL = re.compile(r"(?i)slurm job queue full|slurm temporarily unable to accept job")
"""MaxJobCount of the cluster, which sbatch has waited for itself for two minutes."""

UNREACHABLE = re.compile(
    r"(?i)timed out|unable to contact|temporarily un|connection refused|zero bytes|standby mode"
)
"""Errors of Slurm's commands while slurmctld gives no answer."""


def meaning(message: str) -> Meaning:
    """Tell from sbatch's error whether another try may help."""
    if _FULL.search(message):
        return "shared"
    limits = _LIMIT.findall(message)
    if any(_OF_JOBS.fullmatch(limit) is None for limit in limits):
        return "final"
    if limits:
        shared = any("Grp" in limit or "PerAccount" in limit for limit in limits)
        return "shared" if shared else "own"
    return "unclear" if _POLICY in message.lower() else "final"
