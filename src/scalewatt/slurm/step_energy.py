"""Slurm's own figure for the energy of a job step (ConsumedEnergy), as a cross-check.

It comes from the plugin that the cluster chose (RAPL, IPMI, …) and counts whole nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.common.files import read_content, write_json
from scalewatt.common.termination import say
from scalewatt.slurm.slurm_commands import ask

AGAIN_S = 3.0
"""Time after which the accounting, which may lag, is asked once more."""
CLOCKS_S = 60.0
"""Difference that the clocks of nodes, file system and controller may have."""
# Of a task of a job array, JobID would be <array>_<task>.<step>.
FIELDS = ("JobIDRaw", "ConsumedEnergyRaw", "ElapsedRaw", "NNodes", "Start", "End")
_NO_VALUES = (2**32 - 2, 2**64 - 2)
"""Slurm's numbers for "not set", in 32 and 64 bits."""


def slurm_step(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Job and step that a process runs in; None outside of a Slurm step."""
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    return {"job": job, "step": step} if job and step else None


def note_slurm_energies(segments: Iterable[tuple[Path, Path]]) -> None:
    """Write what Slurm says of the steps that segments ran in: (description, file to write) each.

    JSON: job, step, consumed_energy_j (null if Slurm does not measure), elapsed_s, nodes,
    asked_s (Unix s). Nothing is written where a segment ran in no step, sacct gives no answer, or the
    step did not run when the segment was described: of a job that was put back into the queue sacct
    knows the last start, whose steps count from 0 again. A failure is said, and never raised.
    """
    try:
        described = ((path, read_content(path) or {}, out) for path, out in segments)
        waiting = [
            _Asked(note["slurm"], path.stat().st_mtime, out)
            for path, note, out in described
            if note.get("slurm") and not out.exists()
        ]
        for wait_s in (0.0, AGAIN_S):
            if waiting:
                time.sleep(wait_s)
                waiting = _note(waiting)
        if waiting:
            say(f"Slurm's energy is not noted: sacct knows no end of {waiting[0].name}")
    except Exception as error:  # a cross-check is no reason to fail a training
        say(f"Slurm's energy is not noted: {error}")


@dataclass(frozen=True)
class _Asked:
    """A segment: its step, when it was described (Unix s), and the file to write."""

    step: dict[str, str]
    described_s: float
    out: Path

    @property
    def name(self) -> str:
        return f"{self.step['job']}.{self.step['step']}"


def _note(waiting: list[_Asked]) -> list[_Asked]:
    """Ask once about all steps; the segments whose step has not ended, as far as sacct knows."""
    steps = ",".join(sorted({asked.name for asked in waiting}))
    command = ("sacct", "-n", "-P", "-j", steps, f"--format={','.join(FIELDS)}")
    lines = [line.split("|") for line in ask(*command, times="%s")]
    rows = {line[0]: dict(zip(FIELDS, line, strict=True)) for line in lines}
    left = []
    for asked in waiting:
        row = rows.get(asked.name, {})
        if not row.get("End", "").isdigit():
            left.append(asked)
        elif int(row["Start"]) - CLOCKS_S <= asked.described_s <= int(row["End"]) + CLOCKS_S:
            write_json(asked.out, {**asked.step, **_answer(row), "asked_s": time.time()})
    return left


def _answer(row: Mapping[str, str]) -> dict[str, Any]:
    energy_j = int(row["ConsumedEnergyRaw"] or 0)
    return {
        "consumed_energy_j": float(energy_j) if energy_j and energy_j not in _NO_VALUES else None,
        "elapsed_s": float(row["ElapsedRaw"]),
        "nodes": int(row["NNodes"] or 0) or None,
    }
