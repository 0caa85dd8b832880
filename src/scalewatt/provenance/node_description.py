"""Describe a node (CPUs, GPUs, driver, kernel) by the system and NVML; equal nodes once."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


def node_description(proc: Path = _PROC) -> dict[str, Any]:
    """Return a description of this node; what is unknown is null.

    cpu_models, cpu_sockets, cpu_threads (that are online), architecture, gpu_models ({model: how many
    this process is shown}), gpu_driver, gpu_driver_cuda (the newest CUDA that the driver knows),
    kernel, os, libc.
    """
    return {
        **cpus(proc),
        "cpu_threads": os.cpu_count(),
        "architecture": platform.machine() or None,
        **gpus(),
        "kernel": f"{platform.system()} {platform.release()}".strip() or None,
        "os": _os(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def cpus(proc: Path = _PROC) -> dict[str, Any]:
    """Return {"cpu_models": names, "cpu_sockets": how many} of Linux; null if unknown."""
    models, sockets = set(), set()
    try:
        text = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "model name":
            models.add(" ".join(value.split()))
        elif key == "physical id":
            sockets.add(value)
    return {"cpu_models": sorted(models) or None, "cpu_sockets": len(sockets) or None}


def gpus() -> dict[str, Any]:
    """Return {"gpu_models", "gpu_driver", "gpu_driver_cuda"} by NVML; null without it, or without GPUs."""
    nothing = dict.fromkeys(("gpu_models", "gpu_driver", "gpu_driver_cuda"))
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no NVML, or no driver
        return nothing
    cuda = _asked(lambda: int(pynvml.nvmlSystemGetCudaDriverVersion()))
    return {
        "gpu_models": _asked(lambda: _models(pynvml)) or None,
        "gpu_driver": _asked(lambda: _text(pynvml.nvmlSystemGetDriverVersion())),
        "gpu_driver_cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    }


def _models(nvml: Any) -> dict[str, int]:
    handles = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount()))
    return dict(sorted(Counter(_text(nvml.nvmlDeviceGetName(one)) for one in handles).items()))


def _asked(question: Callable[[], Any]) -> Any:
    """Return NVML's answer; None if it raises any of its errors."""
    try:
        return question()
    except Exception:
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _os() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def grouped(nodes: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return each different description once, with the names of the nodes that it is of under `hosts`."""
    found: list[tuple[dict[str, Any], set[str]]] = []
    for host, description in nodes:
        alike = next((hosts for one, hosts in found if one == description), None)
        if alike is None:
            found.append((description, {host}))
        else:
            alike.add(host)
    groups = [{"hosts": sorted(hosts), **description} for description, hosts in found]
    return sorted(groups, key=lambda one: one["hosts"])


def joined(segments: Iterable[list[dict[str, Any]] | None]) -> list[dict[str, Any]] | None:
    """Return `grouped` of several segments together; None if none of them recorded its nodes."""
    return (
        grouped(
            (host, {key: value for key, value in one.items() if key != "hosts"})
            for nodes in segments
            for one in nodes or ()
            for host in one["hosts"]
        )
        or None
    )
