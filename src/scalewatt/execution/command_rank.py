"""One rank of a run of a command: the command as a child process, as torchrun would start it.

How it handles a signal is up to the command; its exit code says how it ended: 0 finished, 75
stopped at a checkpoint of its own, anything else failed.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scalewatt.campaign.external_command import command_words
from scalewatt.common.files import write_json
from scalewatt.common.redaction import Redaction
from scalewatt.common.secret_names import without_secrets
from scalewatt.common.termination import EXIT_STOPPED
from scalewatt.events import FOLDER_VARIABLE, SEGMENT_VARIABLE, STOP_VARIABLE
from scalewatt.execution.child_process import (
    LAUNCHERS_VARIABLES,
    CommandFailed,
    Signals,
    how_ended,
    start_child,
    wait_for_child,
)
from scalewatt.execution.launcher_process import CALLERS_PATH
from scalewatt.execution.script_events import history_rows
from scalewatt.execution.segment_description import describe_segment
from scalewatt.provenance.versions import Gpu, visible_gpu
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import segment_name
from scalewatt.training.segment_job import FINISHED, STOPPED, Job

if TYPE_CHECKING:
    from scalewatt.common.stop_request import StopRequest
    from scalewatt.provenance.rank_placement import Ranks

_LOOK_S = 0.05


@dataclass(frozen=True)
class RankPlace:
    """Where a rank stands among the others, in torchrun's words."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    nodes: int
    address: str
    port: int


def run_command(
    job: Job, ranks: Ranks, torch_device: str, stop: StopRequest, started_s: float
) -> tuple[str, bool]:
    """Run this rank's command from start to end: what perun monitors.

    Returns FINISHED or STOPPED, and False; CommandFailed if this rank's command failed. No command
    is started after a request to stop, because a starting program has no signal handlers yet.
    """
    events = EventLog(
        job.work / "events.jsonl" if ranks.rank == 0 else None, job.segment, started_s
    )
    place = find_rank_place(ranks)
    words = command_words(job.spec)
    _describe(job, ranks, visible_gpu(torch_device, place.local_rank), words)
    folder = job.work / "script"
    folder.mkdir(exist_ok=True)
    with Signals(stop, job.work / f"{segment_name(job.segment)}.stop") as signals:
        environment = child_environment(dict(os.environ), place, job, signals.file)
        if any(ranks.comm.allgather(stop.asked())):
            code = EXIT_STOPPED
        else:
            events.enter("train")
            command = start_child(words, Path(job.spec.settings["folder"]), environment)
            code = wait_for_child(command, signals)
    if code not in (0, EXIT_STOPPED):
        raise CommandFailed(f"the command of rank {place.rank} on {ranks.host} {how_ended(code)}")
    codes = _gathered(ranks, code)
    events.enter("shutdown")
    outcome = STOPPED if EXIT_STOPPED in codes else FINISHED
    if outcome == FINISHED and place.rank == 0:
        _write_result(job)
    events.end()
    return outcome, False


def find_rank_place(ranks: Ranks) -> RankPlace:
    """Return this rank's place; rank 0 finds a free port. All ranks must call this."""
    hosts = ranks.comm.allgather(ranks.host)
    nodes = list(dict.fromkeys(hosts))
    address = "127.0.0.1" if len(nodes) == 1 else ranks.host
    found = (address, _free_port()) if ranks.rank == 0 else None
    address, port = ranks.comm.bcast(found, root=0)
    return RankPlace(
        rank=ranks.rank,
        size=ranks.size,
        local_rank=ranks.local_rank,
        local_size=hosts.count(ranks.host),
        node=nodes.index(ranks.host),
        nodes=len(nodes),
        address=address,
        port=port,
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def child_environment(
    environment: dict[str, str], place: RankPlace, job: Job, stop_file: Path
) -> dict[str, str]:
    """Return the environment of a rank's command: torchrun's variables, none of MPI's.

    PATH is as it was where the run was started: the command may run in another Python environment.
    """
    kept = {k: v for k, v in environment.items() if not k.startswith(LAUNCHERS_VARIABLES)}
    kept.pop(FOLDER_VARIABLE, None)
    callers_path = kept.pop(CALLERS_PATH, None)
    if callers_path is not None:
        kept["PATH"] = callers_path
    if place.nodes == 1:
        kept.setdefault("GLOO_SOCKET_IFNAME", "lo")
    # So that scripts of another Python environment find scalewatt.events.
    package = str(Path(__file__).resolve().parents[2])
    paths = [path for path in (kept.get("PYTHONPATH"), package) if path]
    spec = job.spec
    marks = {FOLDER_VARIABLE: str(job.work)} if place.rank == 0 else {}
    return {
        **kept,
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "GROUP_RANK": str(place.node),
        "GROUP_WORLD_SIZE": str(place.nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(place.rank),
        "ROLE_WORLD_SIZE": str(place.size),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        "TORCHELASTIC_RUN_ID": f"{spec.configuration}-{spec.repeat}-{job.segment}",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "PYTHONPATH": os.pathsep.join(paths),
        "SCALEWATT_WORK": str(job.work / "script"),
        "SCALEWATT_SPEC": str(job.work / "spec.json"),
        SEGMENT_VARIABLE: str(job.segment),
        STOP_VARIABLE: str(stop_file),
        **marks,
    }


def _gathered(ranks: Ranks, code: int) -> list[int]:
    """Return all ranks' exit codes, without the busy waiting of MPI's own collectives."""
    request = ranks.comm.Ibarrier()
    while not request.Test():
        time.sleep(_LOOK_S)
    return ranks.comm.allgather(code)


def _write_result(job: Job) -> None:
    settings = job.spec.settings
    write_json(
        job.work / "result.json",
        {
            "spec_sha256": job.spec_sha256,
            "metric_name": settings["metric_name"],
            "metric_goal": settings["metric_goal"],
            "parameters": None,
            "history": history_rows(job.work, job.spec, job.segment),
        },
        job.require_lock,
    )


def _redacted(words: list[str], redaction: Redaction, is_script: bool) -> list[str]:
    """Return a command with secrets and paths redacted; only in a script do blanks end a path."""
    shown = redaction.text if is_script else redaction.word
    return [shown(word) for word in without_secrets(words)]


def _describe(job: Job, ranks: Ranks, gpu: Gpu | None, words: list[str]) -> None:
    """Write on rank 0 what this segment runs on, for the run's provenance."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    redaction = Redaction.of(os.environ)
    further = {
        "threads_per_rank": int(threads) if threads.isdigit() else None,
        "packages_of": "the recorder",  # the command may run in another Python environment
        "python": sys.version.split()[0],
        "command": _redacted(words, redaction, bool(job.spec.settings["shell"])),
        "files": job.spec.settings["files"],
    }
    describe_segment(job, ranks, gpu, None, further)
