"""The guard of a node's clocks and power limits: sets them for a run, and undoes it however that ends.

On each node the first rank starts the guard, a process in a session of its own that is no child of
the rank's. It sets the levers, waits until it is told to end or the rank is gone, and undoes what it
set. A record in the root of working directories says what is to be undone; where the guard itself was
killed, as by a scheduler that ends all of a job at once, the next guard on that node undoes it first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import exists
from scalewatt.common.files import read_json, write_json
from scalewatt.common.processes import machine_id, process_started_s, runs_still
from scalewatt.common.untrusted_text import parse_json
from scalewatt.execution.launcher_process import MARK

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks

FOLDER = "levers"
"""Of the records, in the root of working directories."""
COMMAND_LIMIT_S = 60.0
PATIENCE_S = 90.0
"""How long a guard waits for the one before it, and a rank for its guard."""
_LOOK_S = 0.2
_RELEASE = signal.SIGUSR2
GRACE_S = 10.0
"""How long after TERM, which a scheduler sends to all of a job, a guard waits for its rank to end."""
_UNDO_ATTEMPTS = 3


@dataclass(frozen=True)
class Guard:
    """A guard at work, as the rank knows it that started it."""

    pid: int
    started_s: float | None

    def release(self, patience_s: float = PATIENCE_S) -> None:
        """Tell the guard that the run has ended, and wait until it has undone what it set."""
        until = time.monotonic() + patience_s
        if runs_still(self.pid, self.started_s):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, _RELEASE)
        while runs_still(self.pid, self.started_s) and time.monotonic() < until:
            time.sleep(_LOOK_S)


_own: Guard | None = None
"""That of this process, for `release_own`."""


def release_own(patience_s: float = PATIENCE_S) -> None:
    """Release the guard that this rank started, if it did; it may be called more than once."""
    if _own is not None:
        _own.release(patience_s)


@dataclass(frozen=True)
class _Task:
    """What a guard is to do; {"set", "undo"} are commands as in a shell."""

    rank_pid: int
    rank_started_s: float | None
    commands: list[dict[str, str]]
    record: str


def set_levers(commands: Sequence[dict[str, str]], work_root: Path, ranks: Ranks) -> None:
    """Set the levers of all nodes of a run; all ranks call this, and `release_own` at their end.

    A run without commands has what a killed one left set undone. InputError on every rank where a command
    failed on any node; what was set before it is undone.
    """
    global _own
    own = (ranks.host, ranks.local_rank, os.environ.get("CUDA_VISIBLE_DEVICES"))
    places = [place for place in ranks.comm.allgather(own) if place[0] == ranks.host]
    error = None
    if ranks.local_rank == min(local for _, local, _ in places):
        try:
            if commands:
                _own = _start(_filled(commands, _gpus(places)), work_root)
            else:  # the defaults count
                undo_left_behind(work_root / FOLDER)
        except InputError as refused:
            error = f"{ranks.host}: {refused}"
    errors = [one for one in ranks.comm.allgather(error) if one is not None]
    if errors:
        release_own()
        ranks.comm.Barrier()  # the first that raises ends all
        raise InputError("; ".join(errors))


def _gpus(places: Sequence[tuple[str, int, str | None]]) -> str:
    """Return the GPUs of a node's ranks as `nvidia-smi -i` takes them: of each rank its own."""
    chosen = []
    for _, local, visible in places:
        words = [word.strip() for word in (visible or "").split(",") if word.strip()]
        chosen.append(words[local % len(words)] if words else str(local))
    return ",".join(dict.fromkeys(chosen))


def _filled(commands: Sequence[dict[str, str]], gpus: str) -> list[dict[str, str]]:
    default_w = ""
    if any("{default_w}" in text for one in commands for text in one.values()):
        default_w = _default_limit_w(gpus.partition(",")[0])
    return [
        {
            key: text.replace("{gpus}", gpus).replace("{default_w}", default_w)
            for key, text in one.items()
        }
        for one in commands
    ]


