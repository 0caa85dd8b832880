"""Why a segment failed, in one line: the most informative line of its log."""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Iterator, Sequence

REASON_CHARACTERS = 300
REFUSED, ERROR = "scalewatt: refused: ", "scalewatt: error: "
"""How a rank's last line begins: its input is wrong, or anything else."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXT = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_OURS = re.compile(r"^(?:\[\w+\]:? ?)?scalewatt: (?:error|refused): (.*)")
_IS_REFUSED = re.compile(r"^(?:\[\w+\]:? ?)?scalewatt: refused: ", re.MULTILINE)
_EVENTS = re.compile(r"RuntimeError: scalewatt: (.*)")
"""What scalewatt.events writes in a user's script, whose rank learns an exit code alone."""
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception|Failed)(?::.*|$))")
_SIGNALS = {signal.strsignal(number): number.name for number in signal.Signals}
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


def is_full(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, is due to a full file system."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def was_refused(log: str) -> bool:
    """Whether a rank found its input wrong."""
    return bool(_IS_REFUSED.search(log))


def reports_full_disk(text: str) -> bool:
    """Whether a text reports a full file system."""
    return bool(_FULL_TEXT.search(text))


def most_informative_line(log: str) -> str | None:
    """The line that says most about why ranks failed; None if the log says nothing.

    In this order: causes, signals, kills, messages, broken connections to other ranks, the last line.
    """
    lines = log.splitlines()
    errors = [match[1] for line in lines if (match := _EVENTS.search(line))]
    errors += [*_matches(_OURS, lines), *_matches(_EXCEPTION, lines)]
    causes = [text for text in errors if not (_OF_RANKS.match(text) and _CONSEQUENCE.search(text))]
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
    best = next(iter([*causes, *crashed, *killed, *messages, *errors, *rest]), None)
    if best and _BUS.search(best):
        best = f"{one_line(best)}: {_SHARED_MEMORY}"
    return one_line(best) if best else None


def one_line(text: str) -> str:
    """A text in one line of at most REASON_CHARACTERS."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARACTERS else line[: REASON_CHARACTERS - 1] + "…"


def _signal_of(line: str) -> str | None:
    """Signal that ended a process, if a line of the log says so."""
    match = _SIGNALLED.search(line)
    return _SIGNALS.get(match[1].replace("-", " ")) if match else None


def _matches(pattern: re.Pattern[str], lines: Sequence[str]) -> Iterator[str]:
    return (match[1] for line in lines if (match := pattern.match(line)))
