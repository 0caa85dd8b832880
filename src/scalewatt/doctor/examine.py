"""All checks at once, each with a time limit: what they find, and what follows for runs and their energy."""

from __future__ import annotations

import socket
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.campaign.campaign_types import Device
from scalewatt.campaign.cluster import load_cluster, powers
from scalewatt.doctor.doctor_types import (
    LIMITED,
    MISSING,
    OK,
    UNKNOWN,
    Check,
    CheckFunction,
    Machine,
    PlannedChecks,
    Profile,
    unknown,
)
from scalewatt.doctor.folder_checks import plan_folder_checks
from scalewatt.doctor.sensor_checks import check_counters, check_gpus, check_meters
from scalewatt.doctor.slurm_checks import plan_slurm_checks
from scalewatt.doctor.software_checks import (
    check_cores,
    check_mpi,
    check_packages,
    check_perun,
    check_python,
)
from scalewatt.doctor.subprocess_runner import Subprocesses
from scalewatt.recordings.terms import DEVICE_KINDS, ESTIMATED, MEASURED
from scalewatt.results.text.number_format import listed

NEEDED = frozenset({"perun", "mpi", "folder_work", "folder_results"})
"""Where these give no answer, it is undetermined whether runs can be made."""


@dataclass(frozen=True)
class Examination:
    """All that was found."""

    host: str
    profile: Profile
    device: str
    checks: tuple[Check, ...]
    conclusion: Conclusion
    took_s: float

    @property
    def exit_code(self) -> int:
        """1 where something that runs need is known to be missing, else 0."""
        return 1 if self.conclusion.can_run is False else 0

    def as_json(self) -> dict[str, Any]:
        """Return all fields; the keys are always the same."""
        return {
            "scalewatt": __version__,
            "host": self.host,
            "profile": str(self.profile.folder),
            "cluster": self.profile.cluster.name,
            "device": self.device,
            "took_s": round(self.took_s, 2),
            "can_run": self.conclusion.can_run,
            "decided_by": list(self.conclusion.reasons),
            "runs_elsewhere": self.conclusion.elsewhere,
            "energy": self.conclusion.as_json(),
            "checks": [check.as_json() for check in self.checks],
        }


def examine(
    folder: Path, machine: Machine | None = None, results: Path | None = None
) -> Examination:
    """Examine this machine for runs of the profile in `folder`; InputError if that is wrong."""
    began = time.monotonic()
    machine = machine or Machine()
    profile = Profile(folder, load_cluster(folder / "cluster.yaml"))
    until_s = began + machine.limits.whole_s
    # A second to kill what hangs, and to say so.
    programs = Subprocesses(machine.python, machine.environment, until_s - 1.0)
    planned = planned_checks(machine, programs, profile, results or Path("results"))
    checks = run_checks(planned, until_s)
    device = profile.device(machine.environment)
    elsewhere = profile.submits and machine.job is None
    found = conclude(checks, device, elsewhere)
    took_s = time.monotonic() - began
    return Examination(socket.gethostname(), profile, device.name, checks, found, took_s)


def planned_checks(
    machine: Machine, programs: Subprocesses, profile: Profile, results: Path
) -> PlannedChecks:
    """Return all checks, in the order in which they are reported."""
    device = profile.device(machine.environment)
    here = not profile.submits or machine.job is not None
    needs_gpu = here and device.torch_device == "cuda"
    # A job has the cores that it asked for, and the login node trains nothing.
    cpus = 1 if profile.submits else device.gpus_per_node * device.cpus_per_rank
    return {
        ("gpus", "torch"): lambda: check_gpus(machine, programs, needs_gpu),
        ("rapl",): lambda: check_counters(machine),
        ("node_meters",): lambda: check_meters(machine),
        ("perun",): lambda: check_perun(machine, programs, powers(device)),
        ("python",): lambda: [check_python()],
        ("packages",): lambda: [check_packages()],
        ("cores",): lambda: [check_cores(machine, cpus)],
        ("mpi",): lambda: check_mpi(machine, programs, profile),
        **plan_slurm_checks(machine, programs, profile),
        **plan_folder_checks(machine, programs, profile, results),
    }


def run_checks(planned: PlannedChecks, until_s: float) -> tuple[Check, ...]:
    """Run all at the same time; what has not ended at `until_s` (monotonic clock) is unknown."""
    found: dict[tuple[str, ...], list[Check]] = {}

    def run(names: tuple[str, ...], function: CheckFunction) -> None:
        try:
            found[names] = function()
        except Exception as error:  # an unforeseen machine: the other checks still count
            reason = f"the doctor failed: {type(error).__name__}: {error}"
            found[names] = [unknown(name, reason, name in NEEDED) for name in names]

    threads = {
        # Daemons, since a file system without its server blocks them for ever.
        names: threading.Thread(target=run, args=(names, function), daemon=True)
        for names, function in planned.items()
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, until_s - time.monotonic()))
    known, late = dict(found), "gave no answer in time"  # threads may still add to `found`
    return tuple(
        check
        for names in planned
        for check in known.get(names) or [unknown(name, late, name in NEEDED) for name in names]
    )