def _default_limit_w(gpu: str) -> str:
    """Return a GPU's default power limit in W, by its index or UUID; InputError if NVML does not tell."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = (
            pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
            if gpu.isdigit()
            else pynvml.nvmlDeviceGetHandleByUUID(gpu)
        )
        return f"{pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000:g}"
    except Exception as error:  # whatever a driver's binding raises
        raise InputError(
            f"{{default_w}}: NVML does not tell the default power limit of GPU {gpu} ({error}); "
            "allowed: the limit as a number in `undo`"
        ) from error


def _start(commands: list[dict[str, str]], work_root: Path) -> Guard:
    """Start a guard and return it when it has set the levers; InputError if it could not."""
    undo = "\n".join(one["undo"] for one in commands)
    name = f"{socket.gethostname()}-{hashlib.sha256(undo.encode()).hexdigest()[:12]}.json"
    record = work_root / FOLDER / name
    task = _Task(os.getpid(), process_started_s(os.getpid()), commands, str(record.absolute()))
    process = subprocess.Popen(
        [sys.executable, "-m", "scalewatt.execution.lever_guard", json.dumps(asdict(task))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={key: value for key, value in os.environ.items() if key != MARK},
    )
    assert process.stdout is not None
    with process.stdout:
        answer = process.stdout.readline()
    process.wait()
    if not answer:
        raise InputError("the guard of clocks and power limits has ended without an answer")
    said = parse_json(answer.decode())
    if "error" in said:
        raise InputError(said["error"])
    return Guard(int(said["pid"]), process_started_s(int(said["pid"])))


# --- the guard itself -----------------------------------------------------------------------------


class _Told:
    """When a signal has told the guard to end: at once, or after TERM with some grace."""

    def __init__(self) -> None:
        self._until_s = float("inf")

    def __call__(self, number: int, _: object) -> None:
        wait_s = GRACE_S if number == signal.SIGTERM else 0.0
        self._until_s = min(self._until_s, time.monotonic() + wait_s)

    @property
    def to_end(self) -> bool:
        """Return True if it is time."""
        return time.monotonic() >= self._until_s


def main(argv: list[str]) -> int:
    """Guard a node's levers as the task in JSON says; the first process only starts the second."""
    task = _Task(**parse_json(argv[0]))
    if os.fork():
        return 0
    told = _Told()
    for number in (signal.SIGTERM, _RELEASE):
        signal.signal(number, told)
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    record = Path(task.record)
    try:
        wait_for_other(record)
        undo_left_behind(record.parent, record)
        _set(task, record)
    except (InputError, OSError) as error:
        _answer({"error": str(error)})
        return 1
    _answer({"pid": os.getpid()})
    while runs_still(task.rank_pid, task.rank_started_s) and not told.to_end:
        time.sleep(_LOOK_S)
    return 0 if _undo(task.commands, record) else 1


def wait_for_other(record: Path) -> None:
    """Wait for a guard that has the same record; InputError if it does not end."""
    until = time.monotonic() + PATIENCE_S
    while (other := _read(record)) is not None and _is_alive(other):
        if time.monotonic() > until:
            raise InputError(f"{record}: another run has these clocks and limits set, and goes on")
        time.sleep(_LOOK_S)


def undo_left_behind(folder: Path, own: Path | None = None) -> None:
    """Undo what guards of this host left set when they were killed.

    `own`: a record whose guard is known to have ended, whatever machine it says. InputError where
    something cannot be undone.
    """
    for path in sorted(folder.glob(f"{socket.gethostname()}-*.json")):
        left = _read(path)
        if left is None:
            continue
        is_dead = left["machine"] == machine_id() and not _is_alive(left)
        if (path == own or is_dead) and not _undo(left["commands"], path):
            raise InputError(
                f"{path}: what an ended run had set cannot be undone; expected a command that may, or undo "
                "it by hand and remove the file"
            )


def _read(record: Path) -> dict[str, Any] | None:
    """Return a record; None where it has just been removed."""
    try:
        content: dict[str, Any] = read_json(record)
    except InputError:
        if exists(record):
            raise
        return None
    return content


def _is_alive(record: dict[str, Any]) -> bool:
    same = record["machine"] == machine_id()
    return same and runs_still(record["guard_pid"], record["guard_started_s"])


def _set(task: _Task, record: Path) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    pid = os.getpid()
    own = {"machine": machine_id(), "guard_pid": pid, "guard_started_s": process_started_s(pid)}
    write_json(record, {**own, "commands": task.commands})
    for number, command in enumerate(task.commands, 1):
        failed = _run(command["set"])
        if failed:
            _undo(task.commands[:number], record)
            raise InputError(f"'{command['set']}' {failed}; expected a command that may set it")


def _undo(commands: Sequence[dict[str, str]], record: Path) -> bool:
    """Undo all commands; return False, and keep the record, where one cannot be undone."""
    undone = True
    for command in reversed(commands):
        for _ in range(_UNDO_ATTEMPTS):
            failed = _run(command["undo"])
            if not failed:
                break
            time.sleep(_LOOK_S)
        else:
            undone = False
            text = f"scalewatt: {socket.gethostname()}: '{command['undo']}' {failed}"
            print(text, file=sys.stderr, flush=True)
    if undone:
        record.unlink(missing_ok=True)
    return undone


def _run(command: str) -> str | None:
    """Run a command; return how it failed, None if it did not."""
    try:
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not end in {COMMAND_LIMIT_S:.0f} s"
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    if done.returncode == 0:
        return None
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"ended with exit code {done.returncode}" + (f": {said[-1][:300]}" if said else "")


def _answer(content: dict[str, Any]) -> None:
    """Answer the rank, which reads one line, and let go of its pipe."""
    with suppress(OSError):
        os.write(1, (json.dumps(content) + "\n").encode())
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
