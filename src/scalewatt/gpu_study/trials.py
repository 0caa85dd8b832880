"""Trials of a campaign's configurations on this machine: which batches fit, and how long updates take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.files import write_json
from scalewatt.common.untrusted_text import parse_json

LIMIT_S = 900
"""Of all trials together; they take one to two minutes."""


@dataclass(frozen=True)
class Trial:
    """What a trial of one configuration found."""

    configuration: str
    local_batch_size: int
    """What was tried: the configuration's batch, or the largest that fits; 0 if not even 1 does."""
    step_s: float | None
    """Time of an update."""
    peak_memory_gib: float | None
    start_s: float
    """Time to set up the training, without what a new process takes."""


@dataclass(frozen=True)
class Asked:
    """A trial to be done."""

    spec: RunSpec
    data_folder: str
    largest: bool
    """Try the largest batch that fits, beyond the configuration's too."""


def run_trials(
    asked: Sequence[Asked],
    torch_device: str,
    threads: int,
    seconds: float,
    tell: Callable[[str], None],
) -> dict[str, Trial]:
    """Return the trials by configuration; InputError if their process fails.

    Each takes `seconds` of updates and its set-up. What is to be compiled is tried as it is: compiling
    takes longer than the trial, and a run's own compilation is to be measured from nothing.
    """
    plain = [replace(one, spec=uncompiled(one.spec)) for one in asked]
    unique = list({one.spec.text: one for one in plain}.values())
    with tempfile.TemporaryDirectory(prefix="scalewatt-trials-") as folder:
        out = Path(folder, "trials.jsonl")
        order = {
            "torch_device": torch_device,
            "seconds": seconds,
            "out": str(out),
            "trials": [
                {"spec": one.spec.as_json(), "data_folder": one.data_folder, "largest": one.largest}
                for one in unique
            ],
        }
        write_json(Path(folder, "order.json"), order)
        problem = _run_child(Path(folder), threads)
        lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
        found = [Trial(**parse_json(line)) for line in lines]
    if problem or len(found) < len(unique):
        at = unique[len(found)].spec.configuration if len(found) < len(unique) else "the end"
        raise InputError(f"trials of updates ended at {at}: {problem or 'no reason was given'}")
    for trial in found:
        tell(told(trial))
    by_text = {one.spec.text: trial for one, trial in zip(unique, found, strict=True)}
    return {
        one.spec.configuration: by_text[own.spec.text]
        for one, own in zip(asked, plain, strict=True)
    }


def uncompiled(spec: RunSpec) -> RunSpec:
    """Return the spec without compiling, under one name with that of the same training uncompiled."""
    name = spec.configuration.replace("-compiletrue", "")
    return replace(spec, settings={**spec.settings, "compile": False}, configuration=name)


def told(trial: Trial) -> str:
    """Return a trial as a line for the reader."""
    if trial.step_s is None:
        return f"  {trial.configuration}: not even one sample fits"
    rate = trial.local_batch_size / trial.step_s
    memory = f", {trial.peak_memory_gib:.1f} GiB" if trial.peak_memory_gib else ""
    return f"  {trial.configuration}: LBS {trial.local_batch_size}, {rate:.1f} samples/s{memory}"


def _run_child(folder: Path, threads: int) -> str | None:
    """Run the trials of `folder`'s order; return why they failed, None if they did not."""
    command = [sys.executable, "-m", "scalewatt.gpu_study.trial_child", str(folder / "order.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"they took longer than {LIMIT_S} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)] or lines
    return f"exit code {done.returncode}{': ' + errors[-1] if errors else ''}"