# --- as text ------------------------------------------------------------------------------------

_WIDTH = 110
_KINDS = {"gpu": "GPU", "cpu": "CPU", "ram": "memory"}


def examination_text(found: Examination) -> str:
    """Return the examination as lines of text."""
    conclusion = found.conclusion
    where = "this node (runs go to others)" if conclusion.elsewhere else "this machine"
    can_run = "can be submitted from here." if conclusion.elsewhere else "can be made here."
    if not conclusion.can_run:
        names = ", ".join(conclusion.reasons)
        can_run = f"cannot be made yet because of {names}, see below."
        if conclusion.can_run is None:
            can_run = f"may be possible: undetermined because of {names}, see below."
    lines = [
        f"{found.host}, {found.profile.folder} (cluster {found.profile.cluster.name}, device "
        f"{found.device}), {found.took_s:.1f} s",
        "",
        *_wrapped(f"Runs {can_run}", ""),
        *_wrapped(f"On {where} energy is: {_energy(found.conclusion)}", ""),
    ]
    for kind, one in found.conclusion.kinds.items():
        word = one.origin or ("unknown" if one.is_there else "left out")
        lines += _wrapped(f"{_KINDS[kind]:<7} {word:<9}  {one.why}", "  ", 21)
    lines.append("")
    for check in found.checks:
        lines += _check(check)
    return "\n".join(lines)


def _energy(conclusion: Conclusion) -> str:
    known = [
        f"{_KINDS[kind]} {one.origin or 'unknown'}"
        for kind, one in conclusion.kinds.items()
        if one.is_there
    ]
    if conclusion.origin is None:
        return f"{', '.join(known) or 'nothing'}; a run's total would be unknown (null)"
    return f"{', '.join(known)} (energy_origin {conclusion.origin}, scope {conclusion.scope})"


def _check(check: Check) -> Iterator[str]:
    yield from _wrapped(f"{check.outcome:<7}  {check.name:<16}  {check.found}", "", 27)
    if check.means:
        yield from _wrapped(check.means, " " * 27)
    if check.outcome != OK or check.name == "slurm":
        for fix in check.fix:
            # Never wrapped, so that the command can be copied.
            yield f"{'':<27}fix: {fix}"
        for ask in check.ask:
            yield from _wrapped(f"ask: {ask}", " " * 27)


def _wrapped(text: str, indent: str, hanging: int = 0) -> list[str]:
    after = indent + " " * hanging if not indent.strip() and hanging else indent
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=after,
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- the conclusion: whether runs can be made, and where their energy comes from ------------------

MIXED = "mixed"


@dataclass(frozen=True)
class KindOrigin:
    """The origin of one device kind's energy here: measured, estimated, or None with the reason."""

    origin: str | None
    why: str
    is_there: bool
    """False if the device kind is out of scope."""


@dataclass(frozen=True)
class Conclusion:
    """The energy origin and scope that runs on this machine would have."""

    kinds: Mapping[str, KindOrigin]
    can_run: bool | None
    """None if a check that runs need gave no answer."""
    reasons: tuple[str, ...]
    """Names of the checks that decide `can_run`."""
    elsewhere: bool
    """True if runs go to other nodes than this one."""

    @property
    def origin(self) -> str | None:
        """Return the origin of a run's total: measured, estimated or mixed; None if it is unknown."""
        there = [kind for kind in self.kinds.values() if kind.is_there]
        origins = {kind.origin for kind in there}
        if not there or None in origins:
            return None
        return MIXED if len(origins) > 1 else str(origins.pop())

    @property
    def scope(self) -> str | None:
        """Return the scope of a total as in column `energy_scope`; None if it is unknown."""
        if self.origin is None:
            return None
        return "+".join(kind for kind in DEVICE_KINDS if self.kinds[kind].is_there)

    def as_json(self) -> dict[str, Any]:
        """Return all fields."""
        return {
            "origin": self.origin,
            "scope": self.scope,
            "kinds": {
                kind: {"origin": one.origin, "in_scope": one.is_there, "why": one.why}
                for kind, one in self.kinds.items()
            },
        }


