"""Slurm's own figure for the energy of a job step (ConsumedEnergy), as a cross-check.

It comes from the plugin that the cluster chose (RAPL, IPMI, …) and counts whole nodes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json, write_json
from scalewatt.common.termination import say
from scalewatt.slurm.slurm_commands import plain_environment

TRIES_S = 30.0
"""For how long the accounting, which may lag, is asked again."""
PAUSE_S = 3.0
CALL_S = 10.0
"""How long one call of sacct may take."""
# Of a task of a job array, JobID would be <array>_<task>.<step>.
FIELDS = ("JobIDRaw", "State", "ConsumedEnergyRaw", "Elapsed", "NNodes", "Start")
CLOCKS_S = 60.0
"""By how much the clocks of nodes, file system and controller may differ."""
_UNFINISHED = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")
_NO_VALUE_32 = 0xFFFFFFFE  # Slurm's word for "not set", in 32 bits; in 64 bits it is over 2^63


_Waiting = dict[str, list[tuple[dict[str, str], float, Path]]]
"""By step: what its description says, when it was written (Unix s), and where the answer goes."""


def slurm_step(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Job and step that a process runs in; None outside of a Slurm step."""
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    return {"job": job, "step": step} if job and step else None


def note_slurm_energies(segments: Iterable[tuple[Path, Path]]) -> None:
    """Write what Slurm says of the steps that segments ran in: (description, file to write) each.

    JSON: job, step, consumed_energy_j (null if Slurm does not measure), elapsed_s, nodes,
    asked_s (Unix s). Takes up to 40 s for all together. Nothing is written where a segment ran in
    no step, sacct is missing, fails or gives no answer, or where the step did not run when the
    segment was described: of a job that was put back into the queue sacct knows the last start, whose
    steps count from 0 again. What is written already stays; never raises.
    """
    if shutil.which("sacct") is None:
        return
    waiting: _Waiting = {}
    for description, out in segments:
        with _tolerant():
            if not out.exists() and description.exists():
                step = read_json(description).get("slurm")
                if step:
                    asked = step, description.stat().st_mtime, out
                    waiting.setdefault(f"{step['job']}.{step['step']}", []).append(asked)
    with _tolerant():
        _note_once_ended(waiting)


@contextmanager
def _tolerant() -> Iterator[None]:
    """Suppress errors: a cross-check is no reason to fail a training."""
    try:
        yield
    except Exception as error:
        say(f"Slurm's energy is not noted: {error}")


def _note_once_ended(waiting: _Waiting) -> None:
    """Ask until all steps have ended, and at least once; InputError if some have not in time."""
    until = time.monotonic() + TRIES_S
    while waiting:
        for row in _ask(sorted(waiting)):
            if row["State"].startswith(_UNFINISHED):
                continue
            for step, described_s, out in waiting.pop(row["JobIDRaw"], []):
                with _tolerant():
                    if _ran_at(row, described_s):
                        write_json(out, {**step, **_answer(row), "asked_s": time.time()})
        if waiting and time.monotonic() + PAUSE_S > until:
            raise InputError(f"sacct does not know as ended: step {', '.join(sorted(waiting))}")
        if waiting:
            time.sleep(PAUSE_S)


def _ask(steps: Sequence[str]) -> list[dict[str, str]]:
    """sacct's rows, none if it takes too long; InputError if it fails."""
    command = ["sacct", "-n", "-P", "-j", ",".join(steps), f"--format={','.join(FIELDS)}"]
    try:
        found = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=CALL_S,
            env={**plain_environment(), "SLURM_TIME_FORMAT": "%s"},
        )
    except subprocess.TimeoutExpired:
        return []
    if found.returncode != 0:
        lines = found.stderr.strip().splitlines() or ["it says nothing"]
        raise InputError(f"sacct failed (exit code {found.returncode}): {lines[0]}")
    rows = [line.strip().split("|") for line in found.stdout.splitlines()]
    return [dict(zip(FIELDS, row, strict=True)) for row in rows if len(row) == len(FIELDS)]


def _ran_at(row: Mapping[str, str], time_s: float) -> bool:
    """Return True if a step ran at some time (Unix s)."""
    start, elapsed = _number(row["Start"]), parse_elapsed(row["Elapsed"])
    if start is None or elapsed is None:
        return False
    return start - CLOCKS_S <= time_s <= start + elapsed + CLOCKS_S


def _answer(row: Mapping[str, str]) -> dict[str, Any]:
    nodes = _number(row["NNodes"])
    return {
        "consumed_energy_j": parse_energy(row["ConsumedEnergyRaw"]),
        "elapsed_s": parse_elapsed(row["Elapsed"]),
        "nodes": int(nodes) if nodes else None,
    }


def parse_energy(text: str) -> float | None:
    """Joules; None for nothing, 0 and Slurm's fill values, which all mean "not measured"."""
    value = _number(text)
    if value is None or not 0 < value < 2**63 or value == _NO_VALUE_32:
        return None
    return value


def parse_elapsed(text: str) -> float | None:
    """Seconds of [days-][hours:]minutes:seconds; None for anything else."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", text.strip(), re.ASCII)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 86_400 * days + 3600 * hours + 60 * minutes + seconds


def _number(text: str) -> float | None:
    """Return a plain decimal number that is not negative."""
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text.strip(), re.ASCII) else None
