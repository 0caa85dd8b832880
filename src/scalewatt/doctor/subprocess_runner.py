"""Questions to programs, none of which is waited for long or left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

_END_S = 1.0
_ANSWER_BYTES = 1 << 22


@dataclass(frozen=True)
class Answer:
    """What a program said; `trouble` is empty where it ended with exit code 0."""

    output: str = ""
    errors: str = ""
    trouble: str = ""
    is_missing: bool = False
    """Whether there is no such program."""
    is_silent: bool = False
    """Whether it did not end in time."""

    @property
    def lines(self) -> list[str]:
        """The lines that it printed, without empty ones."""
        return [line for line in self.output.splitlines() if line.strip()]


class Children:
    """The programs that one doctor asks; all have ended when it ends them."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        path = [str(Path(python).parent), environment.get("PATH", os.defpath)]
        self.environment = {**environment, "PATH": os.pathsep.join(path), "LC_ALL": "C"}
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ended = False

    def which(self, program: str) -> str | None:
        """Where a program is."""
        return shutil.which(program, path=self.environment["PATH"])

    def ask(
        self,
        command: Sequence[str],
        limit_s: float,
        environment: Mapping[str, str] | None = None,
        without: tuple[str, ...] = (),
    ) -> Answer:
        """Run a command and return what it says; it and what it started end after `limit_s`.

        `environment` is added to its own, `without` are beginnings of variables that it does not get.
        """
        kept = {
            k: v for k, v in self.environment.items() if not without or not k.startswith(without)
        }
        program = Path(command[0]).name
        if self.which(command[0]) is None:
            return Answer(trouble=f"{program} is not found", is_missing=True)
        # Files, since whoever holds a pipe's other end would be waited for.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            try:
                process = self._start(command, output, errors, {**kept, **(environment or {})})
            except OSError as error:
                return Answer(trouble=f"{program} cannot be run ({error.strerror})")
            if process is None:
                return Answer(trouble=f"{program} was not asked in time", is_silent=True)
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self._kill(process)
                self._wait(process, _END_S)
                said = f"{program} gave no answer in {limit_s:g} s"
                return Answer(_text(output), _text(errors), said, is_silent=True)
            finally:
                self._forget(process)
            return Answer(_text(output), _text(errors), _trouble(program, code, _text(errors)))

    def end_all(self, within_s: float = _END_S) -> None:
        """End whatever still runs, and wait `within_s` at most for all; nothing is started any more."""
        with self._lock:
            self._ended = True
            running = list(self._processes.values())
        until_s = time.monotonic() + within_s
        for process in running:
            self._kill(process)
        for process in running:
            self._wait(process, until_s - time.monotonic())

    def _start(
        self,
        command: Sequence[str],
        output: IO[bytes],
        errors: IO[bytes],
        environment: Mapping[str, str],
    ) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._ended:
                return None
            process: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
            self._processes[process.pid] = process
            return process

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.pop(process.pid, None)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        """Kill a process and all that it started; mpiexec gives its ranks groups of their own."""
        started: list[psutil.Process] = []
        with suppress(psutil.Error):
            started = psutil.Process(process.pid).children(recursive=True)
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for child in started:
            with suppress(psutil.Error):
                child.kill()

    @staticmethod
    def _wait(process: subprocess.Popen[bytes], limit_s: float) -> None:
        """One that waits for a file system cannot be ended by anybody, and is left."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, limit_s))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_ANSWER_BYTES).decode(errors="replace")


def _trouble(program: str, code: int, errors: str) -> str:
    if code == 0:
        return ""
    said = [line.strip() for line in errors.splitlines() if line.strip()]
    return f"{program} failed ({said[-1] if said else f'exit code {code}'})"
