"""A miniature HoreKa: a real Slurm, with accounting, on this machine alone.

Each node is a slurmd in its own UTS, mount, IPC and process namespaces: it has its own host
name, shared memory and process table, and all that runs on it ends with it. Whatever ends the process that
started a cluster ends the cluster too. Ports are free ones and folders temporary, so that clusters
live side by side and leave nothing. Needs root.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil
from mini_node import ENDING_S, LOSING_S, PATIENCE_S, SYSTEM_PATH, Node, wait_for
from slurm_files import (
    ACCOUNT,
    CLUSTER,
    DATABASE,
    NODES,
    gres_conf,
    hosts,
    slurm_conf,
    slurmdbd_conf,
)

from scalewatt.common.processes import signal_at_parents_death

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "unshare", "nsenter")
_PORTS = range(20000, 32000, 16)
"""Blocks of ports, below those that Linux gives out by itself."""
T = TypeVar("T")


def missing() -> str | None:
    """Why no Slurm can be started here; None where one can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=SYSTEM_PATH) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return None if os.geteuid() == 0 else "a Slurm of one's own needs root"


class MiniSlurm:
    """The cluster, from start to stop."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.nodes = {name: Node(base, name) for name in NODES}
        self._daemons: list[psutil.Popen] = []
        self._alive: int | None = None
        self._reserved: socket.socket | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a user on the login node: this machine."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        return {
            **kept,
            "SLURM_CONF": str(self.base / "slurm.conf"),
            # Other clusters on this machine have nodes of the same names.
            "SCALEWATT_SAMPLERS": str(self.base / "samplers"),
        }

    def command(self, *words: str) -> str:
        """What a command of Slurm's prints; CalledProcessError where it fails."""
        done = subprocess.run(
            words,
            env={**self.environment, "PATH": SYSTEM_PATH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise AssertionError(f"{shlex.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def squeue(self) -> dict[str, str]:
        """State of every job that Slurm's controller still knows."""
        lines = self.command("squeue", "--noheader", "--states=all", "--format=%i|%T").splitlines()
        return dict(line.split("|") for line in lines)

    def sacct(self, *jobs: str) -> list[dict[str, str]]:
        """What accounting says of jobs (default: of all) without their steps."""
        chosen = ["--jobs", ",".join(jobs)] if jobs else ["--starttime", "now-1day"]
        fields = "JobID,JobName,Partition,State,ExitCode,NodeList,Start,End,ElapsedRaw,Comment"
        text = self.command(
            *("sacct", "--noheader", "--parsable2", "--duplicates", "--allocations"),
            *(*chosen, f"--format={fields}"),
        )
        return [
            dict(zip(fields.split(","), line.split("|"), strict=True)) for line in text.splitlines()
        ]

    def states(self) -> dict[str, str]:
        """State of every node, as sinfo says it."""
        lines = self.command("sinfo", "--noheader", "--Node", "--format=%N|%T").splitlines()
        return dict(line.split("|") for line in lines)

    def idle(self) -> bool:
        """Whether every node waits for jobs."""
        return set(self.states().values()) == {"idle"}

    def wait_until_down(self, name: str) -> None:
        """Wait until Slurm has found out that a node is gone."""
        wait_for(lambda: self.states()[name].startswith("down"), f"{name} that is down", LOSING_S)

    def cancel_all(self) -> None:
        """End all jobs, bring back all nodes and wait until they are idle."""
        self.command("scancel", "--user=root")
        for node in self.nodes.values():
            if not node.processes("slurmd"):
                node.restart()
        wait_for(self._brought_back, "idle nodes")

    def _brought_back(self) -> bool:
        for name, state in self.states().items():
            if state.rstrip("*") in ("down", "drained", "draining"):
                with suppress(AssertionError):
                    self.command("scontrol", "update", f"nodename={name}", "state=resume")
        return self.idle()

    def __enter__(self) -> MiniSlurm:
        try:
            self._start()
        except BaseException as error:
            error.add_note(self._last_words())
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        self._write_files()
        os.mkfifo(self.base / "alive")
        self._alive = os.open(self.base / "alive", os.O_RDWR | os.O_CLOEXEC)
        self._start_daemons()
        for node in self.nodes.values():
            node.restart()
        wait_for(lambda: self._up(self.idle), "nodes that are idle")

    def _last_words(self) -> str:
        """The end of every log."""
        logs = sorted((self.base / "log").glob("*"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    def _write_files(self) -> None:
        self.base.mkdir(parents=True, exist_ok=True)
        for name in ("state", "spool", "log", "samplers", "database", "nodes"):
            (self.base / name).mkdir()
        names = ("slurmctld", "slurmdbd", *NODES)
        self._reserved, first = _reserve(len(names))
        ports = {name: first + i for i, name in enumerate(names)}
        host = socket.gethostname().split(".")[0]
        (self.base / "slurm.conf").write_text(slurm_conf(self.base, host, ports))
        (self.base / "gres.conf").write_text(gres_conf())
        (self.base / "hosts").write_text(hosts(host))
        secret = self.base / "slurmdbd.conf"
        secret.write_text(slurmdbd_conf(self.base, host, ports["slurmdbd"]))
        secret.chmod(0o600)
        key = self.base / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)

    def _start_daemons(self) -> None:
        base = self.base
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed"}
        munge = [f"--{option}={base}/munge.{end}" for option, end in files.items()]
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            "--num-threads=10",
            f"--log-file={base}/log/munged.log",
            *munge,
        )
        data = [f"--datadir={base}/database", "--user=root", "--skip-networking"]
        self.command("mariadb-install-db", "--no-defaults", *data, "--skip-test-db")
        database = f"{base}/mariadb.socket"
        self._daemon(
            *("mariadbd", "--no-defaults", *data, f"--socket={database}"),
            *(f"--pid-file={base}/mariadb.pid", "--innodb-buffer-pool-size=64M"),
            "--innodb-flush-log-at-trx-commit=0",
        )
        make = f"create database {DATABASE}"
        sql = ("mariadb", "--no-defaults", f"--socket={database}", "-e", make)
        wait_for(lambda: self._up(partial(self.command, *sql)) is not False, "database")
        self._daemon("slurmdbd", "-D", MYSQL_UNIX_PORT=database)
        accounts = ("sacctmgr", "--immediate", "add")
        cluster = partial(self.command, *accounts, "cluster", CLUSTER)
        wait_for(lambda: self._up(cluster) is not False, "slurmdbd")
        self.command(*accounts, "account", ACCOUNT, f"cluster={CLUSTER}", "description=tests")
        self.command(*accounts, "user", "root", f"account={ACCOUNT}", f"defaultaccount={ACCOUNT}")
        self._start_controller()

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """Stop slurmctld, and start it again at the end."""
        (daemon,) = (d for d in self._daemons if d.args[0] == "slurmctld")
        self._daemons.remove(daemon)
        daemon.terminate()
        daemon.wait(PATIENCE_S)
        try:
            yield
        finally:
            self._start_controller()
            wait_for(lambda: self._up(self.squeue) is not False, "slurmctld")

    @contextmanager
    def configured(self, line: str) -> Iterator[None]:
        """Let slurm.conf have one more line, until the end."""
        path = self.base / "slurm.conf"
        before = path.read_text()
        try:
            path.write_text(f"{before}{line}\n")
            self.command("scontrol", "reconfigure")
            yield
        finally:
            path.write_text(before)
            self.command("scontrol", "reconfigure")

    def _start_controller(self) -> None:
        self._daemon("slurmctld", "-D", "-f", f"{self.base}/slurm.conf")

    def _up(self, question: Callable[[], T]) -> T | bool:
        """The answer of a daemon; False while it gives none. AssertionError where one has ended."""
        for daemon in self._daemons:
            assert daemon.poll() is None, f"{daemon.args[0]} ended: {self.base}/log"
        try:
            return question()
        except AssertionError:
            return False

    def _daemon(self, *words: str, **variables: str) -> None:
        with open(self.base / "log" / f"{words[0]}.out", "ab") as log:
            self._daemons.append(
                psutil.Popen(
                    words,
                    env={**self.environment, "PATH": SYSTEM_PATH, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    start_new_session=True,
                    preexec_fn=partial(signal_at_parents_death, signal.SIGKILL),
                )
            )

    def stop(self) -> None:
        """End every process that belongs to the cluster, and remove its folder."""
        started = [p for node in self.nodes.values() for p in node.processes()]
        started += [child for p in self._daemons for child in _family(p.pid)]
        for node in self.nodes.values():
            if node.init is not None:
                node.crash()
        for daemon in reversed(self._daemons):
            with suppress(psutil.Error):
                daemon.terminate()
        _, alive = psutil.wait_procs(started, timeout=ENDING_S)
        for process in alive:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(alive, timeout=ENDING_S)
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None
        if self._reserved is not None:
            self._reserved.close()
        shutil.rmtree(self.base, ignore_errors=True)


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _reserve(count: int) -> tuple[socket.socket, int]:
    """A block of ports that nobody uses; other clusters keep off it as long as the socket is open."""
    for first in random.sample(_PORTS, len(_PORTS)):
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0scalewatt-minislurm-{first}".encode())
            for port in range(first, first + count):
                with socket.socket() as test:
                    test.bind(("", port))
        except OSError:
            mark.close()
        else:
            return mark, first
    raise AssertionError("no free ports")
