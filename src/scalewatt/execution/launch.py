"""Run a training: lock it, start the ranks, watch over them, publish.

What the ranks watch and end themselves, with which time limits, is in `rank`. Here the launcher is ended
with all it started when a person asks twice; what it leaves behind is ended 10 s after its own end. mpiexec
gives its ranks sessions of their own, so this process adopts what loses its parent. On other nodes, and in a
step of Slurm, the launcher ends its ranks.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import psutil

from scalewatt.campaign.cluster import Cluster, Device, powers
from scalewatt.campaign.external_command import check_unchanged, command_files, is_command_spec
from scalewatt.campaign.operating_points import launcher_options, require_ways
from scalewatt.campaign.run_spec import RunSpec, read_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import full_text, has_room, read_json_object
from scalewatt.common.processes import adopt_orphans, runs_still, signal_at_parents_death
from scalewatt.common.python_variables import CALLERS_PATH
from scalewatt.common.termination import STOP_FILE, ExitCode, say
from scalewatt.data.prepared import content_of_prepared, is_staged
from scalewatt.execution.failure_reason import (
    most_informative_line,
    one_line,
    reports_full_disk,
    was_refused,
)
from scalewatt.execution.publish import already_published, publish
from scalewatt.provenance.versions import made_with
from scalewatt.run_files.inventory import find_workdirs, work_name
from scalewatt.run_files.lock import current_job
from scalewatt.run_files.record import (
    COMPILED,
    FINISHED,
    MONITOR_LOST,
    RESULT,
    STOPPED,
    WorkDir,
    no_further_try,
    open_workdir,
    read_outcome,
    read_segments,
    reason_to_end,
)

_LOG_LINES = 25
"""How many last lines of its log are printed when a training fails."""
GRACE_S = 10.0
"""How long all may take to end after TERM, or after the launcher's end, and then after KILL."""
_POLL_S = 0.1


@dataclass(frozen=True)
class LaunchOptions:
    """Where and from which weights a training is started."""

    cluster: Cluster
    device: Device
    work_root: Path
    data_folder: Path | None = None
    """None if the run has no prepared dataset."""
    initial_weights: Path | None = None
    """`weights.pt` of the run whose weights this one starts from."""
    max_updates: int | None = None
    """Stop each segment after so many updates."""
    check_budget: Callable[[], None] = lambda: None
    """Raises InputError if the campaign's energy budget is used up."""


def run_training(spec_path: Path, out: Path, options: LaunchOptions) -> int:
    """Train one segment of the run in `spec_path`; when it is the last, publish to `out`.

    Returns ExitCode.FINISHED, STOPPED when it waits at a checkpoint, REFUSED or FAILED.
    """
    spec = read_spec(spec_path)
    _check_initial_weights(spec, spec_path, options.initial_weights)
    data_folder = options.data_folder
    dataset_sha256 = None if data_folder is None else content_of_prepared(data_folder)
    files = _files_to_start_with(spec, options) if is_command_spec(spec) else None
    if reason := no_further_try(options.work_root, spec, options.cluster.crash_retries):
        raise InputError(reason)
    with open_workdir(options.work_root, spec, dataset_sha256, files) as work:
        if already_published(out, work):
            return ExitCode.FINISHED
        work.open_record()
        if not work.finished:
            code = _train(work, options)
            if not work.finished:
                return code
        if read_spec(spec_path).sha256 != spec.sha256:
            raise InputError(f"{spec_path}: is of another run by now; this one is in {work.path}")
        try:
            publish(work, out, powers(options.device))
        except Exception as error:
            work.refuse(one_line(f"it is trained, and cannot be published ({error})"))
            raise
    return ExitCode.FINISHED


