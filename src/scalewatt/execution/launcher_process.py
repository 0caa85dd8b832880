"""The launcher of a run's ranks: started, waited for, and ended with all it started here.

mpiexec gives its ranks sessions of their own, so they are known by a mark in their environment. On other
nodes the launcher ends its ranks.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import psutil

from scalewatt.common.errors import InputError
from scalewatt.common.processes import signal_at_parents_death
from scalewatt.common.termination import say
from scalewatt.execution.node_levers import PATIENCE_S, RESETS

GRACE_S = 10.0
"""How long all may take to end after TERM, or after the launcher's end, and then after KILL."""
_LOOK_S = 0.1
MARK = "SCALEWATT_RANKS"
"""Variable of a launcher and all that it starts, by which they are found."""
CALLERS_PATH = "SCALEWATT_CALLERS_PATH"
"""PATH as it was before this Python's commands were put first, for what is not ours."""


class RanksProcess:
    """A running launcher. Leaving the context ends it and all that it started here.

    It gets USR1 when this process dies. `lock` is a file descriptor that all hold until they end.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: BinaryIO,
        lock: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.mark = uuid.uuid4().hex
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "PATH": command_path(),
                CALLERS_PATH: os.environ.get("PATH", os.defpath),
                "PYTHONUNBUFFERED": "1",
                "SLURM_KILL_BAD_EXIT": "1",  # srun ends all ranks when one has died, as mpiexec does
                **(environment or {}),
                MARK: self.mark,
            },
            start_new_session=True,  # a terminal's Ctrl-C reaches this process only
            pass_fds=(lock,),
            # When this process dies, no rank trains on unwatched: mpiexec and srun forward USR1 to the
            # ranks, which stop at a checkpoint. On TERM srun would end them at once.
            preexec_fn=partial(signal_at_parents_death, signal.SIGUSR1),
        )

    def __enter__(self) -> RanksProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait(self, must_end: Callable[[], bool]) -> int:
        """Wait for the launcher, ending it once `must_end()`; its exit code when all have ended."""
        while not self._has_ended() and not must_end():
            time.sleep(_LOOK_S)
        return self.end()

    def end(self) -> int:
        """End all that are alive, by TERM, after GRACE_S by KILL; the launcher's exit code.

        Shells that reset clocks and power limits are not killed, but waited for.
        """
        if self._process.returncode is not None:
            return self._process.returncode
        if not self._has_ended():
            os.killpg(self._process.pid, signal.SIGTERM)
        if alive := self._alive_after(GRACE_S):
            resetting = [process for process in alive if RESETS in _environment(process)]
            for process in alive:
                if process not in resetting:
                    with suppress(psutil.Error):
                        process.kill()
            if alive := self._alive_after(PATIENCE_S if resetting else GRACE_S):
                pids = ", ".join(str(process.pid) for process in alive)
                say(f"scalewatt: cannot be ended: {pids}")
        return self._process.wait()

    def _has_ended(self) -> bool:
        """Whether the launcher has ended; as a zombie it keeps its process id."""
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:
            return True

    def _alive_after(self, seconds: float) -> list[psutil.Process]:
        """Those that are alive after `seconds`; none as soon as all have ended."""
        until = time.monotonic() + seconds
        while alive := [p for p in psutil.process_iter() if self._is_ours(p)]:
            if time.monotonic() > until:
                break
            time.sleep(_LOOK_S)
        return alive

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            is_in_group = os.getpgid(process.pid) == self._process.pid
            is_ours = is_in_group or _environment(process).get(MARK) == self.mark
            return is_ours and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):  # it has just ended
            return False


def _environment(process: psutil.Process) -> dict[str, str]:
    """Environment of a process; empty if it is another user's or has ended."""
    with suppress(psutil.Error, OSError):
        return dict(process.environ())
    return {}


def command_path() -> str:
    """PATH with this Python's commands first, among them the environment's mpiexec."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def forking(nodes: int) -> dict[str, str]:
    """Variables by which MPICH's mpiexec forks the ranks of a run on one node.

    In a step of Slurm, such as an interactive one, it would ask srun, which waits for what the step holds.
    """
    is_asked = nodes == 1 and "SLURM_JOB_ID" in os.environ and "HYDRA_LAUNCHER" not in os.environ
    return {"HYDRA_LAUNCHER": "fork"} if is_asked else {}


def require_launcher(launcher: str) -> None:
    """Raise InputError if the launcher's program is not on this machine."""
    program = shlex.split(launcher)[0]
    if shutil.which(program, path=command_path()) is None:
        raise InputError(f"launcher: '{program}' is not found; allowed: a command of this machine")
