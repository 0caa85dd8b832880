"""A check's result, the site that it is about, and commands that end in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import Cluster, Device
from scalewatt.common.project_files import INSTALLED
from scalewatt.slurm.slurm_commands import NoAnswerError

OK, WARN, FAIL = "ok", "warn", "fail"
"""All is well; runs can be made, with a limitation or a question without an answer; they cannot."""
LIMIT_S = 10
"""Time limit of each question; torch from a cold parallel file system takes seconds."""
_CHECKOUT = ("rm -f .venv/.ready && make setup", ". .venv/bin/activate")
SET_UP = ("pip install 'scalewatt[workflow,train]'",) if INSTALLED else _CHECKOUT
"""Installs what trains and measures, whatever is there already."""


@dataclass(frozen=True)
class Check:
    """The result of a check."""

    outcome: str
    text: str
    fix: tuple[str, ...] = ()
    """Commands, or what to choose and whom to ask where no command helps."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the conclusion and other programs."""


def _check(outcome: str, text: str, *fix: str, **facts: Any) -> Check:
    return Check(outcome, text, fix, facts)


ok, warn, fail = partial(_check, OK), partial(_check, WARN), partial(_check, FAIL)
"""A check with this outcome: its text, its fixes, and its facts by name."""


@dataclass(frozen=True)
class Site:
    """A site's cluster, as seen from this machine."""

    name: str
    """As `--site` names it."""
    cluster: Cluster
    root: Path = Path("/")
    """Root of the file system with the machine's sensors."""

    @property
    def in_job(self) -> bool:
        """Whether this process is in a Slurm job."""
        return bool(os.environ.get("SLURM_JOB_ID"))

    @property
    def submits(self) -> bool:
        """Whether runs are Slurm jobs."""
        return any(device.partition for device in self.cluster.devices.values())

    @property
    def runs_here(self) -> bool:
        """Whether runs are made on this node; else they are sent to others."""
        return not self.submits or self.in_job

    @property
    def device(self) -> Device:
        """The device that this machine is by its job's partition, else the first."""
        devices = list(self.cluster.devices.values())
        partition = os.environ.get("SLURM_JOB_PARTITION")
        return next((d for d in devices if partition and d.partition == partition), devices[0])

    @property
    def needs_gpu(self) -> bool:
        """Whether runs use GPUs of this node."""
        return self.runs_here and self.device.torch_device == "cuda"


class CommandFailed(Exception):
    """A command ended with an exit code; the message is the last line that it printed."""


def run(*command: str, **variables: str) -> str:
    """Output of a command with further environment variables; CommandFailed, NoAnswerError after LIMIT_S.

    `timeout` ends what the command started, too, and can be killed itself where that hangs in a driver.
    """
    # Not for those that import this in another process.
    from scalewatt.execution.command_rank import RANKS_VARIABLES
    from scalewatt.execution.launch import command_path

    inherited = {k: v for k, v in os.environ.items() if not k.startswith(RANKS_VARIABLES)}
    try:
        done = subprocess.run(
            ["timeout", "--kill-after=1", str(LIMIT_S), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S + 2,
            env={**inherited, "PATH": command_path(), **variables},
        )
        code = done.returncode
    except subprocess.TimeoutExpired:
        code = 124
    if code in (124, 137):  # ended, or killed by `timeout`
        raise NoAnswerError(f"{Path(command[0]).name} gave no answer in {LIMIT_S} s")
    if code:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit code {code}").splitlines()
        raise CommandFailed(lines[-1])
    return done.stdout


def call(
    function: Callable[..., Any], *arguments: str, begin: Sequence[str] = (), **variables: str
) -> dict[str, Any]:
    """Answer of a function that is called in another process, since drivers and file systems may hang.

    `begin`: words before the command, such as a launcher's, which starts the function several times.
    """
    module, name = function.__module__, function.__name__
    code = (
        f"import json, sys; from {module} import {name}; answer = {name}(*sys.argv[1:]); "
        "answer and print(json.dumps(answer), flush=True)"
    )
    output = run(*begin, sys.executable, "-c", code, *arguments, **variables)
    for line in output.splitlines():  # launchers and libraries print lines, too
        if line.startswith("{"):
            answer: dict[str, Any] = json.JSONDecoder().raw_decode(line)[0]
            return answer
    raise CommandFailed(f"{name} gave no answer")