def _files_to_start_with(spec: RunSpec, options: LaunchOptions) -> dict[str, str]:
    """SHA-256 of a command's files; InputError if it waits at a checkpoint that others have reached.

    A command that failed begins afresh: its script may have been mended.
    """
    if options.max_updates is not None:
        raise InputError("--max-updates: a command counts its own updates; allowed: without")
    files = command_files(spec)
    if (options.work_root / work_name(spec.key, None, files)).exists():
        return files
    for folder in find_workdirs(options.work_root, spec):
        segments = read_segments(folder)
        if segments and segments[-1]["outcome"] == STOPPED and not (folder / RESULT).exists():
            raise InputError(
                f"{spec.configuration}: its files have changed since it stopped at a checkpoint; restore "
                f"them to go on, or remove {folder} to begin afresh"
            )
    return files


def _check_initial_weights(spec: RunSpec, spec_path: Path, weights: Path | None) -> None:
    """Raise InputError unless the weights are those of the run that the spec names."""
    source = spec.initial_weights
    if source is None and weights is not None:
        raise InputError(f"{spec_path}: --initial-weights is not used by this run")
    if source is None:
        return
    if weights is None:
        raise InputError(f"{spec_path}: --initial-weights is needed")
    provenance = read_json_object(weights.parent / "provenance.json", "spec_sha256")
    if provenance["spec_sha256"] != source.spec_sha256:
        run = f"{source.configuration} repeat {source.repeat}"
        raise InputError(
            f"{weights}: not of {run}, from which {spec_path} starts; train that again"
        )


def _train(work: WorkDir, options: LaunchOptions) -> int:
    """Train a segment, unless its ranks cannot start: then the record says why."""
    spec, cluster = work.spec, options.cluster
    try:
        options.check_budget()
        require_launcher(cluster.launcher)
        require_ways(spec.operating_point or (), cluster.levers, spec.configuration)
        if work.files is not None:  # waiting for the lock may take long
            check_unchanged(spec, work.files)
        if options.data_folder is not None and is_staged(spec, cluster.scratch):
            from scalewatt.data.node_copy import check_packed  # with numpy and pyarrow

            check_packed(options.data_folder)
        segment = _Segment(work, options)
        code = segment.run()
    except InputError as error:
        work.refuse(str(error))
        raise
    is_warned = cluster.requeue and segment.was_stopped_by_warning_alone()
    is_further = reason_to_end(work.record(), spec, cluster.crash_retries) is None
    if is_warned and is_further and (job := current_job()):
        _requeue(job)
    return code


def _requeue(job: str) -> None:
    """Have Slurm put a job back into its queue; it ends at once."""
    command = ["scontrol", "requeue", job]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"job {job} cannot be put back into the queue: {one_line(done.stderr)}")


