"""The powers that the stand-in sensors show, as functions of time, with their exact integrals."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from typing import NamedTuple


class Wave(NamedTuple):
    """A power of mean_w + swing_w·sin(2π·t/period_s), t in s since STAND_IN_START."""

    mean_w: float
    swing_w: float
    period_s: float

    def power_w(self, t: float) -> float:
        """Return the power at a time."""
        return self.mean_w + self.swing_w * math.sin(2 * math.pi * t / self.period_s)

    def energy_j(self, begin: float, end: float) -> float:
        """Return the integral of the power between two times."""
        omega = 2 * math.pi / self.period_s
        swing = self.swing_w / omega * (math.cos(omega * begin) - math.cos(omega * end))
        return self.mean_w * (end - begin) + swing


GPUS = (Wave(150, 60, 8), Wave(250, 100, 10))
AMD_GPUS = (Wave(200, 80, 8), Wave(300, 90, 10))
AMD_UUIDS = ("3aff74a1-0000-1000-80e5-000000000000", "2aff74a1-0000-1000-80e5-000000000001")
PACKAGES = (Wave(70, 30, 6), Wave(90, 40, 7))
DRAMS = (Wave(7, 3, 6), Wave(9, 4, 7))
# Grace: the CPU is part of its socket, the socket (with the GPU) of its module.
GRACE = {
    "Module Power Socket 0": Wave(500, 100, 8),
    "Grace Power Socket 0": Wave(180, 50, 8),
    "CPU Power Socket 0": Wave(110, 40, 8),
    "SysIO Power Socket 0": Wave(30, 5, 8),
}
HOST_STEP_W = 20.0
"""So much more does every GPU of the second host draw."""


def now() -> float:
    """Return seconds since STAND_IN_START, a unix time in the environment."""
    return time.time() - float(os.environ["STAND_IN_START"])


def host_wave(wave: Wave) -> Wave:
    """Return a GPU's wave on this host, whose short name ends in its number."""
    digits = platform.node().split(".")[0][-1:]
    number = int(digits) if digits.isdecimal() else 0
    return wave._replace(mean_w=wave.mean_w + number * HOST_STEP_W)


def note_read(device: str, t: float) -> None:
    """Write down when a device was read, so that the recorded time span is known."""
    line = json.dumps({"host": platform.node(), "device": device, "t": t}) + "\n"
    file = os.open(os.environ["STAND_IN_LOG"], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, line.encode())
    os.close(file)
