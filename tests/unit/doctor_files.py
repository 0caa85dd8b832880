"""Made machines for the doctor: files, programs, profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from scalewatt.campaign.cluster import load_cluster
from scalewatt.doctor.doctor_types import Check, Profile


def program(folder: Path, name: str, script: str) -> None:
    """A program on a PATH of our own."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def profile(folder: Path, **device: Any) -> Profile:
    """A profile of one device."""
    entry = {"gpus_per_node": 4, "cpus_per_rank": 1, "torch_device": "auto"}
    entry |= {"cpu": {"sockets": 1, "idle_w": 50, "rated_w": 150}}
    content = {
        "cluster": "made",
        "launcher": "mpiexec -n {gpus}",
        "work_root": str(folder / "work"),
        "devices": {"local": entry | device},
    }
    folder.mkdir(exist_ok=True)
    (folder / "cluster.yaml").write_text(yaml.safe_dump(content))
    return Profile(folder, load_cluster(folder / "cluster.yaml"))


def counters(root: Path, names: dict[str, str]) -> Path:
    """RAPL's files below a machine's root."""
    folder = root / "sys/class/powercap"
    for entry, name in names.items():
        (folder / entry).mkdir(parents=True)
        (folder / entry / "name").write_text(f"{name}\n")
        (folder / entry / "energy_uj").write_text("12345\n")
        (folder / entry / "max_energy_range_uj").write_text("262143328850\n")
    return folder


def one_of(checks: Sequence[Check], name: str) -> Check:
    (found,) = (check for check in checks if check.name == name)
    return found