class _Segment:
    """One start of the ranks."""

    def __init__(self, work: WorkDir, options: LaunchOptions) -> None:
        self.work, self.options = work, options
        self.name = work.spec.configuration
        software = made_with()  # here, because it takes a moment that is not the training's
        if work.files is not None:
            software = {**software, "files": work.files}
        self.stop_file = work.path / STOP_FILE
        self.stop_file.unlink(missing_ok=True)
        self.number = work.begin_segment(self._order(), software)
        self.asked_by: set[str] = set()
        """Names of the signals that asked it to stop."""
        self.times_asked_to_stop = 0

    def _order(self) -> dict[str, Any]:
        """What the ranks are to do: fields of their `Job`."""
        options, cluster = self.options, self.options.cluster
        data, weights = options.data_folder, options.initial_weights
        return {
            "scratch": cluster.scratch,
            "checkpoint_every_s": cluster.checkpoint_every_s,
            "closing_s": cluster.closing_s,
            "torch_device": options.device.torch_device,
            "max_updates": options.max_updates,
            "data_folder": str(data.resolve()) if data else "",
            "initial_weights": str(weights.resolve()) if weights else None,
            "token": self.work.token,
        }

    def run(self) -> int:
        """Start the ranks, wait for them, record the outcome."""
        path = self.work.path / "train.log"
        log_start = path.stat().st_size if path.exists() else 0
        asking = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        previous = {number: signal.signal(number, self._on_signal) for number in asking}
        environment, lock = self._environment(), self.work.lock
        try:
            with open(path, "ab") as log:
                code = run_ranks(self._command(), log, lock, environment, self.must_end)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        if outcome := self._outcome():
            return self._end_as(outcome, code)
        return self._fail(code, path.read_bytes()[log_start:].decode(errors="replace"))

    def _command(self) -> list[str]:
        spec, cluster = self.work.spec, self.options.cluster
        launcher = cluster.launcher.format(
            gpus=spec.gpus,
            nodes=spec.nodes,
            ranks_per_node=spec.ranks_per_node,
            cpus_per_rank=self.options.device.cpus_per_rank,
        )
        # The signals are ignored until the rank has installed its own handlers.
        shell = ["sh", "-c", 'trap "" USR1 TERM; exec "$@"', "sh"]
        rank = [sys.executable, "-m", "scalewatt.execution.rank", str(self.work.path.resolve())]
        levers = launcher_options(spec.operating_point, cluster.levers)
        return [*shlex.split(launcher), *levers, *shell, *rank]

    def _environment(self) -> dict[str, str]:
        threads = str(self.options.device.cpus_per_rank)
        return {
            **forking(self.work.spec.nodes),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # Each run compiles for itself, so that repeats are alike; its segments share the result.
            "TORCHINDUCTOR_CACHE_DIR": str((self.work.path / COMPILED).resolve()),
        }

    def _outcome(self) -> dict[str, Any] | None:
        """How the training ended, as rank 0 has noted; None while it goes on."""
        return read_outcome(self.work.path, self.number)

    # --- signals ----------------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_scheduler = number == signal.SIGUSR1 or (number == signal.SIGTERM and current_job())
        self.asked_by.add(signal.Signals(number).name)
        if is_scheduler and self.times_asked_to_stop:
            return  # it may ask more than once, and ends by itself what does not end
        self.times_asked_to_stop += 1
        answer = "stops at its next step"
        try:
            self.stop_file.touch()
        except OSError as error:
            answer = f"cannot be asked to stop ({error})"
        say(f"{self.name}: {answer}; ask again to end it at once")

    def must_end(self) -> bool:
        """Whether the ranks were asked twice to end."""
        return self.times_asked_to_stop > 1

    def was_stopped_by_warning_alone(self) -> bool:
        """Whether it stopped, and nothing but Slurm's warning before the time limit asked for that."""
        outcome = self._outcome()
        if outcome is None or outcome["outcome"] not in (STOPPED, MONITOR_LOST):
            return False
        # A stop file that this process made when it was warned is not another request.
        ours = {STOP_FILE} if self.asked_by else set()
        return {*outcome["requests"], *self.asked_by} - ours == {"SIGUSR1"}

    # --- ends -------------------------------------------------------------------------------------

    def _fail(self, code: int, log: str) -> int:
        """Record why ranks failed without an outcome; `code` may be that of ranks which were ended."""
        reason = most_informative_line(log)
        if reports_full_disk(log) or not has_room(self.work.path):
            reason = one_line(f"{full_text(self.work.path)} ({reason})")
        outcome, ended = "failed", ExitCode.FAILED
        if was_refused(log):
            outcome, ended, code = "refused", ExitCode.REFUSED, ExitCode.REFUSED
        say("\n".join(log.splitlines()[-_LOG_LINES:]))
        because = f": {reason}" if reason else ""
        say(
            f"scalewatt: error: {self.name}: training failed (exit code {code}){because}; "
            f"its log is {self.work.path / 'train.log'}"
        )
        self.work.end_segment(outcome, reason, ended)
        return ended

    def _end_as(self, ended: dict[str, Any], code: int) -> int:
        """Record the outcome that the ranks gave. Whatever was lost, a request to stop was heard."""
        outcome = ended["outcome"]
        details = [f"{loss['host']}: {loss['reason']}" for loss in ended["losses"]]
        if outcome == MONITOR_LOST and self.times_asked_to_stop:
            outcome = STOPPED
        if code not in (ExitCode.FINISHED, ExitCode.STOPPED):
            details.append(f"perun did not close (exit code {code}); its journal is kept")
            say(f"{self.name}: {details[-1]}")
        detail = "; ".join(details) or None
        result = {FINISHED: 0, STOPPED: ExitCode.STOPPED}.get(outcome, ExitCode.FAILED)
        self.work.end_segment(outcome, detail, result)
        if outcome == STOPPED:
            say(f"{self.name}: stopped at a checkpoint; start it again to resume")
        if outcome == MONITOR_LOST:
            say(
                f"scalewatt: error: {self.name}: the energy was no longer recorded ({detail}); the "
                "training waits at its checkpoint; start it again to resume"
            )
        return result


