"""One rank of a monitored training: perun around the training loop, with a crash-safe journal.

Started once per GPU by the cluster's launcher (`python -m scalewatt.execution.rank ORDER`).
Exit codes: 0 finished, 75 stopped at a checkpoint, 64 wrong input, 70 failure.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from scalewatt.campaign.external_command import is_command_spec
from scalewatt.common.errors import InputError
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.files import full_text, read_json, write_json
from scalewatt.common.termination import (
    ABORT_S,
    StopRequest,
    abort,
    end_within,
    say,
)
from scalewatt.execution.command_rank import CommandFailed, run_command
from scalewatt.execution.failure_reason import Failure, is_full, record_failure
from scalewatt.execution.node_levers import reset_levers, set_levers
from scalewatt.execution.watchdog import Limits, Watchdog, watch_rank
from scalewatt.run_files.attempt_log import one_line
from scalewatt.run_files.work_directory import (
    FINISHED,
    STOPPED,
    Job,
    began_path,
    failure_path,
    outcome_path,
    segment_name,
)

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks

MONITOR_LOST = "monitor_lost"
"""An outcome that ranks give: stopped because the energy was no longer recorded."""
_CODES = {FINISHED: 0, STOPPED: ExitCode.STOPPED, MONITOR_LOST: ExitCode.STOPPED}


@dataclass(frozen=True)
class End:
    """One rank's report at the end of its training."""

    host: str
    requested: bool
    """True if it was asked to stop, by the scheduler or a person."""
    enough: bool
    """True if it has done as many updates as this segment was to do."""
    lost: str | None
    """Why the sampler that it watched over was lost."""


def outcome_of(trained: str, ends: Sequence[End]) -> dict[str, Any]:
    """Return the content of the outcome file: the segment's outcome and lost samplers (host, reason).

    A training has stopped because of a lost sampler only if nothing else asked it to.
    """
    losses = [{"host": end.host, "reason": end.lost} for end in ends if end.lost]
    wanted = any(end.requested or end.enough for end in ends)
    outcome = MONITOR_LOST if trained == STOPPED and losses and not wanted else trained
    return {"outcome": outcome, "losses": losses}


def train(
    job: Job,
    ranks: Ranks,
    torch_device: str,
    stop: StopRequest,
    started_s: float,
    closing_s: float,
) -> tuple[str, bool]:
    """Train the segment, from its imports to its last checkpoint: what perun monitors.

    Returns FINISHED or STOPPED, and whether the segment's updates were done.
    """
    if is_command_spec(job.spec):
        return run_command(job, ranks, torch_device, stop, started_s, closing_s)
    from scalewatt.recordings.stage_log import EventLog
    from scalewatt.training.out_of_memory import within_memory
    from scalewatt.training.process_group import choose_device, start_process_group
    from scalewatt.training.staging import staged
    from scalewatt.training.step_timer import finish
    from scalewatt.training.trainer import Trainer

    events = EventLog(
        job.work / "events.jsonl" if ranks.rank == 0 else None, job.segment, started_s
    )
    device = choose_device(torch_device, ranks)
    _describe(job, ranks, device, {})  # a segment that ends in its start-up has held GPUs too
    start_process_group(ranks, device)
    with staged(job, ranks, device, events) as job:
        trainer = Trainer(job, ranks, device, stop, events)
        within_memory(trainer, trainer.warm_up)
        trainer.resume()
        _describe(job, ranks, device, trainer.provenance())
        trained = within_memory(trainer, trainer.run)
        events.enter("shutdown")
        finish(device)
        trainer.close()
    events.end()
    return trained, job.max_updates is not None and trainer.updates_here >= job.max_updates


def guarded_train(
    watch: Watchdog,
    limits: Limits,
    job: Job,
    ranks: Ranks,
    torch_device: str,
    stop: StopRequest,
    started_s: float,
) -> str:
    """Call `train`, ending all ranks on an error: perun would catch it and wait for the others for ever.

    From the training's return on, this process ends within `limits.closing_s`. If a sampler was
    lost, it ends at once: perun would wait for a message that will never come.
    """
    from scalewatt.execution.segment_description import add_clock_offsets

    try:
        watch.training_began()
        trained, enough = train(job, ranks, torch_device, stop, started_s, limits.closing_s)
        end_within(limits.closing_s)
        add_clock_offsets(job, ranks)
        end = End(ranks.host, stop.requested(), enough, watch.training_ended())
        outcome = outcome_of(trained, ranks.comm.allgather(end))
        if ranks.rank == 0:
            write_json(outcome_path(job.work, job.segment), outcome, job.require_lock)
        ranks.comm.Barrier()  # from here on a rank may end the others
        if outcome["losses"]:
            leave(watch, ranks, exit_code(outcome["outcome"]))
        return str(outcome["outcome"])
    except BaseException as error:
        fail(error, failure_path(job.work, job.segment), ranks.rank)


def exit_code(outcome: str | None) -> int:
    """Return a rank's exit code; perun gives no outcome where it caught an error."""
    return _CODES.get(outcome or "", ExitCode.FAILED)


