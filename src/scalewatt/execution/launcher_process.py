"""The launcher of a run's ranks: started, waited for, and ended with all it started here.

mpiexec gives its ranks sessions of their own, so this process adopts what loses its parent. On other nodes,
and in a step of Slurm, the launcher ends its ranks.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import psutil

from scalewatt.common.errors import InputError
from scalewatt.common.processes import adopt_orphans, signal_at_parents_death
from scalewatt.common.termination import say

GRACE_S = 10.0
"""How long all may take to end after TERM, or after the launcher's end, and then after KILL."""
_LOOK_S = 0.1
CALLERS_PATH = "SCALEWATT_CALLERS_PATH"
"""PATH as it was before this Python's commands were put first, for what is not ours."""


class RanksProcess:
    """A running launcher, this process's only child.

    Leaving the context ends it and all that it started here. It gets USR1 when this process dies. `lock` is
    a file descriptor that all hold until they end.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: BinaryIO,
        lock: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        adopt_orphans()
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
        while self._process.poll() is None and not must_end():
            time.sleep(_LOOK_S)
        return self.end()

    def end(self) -> int:
        """End all that are alive, by TERM, after GRACE_S by KILL; the launcher's exit code."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        for process in _alive_after(GRACE_S):
            with suppress(psutil.Error):
                process.kill()
        if alive := _alive_after(GRACE_S):
            pids = ", ".join(str(process.pid) for process in alive)
            say(f"scalewatt: cannot be ended: {pids}")
        return self._process.wait()


def _alive_after(seconds: float) -> list[psutil.Process]:
    """Descendants that are alive after `seconds`; none as soon as all have ended."""
    until_s = time.monotonic() + seconds
    while alive := [*filter(_is_alive, psutil.Process().children(recursive=True))]:
        if time.monotonic() > until_s:
            break
        time.sleep(_LOOK_S)
    return alive


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


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
