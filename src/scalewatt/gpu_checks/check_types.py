"""What a check is, what it has to work with, and what it finds."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalewatt.common.files import read_json
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses
from scalewatt.recordings.concurrent_samplers import FOLDER_VARIABLE

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class CheckSkipped(Exception):
    """A check that cannot be made here; its text is the reason, one line."""


class CheckFailed(Exception):
    """What a check found instead of what must hold; its text is the reason, one line."""


@dataclass(frozen=True)
class Finding:
    """What a check measured, and whether what must hold does."""

    measured: str
    holds: bool
    note: str | None = None
    """What was not checked, or which limit was not applied, and why."""


@dataclass(frozen=True)
class Check:
    """One check. `run` raises CheckSkipped or CheckFailed, or returns what it found."""

    name: str
    statement: str
    """What must hold, as a sentence."""
    limit: str
    run: Callable[[Bench], Finding]
    limit_s: float = 120.0
    """The time that it may take."""
    alone: bool = False
    """True if nothing else may use the machine meanwhile: it measures times or energies."""
    needs_gpu: bool = False
    """True if it cannot be rehearsed."""
    not_rehearsed: str | None = None
    """Why a rehearsal leaves it out, unless it is named."""


@dataclass(frozen=True)
class CheckResult:
    """How a check ended."""

    name: str
    statement: str
    limit: str
    measured: str | None
    verdict: str
    """passed, failed or skipped."""
    reason: str | None
    """Why it failed or was skipped; of one that passed, what it leaves out."""
    seconds: float

    @property
    def line(self) -> str:
        """Return the result as one line."""
        said = "; ".join(part for part in (self.measured, self.reason) if part)
        return f"{self.verdict:<8}{self.name:<20}{self.seconds:6.1f} s  {said}"


@dataclass(frozen=True)
class Bench:
    """What a check works with: a folder of its own, the device, a time limit, child processes."""

    folder: Path
    rehearse: bool
    processes: Subprocesses
    until_s: float = field(default_factory=lambda: time.monotonic() + 600)
    """When its time is up, by the monotonic clock."""

    @property
    def torch_device(self) -> str:
        """Return what trainings are asked to compute on."""
        return "cpu" if self.rehearse else "cuda"

    @property
    def remaining_s(self) -> float:
        """Return how long the check may still take; CheckFailed if its time is up."""
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise CheckFailed("ended because its time was up")
        return left_s

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; CheckFailed, which says `what` did not come, at the time limit."""
        while not condition():
            if self.until_s - time.monotonic() <= 0:
                raise CheckFailed(f"ended because its time was up: {what} did not come")
            time.sleep(0.05)

    def run(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Answer:
        """Run a command; it and all it started are ended when the check's time is up: CheckFailed.

        What it printed is added to the check's log.
        """
        answer = self.processes.run(command, self.remaining_s, environment)
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{answer.output}{answer.errors}")
            log.write(f"exit code {answer.code}; {answer.problem}\n\n")
        if answer.timed_out:
            raise CheckFailed(f"{answer.problem}, and was ended with all it had started")
        return answer

    @property
    def log(self) -> Path:
        """Return the file of what the check's processes printed."""
        return self.folder / "log.txt"

    def part(
        self, name: str, environment: Mapping[str, str] | None = None, **given: Any
    ) -> dict[str, Any]:
        """Run a function of `child_parts` in a process of its own, and return what it found.

        It gets `given`, `folder`, `rehearse` and `device`. CheckFailed if the process failed.
        """
        order, result = self.folder / f"{name}.json", self.folder / f"{name}.result.json"
        result.unlink(missing_ok=True)
        facts = {"folder": str(self.folder), "rehearse": self.rehearse, **given}
        order.write_text(json.dumps(facts), encoding="utf-8")
        module = "scalewatt.gpu_checks.child_parts"
        command = [sys.executable, "-m", module, name, str(order), str(result)]
        own = {FOLDER_VARIABLE: str(self.folder / "samplers"), **(environment or {})}
        answer = self.run(command, own)
        if answer.code != 0 or not result.exists():
            raise CheckFailed(f"its process failed: {answer.problem or 'it gave no result'}")
        found = read_json(result)
        if "skipped" in found:
            raise CheckSkipped(found["skipped"])
        return dict(found)
