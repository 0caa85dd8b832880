"""A node of the miniature cluster: a slurmd in namespaces of its own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

PATIENCE_S = 60.0
ENDING_S = 10.0
LOSING_S = 150.0
"""For Slurm to find out that a node is gone: SlurmdTimeout and some."""
SYSTEM_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
# Snakemake's jobstep takes SLURM_CONF away, so the nodes have Slurm's file where it is looked for.
# As process 1 it reaps what is left to it, and ends with the process that holds the pipe `alive`.
_INIT = """
set -e
hostname {name}
mount --bind {base}/hosts /etc/hosts
mount --bind {base} /etc/slurm
mount -t tmpfs -o mode=1777 none /dev/shm
echo ready
exec env --ignore-signal=CHLD cat {base}/alive > {base}/nodes/{name}.out
"""
T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Wait until `condition` is true, and return what it gave; AssertionError names `what`."""
    until = time.monotonic() + timeout_s
    while not (result := condition()):
        assert time.monotonic() < until, f"no {what} within {timeout_s:.0f} s"
        time.sleep(0.2)
    return result


@dataclass(frozen=True)
class Node:
    """One node of the cluster in `base`."""

    base: Path
    name: str

    @property
    def init(self) -> int | None:
        """Process id of the node's first process, as this machine counts; None after a crash."""
        path = self.base / "nodes" / self.name
        pid = int(path.read_text()) if path.exists() else None
        return pid if pid and psutil.pid_exists(pid) else None

    def processes(self, name: str | None = None) -> list[psutil.Process]:
        """All that run on the node, or those of a program."""
        init = self.init
        if init is None:
            return []
        space, result = _namespace(init), []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if _namespace(process.pid) == space and name in (None, process.name()):
                    result.append(process)
        return result

    def kill(self) -> None:
        """Kill slurmd: the node goes down after Slurm's SlurmdTimeout; its jobs' processes live on."""
        daemons = self.processes("slurmd")
        for process in daemons:
            process.kill()
        psutil.wait_procs(daemons, timeout=ENDING_S)

    def crash(self) -> None:
        """Kill all that runs on the node at once, as a power cut does."""
        init = self.init
        assert init is not None, f"{self.name} has crashed before"
        everybody = self.processes()
        os.kill(init, signal.SIGKILL)
        psutil.wait_procs(everybody, timeout=ENDING_S)

    def restart(self) -> None:
        """Start slurmd, and the node itself where it crashed. Not waited for: see MiniSlurm.idle."""
        init = self.init or self._boot()
        with open(self.base / "log" / f"{self.name}.out", "ab") as log:
            subprocess.Popen(
                [
                    *("nsenter", "--target", str(init), "--uts", "--mount", "--ipc", "--pid"),
                    *("slurmd", "-D", "-N", self.name, "-f", str(self.base / "slurm.conf")),
                ],
                env={**os.environ, "PATH": SYSTEM_PATH, "SLURM_CONF": f"{self.base}/slurm.conf"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )

    def _boot(self) -> int:
        script = _INIT.format(name=self.name, base=shlex.quote(str(self.base)))
        spaces = ["--uts", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with open(self.base / "log" / f"{self.name}.out", "ab") as log:
            unshare = subprocess.Popen(
                ["unshare", *spaces, "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )
        assert unshare.stdout is not None
        assert unshare.stdout.readline() == b"ready\n", f"{self.name} does not start"
        unshare.stdout.close()
        (init,) = psutil.Process(unshare.pid).children()
        (self.base / "nodes" / self.name).write_text(str(init.pid))
        return init.pid


def _namespace(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None
