"""The watchdog inside a rank: over perun's sampler, the other ranks, and the other nodes.

What may hang ends within these times (defaults of `Limits`; checks run every second):

- A sampler that takes no first sample: 60 s after its start, if training cannot begin without it,
  else 60 s after training begins. One that stops writing (frozen, disk full): 30 s. Both times are ten
  sampling periods if that is longer. One that has ended: at once. The rank that started it ends it
  and asks the training to stop at a checkpoint.
- perun after training: 120 s (`closing_s` of the cluster file), by the rank itself; `launch` ends
  what is left 10 s later. The time begins when the images on the nodes' own disks are removed.
- Ranks of which another on the same node has died: 2 s to notice, and at most 10 s more to end.
- Ranks of which another node has died or is frozen: mpiexec ends them, and so does srun, which
  `launch` asks to. Under a launcher that does neither, a broken gloo connection ends them at once;
  where they wait for MPI or a collective, 120 s of silence (`Heartbeat`) do. The first rank's node
  watches all others, which watch that one, so ranks that MPI's abort does not reach have 120 s more.

A rank ends its own sampler and itself, and through MPI the other ranks; nothing else.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, takewhile
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.termination import abort, say

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks


CHECK_INTERVAL_S = 1.0
SILENT_PERIODS = 10


@dataclass(frozen=True)
class Limits:
    """After how many seconds something is presumed to hang."""

    journal_start_s: float = 60.0
    """Without a journal, from the sampler's start and again from the training's; ten sampling
    periods if that is longer."""
    journal_silence_s: float = 30.0
    """Without a new sample; ten sampling periods if that is longer."""
    closing_s: float = 120.0
    """From the training's return to the end of the ranks; `closing_s` of the cluster file."""
    heartbeat_s: float = 120.0
    """Without a heartbeat of another node. Shared file systems may show it late."""


class SamplerWatch:
    """Watches the sampler that perun started as a child of this process, by its journal's growth.

    Create it before perun starts; `on_loss` is called once, from the watching thread, with the
    reason, when the sampler has been ended.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        period_s: float,
        limits: Limits,
        on_loss: Callable[[str], None],
    ) -> None:
        self.folder, self.stem = folder, stem
        # perun sleeps half a period before its first sample.
        self.start_s = max(limits.journal_start_s, SILENT_PERIODS * period_s)
        self.silence_s = max(limits.journal_silence_s, SILENT_PERIODS * period_s)
        self.on_loss = on_loss
        self.lost: str | None = None
        self._lock = threading.Lock()
        self._over = False
        self._sampler: BaseProcess | None = None
        self._training = False
        self._size: int | None = None
        self._quiet_s = 0.0

    def began(self) -> None:
        """Note that training begins: from now on the journal must grow.

        perun has started its sampler by now, and there is no other child process yet.
        """
        with self._lock:
            self._sampler = self._sampler or _only_child()
            self._quiet_s = 0.0
            self._training = True

    def check(self, elapsed_s: float) -> None:
        """Check the sampler `elapsed_s` after the last check; end it if it is lost."""
        with self._lock:
            if not self._over:
                self._check(elapsed_s)

    def ended(self) -> str | None:
        """Note that training has ended, and the sampler may end; return why it was lost before, if it was."""
        self.check(0.0)
        with self._lock:
            self._over = True
        return self.lost

    def _check(self, elapsed_s: float) -> None:
        if self.lost is not None:
            return
        if self._sampler is None and not self._training:
            self._sampler = _only_child()
        reason = self._trouble(elapsed_s)
        if reason is None:
            return
        if self._sampler is not None:
            self._sampler.kill()
        self.lost = reason
        self.on_loss(reason)

    def _trouble(self, elapsed_s: float) -> str | None:
        if self._sampler is None:
            return "perun runs no sampler" if self._training else None
        name = f"the sampler (process {self._sampler.pid})"
        if multiprocessing.connection.wait([self._sampler.sentinel], 0):
            return f"{name} has ended"
        size = self._journal_size()
        self._quiet_s = 0.0 if size != self._size else self._quiet_s + elapsed_s
        self._size = size
        if size is None and self._quiet_s > self.start_s:
            return f"{name} wrote no journal for {self._quiet_s:.0f} s"
        if size is not None and self._quiet_s > self.silence_s:
            return f"{name} took no sample for {self._quiet_s:.0f} s"
        return None

    def _journal_size(self) -> int | None:
        """Return the bytes of this host's journals, <stem>.<host>[.<n>].journal; None without any."""
        stem = f"{self.stem}.{socket.gethostname()}"
        names = chain([f"{stem}.journal"], (f"{stem}.{n}.journal" for n in count(1)))
        sizes = list(takewhile(lambda size: size >= 0, (_size(self.folder / n) for n in names)))
        return sum(sizes) if sizes else None


