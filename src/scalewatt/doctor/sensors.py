"""Sensors: GPUs by nvidia-smi, CPU counters by powercap and hwmon, and perun.

Linux lets root alone read RAPL's counters since 5.10 (CVE-2020-8694): their resolution can reveal secrets
of other users' processes.
"""

from __future__ import annotations

import csv
import json
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import powers
from scalewatt.doctor.check import SET_UP, Check, CommandFailed, Site, call, fail, ok, run, warn
from scalewatt.recordings.concurrent_samplers import GROUP_VARIABLE, count_samplers
from scalewatt.results.text.number_format import listed

# --- GPUs -----------------------------------------------------------------------------------------

GPU_COLUMNS = ("name", "driver_version", "power.draw", "mig.mode.current")


def nvidia_gpus() -> list[dict[str, str]]:
    """GPU_COLUMNS of each GPU; CommandFailed without a driver."""
    query = f"--query-gpu={','.join(GPU_COLUMNS)}"
    lines = run("nvidia-smi", query, "--format=csv,noheader,nounits").splitlines()
    rows = list(csv.DictReader(lines, GPU_COLUMNS, skipinitialspace=True))
    if not rows or not rows[0]["power.draw"]:
        raise CommandFailed("no GPU is let through to this job or container")
    return rows


def gpus(site: Site) -> Check:
    """Check that the power of each NVIDIA GPU can be read."""
    bad = fail if site.needs_gpu else warn
    try:
        seen = nvidia_gpus()
    except CommandFailed as error:
        return _without_driver(site, str(error))
    count = len(seen)
    names = ", ".join(f"{n} × {name}" for name, n in Counter(gpu["name"] for gpu in seen).items())
    watts = listed((gpu["power.draw"] for gpu in seen), 8)
    text = f"{names}, driver {seen[0]['driver_version']}, now at {watts} W"
    if not all(re.match(r"[\d.]*[1-9]", gpu["power.draw"]) for gpu in seen):  # 0, or [N/A]
        text += "; without its power, the energy of a run on a GPU is unknown (null)"
        fix = "another GPU, or a host that passes its power through (nvidia-smi -q -d POWER)"
        return bad(text, fix, count=count)
    if any(gpu["mig.mode.current"] == "Enabled" for gpu in seen):
        text += "; MIG: a part of a GPU has no power of its own, so a run's energy on it is unknown"
        return warn(text, "sudo nvidia-smi -mig 0", count=count)
    return ok(text, count=count)


def _without_driver(site: Site, error: str) -> Check:
    """The check of a machine where nvidia-smi names no GPU; `error` is its last line."""
    if not site.needs_gpu:
        return ok(f"no NVIDIA GPU answers ({error})", count=0)
    return fail(
        f"no NVIDIA GPU answers, which runs of this site use: {error}",
        "a driver, by the administrators; in a container: docker run --gpus all, apptainer exec --nv",
        count=0,
    )


def torch(site: Site) -> Check:
    """Check that torch can use the GPUs."""
    text = f"torch {version('torch')}"
    try:
        count = len(nvidia_gpus())
    except CommandFailed:
        return ok(f"{text}; no GPU to use here")
    question = "import torch; print(torch.version.cuda, torch.cuda.device_count())"
    cuda, usable = run(sys.executable, "-c", question).split()[-2:]
    text += f", built for CUDA {cuda}; it can use {usable} of {count} GPUs"
    if usable != "0":
        return ok(text)
    bad = fail if site.needs_gpu else warn
    return bad(text, *SET_UP, "echo $CUDA_VISIBLE_DEVICES; nvidia-smi (a driver for this CUDA?)")


# --- CPU and memory -------------------------------------------------------------------------

POWERCAP, HWMON = "sys/class/powercap", "sys/class/hwmon"


def cpu_counters(site: Site) -> Check:
    """Check that RAPL's counters of CPUs and memory, or Grace's sensors, can be read."""
    files = [
        *(
            counter
            for counter in (site.root / POWERCAP).glob("intel-rapl:*/energy_uj")
            if re.search("package|dram", _text(counter.with_name("name")))
        ),
        *(
            label.with_name(label.name.replace("oem_info", "average"))
            for label in (site.root / HWMON).glob("hwmon*/device/power*_oem_info")
            if re.search(r"(CPU|Grace) Power Socket", _text(label))
        ),
    ]
    if not files:
        text = f"no /{POWERCAP}/intel-rapl:*: the CPU's energy is estimated"
        return warn(
            text, "sudo modprobe intel_rapl_msr; virtual machines, containers: docs/doctor.md"
        )
    for file in files:
        try:
            int(file.read_text())
        except (OSError, ValueError) as error:  # perun then reads none of them
            return warn(
                f"{file}: {error}: the CPU's energy is estimated",
                f"sudo chmod a+r /{POWERCAP}/intel-rapl:*/energy_uj /{HWMON}/*/device/power*_average",
                "for good, and what that discloses (CVE-2020-8694): docs/doctor.md",
            )
    return ok(f"counters that can be read: {len(files)}")


def _text(file: Path) -> str:
    """A file's text, empty if it cannot be read."""
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


# --- perun ----------------------------------------------------------------------------------------

PERIOD_S, SAMPLED_S = 0.2, 1.0


def perun(site: Site) -> Check:
    """Have perun sample for a moment, unless a run is being measured here, which that would disturb."""
    name = f"perun {version('perun')}"
    if count_samplers(socket.gethostname()):
        return warn(f"{name} is not tested while a run is being measured here")
    with tempfile.TemporaryDirectory(prefix="scalewatt-doctor-") as folder:
        # A run that begins now must not take it for a concurrent run.
        apart = {GROUP_VARIABLE: f"{folder}/samplers"}
        try:
            kinds = call(sample, folder, json.dumps(powers(site.device)), **apart)
        except CommandFailed as error:
            return fail(f"{name} does not sample ({error}): no energy is recorded", *SET_UP)
    texts = [
        f"{listed(kind['sensors'], 4)} ({kind['power_w']:.0f} W, {kind['origin']})"
        for kind in kinds.values()
        if kind["sensors"]
    ]
    if not texts:
        text = f"{name} samples, but no sensor delivers anything: no energy is recorded"
        return fail(text, "see gpus and cpu_counters", kinds=kinds)
    return ok(f"{name} sampled {', '.join(texts)}", kinds=kinds)


def sample(folder: str, rated: str) -> dict[str, Any]:
    """Sample this node with perun, and account for that as for a run with these `rated` powers (JSON).

    {device kind: {"origin", "sensors" that delivered something, "power_w" of all}}
    """
    from scalewatt.energies.node import NodeFacts, node_kinds, node_window
    from scalewatt.monitoring.perun_session import monitored
    from scalewatt.recordings.journal import journal_files, read_journal

    monitored(time.sleep, (SAMPLED_S,), Path(folder), "segment-000", PERIOD_S)
    recording = read_journal(journal_files(Path(folder))[0].values())
    ((node, blocks),) = recording.nodes.items()
    begin, end = node_window(blocks) or (0.0, 0.0)
    kinds = {}
    for kind in node_kinds(NodeFacts(node, (begin, end), PERIOD_S, json.loads(rated)), blocks):
        energies_j = {d.row.name: float(d.curve.between(begin, end)) for d in kind.devices}
        delivered = [name for name, energy_j in energies_j.items() if energy_j > 0]
        kinds[kind.device_kind] = {
            "origin": kind.origin if delivered else None,
            "sensors": delivered,
            "power_w": sum(energies_j.values()) / max(end - begin, PERIOD_S),
        }
    return kinds
