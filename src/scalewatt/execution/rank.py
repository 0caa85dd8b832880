"""One rank of a monitored training: perun around the training loop, with a crash-safe journal.

Started once per GPU by the cluster's launcher (`python -m scalewatt.execution.rank WORKDIR`).
Exit codes: 0 finished, 75 stopped at a checkpoint, 64 wrong input, 70 failure. Whatever a launcher makes
of exit codes and last words, the line that begins with `scalewatt: error` or `refused` is in the run's log.

What may hang ends within these times:

- A sampler that takes no sample for 60 s, or ten sampling periods if that is longer, and at once one that
  has ended. The rank that started it ends it and asks the training to stop at a checkpoint.
- perun after training: 120 s (`closing_s` of the cluster file), by the rank itself. The time begins when
  the images on the nodes' own disks are removed.

Ranks of which another has died are the launcher's to end: mpiexec does, and srun, which `launch` asks
to. A collective that waits for a node longer than `COLLECTIVE_TIMEOUT` fails.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.run_spec import read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json
from scalewatt.common.termination import (
    ABORT_S,
    STOP_FILE,
    ExitCode,
    StopRequest,
    abort,
    end_within,
    say,
)
from scalewatt.execution.command_rank import CommandFailed, run_command
from scalewatt.execution.failure_reason import ERROR, REFUSED, one_line
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.lock import HeldError
from scalewatt.run_files.record import (
    FINISHED,
    MONITOR_LOST,
    RUN,
    STOPPED,
    Job,
    note_outcome,
    segment_name,
)

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks

_CODES = {FINISHED: 0, STOPPED: ExitCode.STOPPED, MONITOR_LOST: ExitCode.STOPPED}


CHECK_INTERVAL_S = 1.0
SILENCE_S, SILENT_PERIODS = 60.0, 10
"""How long a sampler may take no sample, the longer of both."""


class SamplerWatch:
    """Watches the sampler that perun started as a child of this process, by its journal's growth.

    `on_loss` is called once, from the watching thread, with the reason, when the sampler has been ended.
    Without a `journal`, as in a rank that has no sampler, nothing is watched.
    """

    def __init__(
        self, journal: Path | None, limit_s: float, on_loss: Callable[[str], None]
    ) -> None:
        self.journal, self.limit_s, self.on_loss = journal, limit_s, on_loss
        self.lost: str | None = None
        self._lock, self._is_over = threading.Lock(), True
        self._sampler: multiprocessing.process.BaseProcess | None = None
        self._size, self._quiet_s = 0, 0.0

    def training_began(self) -> None:
        """Watch every second: perun has started its sampler, this process's only child so far."""
        self._sampler = next(iter(multiprocessing.active_children()), None)
        self._is_over = self.journal is None
        threading.Thread(target=self._run, name="scalewatt-watch", daemon=True).start()

    def training_ended(self) -> str | None:
        """Note that training has ended, and the sampler may end; why it was lost before, if it was."""
        self.check(0.0)
        with self._lock:
            self._is_over = True
        return self.lost

    def check(self, elapsed_s: float) -> None:
        """Check the sampler `elapsed_s` after the last check; end it if it is lost."""
        with self._lock:
            if self._is_over:
                return
            self.lost = self._trouble(elapsed_s)
            if self.lost is not None:
                self._is_over = True
                if self._sampler is not None:
                    self._sampler.kill()
                self.on_loss(self.lost)

    def _trouble(self, elapsed_s: float) -> str | None:
        if self._sampler is None:
            return "perun runs no sampler"
        name = f"the sampler (process {self._sampler.pid})"
        if multiprocessing.connection.wait([self._sampler.sentinel], 0):
            return f"{name} has ended"
        size = self._size
        with suppress(OSError):
            size = os.path.getsize(self.journal or "")
        self._quiet_s = 0.0 if size != self._size else self._quiet_s + elapsed_s
        self._size = size
        is_silent = self._quiet_s > self.limit_s
        return f"{name} took no sample for {self._quiet_s:.0f} s" if is_silent else None

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._is_over:
            time.sleep(CHECK_INTERVAL_S)
            now_s = time.monotonic()
            # A machine or job that was suspended has not waited for a sample.
            self.check(min(now_s - last_s, 2 * CHECK_INTERVAL_S))
            last_s = now_s


def outcome_of(trained: str, reports: Sequence[tuple[str, set[str], str | None]]) -> dict[str, Any]:
    """How a segment ended: outcome, lost samplers (host, reason), and who asked it to stop.

    `reports`: each rank's host, who asked it to stop, and why its sampler was lost. A training has stopped
    because of a lost sampler only if nothing else asked it to.
    """
    losses = [{"host": host, "reason": lost} for host, _, lost in reports if lost]
    requests = sorted(set().union(*(asked_by for _, asked_by, _ in reports)))
    outcome = MONITOR_LOST if trained == STOPPED and losses and not requests else trained
    return {"outcome": outcome, "losses": losses, "requests": requests}


