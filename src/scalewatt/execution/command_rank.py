"""One rank of a run of a command: the command as a child process, as torchrun would start it.

How it handles a signal is up to the command; its exit code says how it ended: 0 finished, 75
stopped at a checkpoint of its own, anything else failed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from scalewatt.campaign.external_command import SPEC_VARIABLE, command_words
from scalewatt.common.exit_codes import ExitCode
from scalewatt.common.file_locks import exists
from scalewatt.common.files import write_json
from scalewatt.common.processes import die_with
from scalewatt.common.python_variables import callers_environment
from scalewatt.common.redaction import Redaction, without_secrets
from scalewatt.common.schema_validation import INSTALLED, PACKAGE
from scalewatt.common.termination import StopRequest, say
from scalewatt.events import (
    EVENTS_FILE,
    FOLDER_VARIABLE,
    HISTORY_FILE,
    PLACE_VARIABLE,
    SEGMENT_VARIABLE,
    STOP_VARIABLE,
)
from scalewatt.execution.launcher_process import CALLERS_PATH
from scalewatt.execution.script_events import history_rows, report_summary
from scalewatt.execution.segment_description import describe_segment
from scalewatt.provenance.versions import Gpu, visible_gpu
from scalewatt.recordings.stage_log import EventLog
from scalewatt.run_files.work_directory import FINISHED, STOPPED, Job, segment_name

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks


# --- a command as a process -----------------------------------------------------------------------

STOP_SIGNALS = (signal.SIGUSR1, signal.SIGTERM)
_POLL_S = 0.1
LATE_S = 60.0
"""A command that still runs so long after another has ended is named; after half of `closing_s` if that is
sooner."""
ENDED = -1000
"""Stands for the exit code of a command that was ended because it ran on after others had ended."""
_ENDED_TAG = 7301
_MOST_NAMED = 4
RANKS_VARIABLES = ("PMI_", "PMI2_", "PMIX_", "HYDI_", "SLURM_PMI")
"""Beginnings of the variables by which a launcher tells a process that it is a rank."""
LAUNCHERS_VARIABLES = (
    *RANKS_VARIABLES,
    *("MPI_", "MPIR_", "MPICH_", "OMPI_", "HYDRA_", "MPIEXEC_", "MV2_", "PALS_"),
)
"""Beginnings of the variables by which MPI would take a command for the rank itself."""


class CommandFailed(Exception):
    """A rank's command ended neither finished nor stopped."""


