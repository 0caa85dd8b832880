"""Why a segment failed, in one line: the most informative line of its log."""

from __future__ import annotations

import re

REASON_CHARACTERS = 300
REFUSED, ERROR = "scalewatt: refused: ", "scalewatt: error: "
"""How a rank's last line begins: its input is wrong, or anything else."""
_RANK = r"^(?:\[\w+\]:? ?)?"
_PATTERNS = (
    # What scalewatt.events writes in a user's script, whose rank learns an exit code alone.
    r"RuntimeError: scalewatt: (.*)",
    _RANK + r"scalewatt: (?:error|refused): (.*)",
    _RANK + r"((?:\w+\.)*\w*(?:Error|Exception|Failed)(?::.*|$))",
    # What Python's fault handler, Slurm, srun and mpiexec write of a process that a signal ended.
    r"(?i)^(.*(?:Fatal Python error|oom.?kill|out of memory|(?:by|on) signal|bus error|: killed$"
    r"|segmentation fault|exit code: (?:9|137)\b).*)",
    # MPI's own error; why the application aborted is in its other lines.
    r"^(Abort\(-?\d+\) on node [^:]*: (?!application called).*)",
    r"^scalewatt: (.*)",
)
"""What says why ranks failed, the most telling first."""
_CONSEQUENCE = re.compile(
    r"(?:\w+\.)*(?:RuntimeError|Dist\w+Error|Connection\w*Error|BrokenPipeError)\b.*(?i:connection "
    r"(?:closed|reset|refused)|broken pipe|gloo|nccl|socket|TCPStore|DistBackend)"
)
"""How a rank reports the others' death."""


def was_refused(log: str) -> bool:
    """Whether a rank found its input wrong."""
    return bool(re.search(_RANK + REFUSED, log, re.MULTILINE))


def reports_full_disk(text: str) -> bool:
    """Whether a text reports a full file system, or a quota that is used up."""
    return bool(re.search(r"(?i)no space left on device|disk quota exceeded", text))


def most_informative_line(log: str) -> str | None:
    """The line that says most about why ranks failed; None if the log says nothing.

    Broken connections to other ranks come last but for the log's last line.
    """
    lines = [line.strip("= ") for line in log.splitlines() if line.strip("= ")]
    matches = [match[1] for p in _PATTERNS for line in lines if (match := re.search(p, line))]
    causes = [text for text in matches if not _CONSEQUENCE.match(text)]
    best = next(iter([*causes, *matches, *lines[-1:]]), None)
    return best and one_line(best)


def one_line(text: str) -> str:
    """A text in one line of at most REASON_CHARACTERS."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARACTERS else line[: REASON_CHARACTERS - 1] + "…"
