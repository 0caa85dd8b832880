"""All checks at once, each with a time limit, and their results as text."""

from __future__ import annotations

import socket
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.campaign.cluster import load_cluster, powers
from scalewatt.doctor.conclusion import Conclusion, conclude
from scalewatt.doctor.doctor_types import (
    OK,
    Check,
    CheckFunction,
    Machine,
    PlannedChecks,
    Profile,
    unknown,
)
from scalewatt.doctor.folder_checks import plan_folder_checks
from scalewatt.doctor.gpu_checks import check_gpus
from scalewatt.doctor.rapl import check_counters
from scalewatt.doctor.slurm_checks import plan_slurm_checks
from scalewatt.doctor.software_checks import (
    check_cores,
    check_mpi,
    check_packages,
    check_perun,
    check_python,
)
from scalewatt.doctor.subprocess_runner import Subprocesses

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
    """Examine this machine for runs of the profile in `folder`; InputError where that is wrong."""
    began = time.monotonic()
    machine = machine or Machine()
    profile = Profile(folder, load_cluster(folder / "cluster.yaml"))
    programs = Subprocesses(machine.python, machine.environment)
    try:
        planned = planned_checks(machine, programs, profile, results or Path("results"))
        checks = run_checks(planned, began + machine.limits.whole_s)
    finally:
        programs.end_all(machine.limits.end_s)
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
    where = "this node (runs go to others)" if found.conclusion.elsewhere else "this machine"
    lines = [
        f"{found.host}, {found.profile.folder} (cluster {found.profile.cluster.name}, device "
        f"{found.device}), {found.took_s:.1f} s",
        "",
        *_wrapped(f"Runs {_can_run(found.conclusion)}", ""),
        *_wrapped(f"On {where} energy is: {_energy(found.conclusion)}", ""),
    ]
    for kind, one in found.conclusion.kinds.items():
        word = one.origin or ("unknown" if one.is_there else "left out")
        lines += _wrapped(f"{_KINDS[kind]:<7} {word:<9}  {one.why}", "  ", 21)
    lines.append("")
    for check in found.checks:
        lines += _check(check)
    return "\n".join(lines)


def _can_run(conclusion: Conclusion) -> str:
    names = ", ".join(conclusion.reasons)
    if conclusion.can_run:
        return "can be submitted from here." if conclusion.elsewhere else "can be made here."
    if conclusion.can_run is None:
        return f"may be possible: undetermined because of {names}, see below."
    return f"cannot be made yet because of {names}, see below."


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
