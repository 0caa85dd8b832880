"""One rank of a run of a command: the command as a child process, as torchrun would start it.

How it handles a request to stop is up to the command; its exit code says how it ended: 0 finished, 75
stopped at a checkpoint of its own, anything else failed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.campaign.external_command import SPEC_VARIABLE, command_words
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json
from scalewatt.common.processes import die_with
from scalewatt.common.project_files import PACKAGE
from scalewatt.common.python_variables import CALLERS_PATH, callers_environment
from scalewatt.common.redaction import Redaction, without_secrets
from scalewatt.common.termination import ExitCode, StopRequest, say
from scalewatt.events import (
    EVENTS_FILE,
    FOLDER_VARIABLE,
    HISTORY_FILE,
    PLACE_VARIABLE,
    SEGMENT_VARIABLE,
    STOP_VARIABLE,
)
from scalewatt.execution.segment_description import describe_segment
from scalewatt.provenance.rank_placement import visible_gpu
from scalewatt.recordings.stage_log import EventLog, Row, final_reports, read_json_lines
from scalewatt.run_files.record import FINISHED, STOPPED, Job, segment_name

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks

_POLL_S, _LOOK_S = 0.1, 0.5
"""Seconds between looks at the command, and at files that nodes share."""
RANKS_VARIABLES = ("PMI_", "PMI2_", "PMIX_", "HYDI_", "SLURM_PMI")
"""Beginnings of the variables by which a launcher tells a process that it is a rank."""
LAUNCHERS_VARIABLES = (
    *RANKS_VARIABLES,
    *("MPI_", "MPIR_", "MPICH_", "OMPI_", "HYDRA_", "MPIEXEC_", "MV2_", "PALS_"),
)
"""Beginnings of the variables by which MPI would take a command for the rank itself."""


class CommandFailed(Exception):
    """A rank's command ended neither finished nor stopped."""


def run_command(job: Job, ranks: Ranks, stop: StopRequest, events: EventLog) -> str:
    """Run this rank's command from start to end; FINISHED or STOPPED, as rank 0's command ended.

    CommandFailed if this rank's failed. A command that runs on for `job.closing_s` after rank 0's is ended.
    """
    from scalewatt.training.distributed import wait_for_ranks

    environment = child_environment(dict(os.environ), torchrun_variables(ranks), job)
    redaction = Redaction.of(os.environ)
    threads = os.environ.get("OMP_NUM_THREADS", "")  # a launcher may have changed it
    further = {
        "threads_per_rank": int(threads) if threads.isdigit() else None,
        "packages_of": "the recorder",  # the command may run in another Python environment
        "command": [redaction.text(word) for word in without_secrets(command_words(job.spec))],
    }
    describe_segment(job, ranks, visible_gpu(job.torch_device, ranks.local_rank), further)
    if ranks.rank == 0:
        (job.work / "script").mkdir(exist_ok=True)
        link_package(job.work)
    # A program that starts has no signal handlers yet, so it is not started after a request to stop.
    if any(ranks.comm.allgather(stop.asked())):
        code: int | None = ExitCode.STOPPED
    else:
        events.enter("train")
        code = _run(job, ranks, environment, stop)
    events.enter("shutdown")
    wait_for_ranks(ranks)
    codes = ranks.comm.allgather(code)
    if codes[0] != ExitCode.FINISHED:
        return STOPPED
    if ranks.rank == 0:
        _write_result(job, [rank for rank, code in enumerate(codes) if code is None])
    return FINISHED


# --- the process ----------------------------------------------------------------------------------


def _run(job: Job, ranks: Ranks, environment: dict[str, str], stop: StopRequest) -> int | None:
    """Run the command; its exit code, or None if it was ended after rank 0's."""
    name = f"the command of rank {ranks.rank} on {ranks.host}"
    ended = job.work / f"{segment_name(job.segment)}.ended"
    command = _start(job.spec, environment)
    try:
        code = _wait(command, stop, Path(environment[STOP_VARIABLE]), ended, job.closing_s)
    finally:
        with suppress(ProcessLookupError):  # what the command has started ends with it
            os.killpg(command.pid, signal.SIGKILL)
        command.wait()
    if code is None:
        say(f"scalewatt: {name} ran on after rank 0's and was ended")
    elif code < 0:
        raise CommandFailed(f"{name} was ended by signal {signal.Signals(-code).name}")
    elif code not in (ExitCode.FINISHED, ExitCode.STOPPED):
        raise CommandFailed(f"{name} ended with exit code {code}")
    elif ranks.rank == 0:
        ended.touch()
    return code


