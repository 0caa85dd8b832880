"""What a recording is made of: blocks, each the samples of one sampler of one node on one time axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
"""What a sensor of each unit measures."""
LATEST_S = 1e11
"""No clock shows more seconds, in the year 5138."""
PLAUSIBLE_W = {"gpu": 3000.0, "cpu": 2000.0, "ram": 1000.0, NODE: 1e5}
"""No device (one GPU, one CPU package, one package's memory, one node) draws more than this in W.

Well above the largest sold, and of the parts well below what a failed counter read appears to add: 65 kJ or
262 kJ in one period."""
NO_INDEX = -1

MEASURED, ESTIMATED, SIMULATED = "measured", "estimated", "simulated"
"""Origins of a sensor: read, from utilisation, or made by the scaling model as if read."""
SIMULATED_KEY = "simulated"
"""Key in the metadata of a recording that the scaling model made, where nothing was sampled."""

INSTANTANEOUS, MEAN, MOVING_MEAN = "instantaneous", "mean", "moving_mean"
"""Instantaneous power, the mean since the sample before, or the mean over the last MEAN_OVER_S seconds."""
MEAN_OVER_S = 1.0

_INDEX = re.compile(r"^(?:CUDA:|cpu_power_socket_|cpu_|ram_|CPU_USAGE_)(\d+)")
_INSTANTANEOUS = re.compile(
    r"\b(A100|A800|A30|GA100|V100S?|P100|P40|T4|K80|Quadro RTX \d000|TITAN RTX|RTX 20\d\d)\b",
    re.IGNORECASE,
)
_AVERAGED = re.compile(
    r"\b(A2|A10|A10G|A16|A40|L4|L40S?|H100|H800|H200|H20|GH200|B100|B200|B300|GB200|GB300"
    r"|RTX A\d{3,4}|RTX \d{4}(?: SFF)? Ada|RTX [345]0\d\d|RTX PRO \d{4})\b",
    re.IGNORECASE,
)

SENSOR = {
    "name": "",
    "kind": "",
    "index": 0,
    "quantity": "power",
    "range_j": np.nan,
    "limit_w": np.nan,
    "uuid": "",
    "device": "",
    "origin": "measured",
    "samples": "",
    "totals": False,
}
"""Columns of a frame of sensors, with what stands where nothing is known.

name      as the tool has it, unique in its node and kind
kind      gpu, cpu, ram; node of a whole node's meter
index     number of the device among those of its kind in the node
quantity  power (W), mean_power (W, since the sample before), counter (J, cumulative), utilisation (0..1)
range_j   where a counter begins anew; infinite where never, NaN if unknown
limit_w   the device's own power limit
uuid      the device's own identity, empty if unknown
device    its name, such as "NVIDIA GH200 480GB", empty if unknown
origin    measured, estimated or simulated
samples   of a power: instantaneous or moving_mean (over the last second), empty if unknown
totals    a counter that only states totals: it starts at 0 J with each of some windows, and ends with their
          energy. What was used between two windows is unknown, and so is when within one
"""


@dataclass(frozen=True, eq=False)
class Block:
    """The samples of k sensors of one node, read together n times.

    Missing samples are NaN. Times are unix seconds where the recording's clock is known.
    """

    node: str
    time_s: Floats
    """(n,)"""
    values: Floats
    """(n, k), a column a sensor, in Fortran order"""
    sensors: pd.DataFrame
    """k rows with the columns of SENSOR; its index is 0 … k-1."""
    bounds: tuple[Floats, Floats] | None = None
    """Of estimated powers: the ends of their intervals in W, (n, k) each."""
    flags: tuple[Flag, ...] = ()
    """Quality flags from reading its sensors, which they name."""


@dataclass(frozen=True, eq=False)
class Recording:
    """One round of one run of one sampler, or all journals of one segment."""

    nodes: Mapping[str, Sequence[Block]]
    """The blocks of each node, in the order of names; may be read when asked for."""
    clock_known: bool
    """False if times are seconds from the first sample of each node."""
    period_s: float | None
    """Declared sampling period."""
    source: str
    flags: tuple[Flag, ...] = ()
    started: str | None = None
    """perun's naive local start time."""
    run: str | None = None
    round: str | None = None
    format: str = "perun"
    perun_j: Mapping[tuple[str, str], float] | None = None
    """What perun itself computed, by node and device kind, in J."""
    windows: tuple[Mapping[str, Any], ...] = ()
    """Of totals by window: `window` (name), `start_s`, `duration_s`, `energy_j`, `gpus_j`, `counted`."""


def select(block: Block, columns: list[int] | NDArray[np.bool_]) -> Block:
    """Block of some of the sensors, by their columns or a mask of these."""
    low_high = None
    if block.bounds is not None:
        low_high = (block.bounds[0][:, columns], block.bounds[1][:, columns])
    return replace(
        block,
        values=np.asfortranarray(block.values[:, columns]),
        sensors=block.sensors.iloc[columns].reset_index(drop=True),
        bounds=low_high,
    )


def sensor_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Frame of sensors from rows that state at least `name` and `kind`."""
    return pd.DataFrame([{**SENSOR, **row} for row in rows], columns=list(SENSOR))


def flag(code: str, device: str | None, detail: str) -> Flag:
    """Build one flag."""
    return {"code": code, "device": device, "detail": detail}


def origin_stated(metadata: Mapping[str, Any]) -> str:
    """Return the origin of what a recording's sensors say, by its metadata: measured or simulated."""
    return SIMULATED if metadata.get(SIMULATED_KEY) else MEASURED


def index_in_name(sensor: str) -> int | None:
    """Return the device index that a sensor's name states, or None (ROCm names hold a UUID)."""
    found = _INDEX.match(sensor)
    return int(found.group(1)) if found else None


def gpu_quantity(device_name: str) -> str | None:
    """Return INSTANTANEOUS, MOVING_MEAN, or None if the GPU is not known.

    `device_name` is as a driver or a cluster file gives it.
    """
    if _INSTANTANEOUS.search(device_name):
        return INSTANTANEOUS
    return MOVING_MEAN if _AVERAGED.search(device_name) else None
