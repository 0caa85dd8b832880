"""Clocks and power limits of a node that a cluster file's commands set for a run, and reset after it.

The first rank of each node sets them. A shell, started before, resets them when that rank ends in
whatever way, and ten seconds after TERM. If the shell is killed too, as by a scheduler that kills
all of a job at once, they stay set.
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
trap {undo} EXIT
read _"""
_shell: subprocess.Popen[bytes] | None = None
"""The shell that resets what this rank has set."""


def set_levers(commands: Sequence[dict[str, str]], ranks: Ranks) -> None:
    """Set the levers of all nodes of a run; all ranks call this, and `reset_levers` at their end.

    InputError on a node's first rank where a command fails.
    """
    seen = (ranks.host, ranks.local_rank, os.environ.get("CUDA_VISIBLE_DEVICES"))
    local = [(rank, gpus) for host, rank, gpus in ranks.comm.allgather(seen) if host == ranks.host]
    if commands and ranks.local_rank == min(rank for rank, _ in local):
        _set(commands, gpus_of_ranks(local))
    ranks.comm.Barrier()


def gpus_of_ranks(ranks: Sequence[tuple[int, str | None]]) -> str:
    """A node's GPUs as `nvidia-smi -i` takes them, by local rank and CUDA_VISIBLE_DEVICES of its ranks."""
    gpus = []
    for rank, visible in ranks:
        words = [word.strip() for word in (visible or "").split(",") if word.strip()]
        gpus.append(words[rank % len(words)] if words else str(rank))
    return ",".join(dict.fromkeys(gpus))


def _set(commands: Sequence[dict[str, str]], gpus: str) -> None:
    """Start the shell that resets, then run the commands; InputError if one fails."""
    global _shell
    filled = [{key: line.replace("{gpus}", gpus) for key, line in c.items()} for c in commands]
    undo = "; ".join(_undo(command["undo"]) for command in reversed(filled))
    _shell = subprocess.Popen(
        ["sh", "-c", _RESET.format(undo=shlex.quote(undo))],
        env={**os.environ, RESETS: "1"},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    for command in filled:
        _run(command["set"])


def _undo(line: str) -> str:
    message = f"scalewatt: {socket.gethostname()}: '{line}' failed, so what it resets is still set"
    return f"{{ {line}; }} || echo {shlex.quote(message)} >&2"


def _run(line: str) -> None:
    """Run a shell line; InputError with the last line of its output if it fails."""
    limited = ["timeout", f"{COMMAND_LIMIT_S:g}", "sh", "-c", line]
    done = subprocess.run(
        limited, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        last = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
        raise InputError(
            f"{socket.gethostname()}: '{line}' ended with exit code {done.returncode}: {last}"
        )


def reset_levers(patience_s: float = PATIENCE_S) -> None:
    """Reset what this rank has set, if it did, and wait for that; it may be called more than once."""
    if _shell is not None and _shell.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            _shell.communicate(timeout=patience_s)  # closes its stdin
