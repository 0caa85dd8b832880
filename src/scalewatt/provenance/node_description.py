"""What a node is: CPUs, GPUs, driver, kernel; nodes that are alike once."""

from __future__ import annotations

import json
import os
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_CPUINFO = Path("/proc/cpuinfo")


def node_description() -> dict[str, Any]:
    """Description of this node; what is unknown is null, `gpu_models` is {model: number}."""
    return {
        "cpu_models": cpu_models() or None,
        "cpu_threads": os.cpu_count(),
        **gpus(),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def cpu_models(path: Path = _CPUINFO) -> list[str]:
    """Names of the CPUs' models, by Linux; none where it has none, as on Arm."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    names = re.findall(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return sorted({" ".join(name.split()) for name in names})


def cpu_name() -> str:
    """Name of the CPU, or else of its architecture."""
    return next(iter(cpu_models()), platform.processor() or platform.machine())


def gpus() -> dict[str, Any]:
    """Models and driver of the GPUs by NVML; null without it, or without GPUs."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        models = dict(sorted(Counter(map(pynvml.nvmlDeviceGetName, handles)).items()))
        return {"gpu_models": models or None, "gpu_driver": pynvml.nvmlSystemGetDriverVersion()}
    except Exception:  # no NVML, no driver, or it does not answer
        return {"gpu_models": None, "gpu_driver": None}


def grouped(nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each different description once: `hosts` has the `host` of each node that it is true of."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        description = {key: value for key, value in node.items() if key != "host"}
        hosts[json.dumps(description, sort_keys=True)].add(node["host"])
    groups = [{"hosts": sorted(names), **json.loads(text)} for text, names in hosts.items()]
    return sorted(groups, key=lambda group: group["hosts"])
