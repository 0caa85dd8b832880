"""Sensors: GPUs by NVML, RAPL by powercap, and the power sensors of Grace by hwmon.

RAPL's files became readable by root only in Linux 5.10 because of CVE-2020-8694: fine-grained energy
can reveal secrets of other users' processes.
"""

from __future__ import annotations

import importlib.util
import pwd
import re
import stat
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewatt.doctor.doctor_types import (
    LIMITED,
    MISSING,
    OK,
    SET_UP,
    UNKNOWN,
    Check,
    Commands,
    Machine,
    unknown,
)
from scalewatt.doctor.subprocess_runner import Answer, Subprocesses
from scalewatt.recordings.telemetry import power_meter

NVIDIA, AMD = "0x10de", "0x1002"
_DISPLAY, _ACCELERATOR = "0x03", "0x12"
_COUNT = "import torch; print(torch.cuda.device_count())"
_ABSENT = "energy of GPUs is not part of what is measured here"


def check_gpus(machine: Machine, programs: Subprocesses, needed: bool) -> list[Check]:
    """Look at the GPUs, and at torch with them; `needed` where runs of the profile use them."""
    limit_s = machine.limits.child_s
    answer = programs.run(machine.probe("nvml"), limit_s)
    nvml = answer.objects[-1] if answer.objects and not answer.problem else None
    seen = pci_devices(machine.root / "sys/bus/pci/devices")
    if nvml is None:
        gpus = unknown("gpus", answer.problem or "NVML's answer cannot be read", needed)
    else:
        gpus = assess_gpus(nvml, seen[NVIDIA], needed)
    count = len((nvml or {}).get("gpus", []))
    used = programs.run([machine.python, "-c", _COUNT], limit_s) if count else None
    torch = assess_torch(torch_build(), count, used, (nvml or {}).get("cuda"), needed)
    return [gpus, *amd_hint(seen[AMD], (machine.root / "dev/kfd").exists()), torch]


