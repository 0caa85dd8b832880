"""CPU and memory counters: RAPL by powercap, and the power sensors of Grace by hwmon.

RAPL's files became readable by root only in Linux 5.10 because of CVE-2020-8694: fine-grained energy
can reveal secrets of other users' processes.
"""

from __future__ import annotations

import pwd
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scalewatt.doctor.doctor_types import LIMITED, MISSING, OK, Check, Commands, Machine

POWERCAP = "sys/class/powercap"
HWMON = "sys/class/hwmon"
_ENTRY = re.compile(r"intel-rapl:\d(:\d)?$")  # as perun finds them
_CHMOD = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
_RULE = (
    "root, permanently: a udev rule (docs/doctor.md); users of this machine may then infer each other's "
    "secrets (CVE-2020-8694)"
)


@dataclass(frozen=True)
class EnergyCounter:
    """One counter of RAPL; its range in J, None where it is not stated."""

    entry: str
    name: str
    problem: str | None
    """Why it cannot be read; None where it can."""
    mode: str
    owner: str
    range_j: float | None

    @property
    def is_package(self) -> bool:
        """Whether it counts a CPU package."""
        return "package" in self.name

    @property
    def is_dram(self) -> bool:
        """Whether it counts memory."""
        return "dram" in self.name


def check_counters(machine: Machine) -> list[Check]:
    """Look at RAPL, and at Grace's sensors where there are such."""
    folder = machine.root / POWERCAP
    virtual = " hypervisor" in machine.read("proc/cpuinfo")
    masked = any(path.is_symlink() and not path.exists() for path in folder.glob("intel-rapl*"))
    rapl = assess_counters(find_counters(folder), folder.exists(), virtual, masked)
    return [rapl, *assess_grace(find_grace(machine.root / HWMON))]


def find_counters(
    folder: Path, read: Callable[[Path], str] = Path.read_text
) -> tuple[EnergyCounter, ...]:
    """Return the counters of CPU packages and memory that perun would look for."""
    found = []
    for entry in sorted(folder.glob("intel-rapl:*")):
        if not _ENTRY.match(entry.name):
            continue
        try:
            name = (entry / "name").read_text().strip()
            facts = (entry / "energy_uj").stat()
        except OSError:
            continue
        one = EnergyCounter(
            entry=entry.name,
            name=name,
            problem=_reading_problem(entry / "energy_uj", read),
            mode=stat.filemode(facts.st_mode),
            owner=_user(facts.st_uid),
            range_j=_range_j(entry / "max_energy_range_uj"),
        )
        if one.is_package or one.is_dram:
            found.append(one)
    return tuple(found)


def assess_counters(
    counters: Sequence[EnergyCounter], has_powercap: bool, is_virtual: bool, is_masked: bool
) -> Check:
    """Assess what RAPL's counters give for the energy of CPU and memory."""
    estimated = "the CPU's energy is estimated from its busy share and rated powers"
    facts = {"counters": [asdict(one) for one in counters]}
    packages = [one for one in counters if one.is_package]
    memories = [one for one in counters if one.is_dram]
    if not packages:
        found = f"no /{POWERCAP}/intel-rapl:* " + (
            "in this container, which hides them" if is_masked else "here"
        )
        fix, ask = _fix_absent(has_powercap, is_virtual, is_masked)
        return Check("rapl", MISSING, found, estimated, fix, facts=facts, ask=ask)
    found = f"{len(packages)} CPU package(s), {len(memories)} memory domain(s)"
    unreadable = [one for one in (*packages, *memories) if one.problem]
    if unreadable:
        first = unreadable[0]
        found += (
            f"; {len(unreadable)} of {len(packages) + len(memories)} cannot be read "
            f"({first.mode}, owner {first.owner}: {first.problem})"
        )
        # perun does not catch an unreadable memory counter below a readable package: it loses them all.
        return Check("rapl", LIMITED, found, estimated, (_CHMOD,), facts=facts, ask=(_RULE,))
    ranges = {one.range_j for one in packages if one.range_j}
    if ranges:
        found += f"; readable; a counter wraps after {min(ranges) / 1e3:.0f} kJ"
    means = "" if memories else "no counter of memory: its energy is not measured"
    return Check("rapl", OK, found, means, facts=facts)


def _fix_absent(
    has_powercap: bool, is_virtual: bool, is_masked: bool
) -> tuple[Commands, tuple[str, ...]]:
    """Return commands that may give counters, and whom or what to ask."""
    if is_masked:
        return (), (
            "a container started with --security-opt systempaths=unconfined (then the file mode "
            "counts)",
        )
    if is_virtual:
        return (), (
            "a machine that is not virtual, or the administrators of the host, to pass RAPL through",
        )
    has_rapl = "has the CPU RAPL?"
    if not has_powercap:
        has_rapl += " Intel, and AMD from Zen on, with Linux 5.8 or later"
    return ("sudo modprobe intel_rapl_msr",), (has_rapl,)


@dataclass(frozen=True)
class GraceSensor:
    """One power sensor of a Grace CPU."""

    label: str
    problem: str | None


def find_grace(folder: Path) -> tuple[GraceSensor, ...]:
    """Return Grace's sensors of CPU sockets, recognised by their firmware's labels."""
    found = []
    for file in sorted(folder.glob("hwmon*/device/power*_average")):
        try:
            label = file.with_name(f"{file.name.removesuffix('_average')}_oem_info").read_text()
        except OSError:
            continue
        if "CPU Power Socket" not in label and "Grace Power Socket" not in label:
            continue
        found.append(GraceSensor(label.strip(), _reading_problem(file)))
    return tuple(found)


def assess_grace(sensors: Sequence[GraceSensor]) -> list[Check]:
    """Assess Grace's sensors; no check where there are none."""
    if not sensors:
        return []
    facts = {"sensors": [asdict(one) for one in sensors]}
    bad = [one for one in sensors if one.problem]
    found = f"{len(sensors)} power sensor(s) of Grace"
    if bad:
        fix = ("sudo chmod a+r /sys/class/hwmon/hwmon*/device/power*_average",)
        found += f"; {bad[0].label} cannot be read ({bad[0].problem})"
        means = "the energy of that CPU is estimated"
        return [Check("grace", LIMITED, found, means, fix, facts=facts)]
    return [Check("grace", OK, f"{found}, readable", facts=facts)]


def _reading_problem(file: Path, read: Callable[[Path], str] = Path.read_text) -> str | None:
    """Return why a file gives no number; None if it does."""
    try:
        int(read(file))
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or "it contains no number"
    return None


def _range_j(path: Path) -> float | None:
    try:
        return int(path.read_text()) * 1e-6
    except (OSError, ValueError):
        return None


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
