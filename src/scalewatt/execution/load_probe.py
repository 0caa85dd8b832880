"""A load probe: the power of this node's CPUs at steps of load, as `load_w` of a cluster file.

Every core is kept busy for the asked share of each tenth of a second by a process of its own. Power is what
RAPL's package counters (powercap, in µJ, wrapping at `max_energy_range_uj`) gain over the time; where
they cannot be read, the mean of the node's meter (hwmon), which counts everything else of the node too.
The load of a point is the busy share of all cores that the kernel tells, not the share that was asked for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from scalewatt.common.errors import InputError
from scalewatt.common.processes import die_with
from scalewatt.energies.integration.rated_power import FACTOR
from scalewatt.monitoring.cpu_utilisation import BusyShare
from scalewatt.provenance.versions import cpu_name
from scalewatt.recordings.telemetry_sources import HWMON, Reading, hwmon_sources

POWERCAP = Path("/sys/class/powercap")
LOADS = (0.0, 10.0, 50.0, 100.0)
"""What is asked of all cores, in %: idle, and the points that intervals of estimates were tried on."""
LEAST_S, MOST_S = 1.0, 120.0
"""Of one load. A counter of 65 kJ wraps at most once in a measurement at 500 W."""
APART = 15.0
"""A load further than this from what was asked, in points of %, was somebody else's."""
_METER_PERIOD_S = 0.5
_BUSY = """
import sys, time
share, period = float(sys.argv[1]), 0.1
begin = time.monotonic()
while True:
    until = begin + share * period
    while time.monotonic() < until:
        sum(i * 1.0001 for i in range(500))
    begin += period
    time.sleep(max(begin - time.monotonic(), 0.0))
"""


@dataclass(frozen=True)
class LoadCurve:
    """Measured points of load in % of all cores and W per socket, and where the power came from."""

    points: tuple[tuple[float, float], ...]
    sockets: int
    source: str
    factor: float | None = None
    """Within × or ÷ what the CPUs' power is of the curve, where it was not theirs alone that was measured."""

    def yaml(self, how: str) -> str:
        """Return the keys of a cluster file's `cpu`, after a comment that says `how` they were found."""
        points = ", ".join(f"[{load:.1f}, {watts:.1f}]" for load, watts in self.points)
        found = f"# {self.source}\n# {how}\nsockets: {self.sockets}\nload_w: [{points}]"
        return found if self.factor is None else f"{found}\nfactor: {self.factor:g}"


class RaplMeter:
    """The package counters of all sockets."""

    factor = None

    def __init__(self, root: Path) -> None:
        self._files = [
            (folder / "energy_uj", int((folder / "max_energy_range_uj").read_text()))
            for folder in sorted(root.glob("*-rapl:*"))
            if folder.name.count(":") == 1 and _is_package(folder)
        ]
        self.sockets = len(self._files)
        self.source = f"RAPL, {self.sockets} package counter(s) of {root}"

    def mean_w(self, seconds: float) -> float:
        """Return the mean power of all sockets in W over the next `seconds`."""
        start_s, start = time.monotonic(), self._read()
        time.sleep(seconds)
        end, taken_s = self._read(), time.monotonic() - start_s
        gained = [
            b - a if b >= a else b - a + full
            for a, b, (_, full) in zip(start, end, self._files, strict=True)
        ]
        return sum(gained) * 1e-6 / taken_s

    def _read(self) -> list[int]:
        return [int(file.read_text()) for file, _ in self._files]


class NodeMeter:
    """The node's own power meter."""

    factor = FACTOR
    """How much of its power is the CPUs' is not known, so that a curve of it is no surer than none at all."""

    def __init__(self, root: Path, sockets: int) -> None:
        found = hwmon_sources(root)
        self._meter = found[0] if found and _watts(found[0].read) else None
        self.sockets = sockets if self._meter else 0
        self.source = (
            "the node's meter (hwmon): fans, boards, memory and GPUs count too, so this is more than "
            f"the CPUs', divided by {sockets} socket(s); hence the factor. On a node with GPUs prefer rated_w"
        )

    def mean_w(self, seconds: float) -> float:
        """Return the mean power of the node in W over the next `seconds`."""
        assert self._meter is not None
        until, found = time.monotonic() + seconds, []
        while time.monotonic() < until:
            time.sleep(_METER_PERIOD_S)
            found.append(_watts(self._meter.read))
        known = [watts for watts in found if watts]
        if not known:
            raise InputError("probe --load: the node's meter stopped answering; expected a power")
        return sum(known) / len(known)


