"""Meters of the whole node: hwmon, Cray's pm_counters, IPMI and Redfish."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator

from scalewatt.common.errors import InputError
from scalewatt.doctor.doctor_types import LIMITED, MISSING, OK, Check, Machine
from scalewatt.doctor.subprocess_runner import Subprocesses
from scalewatt.recordings.meters.cray_counters import CrayCounters, node_file
from scalewatt.recordings.meters.redfish import URL, Controller, RedfishError, redfish_settings
from scalewatt.recordings.telemetry_sources import (
    IPMI_ANSWER,
    IPMI_COMMAND,
    IPMI_DEVICES,
    hwmon_sources,
)

_NONE = "no energy of whole nodes beside that of their parts; nothing else is missing"


class _Problem(Exception):
    """Why a meter that is there, or is set, cannot be read."""


def check_meters(machine: Machine, programs: Subprocesses) -> list[Check]:
    """Read every meter of this node once."""
    questions: dict[str, Callable[[], str | None]] = {
        "hwmon": lambda: _hwmon(machine),
        "Cray pm_counters": lambda: _cray(machine),
        "IPMI": lambda: _ipmi(machine, programs),
        "Redfish": lambda: _redfish(machine),
    }
    read, problems, absent = {}, {}, []
    for name, question in questions.items():
        try:
            value = question()
        except _Problem as problem:
            problems[name] = str(problem)
            continue
        if value is None:
            absent.append(name)
        else:
            read[name] = value
    return [assess_meters(read, problems, absent)]


def assess_meters(read: dict[str, str], problems: dict[str, str], absent: list[str]) -> Check:
    """Assess the meters that were `read`, by name, those with `problems`, and those that are `absent`."""
    said = [f"{name} {value}" for name, value in read.items()]
    said += [f"{name}: {problem}" for name, problem in problems.items()]
    said += [f"no {' or '.join(absent)}"] if absent else []
    facts = {"read": read, "problems": problems, "absent": absent}
    ask = (f"docs/your-cluster.md, for {URL}",) if "Redfish" in problems else ()
    if "IPMI" in problems:
        ask = (*ask, "the administrators of this machine, who may open /dev/ipmi0 to you")
    outcome = OK if read and not problems else (LIMITED if read or problems else MISSING)
    means = "" if read else _NONE
    return Check("node_meters", outcome, "; ".join(said), means, facts=facts, ask=ask)


def _hwmon(machine: Machine) -> str | None:
    for source in hwmon_sources(machine.root / "sys/class/hwmon"):
        try:
            (watts,) = source.read()
        except (OSError, ValueError) as error:
            raise _Problem(_reason(error)) from None
        return _watts(watts)
    return None


def _cray(machine: Machine) -> str | None:
    folder = machine.root / "sys/cray/pm_counters"
    if not folder.is_dir():
        return None
    name = node_file(folder)
    (value,) = CrayCounters(folder, (name,))() if name else (None,)
    if value is None:
        raise _Problem("neither energy nor power of the node can be read")
    return f"{name} {value:.0f} {'J' if name == 'energy' else 'W'}"


def _ipmi(machine: Machine, programs: Subprocesses) -> str | None:
    devices = [path for path in _devices(machine) if os.path.exists(path)]
    if not devices:
        return None
    if not any(os.access(path, os.R_OK | os.W_OK) for path in devices):
        raise _Problem("you may not open its device")
    if shutil.which(IPMI_COMMAND[0], path=machine.environment.get("PATH")) is None:
        raise _Problem(f"{IPMI_COMMAND[0]} is not installed")
    answer = programs.run(IPMI_COMMAND, machine.limits.command_s)
    found = re.search(IPMI_ANSWER, answer.output)
    if answer.problem or not found:
        raise _Problem(answer.problem or "it states no power")
    return _watts(float(found[1]))


def _devices(machine: Machine) -> Iterator[str]:
    for path in IPMI_DEVICES:
        yield str(machine.root / path.lstrip("/"))


def _redfish(machine: Machine) -> str | None:
    try:
        settings = redfish_settings(machine.environment, socket.gethostname())
        if settings is None:
            return None
        return _watts(Controller(settings, machine.limits.command_s).power_w())
    except (InputError, RedfishError) as error:
        raise _Problem(str(error)) from None


def _watts(watts: float | None) -> str:
    if not watts:
        raise _Problem("it states no power")
    return f"{watts:.0f} W"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it gives no number"