def leave(watch: Watchdog, ranks: Ranks, code: int) -> NoReturn:
    """End this rank with all the others, without waiting for any child process as Python would."""
    from mpi4py import MPI

    watch.stop()
    reset_levers()
    ranks.comm.Barrier()
    MPI.Finalize()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, full, or none
            stream.flush()
    os._exit(code)


def fail(error: BaseException, note: Path | None = None, rank: int | None = None) -> NoReturn:
    """Report an error, record it in `note`, and end all ranks, which may wait in collectives."""
    end_within(ABORT_S)  # even if the rest hangs
    code = ExitCode.REFUSED if isinstance(error, InputError) else ExitCode.FAILED
    if isinstance(error, InputError | CommandFailed):
        reason = text = str(error)
    else:
        reason = "".join(traceback.format_exception_only(error))
        text = "".join(traceback.format_exception(error))
    if is_full(error) and note is not None:
        reason = text = f"{full_text(note.parent)} ({error})"
    reset_levers(ABORT_S / 2)  # a scheduler may end all of a job at once
    if note is not None:
        record_failure(note, Failure(code, rank, one_line(reason)))
    abort(code, text if text.startswith("Traceback") else f"scalewatt: error: {text}")


def _describe(job: Job, ranks: Ranks, device: Any, of_workload: dict[str, Any]) -> None:
    """Write on rank 0 what this segment runs on, for the run's provenance."""
    import torch
    from mpi4py import MPI

    from scalewatt.execution.segment_description import describe_segment
    from scalewatt.provenance.versions import gpu_identity

    on_gpu = device.type == "cuda"
    further = {
        **({"device_name": torch.cuda.get_device_name(device)} if on_gpu else {}),
        "cuda": torch.version.cuda,
        "mpi": " ".join(MPI.Get_library_version().splitlines()[0].split()),
        **of_workload,
    }
    describe_segment(job, ranks, gpu_identity(device) if on_gpu else None, torch, further)


def report_loss(host: str, stop: StopRequest, reason: str) -> None:
    """Report that the sampler of `host` was lost, and ask the training to stop."""
    stop.ask()
    say(f"scalewatt: {host}: {reason}")


_OPEN: list[Any] = []


def main(argv: list[str]) -> NoReturn:
    """Run one rank of the segment that the order file describes."""
    started_s = time.time()
    stop = StopRequest()
    stop.install()
    note = None
    try:
        order = read_json(argv[0])
        work, segment = Path(order["work"]), order["segment"]
        note = failure_path(work, segment)
        began_path(work, segment).touch()
        # Into the log itself: of a rank that dies, a launcher drops the last words.
        _OPEN.append(open(work / "train.log", "ab"))  # noqa: SIM115 (open until the end)
        faulthandler.enable(_OPEN[-1])
        _run(order, stop, started_s)
    except BaseException as error:
        fail(error, note)


def _is_orphan(work: Path) -> bool:
    """Return True if the launching process died before this rank could be told by a signal."""
    from scalewatt.common.processes import runs_still
    from scalewatt.run_files.lock_owner import read_owner

    owner = read_owner(work)
    if owner is None or not owner.is_here:
        return False
    return not runs_still(owner.pid, owner.pid_started_s)


def _run(order: dict[str, Any], stop: StopRequest, started_s: float) -> NoReturn:
    from scalewatt.campaign.run_spec import read_spec
    from scalewatt.monitoring.perun_session import monitored
    from scalewatt.training.process_group import join_ranks

    work = Path(order["work"])
    spec = read_spec(work / "spec.json")
    if spec.sampling_period_s is None or spec.seed is None:
        raise InputError(f"{spec.name}: is a registered run; expected one to train")
    ranks = join_ranks(spec.configuration, spec.gpus, spec.nodes)
    stop.stop_file = Path(order["stop_file"]) if ranks.rank == 0 else None
    if _is_orphan(work):
        stop.ask()
    weights = order["initial_weights"]
    job = Job(
        spec=spec,
        spec_sha256=spec.sha256,
        data_folder=order["data_folder"],
        scratch=order["scratch"],
        work=work,
        segment=order["segment"],
        initial_weights=Path(weights) if weights else None,
        max_updates=order["max_updates"],
        lock_token=order["lock_token"],
    )
    set_levers(order["lever_commands"], ranks)
    limits = Limits(**order["limits"])
    stem, period_s = segment_name(job.segment), spec.sampling_period_s
    on_loss = partial(report_loss, ranks.host, stop)
    watch = watch_rank(ranks, work, stem, period_s, limits, on_loss)
    args = (watch, limits, job, ranks, order["torch_device"], stop, started_s)
    outcome = monitored(
        guarded_train, args, work / "perun", stem, period_s, spec.name, limits.closing_s
    )
    leave(watch, ranks, exit_code(outcome))  # once rank 0 has written perun's file


if __name__ == "__main__":
    main(sys.argv[1:])