def measure_load_curve(
    seconds: float,
    settle_s: float,
    loads: Sequence[float] = LOADS,
    powercap: Path = POWERCAP,
    hwmon: Path = HWMON,
) -> LoadCurve:
    """Measure `seconds` at each load (rising, in %), `settle_s` after it began.

    InputError, in one line, where no power can be read, or the node was busy with something else.
    """
    if not LEAST_S <= seconds <= MOST_S:
        raise InputError(f"--seconds: {seconds:g}; allowed with --load: {LEAST_S:g} to {MOST_S:g}")
    meter = _meter(powercap, hwmon)
    points = []
    for load in loads:
        with busy_cores(load / 100):
            time.sleep(settle_s)
            share = BusyShare()
            watts = meter.mean_w(seconds)
            found = float(share())
        if abs(found - load) > APART:
            raise InputError(
                f"probe --load: cores were {found:.0f} % busy where {load:g} % was asked for; expected a "
                "node on which nothing else runs, with all its cores allowed to this process"
            )
        if watts <= 0:
            raise InputError(
                f"probe --load: no energy was counted at {load:g} % load; expected a power"
            )
        points.append((round(found, 1), round(watts / meter.sockets, 1)))
    if any(later[0] <= before[0] for before, later in pairwise(points)):
        raise InputError(f"probe --load: loads did not rise: {points}; expected an idle node")
    return LoadCurve(tuple(points), meter.sockets, meter.source, meter.factor)


def curve_text(curve: LoadCurve, seconds: float, settle_s: float) -> str:
    """Return a curve as YAML, with where and how it was measured."""
    return curve.yaml(
        f"{cpu_name()}, host {os.uname().nodename}, {time.strftime('%Y-%m-%d')}: {seconds:g} s at each "
        f"load after {settle_s:g} s"
    )


@contextmanager
def busy_cores(share: float) -> Iterator[None]:
    """Keep every core that this process may use busy for a share of the time (0..1)."""
    running: list[subprocess.Popen[bytes]] = []
    try:
        for core in sorted(os.sched_getaffinity(0)) if share > 0 else []:
            running.append(
                subprocess.Popen(
                    [sys.executable, "-S", "-E", "-c", _BUSY, str(share)],
                    stdin=subprocess.DEVNULL,
                    preexec_fn=partial(_become_busy, os.getpid(), core),
                )
            )
        yield
    finally:
        for one in running:
            one.kill()
        for one in running:
            one.wait()


def _become_busy(parent: int, core: int) -> None:
    die_with(parent)
    os.sched_setaffinity(0, {core})


def _meter(powercap: Path, hwmon: Path) -> RaplMeter | NodeMeter:
    rapl = RaplMeter(powercap)
    meter = rapl if rapl.sockets else NodeMeter(hwmon, _sockets())
    if not meter.sockets:
        raise InputError(
            f"probe --load: no power can be read here, neither RAPL's counters in {powercap} (often "
            "root's alone) nor a node's meter; expected one of them"
        )
    return meter


def _is_package(folder: Path) -> bool:
    """Return True for a readable counter of a package; powercap's `psys` and `dram` are none."""
    try:
        int((folder / "energy_uj").read_text())
        int((folder / "max_energy_range_uj").read_text())
        return (folder / "name").read_text().startswith("package")
    except (OSError, ValueError):
        return False


def _watts(read: Callable[[], Reading]) -> float | None:
    try:
        return read()[0]
    except (OSError, ValueError):
        return None


def _sockets() -> int:
    ids = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id")
    try:
        return len({file.read_text() for file in ids}) or 1
    except OSError:
        return 1
