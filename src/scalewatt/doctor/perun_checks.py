"""perun: its version, and which sensors it really samples here."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scalewatt.doctor.host import Machine
from scalewatt.doctor.host_check import MISSING, OK, SET_UP, UNKNOWN, Check, unknown
from scalewatt.doctor.subprocess_runner import Answer, Children
from scalewatt.execution.child_process import LAUNCHERS_VARIABLES
from scalewatt.recordings.concurrent_samplers import FOLDER_VARIABLE, samplers_of

NAME = "perun"
RESULT = "sampled.json"
"""What the child leaves in its folder."""


def ask_perun(machine: Machine, children: Children, powers: Mapping[str, Any]) -> list[Check]:
    """Have perun sample for a moment; not where a run is measured, which that would disturb."""
    try:
        installed = version("perun")
    except PackageNotFoundError:
        nothing = "no energy is recorded"
        return [Check(NAME, MISSING, "not installed", nothing, SET_UP, needed=True)]
    measured = samplers_of(socket.gethostname())
    if measured:
        who = measured[0]["run"]
        return [unknown(NAME, f"perun {installed}; not tried, {who} is being measured here", True)]
    with tempfile.TemporaryDirectory(prefix="scalewatt-doctor-") as name:
        folder = Path(name)
        command = [
            *(machine.python, "-m", "scalewatt.doctor.sampling_child", name),
            *(str(machine.limits.sample_s), json.dumps(dict(powers))),
        ]
        # It is not to be taken for a neighbour of a run that begins now.
        environment = {FOLDER_VARIABLE: str(folder / "samplers")}
        answer = children.ask(
            command, machine.limits.child_s, environment, without=LAUNCHERS_VARIABLES
        )
        try:
            sampled = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            sampled = None
    return [judge_sampling(installed, answer, sampled)]


def judge_sampling(installed: str, answer: Answer, sampled: Mapping[str, Any] | None) -> Check:
    """What came of the sampling; None where it left no result."""
    facts: dict[str, Any] = {"version": installed, **(sampled or {"sensors": [], "kinds": {}})}
    if sampled is None and answer.is_silent:
        return Check(
            NAME, UNKNOWN, f"perun {installed}; {answer.trouble}", needed=True, facts=facts
        )
    if sampled is None:
        found = f"perun {installed} does not sample: {answer.trouble or 'it left no journal'}"
        return Check(NAME, MISSING, found, "no energy is recorded", SET_UP, True, facts)
    delivered = [one for one in sampled["sensors"] if one["mean"] is not None]
    if not delivered:
        found = f"perun {installed} samples, but no sensor delivered anything"
        means = "no energy is recorded, and nothing to estimate it from"
        return Check(NAME, MISSING, found, means, (), True, facts, ("see gpus and rapl",))
    found = f"perun {installed} sampled {', '.join(map(_said, delivered[:6]))}"
    if len(delivered) > 6:
        found += f" and {len(delivered) - 6} more"
    silent = [one["sensor"] for one in sampled["sensors"] if one["mean"] is None]
    means = f"these delivered nothing: {_names(silent)}" if silent else ""
    return Check(NAME, OK, found, means, needed=True, facts=facts)


def _said(sensor: Mapping[str, Any]) -> str:
    return f"{sensor['sensor']} ({sensor['mean']:.0f} {sensor['unit']})"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")
