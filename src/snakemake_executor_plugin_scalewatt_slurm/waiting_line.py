"""Jobs that Slurm has no room for now: who waits, in which order, and when they are offered again.

A limit on the number of jobs says nothing about a job, so there is no deadline. Those of one
partition stand in one line, by priority and then as they came: the first is offered alone, since the
others meet the same limit. After each of this Snakemake's jobs that ends the first is offered at once,
else ever more seldom. A line whose limit is the user's own moves as long as the user has jobs in the
queue; without any it does not, and the limit is none that could be met.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scalewatt.slurm.job_queue import queued_jobs
from scalewatt.slurm.slurm_commands import NoAnswerError
from scalewatt.slurm.submit_limits import Meaning

WAITS_S = (5, 10, 20, 40, 60)
"""Between two offers; the last is repeated."""
PATIENCE_S = 600
"""How long a limit of the user's own is waited for without a job in the queue."""
_LOOK_S = 1.0


@dataclass(frozen=True)
class Postponed:
    """Why a job was not submitted yet."""

    reason: str
    limit: Meaning | None
    """The limit that was met; None if slurmctld gave no answer, or another job is in the way."""


@dataclass
class _Waiting:
    """A job in the line."""

    job: Any
    partition: str
    place: tuple[int, int]
    """Smaller ones come first."""
    limit: Meaning | None


class WaitingLine:
    """See the module. `offer` submits a job or refuses it, else returns why it waits on.

    refuse: gives a job up, with the reason. withdraw: takes jobs back, because `is_ending`.
    say: tells the user.
    """

    def __init__(
        self,
        offer: Callable[[Any], Postponed | None],
        refuse: Callable[[Any, str], None],
        withdraw: Callable[[list[Any]], None],
        is_ending: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self._offer, self._refuse, self._withdraw = offer, refuse, withdraw
        self._is_ending, self._say = is_ending, say
        self._state = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._came = 0
        self._thread: threading.Thread | None = None
        self._job_ended, self._stopped = threading.Event(), threading.Event()
        self._without_jobs_since_s: float | None = None

    def holds(self, job: Any) -> bool:
        """Return True if the job has joined others of its partition that wait already."""
        with self._state:
            first = next((one for one in self._waiting if one.partition == partition_of(job)), None)
            if first is None or self._stopped.is_set():
                return False
            self._add(job, first.limit)
            return True

    def take(self, job: Any, label: str, postponed: Postponed) -> None:
        """Let a job wait that Slurm has just refused; say so if it is the first."""
        with self._state:
            if self._stopped.is_set():
                return
            if not self._waiting:
                self._without_jobs_since_s = None
                self._say(
                    f"{label}: waits, Slurm takes no further job now ({postponed.reason}); it and what "
                    "follows are submitted when others have ended"
                )
            self._add(job, postponed.limit)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="slurm_waiting_line", daemon=True
                )
                self._thread.start()

    def wake(self) -> None:
        """Offer again at once: a job has ended."""
        self._job_ended.set()

    def stop(self) -> None:
        """Submit nothing more; returns when no submission is under way."""
        self._stopped.set()
        self._job_ended.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _add(self, job: Any, limit: Meaning | None) -> None:
        self._came += 1
        place = (-int(getattr(job, "priority", 0)), self._came)
        self._waiting.append(_Waiting(job, partition_of(job), place, limit))
        self._waiting.sort(key=lambda one: one.place)

    def _serve(self) -> None:
        """Offer what waits until nothing does."""
        tries = 0
        while not self._stopped.is_set():
            ended = self._pause(WAITS_S[min(tries, len(WAITS_S) - 1)])
            tries = 0 if ended else tries + 1
            if self._stopped.is_set():
                return
            try:
                if self._is_ending():
                    self._withdraw(self._take_all())
                else:
                    self._round()
            except Exception as error:  # those that wait would wait for ever
                self._say(f"jobs that wait for Slurm are offered again: {error!r}")
            with self._state:
                if not self._waiting:
                    self._thread = None
                    return

    def _pause(self, seconds: float) -> bool:
        """Sleep, but not longer than until a job ends, which is True, or Snakemake does."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s and not self._is_ending():
            if self._job_ended.wait(min(_LOOK_S, max(0.0, until_s - time.monotonic()))):
                self._job_ended.clear()
                return True
        return False

    def _take_all(self) -> list[Any]:
        with self._state:
            jobs = [one.job for one in self._waiting]
            self._waiting.clear()
        return jobs

    def _round(self) -> None:
        """Offer the first of each partition, and those after it as long as Slurm takes them."""
        with self._state:
            partitions = {one.partition for one in self._waiting}
        for partition in sorted(partitions):
            while not self._stopped.is_set():
                first = self._first_of(partition)
                if first is None or not self._offered(first):
                    break
        with self._state:
            if not self._waiting:
                self._say("Slurm takes jobs again: all that waited are submitted")

    def _first_of(self, partition: str) -> _Waiting | None:
        with self._state:
            return next((one for one in self._waiting if one.partition == partition), None)

    def _offered(self, first: _Waiting) -> bool:
        """Offer a job; True if it waits no longer."""
        postponed = self._offer(first.job)
        if postponed is not None and not self._is_hopeless(postponed.limit):
            with self._state:
                first.limit = postponed.limit
                if postponed.limit == "unclear":  # it may be this job alone: the next one's turn
                    self._came += 1
                    first.place = (sys.maxsize, self._came)
                    self._waiting.sort(key=lambda one: one.place)
            return False
        if postponed is not None:
            minutes = PATIENCE_S // 60
            self._refuse(
                first.job,
                f"{postponed.reason} (also {minutes} min after your last job has left Slurm's queue)",
            )
        else:
            self._without_jobs_since_s = None
        with self._state:
            self._waiting.remove(first)
        return True

    def _is_hopeless(self, limit: Meaning | None) -> bool:
        """Return True for a limit that holds though the user has had no job in the queue for long."""
        if limit not in ("own", "unclear"):
            return False
        try:
            has_jobs = bool(queued_jobs())
        except NoAnswerError:
            return False
        now_s = time.monotonic()
        if has_jobs or self._without_jobs_since_s is None:
            self._without_jobs_since_s = None if has_jobs else now_s
            return False
        return now_s - self._without_jobs_since_s > PATIENCE_S


def partition_of(job: Any) -> str:
    """Return the partition that a job asks for; empty for Slurm's default."""
    return str(job.resources.get("slurm_partition") or "")
