"""What the doctor looks at, and what it finds: a machine, a profile, and one check's result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Cluster, Device
from scalewatt.common.schema_validation import INSTALLED

OK, LIMITED, MISSING, UNKNOWN = "ok", "limited", "missing", "unknown"
"""It works; it works in part; it is not there or does not work; it gave no answer."""

Commands = tuple[str, ...]
_OF_CHECKOUT: Commands = ("rm -f .venv/.ready && make setup", ". .venv/bin/activate")
"""Sets up .venv anew, whatever its state, and activates it."""
SET_UP: Commands = ("pip install 'scalewatt[workflow,train]'",) if INSTALLED else _OF_CHECKOUT
"""Installs what trains and measures."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    outcome: str
    found: str
    """What is there, in one line."""
    means: str = ""
    """What that means for measurements; empty if all is well."""
    fix: Commands = ()
    """Commands that fix it."""
    needed: bool = False
    """True if runs of the profile need it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was found, for programs."""
    ask: tuple[str, ...] = ()
    """Where no command helps: whom to ask, or what to choose."""

    def as_json(self) -> dict[str, Any]:
        """Return all fields, with the same keys for every check."""
        return {**asdict(self), "means": self.means or None}


def unknown(name: str, reason: str, needed: bool = False) -> Check:
    """Return the result of a check that came to no end."""
    return Check(name, UNKNOWN, reason, "whether it works is undetermined", needed=needed)


CheckFunction = Callable[[], list[Check]]
PlannedChecks = dict[tuple[str, ...], CheckFunction]
"""What is to be checked, by the names of the checks that it gives."""


@dataclass(frozen=True)
class Limits:
    """Time limits in s. With Python's start the doctor takes 10 s at most."""

    whole_s: float = 8.2
    command_s: float = 5.0
    child_s: float = 8.0
    sample_s: float = 1.0
    """How long perun samples."""


@dataclass(frozen=True)
class Machine:
    """The machine's folders, environment and Python."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    python: str = sys.executable
    limits: Limits = Limits()

    @property
    def job(self) -> str | None:
        """Return the id of the Slurm job that the doctor runs in."""
        given = self.environment
        return given.get("SLURM_JOB_ID") or given.get("SLURM_JOBID") or None

    def read(self, path: str) -> str:
        """Return the text of a file below `root`, empty if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return ""

    def probe(self, kind: str, *arguments: str) -> list[str]:
        """Return the command of a probe (see `probe_child`)."""
        return [self.python, "-m", "scalewatt.doctor.probe_child", kind, *arguments]


@dataclass(frozen=True)
class Profile:
    """A profile and its cluster file."""

    folder: Path
    cluster: Cluster

    @property
    def submits(self) -> bool:
        """Return True if runs are Slurm jobs."""
        return any(device.partition for device in self.cluster.devices.values())

    @property
    def cluster_file(self) -> str:
        """Path of the cluster file, for messages."""
        return f"{self.folder}/cluster.yaml"

    def device(self, environment: Mapping[str, str]) -> Device:
        """Return the device that this machine is, as far as the environment says: by its partition."""
        devices = list(self.cluster.devices.values())
        here = environment.get("SLURM_JOB_PARTITION")
        return next((d for d in devices if here and d.partition == here), devices[0])