def start_child(
    words: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start `words` in `folder`, in a process group that ends with this process."""
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            process_group=0,
            preexec_fn=partial(_prepare, os.getpid()),
        )
    except (OSError, ValueError) as error:  # ValueError: a word or variable with NUL in it
        raise CommandFailed(f"the command {words[0]} cannot be started ({error})") from error


def _prepare(parent: int) -> None:
    """Set up the child: it ends with the rank, and handles Ctrl-C as any program does."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def how_ended(code: int) -> str:
    """Describe how a process with this return code of Python's `subprocess` ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
    if -code in STOP_SIGNALS:
        return f"was ended by signal {name}: it was asked to stop, and has no handler for that"
    return f"was ended by signal {name}"


def wait_for_child(command: subprocess.Popen[bytes], signals: Signals, ends: Ends) -> int:
    """Wait for the command's end, and end what it leaves of its process group.

    Returns its exit code, or ENDED where it would not end, or not without a signal, after others had.
    """
    with _guarded_group(command.pid):
        while (code := command.poll()) is None:
            signals.pass_on(command)
            ends.look()
            if ends.is_over():
                break
            with suppress(subprocess.TimeoutExpired):
                command.wait(_POLL_S)
    if code is None:
        command.wait()
        return ENDED
    return ENDED if -code in STOP_SIGNALS and ends.others_ended() else code


@contextmanager
def _guarded_group(group: int) -> Iterator[None]:
    """End a process group at the end of the block, and also if this process is killed in it.

    The kernel ends the command itself with this process, but not what the command has started. A
    shell does that, which waits for the end of a pipe that only this process writes to.
    """
    end, own = os.pipe()
    guard = subprocess.Popen(
        ["sh", "-c", f"trap '' TERM USR1 INT; read _; kill -9 -{group}"],
        stdin=end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(end)
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        os.close(own)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


class Signals:
    """Forwards a rank's signals to its command, and a request to stop to all ranks (`file`)."""

    def __init__(self, stop: StopRequest, file: Path) -> None:
        self.stop, self.file = stop, file
        self._got: list[int] = []
        self._asked = False
        self._previous: dict[int, Any] = {}
        self._next_look_s = 0.0

    def __enter__(self) -> Signals:
        for number in STOP_SIGNALS:
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._previous[number](number, frame)
        self._got.append(number)

    def look(self) -> None:
        """Hand a request to stop on to the other ranks, where this one's command has ended."""
        self._is_asked()

    def pass_on(self, command: subprocess.Popen[bytes]) -> None:
        """Give the command the signals that came, or USR1 where another rank was asked to stop."""
        asked = self._is_asked()
        while self._got:
            command.send_signal(self._got.pop(0))
            self._asked = True
        if asked and not self._asked:
            command.send_signal(signal.SIGUSR1)
            self._asked = True

    def _is_asked(self) -> bool:
        """Return True if this rank or another has been asked to stop; all ranks are informed."""
        if self.stop.asked() or self._got:
            if not self._asked:
                self.file.touch()
            return True
        now = time.monotonic()
        if now < self._next_look_s:
            return False
        self._next_look_s = now + 5 * _POLL_S
        return bool(exists(self.file))


class Ends:
    """When the ranks' commands have ended, and what becomes of those that run on: rank 0 decides.

    A minute after others have ended they are named. `closing_s` after rank 0 they are ended; rank 0 itself
    only where all others have ended and its script has reported all epochs, and nothing since.
    """

    def __init__(self, job: Job, ranks: Ranks, closing_s: float) -> None:
        self.job, self.ranks, self.closing_s = job, ranks, closing_s
        stem = segment_name(job.segment)
        self._first, self._over = job.work / f"{stem}.ended", job.work / f"{stem}.over"
        self._hosts = ranks.comm.allgather(ranks.host)
        self._ended: list[int] = []
        """Ranks whose commands have ended, as far as this rank knows."""
        self._since_s = self._next_look_s = 0.0
        self._named = False
        self._marks: tuple[int, ...] = ()
        self._note: Any = None

    def add(self, code: int) -> None:
        """Note that this rank's command has ended, other than in a failure."""
        if self.ranks.rank == 0:
            self._count(0)
            if code == ExitCode.FINISHED:
                self._first.touch()
        else:
            self._note = self.ranks.comm.isend(self.ranks.rank, dest=0, tag=_ENDED_TAG)

    def wait(self, signals: Signals) -> None:
        """Wait asleep until the commands of all ranks have ended."""
        request = self.ranks.comm.Ibarrier()
        while not request.Test():
            signals.look()
            self.look()
            time.sleep(_POLL_S)
        if self._note is not None:
            self._note.wait()
        while self.ranks.rank == 0 and len(self._ended) < self.ranks.size:
            self._count(self.ranks.comm.recv(tag=_ENDED_TAG))

    def others_ended(self) -> bool:
        """Return True if rank 0's command has ended, or of rank 0 all others' after its last epoch."""
        if self.ranks.rank != 0:
            return bool(exists(self._first))
        self._receive()
        return 0 < len(self._ended) == self.ranks.size - 1 and self.reported_all()

    def reported_all(self) -> bool:
        """Return True if the script has reported the last epoch."""
        return report_summary(self.job.work, self.job.spec)["epochs"] == self.job.spec.epochs

    def look(self) -> None:
        """On rank 0: name the ranks that run on for long, and have them ended in time."""
        now = time.monotonic()
        if self.ranks.rank != 0 or now < self._next_look_s:
            return
        self._next_look_s = now + 5 * _POLL_S
        self._receive()
        running = [rank for rank in range(self.ranks.size) if rank not in self._ended]
        if not self._ended or not running:
            return
        if 0 in running:
            self._look_at_marks(now)
        late_s = now - self._since_s
        if not self._named and late_s >= min(LATE_S, self.closing_s / 2):
            self._named = True
            last = self._ended[-1]
            say(f"scalewatt: {self._names(running)} {late_s:.0f} s after rank {last} ended")
        if late_s >= self.closing_s and self._may_end(running) and not exists(self._over):
            say(f"scalewatt: {self._names(running)} {late_s:.0f} s after the others: ended")
            self._over.touch()

    def is_over(self) -> bool:
        """Return True if commands that still run are to be ended."""
        if self.ranks.rank != 0:
            now = time.monotonic()
            if now < self._next_look_s:
                return False
            self._next_look_s = now + 5 * _POLL_S
        return bool(self._ended or self.ranks.rank) and bool(exists(self._over))

    def _look_at_marks(self, now: float) -> None:
        """Count anew from what the script of rank 0 reports: it is at work."""
        paths = [self.job.work / name for name in (EVENTS_FILE, HISTORY_FILE)]
        sizes = tuple(path.stat().st_size for path in paths if path.exists())
        if sizes != self._marks:
            self._marks, self._since_s = sizes, now

    def _may_end(self, running: list[int]) -> bool:
        """Return True if what runs on has nothing more to do, as far as can be told."""
        return 0 not in running or (running == [0] and self.reported_all())

    def _receive(self) -> None:
        while self.ranks.comm.Iprobe(tag=_ENDED_TAG):
            self._count(self.ranks.comm.recv(tag=_ENDED_TAG))

    def _count(self, rank: int) -> None:
        self._ended.append(rank)
        self._since_s = time.monotonic()

    def _names(self, ranks: list[int]) -> str:
        named = [f"rank {rank} on {self._hosts[rank]}" for rank in ranks[:_MOST_NAMED]]
        more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
        return f"{', '.join(named)}{more} still {'runs' if len(ranks) == 1 else 'run'}"


# --- the rank -------------------------------------------------------------------------------------


def run_command(
    job: Job,
    ranks: Ranks,
    torch_device: str,
    stop: StopRequest,
    started_s: float,
    closing_s: float,
) -> tuple[str, bool]:
    """Run this rank's command from start to end: what perun monitors.

    Returns FINISHED or STOPPED, and False; CommandFailed if this rank's command failed. No command
    is started after a request to stop, because a starting program has no signal handlers yet. Where a
    command runs on for `closing_s` after the others, it is ended, and what was reported decides.
    """
    events = EventLog(
        job.work / "events.jsonl" if ranks.rank == 0 else None, job.segment, started_s
    )
    place = torchrun_variables(ranks)
    words = command_words(job.spec)
    _describe(job, ranks, visible_gpu(torch_device, ranks.local_rank), words)
    folder = job.work / "script"
    folder.mkdir(exist_ok=True)
    ends = Ends(job, ranks, closing_s)
    with Signals(stop, job.work / f"{segment_name(job.segment)}.stop") as signals:
        package = package_folder(job.work, ranks.rank)
        environment = child_environment(dict(os.environ), place, job, signals.file, package)
        if any(ranks.comm.allgather(stop.asked())):
            code: int = ExitCode.STOPPED
        else:
            events.enter("train")
            command = start_child(words, Path(job.spec.settings["folder"]), environment)
            code = wait_for_child(command, signals, ends)
        if code not in (ExitCode.FINISHED, ExitCode.STOPPED, ENDED):
            raise CommandFailed(
                f"the command of rank {ranks.rank} on {ranks.host} {how_ended(code)}"
            )
        events.enter("shutdown")
        ends.add(code)
        ends.wait(signals)
    codes = ranks.comm.allgather(code)
    outcome = _outcome(ends, codes)
    if outcome == FINISHED and ranks.rank == 0:
        _write_result(job, [rank for rank, code in enumerate(codes) if code == ENDED])
    events.end()
    return outcome, False


def _outcome(ends: Ends, codes: list[int]) -> str:
    """Return the segment's outcome by the ranks' exit codes and, where others than rank 0 ran on, by reports.

    CommandFailed, on all ranks, if commands had to be ended before all epochs were reported.
    """
    if codes[0] == ExitCode.STOPPED:
        return STOPPED
    if set(codes) == {ExitCode.FINISHED}:
        return FINISHED
    comm = ends.ranks.comm
    if comm.bcast(ends.reported_all() if ends.ranks.rank == 0 else None, root=0):
        return FINISHED
    if ExitCode.STOPPED in codes:
        return STOPPED
    raise CommandFailed(
        f"the command of rank {codes.index(ENDED)} ran on after the others and was ended, and not all "
        f"{ends.job.spec.epochs} epochs were reported; it had {ends.closing_s:g} s (closing_s of the "
        "cluster file)"
    )


def torchrun_variables(ranks: Ranks) -> dict[str, str]:
    """Return the variables by which torchrun tells a process its place; all ranks must call this.

    Rank 0 finds a free port.
    """
    hosts = ranks.comm.allgather(ranks.host)
    nodes = list(dict.fromkeys(hosts))
    address = "127.0.0.1" if len(nodes) == 1 else ranks.host
    found = (address, _free_port()) if ranks.rank == 0 else None
    address, port = ranks.comm.bcast(found, root=0)
    rank, size = str(ranks.rank), str(ranks.size)
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(ranks.local_rank),
        "LOCAL_WORLD_SIZE": str(hosts.count(ranks.host)),
        "GROUP_RANK": str(nodes.index(ranks.host)),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def package_folder(work: Path, rank: int, installed: bool = INSTALLED) -> Path:
    """Return a folder that has scalewatt and nothing else, for scripts of another Python environment.

    The folder of an installed package has all others of its environment too: there it is a link in `work`.
    """
    if not installed:
        return PACKAGE.parent
    folder = work / "package"
    folder.mkdir(exist_ok=True)
    link, new = folder / PACKAGE.name, folder / f".{PACKAGE.name}-{rank}"
    new.unlink(missing_ok=True)
    new.symlink_to(PACKAGE)
    new.replace(link)
    return folder


def child_environment(
    environment: dict[str, str], place: dict[str, str], job: Job, stop_file: Path, package: Path
) -> dict[str, str]:
    """Return the environment of a rank's command: torchrun's variables (`place`), none of MPI's.

    PATH and Python's variables are as they were where the run was started: the command may run in
    another Python environment. It finds scalewatt.events in `package`.
    """
    callers = callers_environment(environment)
    kept = {k: v for k, v in callers.items() if not k.startswith(LAUNCHERS_VARIABLES)}
    kept.pop(FOLDER_VARIABLE, None)
    callers_path = kept.pop(CALLERS_PATH, None)
    if callers_path is not None:
        kept["PATH"] = callers_path
    if place["GROUP_WORLD_SIZE"] == "1":
        kept.setdefault("GLOO_SOCKET_IFNAME", "lo")
    paths = [path for path in (kept.get("PYTHONPATH"), str(package)) if path]
    spec = job.spec
    marks = {FOLDER_VARIABLE: str(job.work)} if place["RANK"] == "0" else {}
    run_id = f"{spec.configuration}-{spec.repeat}-{job.segment}"
    given = {
        **{name: place[name] for name in ("RANK", "WORLD_SIZE")},
        "TORCHELASTIC_RUN_ID": run_id,
        **{name: kept[name] for name in ("SLURM_STEP_ID",) if name in kept},
    }
    return {
        **kept,
        **place,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "PYTHONPATH": os.pathsep.join(paths),
        "SCALEWATT_WORK": str(job.work / "script"),
        SPEC_VARIABLE: str(job.work / "spec.json"),
        SEGMENT_VARIABLE: str(job.segment),
        PLACE_VARIABLE: json.dumps(given),
        STOP_VARIABLE: str(stop_file),
        **marks,
    }


def _write_result(job: Job, ended: list[int]) -> None:
    """Write the run's result; `ended` are the ranks whose commands would not end by themselves."""
    settings = job.spec.settings
    write_json(
        job.work / "result.json",
        {
            "spec_sha256": job.spec_sha256,
            "metric_name": settings["metric_name"],
            "metric_goal": settings["metric_goal"],
            "parameters": None,
            "history": history_rows(job.work, job.spec, job.segment),
            "reports": report_summary(job.work, job.spec) | {"ended": ended},
        },
        job.require_lock,
    )


def _describe(job: Job, ranks: Ranks, gpu: Gpu | None, words: list[str]) -> None:
    """Write on rank 0 what this segment runs on, for the run's provenance."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    redaction = Redaction.of(os.environ)
    shown = redaction.text if job.spec.settings["shell"] else redaction.word
    further = {
        "threads_per_rank": int(threads) if threads.isdigit() else None,
        "packages_of": "the recorder",  # the command may run in another Python environment
        "python": sys.version.split()[0],
        "command": [shown(word) for word in without_secrets(words)],
    }
    describe_segment(job, ranks, gpu, None, further)
