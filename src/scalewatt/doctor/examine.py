"""All checks at once, and an end to those that do not come to theirs."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.campaign.cluster import load_cluster, powers
from scalewatt.doctor.conclusion import Conclusion, conclude
from scalewatt.doctor.folder_checks import folder_questions
from scalewatt.doctor.gpu_checks import ask_gpus
from scalewatt.doctor.host import Machine, Profile
from scalewatt.doctor.host_check import Check, unknown
from scalewatt.doctor.mpi_checks import ask_mpi
from scalewatt.doctor.perun_checks import ask_perun
from scalewatt.doctor.rapl import check_counters
from scalewatt.doctor.slurm_checks import slurm_questions
from scalewatt.doctor.software_checks import check_cores, check_packages, check_python
from scalewatt.doctor.subprocess_runner import Children

Questions = dict[tuple[str, ...], Callable[[], list[Check]]]
"""What is asked, by the names of the checks that answer it."""
NEEDED = frozenset({"perun", "mpi", "folder_work", "folder_results"})
"""Where these give no answer, nobody knows whether runs can be made."""


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
        """All of it; the keys are always the same."""
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
    children = Children(machine.python, machine.environment)
    try:
        questions = questions_of(machine, children, profile, results or Path("results"))
        checks = answers(questions, began + machine.limits.whole_s)
    finally:
        children.end_all(machine.limits.end_s)
    device = profile.device(machine.environment)
    elsewhere = profile.submits and machine.job is None
    found = conclude(checks, device, elsewhere)
    took_s = time.monotonic() - began
    return Examination(socket.gethostname(), profile, device.name, checks, found, took_s)


def questions_of(
    machine: Machine, children: Children, profile: Profile, results: Path
) -> Questions:
    """Everything that is asked, in the order in which it is said."""
    device = profile.device(machine.environment)
    here = not profile.submits or machine.job is not None
    needs_gpu = here and device.torch_device == "cuda"
    # A job has the cores that it asked for, and the login node trains nothing.
    cpus = 1 if profile.submits else device.gpus_per_node * device.cpus_per_rank
    return {
        ("gpus", "torch"): lambda: ask_gpus(machine, children, needs_gpu),
        ("rapl",): lambda: check_counters(machine),
        ("perun",): lambda: ask_perun(machine, children, powers(device)),
        ("python",): lambda: [check_python()],
        ("packages",): lambda: [check_packages()],
        ("cores",): lambda: [check_cores(machine, cpus)],
        ("mpi",): lambda: ask_mpi(machine, children, profile),
        **slurm_questions(machine, children, profile),
        **folder_questions(machine, children, profile, results),
    }


def answers(questions: Questions, until_s: float) -> tuple[Check, ...]:
    """Ask all at the same time; what gives no answer until `until_s` (monotonic clock) is unknown."""
    found: dict[tuple[str, ...], list[Check]] = {}

    def ask(names: tuple[str, ...], question: Callable[[], list[Check]]) -> None:
        try:
            found[names] = question()
        except Exception as error:  # a machine is stranger than its doctor knows; the others count
            reason = f"the doctor failed: {type(error).__name__}: {error}"
            found[names] = [unknown(name, reason, name in NEEDED) for name in names]

    threads = {
        # Nobody waits for them in the end: a file system without its server holds them for ever.
        names: threading.Thread(target=ask, args=(names, question), daemon=True)
        for names, question in questions.items()
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, until_s - time.monotonic()))
    said = _settled(found, questions)
    return tuple(check for names in questions for check in said[names])


def _settled(
    found: Mapping[tuple[str, ...], list[Check]], questions: Questions
) -> dict[tuple[str, ...], list[Check]]:
    late = "gave no answer in time"
    known = dict(found)
    return {
        names: known.get(names) or [unknown(name, late, name in NEEDED) for name in names]
        for names in questions
    }
