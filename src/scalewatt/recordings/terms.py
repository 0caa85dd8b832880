"""Terms of recordings: kinds of devices, origins, quantities and quality flags (`flags.csv`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.common.files import csv_rows

Floats = NDArray[np.float64]
Flag = dict[str, Any]
"""A quality flag: {"code", "device": sensor name or None, "detail": sentence}; `node` and `kind` where it is
about one node, or one device kind of it."""

DEVICE_KINDS = ("gpu", "cpu", "ram")
"""Parts of a node; the sum of those that were recorded is one scope of energy."""
NODE = "node"
"""A node by its own meter: a scope of its own, added to nothing."""
ALL_KINDS = (*DEVICE_KINDS, NODE)
PERUN = "perun"
"""The format of perun's files, and of our journals."""
J_PER_KWH = 3.6e6
QUANTITIES = {"W": "power", "J": "counter", "%": "utilisation"}
"""Quantity that a sensor measures, by its unit."""
LATEST_S = 1e11
"""No clock shows more seconds, in the year 5138."""
PLAUSIBLE_W = {"gpu": 3000.0, "cpu": 2000.0, "ram": 1000.0, NODE: 1e5}
"""No device (one GPU, one CPU package, one package's memory, one node) draws more than this in W.

Well above the largest sold, and of the parts well below what a failed counter read appears to add: 65 kJ or
262 kJ in one period."""

MEASURED, ESTIMATED, SIMULATED = "measured", "estimated", "simulated"
"""Origins of a sensor: read, from utilisation, or made by the scaling model as if read."""
SIMULATED_KEY = "simulated"
"""Key in the metadata of a recording that the scaling model made, where nothing was sampled."""

INSTANTANEOUS, MEAN, MOVING_MEAN = "instantaneous", "mean", "moving_mean"
"""Instantaneous power, the mean since the sample before, or the mean over the last MEAN_OVER_S seconds."""
MEAN_OVER_S = 1.0
GAP_PERIODS = 3.0
"""Samples further apart than as many periods leave a gap."""
BRIDGE_S = 30.0
"""Up to this, or GAP_PERIODS periods if that is longer, a gap is bridged from both sides of it."""

# Newer ROCm names hold a UUID in place of an index.
_INDEX = re.compile(r"(?:CUDA:|ROCM:(?=\d\d?_)|cpu_|ram_|CPU_USAGE_|[a-z_]+_socket_)(\d+)")


NOTE, DOUBT, UNKNOWN, EXCLUDED = "note", "doubt", "unknown", "excluded"
"""Severities of flags: nothing is wrong, a number may be, an energy may be null for it, a run is left out."""


def flag(code: str, device: str | None, detail: str) -> Flag:
    """Build one flag."""
    return {"code": code, "device": device, "detail": detail}


@cache
def flag_table() -> dict[str, dict[str, str]]:
    """Table of flags by code: `severity` and `sentence` each."""
    rows = csv_rows(Path(__file__).with_name("flags.csv")).values()
    return {row.pop("code"): row for row in rows}


def origin_stated(metadata: Mapping[str, Any]) -> str:
    """Origin of what a recording's sensors state, by its metadata: measured or simulated."""
    return SIMULATED if metadata.get(SIMULATED_KEY) else MEASURED


def index_in_name(sensor: str, kind: str) -> int | None:
    """Device index that the name of a perun sensor of a device kind states, or None."""
    match = _INDEX.match(sensor) or re.search(rf"(?i:{kind})\D?(\d{{1,4}})", sensor)
    return int(match[1]) if match else None


def number_devices(indices: Mapping[str, int | None]) -> dict[str, int]:
    """Number the devices of one kind by their sensors' names; those without an index follow by name.

    The sensors of one ROCm device share the part of their names before the first underscore.
    """
    stems: dict[str, int] = {}
    numbers = {name: index for name, index in indices.items() if index is not None}
    first = 1 + max(numbers.values(), default=-1)
    for name in sorted(indices.keys() - numbers.keys()):
        stem = name.split("_")[0] if name.startswith("ROCM:") else name
        numbers[name] = stems.setdefault(stem, first + len(stems))
    return numbers


@cache
def gpu_fact(device_name: str, column: str) -> str:
    """What gpus.csv states of a GPU, by its name as a driver or a cluster file gives it; empty if unknown.

    `samples` is the kind of its power, `limit_w` the largest power limit that it is sold with.
    """
    rows = csv_rows(Path(__file__).with_name("gpus.csv")).values()
    stated = (row for row in rows if row[column])
    pattern = r"(?i)\b(?:{name})\b"
    return next((r[column] for r in stated if re.search(pattern.format(**r), device_name)), "")