class PeerWatch:
    """Notices the death of other processes of this machine."""

    def __init__(self, pids: Sequence[int], on_death: Callable[[int], None]) -> None:
        self.on_death = on_death
        self._peers = [p for p in map(_process, pids) if p is not None]
        self._missing: set[int] = set()

    def check(self) -> None:
        """Call `on_death` with the process id of a peer that was gone at the last check as well."""
        missing = {p.pid for p in self._peers if _gone(p)}
        for pid in sorted(missing & self._missing):
            self.on_death(pid)
        self._missing = missing


class Watchdog:
    """The thread that watches in one rank: sampler, other ranks, other nodes."""

    def __init__(
        self, sampler: SamplerWatch | None, peers: PeerWatch, heart: Heartbeat | None = None
    ) -> None:
        self.sampler, self.peers, self.heart = sampler, peers, heart
        self._reported: set[str] = set()
        self._watching = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scalewatt-watch", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._watching.set()
        self._thread.start()

    def training_began(self) -> None:
        """Note that training begins: from now on samples must come."""
        if self.sampler:
            self.sampler.began()

    def training_ended(self) -> str | None:
        """Note that training has ended, and the sampler may end; return why it was lost before, if it was."""
        if self.heart:
            self.heart.training_ended()
        return self.sampler.ended() if self.sampler else None

    def stop(self) -> None:
        """Stop watching: the other ranks may end from now on."""
        self._watching.clear()
        if self.heart:
            self.heart.stop()

    def _run(self) -> None:
        last = time.monotonic()
        while self._watching.is_set():
            now = time.monotonic()
            # A machine or job that was suspended has not waited for a sample.
            elapsed_s, last = min(now - last, 2 * CHECK_INTERVAL_S), now
            self._guarded("the other ranks", self.peers.check)
            if self.sampler:
                self._guarded("the sampler", partial(self.sampler.check, elapsed_s))
            if self.heart:
                self._guarded("the other nodes", partial(self.heart.check, elapsed_s))
            time.sleep(CHECK_INTERVAL_S)

    def _guarded(self, what: str, check: Callable[[], None]) -> None:
        """Run a check; its errors are reported once and end neither the watchdog nor other checks."""
        try:
            check()
        except Exception as error:
            if what not in self._reported:
                self._reported.add(what)
                say(f"scalewatt: the check of {what} failed, and continues: {error!r}")


