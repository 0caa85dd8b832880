"""A rank's command as a process: started, signalled, waited for, and ended with the rank."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from scalewatt.common.parent_death import die_with
from scalewatt.common.stop_request import StopRequest

STOP_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)
_POLL_S = 0.1
RANKS_VARIABLES = ("PMI_", "PMI2_", "PMIX_", "HYDI_", "SLURM_PMI")
"""Beginnings of the variables by which a launcher tells a process that it is a rank."""
LAUNCHERS_VARIABLES = (
    *RANKS_VARIABLES,
    *("MPI_", "MPIR_", "MPICH_", "OMPI_", "HYDRA_", "MPIEXEC_", "MV2_", "PALS_"),
)
"""Beginnings of the variables by which MPI would take a command for the rank itself."""


class CommandFailed(Exception):
    """A rank's command ended neither finished nor stopped."""


def start_child(
    words: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start `words` in `folder`, in a process group that ends with this process."""
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            process_group=0,
            preexec_fn=partial(_prepare, os.getpid()),
        )
    except (OSError, ValueError) as error:  # ValueError: a word or variable with NUL in it
        raise CommandFailed(f"the command {words[0]} cannot be started ({error})") from error


def _prepare(parent: int) -> None:
    """Set up the child: it ends with the rank, and handles Ctrl-C as any program does."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def how_ended(code: int) -> str:
    """Describe how a process with this return code of Python's `subprocess` ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    if -code in STOP_SIGNALS:
        return f"was ended by signal {name}: it was asked to stop, and has no handler for that"
    return f"was ended by signal {name}"


def wait_for_child(command: subprocess.Popen[bytes], signals: Signals) -> int:
    """Wait for the command's end, and end what it leaves of its process group."""
    with _guarded_group(command.pid):
        while (code := command.poll()) is None:
            signals.pass_on(command)
            with suppress(subprocess.TimeoutExpired):
                command.wait(_POLL_S)
        return code


@contextmanager
def _guarded_group(group: int) -> Iterator[None]:
    """End a process group at the end of the block, and also if this process is killed in it.

    The kernel ends the command itself with this process, but not what the command has started. A
    shell does that, which waits for the end of a pipe that only this process writes to.
    """
    end, own = os.pipe()
    guard = subprocess.Popen(
        ["sh", "-c", f"trap '' TERM USR1 INT; read _; kill -9 -{group}"],
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(end)
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        os.close(own)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


class Signals:
    """Forwards a rank's signals to its command, and a request to stop to all ranks (`file`)."""

    def __init__(self, stop: StopRequest, file: Path) -> None:
        self.stop, self.file = stop, file
        self._got: list[int] = []
        self._asked = False
        self._previous: dict[int, Any] = {}
        self._next_look_s = 0.0

    def __enter__(self) -> Signals:
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._previous[number](number, frame)
        self._got.append(number)

    def pass_on(self, command: subprocess.Popen[bytes]) -> None:
        """Give the command the signals that came, or USR1 where another rank was asked to stop."""
        asked = self._is_asked()
        while self._got:
            command.send_signal(self._got.pop(0))
            self._asked = True
        if asked and not self._asked:
            command.send_signal(signal.SIGUSR1)
            self._asked = True

    def _is_asked(self) -> bool:
        """Return True if this rank or another has been asked to stop; all ranks are informed."""
        if self.stop.asked() or self._got:
            if not self._asked:
                self.file.touch()
            return True
        now = time.monotonic()
        if now < self._next_look_s:
            return False
        self._next_look_s = now + 5 * _POLL_S
        return self.file.exists()