def pci_devices(folder: Path) -> Counter[str]:
    """Count the graphics and compute devices of each vendor on the PCI bus."""
    found: Counter[str] = Counter()
    for device in sorted(folder.glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
        except OSError:
            continue
        if kind.startswith((_DISPLAY, _ACCELERATOR)):
            found[vendor] += 1
    return found


def assess_gpus(nvml: Mapping[str, Any], on_bus: int, needed: bool) -> Check:
    """Assess what NVML says; `on_bus` NVIDIA GPUs are on the PCI bus."""
    if "stage" in nvml:
        return _without_nvml(str(nvml["stage"]), str(nvml["error"]), on_bus, needed)
    gpus, driver = nvml["gpus"], f"driver {nvml['driver']}"
    if not gpus:
        found = f"{driver}, but no GPU is let through"
        ask = ("a job with --gres=gpu:1, or CUDA devices for the container",)
        return Check("gpus", MISSING, found, _ABSENT, (), needed, nvml, ask)
    kinds = Counter(gpu["name"] for gpu in gpus)
    names = ", ".join(f"{n} × {name or 'GPU'}" for name, n in kinds.items())
    silent = [gpu for gpu in gpus if not gpu["power_w"]]
    if silent:
        which = ", ".join(str(gpu["index"]) for gpu in silent)
        reason = silent[0]["power_error"] or "it reads 0 W"
        found = f"{names}, {driver}; power of GPU {which} cannot be read: {reason}"
        means = "the energy of runs on such a GPU is unknown (null), it is never estimated"
        ask = ("another GPU, or a host that passes its power through (nvidia-smi -q -d POWER)",)
        return Check("gpus", MISSING, found, means, (), needed, nvml, ask)
    total_w = sum(gpu["power_w"] for gpu in gpus)
    found = f"{names}, {driver}; power can be read (now {total_w:.0f} W together)"
    divided = [str(gpu["index"]) for gpu in gpus if gpu["mig"]]
    if divided:
        found += f"; MIG divides GPU {', '.join(divided)}"
        means = "a part of a GPU has no power of its own: the energy of a run on it is unknown"
        fixes = tuple(f"sudo nvidia-smi -i {index} -mig 0" for index in divided)
        return Check("gpus", LIMITED, found, means, fixes, needed, nvml)
    if any(gpu["energy_error"] for gpu in gpus):
        found += "; no counter of total energy (a cross-check, Volta and later)"
    return Check("gpus", OK, found, needed=needed, facts=nvml)


def _without_nvml(stage: str, error: str, on_bus: int, needed: bool) -> Check:
    facts = {"stage": stage, "error": error, "on_bus": on_bus, "gpus": []}
    if stage == "module":
        found = f"NVML's Python module cannot be imported ({error})"
        fix = SET_UP
        return Check("gpus", MISSING, found, "GPUs are not measured", fix, needed, facts)
    if "mismatch" in error.lower():
        found = f"{on_bus or 'some'} NVIDIA GPUs; {error}"
        means = "the driver was replaced under a running kernel; nothing can use the GPUs"
        return Check("gpus", MISSING, found, means, ("sudo reboot",), needed, facts)
    if on_bus:
        found = f"{on_bus} NVIDIA GPU{'s' if on_bus > 1 else ''} on the bus, no NVML ({error})"
        fix = ("sudo apt-get install nvidia-driver && sudo reboot",)
        ask = (
            "the administrators of this machine, for a driver",
            "a container started by docker run --gpus all …, or apptainer exec --nv …",
        )
        means = "runs cannot use or measure them"
        return Check("gpus", MISSING, found, means, fix, needed, facts, ask)
    found = f"no NVIDIA GPU ({error})"
    means = "runs of this profile use GPUs" if needed else _ABSENT
    other = ("a machine with an NVIDIA GPU and its driver",) if needed else ()
    return Check("gpus", MISSING, found, means, (), needed, facts, other)


def amd_hint(on_bus: int, has_kfd: bool) -> list[Check]:
    """Return a check of AMD GPUs; nothing if there are none to compute on."""
    if not (on_bus and has_kfd):
        return []
    found = f"{on_bus} AMD GPU{'s' if on_bus > 1 else ''} (/dev/kfd)"
    means = (
        "perun reads their power through ROCm; the locked torch is built for CUDA. Not tested here"
    )
    ask = ("perun's documentation of ROCm; a torch built for ROCm in a lock of your own",)
    return [Check("amd_gpus", LIMITED, found, means, ask=ask)]


def torch_build() -> dict[str, str | None] | None:
    """Return torch's version and the CUDA that it was built for (None: none); None without torch.

    Read from its file, because importing torch takes seconds.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    found = {
        key: re.search(rf"^{key}\b[^=\n]*= '([^']*)'", text, re.MULTILINE)
        for key in ("__version__", "cuda")
    }
    return {key.strip("_"): one[1] if one else None for key, one in found.items()}


def assess_torch(
    build: Mapping[str, str | None] | None,
    gpus: int,
    used: Answer | None,
    driver_cuda: int | None,
    needed: bool,
) -> Check:
    """Check that torch can use the `gpus` that NVML sees; `used` is what torch counts itself.

    `driver_cuda` is the CUDA version of the driver as NVML writes it (12060 is 12.6).
    """
    if build is None:
        return Check("torch", MISSING, "not installed", "nothing is trained", SET_UP, True)
    cuda = build["cuda"]
    built = f"torch {build['version']}, built {f'for CUDA {cuda}' if cuda else 'without CUDA'}"
    facts: dict[str, Any] = {**build, "gpus": None}
    if not gpus:
        return Check("torch", OK, f"{built}; no GPU to use here", needed=True, facts=facts)
    bad = MISSING if needed else LIMITED
    if not cuda:
        means = f"the {gpus} GPUs stay unused; the lock of this project has torch for CUDA"
        return Check("torch", bad, built, means, SET_UP, True, facts)
    if driver_cuda and driver_cuda // 1000 < int(cuda.partition(".")[0]):
        found = f"{built}; the driver knows CUDA {driver_cuda // 1000} only"
        ask = ("the administrators of this machine: a driver for CUDA " + cuda.partition(".")[0],)
        return Check("torch", bad, found, "torch cannot use the GPUs", (), True, facts, ask)
    counted = used.output.split()[-1:] if used else []
    if used is None or used.problem or not counted or not counted[0].isdigit():
        reason = used.problem if used else "not asked"
        return Check("torch", UNKNOWN, f"{built}; {reason}", needed=True, facts=facts)
    facts["gpus"] = int(counted[0])
    found = f"{built}; it can use {facts['gpus']} of {gpus} GPUs"
    if facts["gpus"]:
        return Check("torch", OK, found, needed=True, facts=facts)
    ask = (
        "what CUDA_VISIBLE_DEVICES is set to; the administrators of this machine, for its driver",
    )
    return Check("torch", bad, found, "runs would use the CPU or fail", (), True, facts, ask)


# --- CPU and memory -------------------------------------------------------------------------------

POWERCAP = "sys/class/powercap"
HWMON = "sys/class/hwmon"
_ENTRY = re.compile(r"intel-rapl:\d(:\d)?$")  # as perun finds them
_CHMOD = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
_RULE = (
    "root, permanently: a udev rule (docs/doctor.md); users of this machine may then infer each other's "
    "secrets (CVE-2020-8694)"
)


def check_counters(machine: Machine) -> list[Check]:
    """Look at RAPL, and at Grace's sensors where there are such."""
    folder = machine.root / POWERCAP
    virtual = " hypervisor" in machine.read("proc/cpuinfo")
    masked = any(path.is_symlink() and not path.exists() for path in folder.glob("intel-rapl*"))
    rapl = assess_counters(find_counters(folder), folder.exists(), virtual, masked)
    return [rapl, *check_grace(machine.root / HWMON)]


def find_counters(
    folder: Path, read: Callable[[Path], str] = Path.read_text
) -> list[dict[str, Any]]:
    """Return the counters of CPU packages and memory that perun would look for.

    Each with its name, mode and owner, why it cannot be read (None if it can) and its range in J.
    """
    found = []
    for entry in sorted(folder.glob("intel-rapl:*")):
        if not _ENTRY.match(entry.name):
            continue
        try:
            name = (entry / "name").read_text().strip()
            facts = (entry / "energy_uj").stat()
        except OSError:
            continue
        if "package" in name or "dram" in name:
            found.append(
                {
                    "entry": entry.name,
                    "name": name,
                    "problem": _reading_problem(entry / "energy_uj", read),
                    "mode": stat.filemode(facts.st_mode),
                    "owner": _user(facts.st_uid),
                    "range_j": _range_j(entry / "max_energy_range_uj"),
                }
            )
    return found


def assess_counters(
    counters: Sequence[Mapping[str, Any]], has_powercap: bool, is_virtual: bool, is_masked: bool
) -> Check:
    """Assess what RAPL's counters give for the energy of CPU and memory."""
    estimated = "the CPU's energy is estimated from its busy share and rated powers"
    facts = {"counters": list(counters)}
    packages = [one for one in counters if "package" in one["name"]]
    memories = [one for one in counters if "dram" in one["name"]]
    if not packages:
        found = f"no /{POWERCAP}/intel-rapl:* " + (
            "in this container, which hides them" if is_masked else "here"
        )
        fix, ask = _fix_absent(has_powercap, is_virtual, is_masked)
        return Check("rapl", MISSING, found, estimated, fix, facts=facts, ask=ask)
    found = f"{len(packages)} CPU package(s), {len(memories)} memory domain(s)"
    unreadable = [one for one in (*packages, *memories) if one["problem"]]
    if unreadable:
        first = unreadable[0]
        found += (
            f"; {len(unreadable)} of {len(packages) + len(memories)} cannot be read "
            f"({first['mode']}, owner {first['owner']}: {first['problem']})"
        )
        # perun does not catch an unreadable memory counter below a readable package: it loses them all.
        return Check("rapl", LIMITED, found, estimated, (_CHMOD,), facts=facts, ask=(_RULE,))
    ranges = {one["range_j"] for one in packages if one["range_j"]}
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


def check_grace(folder: Path) -> list[Check]:
    """Check Grace's sensors of CPU sockets, known by their labels; no check where there are none."""
    problems = {}
    for file in sorted(folder.glob("hwmon*/device/power*_average")):
        try:
            label = file.with_name(f"{file.name.removesuffix('_average')}_oem_info").read_text()
        except OSError:
            continue
        if "CPU Power Socket" in label or "Grace Power Socket" in label:
            problems[label.strip()] = _reading_problem(file)
    if not problems:
        return []
    facts = {"sensors": [{"label": one, "problem": why} for one, why in problems.items()]}
    found = f"{len(problems)} power sensor(s) of Grace"
    for label, problem in problems.items():
        if problem:
            fix = ("sudo chmod a+r /sys/class/hwmon/hwmon*/device/power*_average",)
            found += f"; {label} cannot be read ({problem})"
            means = "the energy of that CPU is estimated"
            return [Check("grace", LIMITED, found, means, fix, facts=facts)]
    return [Check("grace", OK, f"{found}, readable", facts=facts)]


_NO_METER = "no energy of whole nodes beside that of their parts; nothing else is missing"


def check_meters(machine: Machine) -> list[Check]:
    """Read the meter of this node once."""
    meter = power_meter(machine.root / "sys/class/hwmon")
    if meter is None:
        return [Check("node_meters", MISSING, "no hwmon", _NO_METER, facts={"watts": None})]
    try:
        watts: float | None = meter()
        problem = None if watts else "it states no power"
    except (OSError, ValueError) as error:
        watts, problem = None, getattr(error, "strerror", None) or "it gives no number"
    facts = {"watts": watts}
    if problem is not None:
        return [Check("node_meters", LIMITED, f"hwmon: {problem}", _NO_METER, facts=facts)]
    return [Check("node_meters", OK, f"hwmon {watts:.0f} W", facts=facts)]


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