# --- the ranks' processes -------------------------------------------------------------------------


def run_ranks(
    command: Sequence[str],
    log: BinaryIO,
    lock: int,
    environment: Mapping[str, str],
    must_end: Callable[[], bool],
) -> int:
    """Run the launcher of the ranks, until it ends or `must_end()`; its exit code when all have ended.

    What is alive then is ended by TERM, after GRACE_S by KILL. The launcher gets USR1 when this process dies.
    `lock` is a file descriptor that all hold until they end. This process has no other child.
    """
    adopt_orphans()
    launcher = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={
            **os.environ,
            "PATH": command_path(),
            CALLERS_PATH: os.environ.get("PATH", os.defpath),
            "PYTHONUNBUFFERED": "1",
            "SLURM_KILL_BAD_EXIT": "1",  # srun ends all ranks when one has died, as mpiexec does
            **environment,
        },
        start_new_session=True,  # a terminal's Ctrl-C reaches this process only
        pass_fds=(lock,),
        # When this process dies, no rank trains on unwatched: mpiexec and srun forward USR1 to the
        # ranks, which stop at a checkpoint. On TERM srun would end them at once.
        preexec_fn=partial(signal_at_parents_death, signal.SIGUSR1),
    )
    try:
        while launcher.poll() is None and not must_end():
            time.sleep(_POLL_S)
    finally:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGTERM)
        for process in _alive_after(GRACE_S):
            with suppress(psutil.Error):
                process.kill()
        if alive := _alive_after(GRACE_S):
            say(f"scalewatt: cannot be ended: {', '.join(str(process.pid) for process in alive)}")
    return launcher.wait()


def _alive_after(seconds: float) -> list[psutil.Process]:
    """Descendants that are alive after `seconds`; none as soon as all have ended."""
    until_s = time.monotonic() + seconds
    while alive := [p for p in psutil.Process().children(recursive=True) if runs_still(p.pid)]:
        if time.monotonic() > until_s:
            break
        time.sleep(_POLL_S)
    return alive


def command_path() -> str:
    """PATH with this Python's commands first, among them the environment's mpiexec."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def forking(nodes: int) -> dict[str, str]:
    """Variables by which MPICH's mpiexec forks the ranks of a run on one node.

    In a step of Slurm, such as an interactive one, it would ask srun, which waits for what the step holds.
    """
    is_asked = nodes == 1 and "SLURM_JOB_ID" in os.environ and "HYDRA_LAUNCHER" not in os.environ
    return {"HYDRA_LAUNCHER": "fork"} if is_asked else {}


def require_launcher(launcher: str) -> None:
    """Raise InputError if the launcher's program is not on this machine."""
    program = shlex.split(launcher)[0]
    if shutil.which(program, path=command_path()) is None:
        raise InputError(f"launcher: '{program}' is not found; allowed: a command of this machine")