def conclude(checks: Sequence[Check], device: Device, elsewhere: bool) -> Conclusion:
    """Conclude from all checks; `device` is what this machine is in the cluster file.

    `elsewhere`: runs go to other nodes, so that this node's sensors do not decide whether they can
    be made.
    """
    by_name = {check.name: check for check in checks}
    kinds = {
        "gpu": _gpu(by_name, device, elsewhere),
        "cpu": _cpu(by_name, device),
        "ram": _ram(by_name, device),
    }
    wrong = [check.name for check in checks if check.needed and check.outcome == MISSING]
    silent = [check.name for check in checks if check.needed and check.outcome == UNKNOWN]
    unknown_energy = [k for k, one in kinds.items() if one.is_there and one.origin is None]
    if not elsewhere and "perun" not in wrong:
        names = {"gpu": "gpus", "cpu": "rapl", "ram": "rapl"}
        seen = "perun" not in silent
        wrong += [names[k] for k in unknown_energy if seen and names[k] not in wrong]
    can_run = False if wrong else (None if silent else True)
    return Conclusion(kinds, can_run, tuple(wrong or silent), elsewhere)


def _sampled(by_name: Mapping[str, Check], kind: str) -> Mapping[str, Any] | None:
    """Return what perun's samples give for a device kind; None if it was not sampled."""
    perun = by_name.get("perun")
    return None if perun is None else perun.facts.get("kinds", {}).get(kind)


def _gpu(by_name: Mapping[str, Check], device: Device, elsewhere: bool) -> KindOrigin:
    gpus = by_name.get("gpus")
    seen = list(gpus.facts.get("gpus", [])) if gpus else []
    on_bus = gpus.facts.get("on_bus", 0) if gpus else 0
    if device.torch_device == "cpu":
        return KindOrigin(None, "runs of this device use the CPU", is_there=False)
    sampled = _sampled(by_name, "gpu")
    if sampled and sampled["origin"] == MEASURED:
        why = f"perun reads {listed(sampled['sensors'], 4)}"
        if gpus is not None and gpus.outcome == LIMITED:
            why += f"; {gpus.means}"
        missed = len(seen) - len(sampled["sensors"])
        if missed > 0:
            return KindOrigin(None, f"{why}, and not {missed} others of {len(seen)}", True)
        return KindOrigin(MEASURED, why, is_there=True)
    if not seen and not on_bus:
        if gpus is not None and gpus.outcome == UNKNOWN:
            return KindOrigin(None, gpus.found, is_there=True)
        there = device.torch_device == "cuda" and not elsewhere
        return KindOrigin(None, gpus.found if gpus else "no GPU", is_there=there)
    if sampled is None and gpus is not None and gpus.outcome == OK:
        return KindOrigin(MEASURED, "NVML gives their power; perun was not tested", is_there=True)
    why = gpus.found if gpus and gpus.outcome != OK else "perun reads no power from them"
    return KindOrigin(None, why, is_there=True)


def _cpu(by_name: Mapping[str, Check], device: Device) -> KindOrigin:
    sampled = _sampled(by_name, "cpu")
    if sampled is None:
        if _counter_works(by_name):
            return KindOrigin(MEASURED, "its counters can be read; perun was not tested", True)
        return _estimated_cpu(by_name, device, "; perun was not tested")
    if sampled["origin"] == MEASURED:
        return KindOrigin(MEASURED, f"perun reads {listed(sampled['sensors'], 4)}", is_there=True)
    if sampled["origin"] == ESTIMATED:
        return _estimated_cpu(by_name, device)
    return KindOrigin(None, "perun delivers neither power nor busy share", is_there=True)


def _estimated_cpu(by_name: Mapping[str, Check], device: Device, added: str = "") -> KindOrigin:
    if not device.cpu:
        why = f"{_no_counter(by_name)}, and the cluster file has no rated power (key cpu)"
        return KindOrigin(None, why + added, is_there=True)
    curve = device.cpu.get("load_w")
    basis = "its load_w" if curve else f"rated_w {device.cpu['rated_w']:g} W"
    why = (
        f"from the busy share and the cluster file ({device.cpu['sockets']} socket(s), {basis}; "
        f"docs/energy.md says how far off that may be), as {_no_counter(by_name)}"
    )
    return KindOrigin(ESTIMATED, why + added, is_there=True)


def _ram(by_name: Mapping[str, Check], device: Device) -> KindOrigin:
    sampled = _sampled(by_name, "ram")
    if sampled and sampled["origin"] == MEASURED:
        return KindOrigin(MEASURED, f"perun reads {listed(sampled['sensors'], 4)}", is_there=True)
    if device.ram:
        why = f"{device.ram['power_w']:g} W, the rated power of the cluster file"
        return KindOrigin(ESTIMATED, why, is_there=True)
    grace = " (a Grace socket's sensor may include it)" if "grace" in by_name else ""
    why = f"no counter of memory, and no rated power in the cluster file{grace}"
    return KindOrigin(None, why, is_there=False)


def _no_counter(by_name: Mapping[str, Check]) -> str:
    rapl = by_name.get("rapl")
    if rapl is not None and rapl.outcome == LIMITED:
        return "RAPL's counters cannot be read by you"
    return "perun reads no counter" if _counter_works(by_name) else "there is no counter"


def _counter_works(by_name: Mapping[str, Check]) -> bool:
    return any(name in by_name and by_name[name].outcome == OK for name in ("rapl", "grace"))
