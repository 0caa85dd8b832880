"""Clocks and power limits of a node that a cluster file's commands set for a run, and reset after it.

The first rank of each node sets them. A shell, started before, resets them when that rank says so or
ends in whatever way, and ten seconds after TERM. If the shell is killed too, as by a scheduler that
kills all of a job at once, they stay set.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from scalewatt.common.errors import InputError

if TYPE_CHECKING:
    from scalewatt.provenance.rank_placement import Ranks

RESETS = "SCALEWATT_RESETS"
"""Environment variable of the shell that resets and of what it runs: a job's end waits for these."""
COMMAND_LIMIT_S = 60.0
PATIENCE_S = 90.0
"""How long a rank waits for the commands that reset."""
_RESET = """trap '' INT USR1 HUP
trap 'sleep 10; exit' TERM
trap {commands} EXIT
read _"""
_shell: subprocess.Popen[bytes] | None = None
"""The shell that resets what this rank has set."""


def set_levers(commands: Sequence[dict[str, str]], ranks: Ranks) -> None:
    """Set the levers of all nodes of a run; all ranks call this, and `reset_levers` at their end.

    InputError on every rank where a command failed on any node; what was set before it is reset.
    """
    place = (ranks.host, ranks.local_rank, os.environ.get("CUDA_VISIBLE_DEVICES"))
    places = [other for other in ranks.comm.allgather(place) if other[0] == ranks.host]
    error = None
    if commands and ranks.local_rank == min(local for _, local, _ in places):
        try:
            _set(_filled(commands, gpus_of_ranks(places)))
        except InputError as failed:
            error = f"{ranks.host}: {failed}"
    errors = [text for text in ranks.comm.allgather(error) if text is not None]
    if errors:
        reset_levers()
        ranks.comm.Barrier()  # the first that raises ends all
        raise InputError("; ".join(errors))


def reset_levers(patience_s: float = PATIENCE_S) -> None:
    """Reset what this rank has set, if it did, and wait for that; it may be called more than once."""
    if _shell is not None and _shell.poll() is None:
        with suppress(subprocess.TimeoutExpired, OSError):
            if _shell.stdin is not None:
                _shell.stdin.close()
            _shell.wait(patience_s)


def gpus_of_ranks(places: Sequence[tuple[str, int, str | None]]) -> str:
    """Return the GPUs of a node's ranks as `nvidia-smi -i` takes them.

    `places`: host, local rank and CUDA_VISIBLE_DEVICES of each rank.
    """
    chosen = []
    for _, local, visible in places:
        words = [word.strip() for word in (visible or "").split(",") if word.strip()]
        chosen.append(words[local % len(words)] if words else str(local))
    return ",".join(dict.fromkeys(chosen))


def _filled(commands: Sequence[dict[str, str]], gpus: str) -> list[dict[str, str]]:
    default_w = ""
    if any("{default_w}" in text for command in commands for text in command.values()):
        default_w = _default_limit_w(gpus.partition(",")[0])
    return [
        {
            key: text.replace("{gpus}", gpus).replace("{default_w}", default_w)
            for key, text in command.items()
        }
        for command in commands
    ]


def _default_limit_w(gpu: str) -> str:
    """Return a GPU's default power limit in W, by its index or UUID; InputError without it."""
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
            f"{{default_w}}: NVML does not have the default power limit of GPU {gpu} ({error}); "
            "write the limit as a number in `undo`"
        ) from error


def _set(commands: Sequence[dict[str, str]]) -> None:
    """Start the shell that resets, then run the commands; InputError if one fails."""
    global _shell
    resetting = "; ".join(_twice(each["undo"]) for each in reversed(commands))
    _shell = subprocess.Popen(
        ["sh", "-c", _RESET.format(commands=shlex.quote(resetting))],
        env={**os.environ, RESETS: "1"},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    for command in commands:
        _run(command["set"])


def _twice(undo: str) -> str:
    """Return the line of a shell that runs a command, once more if it fails, and says so if that does."""
    command = f"timeout {COMMAND_LIMIT_S:g} {shlex.join(shlex.split(undo))}"
    message = f"scalewatt: {socket.gethostname()}: '{undo}' failed, so what it resets is still set"
    return f"{command} || {command} || echo {shlex.quote(message)} >&2"


def _run(command: str) -> None:
    """Run a command; InputError if it fails."""
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
    except (subprocess.TimeoutExpired, OSError) as error:
        raise InputError(f"'{command}' failed ({error})") from error
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = f": {output[-1][:300]}" if output else ""
        raise InputError(f"'{command}' ended with exit code {done.returncode}{last}")
