"""Watching from inside a rank: over perun's sampler, the other ranks of the node, and the end.

What may hang ends within these times (defaults of `Limits`; a check takes place every second):

- A sampler that takes no first sample: 60 s after its start, if training cannot begin for want of
  it, else 60 s after that. One that stops writing (frozen, disk full): 30 s, or ten sampling
  periods if that is longer. One that has ended: at once. The rank that started it ends it and asks
  the training to stop at a checkpoint.
- perun after training: 120 s, by the rank itself; `launch` ends what is left 10 s later.
- Ranks whose fellow on the same node has died: 2 s to notice, and at most 10 s more to end. A death
  on another node is the launcher's to notice: mpiexec ends the others, and so does srun, which
  `launch` tells to. Under a launcher that does neither, it is a broken gloo connection (at once) or
  a collective's time-out (30 minutes, `training.world`).

A rank ends its own sampler and itself, and through MPI the other ranks; nothing else.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count, takewhile
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import psutil

if TYPE_CHECKING:
    from scalewatt.training.world import Ranks

CHECK_INTERVAL_S = 1.0
SILENT_PERIODS = 10
ABORT_S = 10.0
"""How long a rank may take to end itself through MPI."""


@dataclass(frozen=True)
class Limits:
    """After how many seconds something is taken to hang."""

    journal_start_s: float = 60.0
    """Without a journal, from the sampler's start and again from the training's."""
    journal_silence_s: float = 30.0
    """Without a new sample; ten sampling periods if that is longer."""
    closing_s: float = 120.0
    """From the training's return to the end of the ranks."""


class SamplerWatch:
    """Watches the sampler that perun started as a child of this process, by its journal's growth.

    To be made before perun starts; `on_loss` is called once, from the watching thread, with the
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
        self.folder, self.stem, self.limits = folder, stem, limits
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
        """The training begins: from now on the journal must grow.

        perun has started its sampler by now, and there is no other child process yet.
        """
        self._sampler = self._sampler or _only_child()
        self._quiet_s = 0.0
        self._training = True

    def check(self, elapsed_s: float) -> None:
        """Look at the sampler `elapsed_s` after the last look; end it if it is lost."""
        with self._lock:
            if not self._over:
                self._check(elapsed_s)

    def ended(self) -> bool:
        """The training has ended, and the sampler may from now on; whether it was lost before."""
        self.check(0.0)
        with self._lock:
            self._over = True
        return self.lost is not None

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
        if size is None and self._quiet_s > self.limits.journal_start_s:
            return f"{name} wrote no journal for {self._quiet_s:.0f} s"
        if size is not None and self._training and self._quiet_s > self.silence_s:
            return f"{name} took no sample for {self._quiet_s:.0f} s"
        return None

    def _journal_size(self) -> int | None:
        """Bytes of this host's journals of the segment, <stem>.<host>[.<n>].journal; None without."""
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
        """Call `on_death` with the process id of a peer that was gone at the last look as well."""
        missing = {p.pid for p in self._peers if _gone(p)}
        for pid in sorted(missing & self._missing):
            self.on_death(pid)
        self._missing = missing


class Watch:
    """The thread that watches in one rank."""

    def __init__(self, sampler: SamplerWatch | None, peers: PeerWatch) -> None:
        self.sampler, self.peers = sampler, peers
        self._watching = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scalewatt-watch", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._watching.set()
        self._thread.start()

    def training_began(self) -> None:
        """From now on samples must come."""
        if self.sampler:
            self.sampler.began()

    def training_ended(self) -> bool:
        """The sampler may end from now on; whether it was lost before."""
        return self.sampler is not None and self.sampler.ended()

    def stop(self) -> None:
        """The other ranks may end from now on."""
        self._watching.clear()

    def _run(self) -> None:
        last = time.monotonic()
        while self._watching.is_set():
            now = time.monotonic()
            # A machine or job that was suspended has not waited for a sample.
            elapsed_s, last = min(now - last, 2 * CHECK_INTERVAL_S), now
            if self.sampler:
                self.sampler.check(elapsed_s)
            self.peers.check()
            time.sleep(CHECK_INTERVAL_S)


def watch_rank(
    ranks: Ranks, folder: Path, stem: str, period_s: float, limits: Limits, on_loss: Any
) -> Watch:
    """The started watch of this rank; all ranks take part. The sampler is the node's first rank's."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    places = ranks.comm.allgather((ranks.host, namespace, os.getpid()))
    here = [pid for host, space, pid in places if (host, space) == (ranks.host, namespace)]
    first = [host for host, _, _ in places].index(ranks.host)
    sampler = None
    if ranks.rank == first:
        sampler = SamplerWatch(folder, stem, period_s, limits, on_loss)
    watch = Watch(sampler, PeerWatch([p for p in here if p != os.getpid()], _end_after_a_death))
    watch.start()
    return watch


def lost_path(work: Path, stem: str, host: str) -> Path:
    """Where a rank says that its node's sampler was lost: JSON host, reason, t (Unix s)."""
    return work / f"{stem}.{host}.monitor-lost"


def read_losses(work: Path, stem: str) -> list[dict[str, Any]]:
    """What the ranks of a segment said about lost samplers."""
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(work.glob(f"{stem}.*.monitor-lost"))
    ]


def end_within(seconds: float) -> None:
    """End this process that much later, whatever it waits for, unless it has ended by itself."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def abort(code: int) -> NoReturn:
    """End all ranks through MPI, and this one also where MPI cannot (ABORT_S)."""
    from mpi4py import MPI

    sys.stderr.flush()
    end_within(ABORT_S)
    MPI.COMM_WORLD.Abort(code)
    os._exit(code)


def _end_after_a_death(pid: int) -> None:
    print(f"scalewatt: the rank with process id {pid} has died", file=sys.stderr)
    abort(70)


def _only_child() -> BaseProcess | None:
    """The child process that multiprocessing started, if there is exactly one."""
    children = multiprocessing.active_children()
    return children[0] if len(children) == 1 else None


def _size(path: Path) -> int:
    """Bytes of a file; -1 without one."""
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