def train(job: Job, ranks: Ranks, stop: StopRequest, events: EventLog) -> str:
    """Train the segment of a network, from its imports to its last checkpoint; FINISHED or STOPPED."""
    import torch
    from mpi4py import MPI

    from scalewatt.execution.segment_description import (
        add_to_description,
        describe_segment,
        torch_settings,
    )
    from scalewatt.provenance.rank_placement import gpu_identity
    from scalewatt.training.distributed import choose_device, start_process_group
    from scalewatt.training.staging import staged
    from scalewatt.training.train import Trainer

    device = choose_device(job.torch_device, ranks)
    is_gpu = device.type == "cuda"
    mpi = " ".join(MPI.Get_library_version().splitlines()[0].split())
    software = {"cuda": torch.version.cuda, "mpi": mpi}
    if is_gpu:
        software["device_name"] = torch.cuda.get_device_name(device)
    # Here, because a segment that ends in its start-up has held GPUs too.
    describe_segment(job, ranks, gpu_identity(device) if is_gpu else None, software)
    start_process_group(ranks, device)
    with staged(job, ranks, device, events) as job:
        trainer = Trainer(job, ranks, device, stop, events)
        trainer.warm_up()
        trainer.resume()
        if ranks.rank == 0:
            add_to_description(job, torch_settings(torch) | trainer.provenance())
        trained = trainer.run()
        trainer.close()
    return trained


def guarded_train(
    watch: SamplerWatch, job: Job, ranks: Ranks, stop: StopRequest, started_s: float
) -> str:
    """Train, ending all ranks on an error: perun would catch it and wait for the others forever.

    From the training's return on, this process ends within `closing_s`. If a sampler was lost, it ends at
    once: perun would wait for a message that will never come.
    """
    try:
        watch.training_began()
        path = job.work / "events.jsonl" if ranks.rank == 0 else None
        events = EventLog(path, job.segment, started_s)
        run = run_command if is_command_spec(job.spec) else train
        trained = run(job, ranks, stop, events)
        events.end()
        end_within(job.closing_s)
        stop.requested()  # looks at the stop file
        report = ranks.host, stop.requests, watch.training_ended()
        outcome = outcome_of(trained, ranks.comm.allgather(report))
        if ranks.rank == 0:
            note_outcome(job.work, job.segment, outcome, job.require_lock)
        ranks.comm.Barrier()  # from here on a rank may end the others
        if outcome["losses"]:
            leave(ranks, _CODES[outcome["outcome"]])
        return str(outcome["outcome"])
    except BaseException as error:
        fail(error)


def leave(ranks: Ranks, code: int) -> NoReturn:
    """End this rank with all the others, without waiting for any child process as Python would."""
    from mpi4py import MPI

    ranks.comm.Barrier()
    MPI.Finalize()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, full, or none
            stream.flush()
    os._exit(code)


_LOG: list[Any] = []
"""The run's log, open until the end: of a rank that dies, a launcher drops the last words."""


def fail(error: BaseException) -> NoReturn:
    """Report an error in the run's log, and end all ranks, which may wait in collectives."""
    end_within(ABORT_S)  # even if the rest hangs
    refused = isinstance(error, InputError) and not isinstance(error, HeldError)
    # Further tries need as much memory of a GPU.
    refused |= type(error).__name__ == "OutOfMemoryError"
    trace = "" if isinstance(error, InputError | CommandFailed) else traceback.format_exc()
    # A loader's worker puts its traceback before the message.
    message = str(error).rpartition("InputError: ")[2]
    reason = message if not trace else "".join(traceback.format_exception_only(error))
    line = f"{trace}{REFUSED if refused else ERROR}{one_line(reason)}"
    with suppress(OSError, ValueError):
        print(line, file=_LOG[0] if _LOG else sys.stderr, flush=True)
    abort(ExitCode.REFUSED if refused else ExitCode.FAILED)


def main(argv: list[str]) -> NoReturn:
    """Run one rank of a run's last segment, as the launcher's record orders it."""
    started_s = time.time()
    stop = StopRequest()
    stop.install()
    work = Path(argv[0])
    try:
        _LOG.append(open(work / "train.log", "a", encoding="utf-8"))  # noqa: SIM115 (until the end)
        faulthandler.enable(_LOG[0])
        _run(work, read_json(work / RUN)["order"], stop, started_s)
    except BaseException as error:
        fail(error)


def _run(work: Path, order: dict[str, Any], stop: StopRequest, started_s: float) -> NoReturn:
    from scalewatt.monitoring.perun_session import monitored
    from scalewatt.training.distributed import join_ranks

    spec = read_spec(work / "spec.json")
    if spec.sampling_period_s is None or spec.seed is None:
        raise InputError(f"{spec.name}: is a registered run; expected one to train")
    ranks = join_ranks(spec.configuration, spec.gpus, spec.nodes)
    if ranks.rank == 0:
        stop.stop_file = work / STOP_FILE
    job = Job(spec, work=work, **order)

    def stop_for_loss(reason: str) -> None:
        stop.ask()
        say(f"scalewatt: {ranks.host}: {reason}")

    stem, folder, period_s = segment_name(job.segment), work / "perun", spec.sampling_period_s
    # Each node's first rank has the sampler.
    is_first = ranks.comm.allgather(ranks.host).index(ranks.host) == ranks.rank
    journal = folder / f"{stem}.{ranks.host}.csv" if is_first else None
    watch = SamplerWatch(journal, max(SILENCE_S, SILENT_PERIODS * period_s), stop_for_loss)
    args = (watch, job, ranks, stop, started_s)
    outcome = monitored(guarded_train, args, folder, stem, period_s, job.closing_s)
    # Once rank 0 has written perun's file. perun gives no outcome where it caught an error.
    leave(ranks, _CODES.get(outcome, ExitCode.FAILED))


if __name__ == "__main__":
    main(sys.argv[1:])
