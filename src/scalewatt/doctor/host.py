"""Where the doctor looks: the machine, for how long, and on whose behalf."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scalewatt.campaign.campaign_types import Cluster, Device


@dataclass(frozen=True)
class Limits:
    """How long things may take, in s. With Python's start the doctor takes 10 s at most."""

    whole_s: float = 8.2
    end_s: float = 0.6
    """For the end of all that then still runs, together."""
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
        """The Slurm job that the doctor runs in."""
        given = self.environment
        return given.get("SLURM_JOB_ID") or given.get("SLURM_JOBID") or None

    def read(self, path: str) -> str:
        """The text of a file below `root`, empty where it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return ""


@dataclass(frozen=True)
class Profile:
    """A profile and its cluster file."""

    folder: Path
    cluster: Cluster

    @property
    def submits(self) -> bool:
        """Whether runs are jobs of Slurm."""
        return any(device.partition for device in self.cluster.devices.values())

    def device(self, environment: Mapping[str, str]) -> Device:
        """The device that this machine is, as far as the environment tells: by its partition."""
        devices = list(self.cluster.devices.values())
        here = environment.get("SLURM_JOB_PARTITION")
        return next((d for d in devices if here and d.partition == here), devices[0])