def watch_rank(
    ranks: Ranks, work: Path, stem: str, period_s: float, limits: Limits, on_loss: Any
) -> Watchdog:
    """Start this rank's watchdog; all ranks must call this.

    `work` is a folder that all nodes share, with perun's in it. Each node's first rank watches over
    its sampler and the other nodes.
    """
    namespace = os.stat("/proc/self/ns/pid").st_ino
    places = ranks.comm.allgather((ranks.host, namespace, os.getpid()))
    here = [pid for host, space, pid in places if (host, space) == (ranks.host, namespace)]
    first = [host for host, _, _ in places].index(ranks.host)
    sampler = heart = None
    if ranks.rank == first:
        sampler = SamplerWatch(work / "perun", stem, period_s, limits, on_loss)
        watched = watched_nodes(ranks.host, [host for host, _, _ in places])
        if watched:
            facts = (watched, limits.heartbeat_s, _end_after_silence)
            heart = Heartbeat(work, stem, ranks.host, *facts)
    peers = PeerWatch([p for p in here if p != os.getpid()], _end_after_a_death)
    watch = Watchdog(sampler, peers, heart)
    watch.start()
    return watch


def watched_nodes(host: str, hosts: Sequence[str]) -> list[str]:
    """Return the nodes that `host` watches; `hosts` are those of the ranks, in their order."""
    nodes = list(dict.fromkeys(hosts))
    return nodes[1:] if host == nodes[0] else nodes[:1]


def _end_after_a_death(pid: int) -> None:
    abort(ExitCode.FAILED, f"scalewatt: the rank with process id {pid} has died")


def _end_after_silence(host: str, seconds: float) -> None:
    abort(
        ExitCode.FAILED,
        f"scalewatt: {host} has had no heartbeat for {seconds:.0f} s; the training is ended",
    )


def _only_child() -> BaseProcess | None:
    """Return the child process that multiprocessing started, if there is exactly one."""
    children = multiprocessing.active_children()
    return children[0] if len(children) == 1 else None


def _size(path: Path) -> int:
    """Return the size of a file in bytes; -1 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


# --- the other nodes ------------------------------------------------------------------------------

BEAT_S = 5.0
"""How often a node beats, and looks at others."""


class Heartbeat:
    """Beats for the other nodes, and notices when one of `watched` stops.

    A node is alive as long as its file `<stem>.<host>.heartbeat` in the shared folder changes its
    time. Only changes count, measured by the reader's own clock: the nodes' clocks may differ. A beat
    takes no space, so that a full disk does not stop it. `on_silence` is called with a host and the
    seconds for which it has been silent.
    """

    def __init__(
        self,
        folder: Path,
        stem: str,
        host: str,
        watched: Sequence[str],
        limit_s: float,
        on_silence: Callable[[str, float], None],
    ) -> None:
        self._own = _path(folder, stem, host)
        self._others = {other: _path(folder, stem, other) for other in watched}
        self._seen: dict[str, int | None] = dict.fromkeys(watched)
        self._silent_s = dict.fromkeys(watched, 0.0)
        self.limit_s, self.on_silence = limit_s, on_silence
        self._waited_s = 0.0
        self._watching = True
        self._own.touch()

    def check(self, elapsed_s: float) -> None:
        """Beat and look at the others; call this often, with the seconds since the last call."""
        self._waited_s += elapsed_s
        if self._waited_s < BEAT_S:
            return
        waited_s, self._waited_s = self._waited_s, 0.0
        self._own.touch()
        for host, path in self._others.items():
            self._look(host, path, waited_s)

    def training_ended(self) -> None:
        """Stop looking at other nodes, which may still look at this one."""
        self._watching = False

    def stop(self) -> None:
        """Remove this node's file."""
        with suppress(OSError):
            self._own.unlink()

    def _look(self, host: str, path: Path, waited_s: float) -> None:
        beat = _last_beat(path)
        self._silent_s[host] = 0.0 if beat != self._seen[host] else self._silent_s[host] + waited_s
        self._seen[host] = beat
        if self._watching and self._silent_s[host] > self.limit_s:
            self.on_silence(host, self._silent_s[host])


def _path(folder: Path, stem: str, host: str) -> Path:
    return folder / f"{stem}.{host}.heartbeat"


def _last_beat(path: Path) -> int | None:
    """Return the file's time in ns, None if there is no file. Opening it makes NFS ask the server."""
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
