"""Slurm's own figure for the energy of a job step (ConsumedEnergy), as a cross-check.

It comes from the plugin that the cluster chose (RAPL, IPMI, …) and counts whole nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from scalewatt.common.files import read_content, write_json
from scalewatt.common.termination import say
from scalewatt.slurm.slurm_commands import ask

LAG_S = 3.0
"""Time that the accounting may need to know a step's end."""
CLOCKS_S = 60.0
"""Difference that the clocks of nodes, file system and controller may have."""
# Of a task of a job array, JobID would be <array>_<task>.<step>.
FIELDS = ("JobIDRaw", "ConsumedEnergyRaw", "ElapsedRaw", "NNodes", "Start", "End")
_NO_VALUES = (0, 2**32 - 2, 2**64 - 2)
"""Energies of steps that Slurm does not measure: its "not set" in 32 and 64 bits."""


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
        waiting = {path: out for path, out in segments if not out.exists() and _step(path)}
        if not waiting:
            return
        time.sleep(LAG_S)
        names = {_step(path) for path in waiting}
        rows = _ended_steps(names)
        for path, out in waiting.items():
            _note(path, out, rows)
        if missing := names - rows.keys():
            say(f"Slurm's energy is not noted: sacct knows no end of {', '.join(sorted(missing))}")
    except Exception as error:  # a cross-check is no reason to fail a training
        say(f"Slurm's energy is not noted: {error}")


def _step(description: Path) -> str:
    """The step that a segment ran in, as sacct names it; '' outside of Slurm."""
    slurm = (read_content(description) or {}).get("slurm")
    return f"{slurm['job']}.{slurm['step']}" if slurm else ""


def _ended_steps(names: set[str]) -> dict[str, dict[str, str]]:
    """sacct's rows of those of these steps that have ended; NoAnswerError."""
    command = ("sacct", "-n", "-P", "-j", ",".join(sorted(names)), f"--format={','.join(FIELDS)}")
    rows = [dict(zip(FIELDS, line.split("|"), strict=True)) for line in ask(*command, times="%s")]
    return {row["JobIDRaw"]: row for row in rows if row["End"].isdigit()}


def _note(description: Path, out: Path, rows: Mapping[str, Mapping[str, str]]) -> None:
    """Write a step's row, if it ran when its segment was described."""
    row = rows.get(_step(description))
    described_s = description.stat().st_mtime
    if row and int(row["Start"]) - CLOCKS_S <= described_s <= int(row["End"]) + CLOCKS_S:
        job, _, step = row["JobIDRaw"].partition(".")
        energy_j = int(row["ConsumedEnergyRaw"] or 0)
        note = {
            "job": job,
            "step": step,
            "consumed_energy_j": None if energy_j in _NO_VALUES else float(energy_j),
            "elapsed_s": float(row["ElapsedRaw"]),
            "nodes": int(row["NNodes"] or 0) or None,
            "asked_s": time.time(),
        }
        write_json(out, note)
