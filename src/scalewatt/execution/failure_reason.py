"""Why a segment failed, in one line: what a rank recorded, or the log's most informative line."""

from __future__ import annotations

import errno
import json
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from scalewatt.common.files import read_note
from scalewatt.run_files.attempt_log import one_line

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXT = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_OURS = re.compile(r"^(?:\[\w+\]:? ?)?scalewatt: error: (.*)")
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Failed)(?::.*|$))")
_SIGNALS = {signal.strsignal(one): one.name for one in signal.Signals}
_SIGNALLED = re.compile(
    r"(?:Fatal Python error|srun: error: \S+ tasks? [\d,-]+|exited on signal \d+):? \(?"
    rf"({'|'.join(re.escape(text) for text in _SIGNALS if text)}|Floating-point exception)\b"
)
"""What Python's fault handler, srun and OpenMPI write of a process that a signal ended."""
_ENDED = ("SIGKILL", "SIGTERM")
"""Signals by which the other ranks are ended."""
_BUS = re.compile(r"SIGBUS|Bus error", re.IGNORECASE)
_SHARED_MEMORY = "/dev/shm may be full, the memory that processes share (df -h /dev/shm)"
_KILLED = re.compile(
    r"(?i)oom.?kill|out of memory|killed by signal|(: killed$|exit code: (?:9|137)\b)"
)
"""mpiexec says "EXIT CODE: 9" of whatever signal: it kills the other ranks."""
_ABORTED = re.compile(r"^(Abort\(-?\d+\) on node [^:]*: (?!application called).*)")
"""MPI's own error; why the application aborted is in its other lines."""
_SAID = re.compile(r"^scalewatt: (.*)")
_OF_RANKS = re.compile(
    r"(?:\w+\.)*(?:RuntimeError|Dist\w+Error|Connection\w*Error|BrokenPipeError)\b"
)
_CONSEQUENCE = re.compile(
    r"(?i)connection (?:closed|reset|refused)|broken pipe|gloo|nccl|socket|TCPStore|DistBackend"
)
"""How a rank reports the others' death, in an exception `_OF_RANKS`."""


_OF_EVENTS = re.compile(r"RuntimeError: scalewatt: (.*)")
"""What scalewatt.events says in a user's script, from which the rank learns an exit code alone."""


@dataclass(frozen=True)
class Failure:
    """The error of the first rank that failed."""

    code: int
    """ExitCode.REFUSED or ExitCode.FAILED."""
    rank: int | None
    reason: str


def record_failure(path: Path, failure: Failure) -> None:
    """Note how a rank failed, unless another has done so before; on a full disk not at all."""
    with suppress(OSError), open(path, "x", encoding="utf-8") as note:
        note.write(json.dumps(asdict(failure)) + "\n")


def read_failure(path: Path) -> Failure | None:
    """Return the recorded failure; None if there is none."""
    return read_note(path, Failure)


def is_full(error: BaseException | None) -> bool:
    """Return True if an exception, or one that led to it, is due to a full file system."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def most_informative_line(recorded: str | None, log: str) -> str | None:
    """Return the line that says most about why ranks failed; None if the log says nothing.

    `recorded` is the error of the first rank that failed; the log is preferred only where that says no
    more than that the connection to the others broke.
    """
    lines = log.splitlines()
    found = [match[1] for line in lines if (match := _OF_EVENTS.search(line))]
    found += [recorded] if recorded else []
    found += [*_matches(_OURS, lines), *_matches(_EXCEPTION, lines)]
    causes = [one for one in found if not (_OF_RANKS.match(one) and _CONSEQUENCE.search(one))]
    crashed = [
        f"a rank was ended by signal {name}"
        for name in map(_signal_of, lines)
        if name and name not in _ENDED
    ]
    killed = [
        f"a rank was {'ended by signal SIGKILL' if match[1] else 'killed'} ({line.strip('= ')})"
        for line in lines
        if (match := _KILLED.search(line))
    ]
    messages = [*_matches(_ABORTED, lines), *_matches(_SAID, lines)]
    rest = [line.strip() for line in lines if line.strip()][-1:]
    best = next(iter([*causes, *crashed, *killed, *messages, *found, *rest]), None)
    if best and _BUS.search(best):
        best = f"{one_line(best)}: {_SHARED_MEMORY}"
    return one_line(best) if best else None


def _signal_of(line: str) -> str | None:
    """Return the signal that ended a process, if a line of the log says so."""
    found = _SIGNALLED.search(line)
    return _SIGNALS.get(found[1].replace("-", " ")) if found else None


def reports_full_disk(text: str) -> bool:
    """Return True if a text reports a full file system."""
    return bool(_FULL_TEXT.search(text))


def _matches(pattern: re.Pattern[str], lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if found := pattern.match(line):
            yield found.group(1)