def _start(spec: RunSpec, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the command in a process group of its own; it ends with this process.

    It handles Ctrl-C as any program does. What it has started ends with the run (`launch`).
    """

    def prepare(parent: int = os.getpid()) -> None:
        die_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    words = command_words(spec)
    options: dict[str, Any] = {"cwd": spec.settings["folder"], "stdin": subprocess.DEVNULL}
    try:
        return subprocess.Popen(
            words, env=environment, process_group=0, preexec_fn=prepare, **options
        )
    except OSError as error:
        raise InputError(
            f"{spec.configuration}: the command '{words[0]}' cannot be started ({error.strerror}); name a "
            "program of this machine, after the cluster file's `setup` (bash for `shell: true`)"
        ) from error


def _wait(
    command: subprocess.Popen[bytes],
    stop: StopRequest,
    stop_file: Path,
    ended: Path,
    closing_s: float,
) -> int | None:
    """Wait for the command, and pass a request to stop of any rank on as USR1; its exit code.

    None if it still runs `closing_s` after rank 0's has ended, or ends by a signal meanwhile. A signal is
    passed on at once: Slurm has sent it to the command as well, which USR1 would end if it came when the
    command has stopped by itself and its interpreter takes its handlers down.
    """
    is_asked, deadline_s, next_look_s = False, math.inf, 0.0
    while (code := command.poll()) is None and (now_s := time.monotonic()) < deadline_s:
        is_due = now_s >= next_look_s
        next_look_s = now_s + _LOOK_S if is_due else next_look_s
        if not is_asked and (stop.asked() or (is_due and os.path.exists(stop_file))):
            is_asked = True
            stop_file.touch()
            command.send_signal(signal.SIGUSR1)
        if is_due and deadline_s == math.inf and os.path.exists(ended):
            deadline_s = now_s + closing_s
        with suppress(subprocess.TimeoutExpired):
            command.wait(_POLL_S)
    return None if code is not None and code < 0 and os.path.exists(ended) else code


# --- its environment ------------------------------------------------------------------------------


def torchrun_variables(ranks: Ranks) -> dict[str, str]:
    """Variables by which torchrun describes a rank to its process; all ranks must call this."""
    hosts = ranks.comm.allgather(ranks.host)
    nodes = list(dict.fromkeys(hosts))
    with socket.socket() as probe:
        probe.bind(("", 0))
        host = "127.0.0.1" if len(nodes) == 1 else ranks.host
        address, port = ranks.comm.bcast((host, probe.getsockname()[1]))
    variables = {
        "RANK": ranks.rank,
        "WORLD_SIZE": ranks.size,
        "LOCAL_RANK": ranks.local_rank,
        "LOCAL_WORLD_SIZE": hosts.count(ranks.host),
        "GROUP_RANK": nodes.index(ranks.host),
        "GROUP_WORLD_SIZE": len(nodes),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    return {name: str(value) for name, value in variables.items()}


def link_package(work: Path) -> None:
    """Make a folder that has scalewatt and nothing else, for scripts of another Python environment."""
    link = work / "package" / PACKAGE.name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(PACKAGE)


def child_environment(
    environment: dict[str, str], torchrun: dict[str, str], job: Job
) -> dict[str, str]:
    """Environment of a rank's command: torchrun's variables, none of MPI's.

    PATH and Python's variables are as they were where the run was started: the command may run in
    another Python environment. It finds scalewatt.events in the folder of `link_package`.
    """
    callers = callers_environment(environment)
    known = {k: v for k, v in callers.items() if not k.startswith(LAUNCHERS_VARIABLES)}
    known.pop(FOLDER_VARIABLE, None)  # of a run that has started this one
    known["PATH"] = known.pop(CALLERS_PATH, known.get("PATH", os.defpath))
    if torchrun["GROUP_WORLD_SIZE"] == "1":
        known.setdefault("GLOO_SOCKET_IFNAME", "lo")
    run = f"{job.spec.configuration}-{job.spec.repeat}-{job.segment}"
    known |= {**torchrun, "TORCHELASTIC_RUN_ID": run}
    paths = [path for path in (known.get("PYTHONPATH"), str(job.work / "package")) if path]
    # A launcher that the script starts changes at least one of these.
    names = ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "SLURM_STEP_ID")
    return {
        **known,
        "PYTHONPATH": os.pathsep.join(paths),
        "SCALEWATT_WORK": str(job.work / "script"),
        SPEC_VARIABLE: str(job.work / "spec.json"),
        SEGMENT_VARIABLE: str(job.segment),
        PLACE_VARIABLE: json.dumps({name: known[name] for name in names if name in known}),
        STOP_VARIABLE: str(job.work / f"{segment_name(job.segment)}.stop"),
        **({FOLDER_VARIABLE: str(job.work)} if torchrun["RANK"] == "0" else {}),
    }


# --- its reports ----------------------------------------------------------------------------------


def _write_result(job: Job, ended: list[int]) -> None:
    """Write the run's result; `ended` are the ranks whose commands ran on after rank 0's."""
    settings = job.spec.settings
    result = {
        "spec_sha256": job.spec.sha256,
        "metric_name": settings["metric_name"],
        "metric_goal": settings["metric_goal"],
        "parameters": None,
        "history": history_rows(job.work, job.spec, job.segment),
        "reports": report_summary(job.work, job.spec) | {"ended": ended},
    }
    write_json(job.work / "result.json", result, job.require_lock)


def stage_marks(work: Path) -> list[Row]:
    """Marks of a run's stages in order; a script's replace the recorder's `train` of its segment."""
    recorded, reported = read_json_lines(work / "events.jsonl"), read_json_lines(work / EVENTS_FILE)
    segments = {mark["segment"] for mark in reported}
    kept = [m for m in recorded if m["stage"] != "train" or m["segment"] not in segments]
    if not reported:
        return kept
    return sorted([*kept, *reported], key=lambda mark: (mark["segment"], mark["start_s"]))


def history_rows(work: Path, spec: RunSpec, segment: int) -> list[Row]:
    """A row per reported epoch; without reports, a row of the whole training that ended in `segment`.

    Samples that were not reported are those that the campaign declares, if all epochs were reported.
    """
    rows, declared = final_reports(work / HISTORY_FILE), spec.dataset_samples
    if not rows:
        samples = None if declared is None else declared * spec.epochs
        last = {"epoch": spec.epochs - 1, "segment": segment}
        return [{**last, "metric": None, "samples": samples, "updates": None}]
    for row in rows:
        if row["samples"] is None and len(rows) == spec.epochs:
            row["samples"] = declared
        samples, train_s = row["samples"], row.get("train_s")
        is_known = samples is not None and train_s
        row["throughput_samples_per_s"] = samples / train_s if is_known else None
    return rows


def report_summary(work: Path, spec: RunSpec) -> dict[str, Any]:
    """What is known of a script's reports, for the run's provenance.

    `epochs`: those done, null without a report. `joined`: whether its ranks formed one world, null if
    unknown. `declared`: what the campaign alone says. `not_finite`: epochs whose value was NaN or
    infinite, by the name of the value.
    """
    reports = final_reports(work / HISTORY_FILE)
    joined = [report["joined"] for report in reports if report.get("joined") is not None]
    is_counted = bool(reports) and all(report["samples"] is not None for report in reports)
    declared = [] if reports else ["epochs"]
    if spec.dataset_samples is not None and not is_counted:
        declared.append("samples")
    not_finite: dict[str, list[int]] = {}
    for report in reports:
        for name in report.get("not_finite", ()):
            not_finite.setdefault(name, []).append(report["epoch"])
    return {
        "epochs": reports[-1]["epoch"] + 1 if reports else None,
        "joined": any(joined) if joined else None,
        "declared": declared,
        "not_finite": not_finite,
    }
