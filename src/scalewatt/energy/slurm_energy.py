"""Slurm's own figure for the energy of a job step (ConsumedEnergy), as a second opinion.

It comes from the plugin that the cluster chose (RAPL, IPMI, …) and counts whole nodes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scalewatt.errors import InputError
from scalewatt.files import read_json, write_json

TRIES_S = 30.0
"""For how long the accounting, which may lag, is asked again."""
PAUSE_S = 3.0
CALL_S = 10.0
"""How long one call of sacct may take."""
FIELDS = ("JobID", "State", "ConsumedEnergyRaw", "Elapsed", "NNodes")
_UNFINISHED = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")
_SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_NO_VALUE_32 = 0xFFFFFFFE  # Slurm's word for "not set", in 32 bits; in 64 bits it is over 2^63


def slurm_step(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Job and step that a process runs in; None outside of a Slurm step."""
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID")
    return {"job": job, "step": step} if job and step else None


def note_slurm_energies(segments: Iterable[tuple[Path, Path]]) -> None:
    """Write what Slurm says of the steps that segments ran in: (description, file to write) each.

    JSON: job, step, consumed_energy_j (null where Slurm does not measure), elapsed_s, nodes,
    asked_s (Unix s). Takes up to 40 s in all. Nothing is written where a segment ran in no step,
    sacct is missing or gives no answer, and what is written already stays; never raises.
    """
    until = time.monotonic() + TRIES_S
    for description, out in segments:
        try:
            _note(description, out, until)
        except Exception as error:  # a second opinion is no reason to fail a training
            print(f"Slurm's energy is not noted: {error}", file=sys.stderr)


def _note(description: Path, out: Path, until: float) -> None:
    if out.exists() or not description.exists() or shutil.which("sacct") is None:
        return
    step = read_json(description).get("slurm")
    if not step:
        return
    answer = _ask_again(f"{step['job']}.{step['step']}", until)
    if answer is None:
        raise InputError(f"sacct does not know step {step['job']}.{step['step']} as ended")
    write_json(out, {**step, **answer, "asked_s": time.time()})


def _ask_again(step: str, until: float) -> dict[str, Any] | None:
    """sacct's answer once the step has ended, None if it has not until then; asks at least once."""
    while True:
        row = _ask(step)
        if row is not None and not row["State"].startswith(_UNFINISHED):
            return _answer(row)
        if time.monotonic() + PAUSE_S > until:
            return None
        time.sleep(PAUSE_S)


def _ask(step: str) -> dict[str, str] | None:
    command = ["sacct", "-n", "-P", "-j", step, f"--format={','.join(FIELDS)}"]
    try:
        found = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CALL_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    for line in found.stdout.splitlines():
        values = line.strip().split("|")
        if len(values) == len(FIELDS) and values[0] == step:
            return dict(zip(FIELDS, values, strict=True))
    return None


def _answer(row: Mapping[str, str]) -> dict[str, Any]:
    nodes = _number(row["NNodes"])
    return {
        "consumed_energy_j": parse_energy(row["ConsumedEnergyRaw"]),
        "elapsed_s": parse_elapsed(row["Elapsed"]),
        "nodes": int(nodes) if nodes else None,
    }


def parse_energy(text: str) -> float | None:
    """Joules; None for nothing, 0 and Slurm's fill values, which all mean "not measured"."""
    text = text.strip()
    factor = _SUFFIXES.get(text[-1:].upper(), 1.0)
    value = _number(text[:-1] if factor != 1.0 else text)
    if value is None or not 0 < value < 2**63 or value == _NO_VALUE_32:
        return None
    return value * factor


def parse_elapsed(text: str) -> float | None:
    """Seconds of [days-][hours:]minutes:seconds; None for anything else."""
    days, dash, clock = text.strip().rpartition("-")
    parts = [_number(part) for part in clock.split(":")]
    known = [part for part in parts if part is not None]
    day = _number(days) if dash else 0.0
    if day is None or len(known) != len(parts) or not 2 <= len(parts) <= 3:
        return None
    seconds = 0.0
    for part in known:
        seconds = 60 * seconds + part
    return 86_400 * day + seconds


def _number(text: str) -> float | None:
    """A plain decimal number that is not negative."""
    whole, _, fraction = text.strip().partition(".")
    if not (whole.isascii() and whole.isdigit() and (fraction or "0").isdigit()):
        return None
    return float(text)
