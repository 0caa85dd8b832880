"""Programs that are run for a limited time, none of which is left behind."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

from scalewatt.slurm.slurm_commands import users_variables

_END_S = 0.5
_ANSWER_BYTES = 1 << 22


@dataclass(frozen=True)
class Answer:
    """The output of a program; `problem` is empty if it ended with exit code 0."""

    output: str = ""
    errors: str = ""
    problem: str = ""
    not_found: bool = False
    """True if there is no such program."""
    timed_out: bool = False
    """True if it did not end in time."""

    @property
    def lines(self) -> list[str]:
        """Return the lines that it printed, without empty ones."""
        return [line for line in self.output.splitlines() if line.strip()]

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Return the JSON objects among the lines; launchers and libraries may print others."""
        return [found for line in self.lines if isinstance(found := _json(line), dict)]


class Subprocesses:
    """Runs programs, each for a limited time and none beyond `until_s` (monotonic clock)."""

    def __init__(
        self, python: str, environment: Mapping[str, str], until_s: float = math.inf
    ) -> None:
        path = [str(Path(python).parent), environment.get("PATH", os.defpath)]
        plain = {k: v for k, v in environment.items() if k not in users_variables(environment)}
        self.environment = {**plain, "PATH": os.pathsep.join(path), "LC_ALL": "C"}
        self.until_s = until_s

    def which(self, program: str) -> str | None:
        """Return where a program is; None if it is not found."""
        return shutil.which(program, path=self.environment["PATH"])

    def run(
        self,
        command: Sequence[str],
        limit_s: float,
        environment: Mapping[str, str] | None = None,
        without: tuple[str, ...] = (),
    ) -> Answer:
        """Run a command and return its output; it and what it started end after `limit_s`.

        `environment` is added to its own; variables that begin with one of `without` are removed.
        """
        kept = {k: v for k, v in self.environment.items() if not k.startswith(without)}
        program = Path(command[0]).name
        if self.which(command[0]) is None:
            return Answer(problem=f"{program} is not found", not_found=True)
        limit_s = min(limit_s, self.until_s - time.monotonic())
        if limit_s <= 0:
            return Answer(problem=f"{program} was not started in time", timed_out=True)
        # Files: a pipe would have to be read until the last process with its other end has ended.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env={**kept, **(environment or {})},
                    start_new_session=True,
                )
            except OSError as error:
                return Answer(problem=f"{program} cannot be run ({error.strerror})")
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                _kill(process)
                problem = f"{program} gave no answer in {limit_s:.3g} s"
                return Answer(_text(output), _text(errors), problem, timed_out=True)
            stderr = _text(errors)
            lines = [line.strip() for line in stderr.splitlines() if line.strip()]
            why = lines[-1] if lines else f"exit code {code}"
            return Answer(_text(output), stderr, f"{program} failed ({why})" if code else "")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started; mpiexec gives its ranks groups of their own.

    One that waits for a file system cannot be ended, and is left.
    """
    started: list[psutil.Process] = []
    with suppress(psutil.Error):
        started = psutil.Process(process.pid).children(recursive=True)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for child in started:
        with suppress(psutil.Error):
            child.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_ANSWER_BYTES).decode(errors="replace")
