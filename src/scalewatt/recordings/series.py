"""What a recording holds: one series per sensor, whatever its file, and what its samples stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flag = dict[str, Any]
"""A quality flag: {"code": word, "device": sensor name or None, "detail": sentence}."""

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

MAGNITUDES = (1e-12, 1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9, 1e12)
"""Powers of ten that recordings state for their raw values."""

LATEST_S = 1e11
"""No clock shows more seconds, in the year 5138."""

# No device draws more than this (one GPU, one CPU package, one package's memory, one node).
# Well above the largest sold, and of the parts well below what a failed counter read
# appears to add: 65 kJ or 262 kJ in one period.
PLAUSIBLE_W = {"gpu": 3000.0, "cpu": 2000.0, "ram": 1000.0, NODE: 1e5}

_INDEX = re.compile(r"^(?:CUDA:|cpu_power_socket_|cpu_|ram_|CPU_USAGE_)(\d+)")
NO_INDEX = -1


MEASURED, ESTIMATED, SIMULATED = "measured", "estimated", "simulated"
"""Origins of a series: read from a sensor, from utilisation, or made by the scaling model as if read."""
SIMULATED_KEY = "simulated"
"""Key in the metadata of a recording that the scaling model made, where nothing was sampled."""


def origin_stated(metadata: Mapping[str, Any]) -> str:
    """Return the origin of what a recording's sensors say, by its metadata: measured or simulated."""
    return SIMULATED if metadata.get(SIMULATED_KEY) else MEASURED


def flag(code: str, device: str | None, detail: str) -> Flag:
    """Build one flag."""
    return {"code": code, "device": device, "detail": detail}


@dataclass(frozen=True, eq=False)
class SensorSeries:
    """The samples of one sensor of one node.

    `time_s` and `values` have the same length n; a missing sample is NaN. `values` are W for
    "power" and for "mean_power" (the mean since the sample before), J for "counter" (cumulative,
    wrapping at `valid_max`), a fraction for "utilisation".
    """

    node: str
    sensor: str
    device_kind: str
    device_index: int
    quantity: str
    time_s: Floats
    values: Floats
    valid_max: float | None = None
    """Range of the counter in J; None if unknown or no counter."""
    limit_w: float | None = None
    """The device's own power limit in W; None if unknown."""
    origin: str = MEASURED
    bounds_w: tuple[Floats, Floats] | None = None
    """Of an estimate: the ends of the interval of its power in W, each of shape (n,)."""
    uuid: str | None = None
    """The device's own identity, where the sensor states one."""
    flags: tuple[Flag, ...] = ()
    """Quality flags from reading the sensor."""
    totals: bool = False
    """True of a counter that only states totals: it starts at 0 J with each of some windows, and ends
    with their energy. What was used between two windows is unknown, and so is when within one."""
    perun_kind_j: float | None = None
    """What perun itself computed in J for all sensors of this kind on this node; None if unknown."""
    samples: str | None = None
    """What a sample of its power stands for, where the recording tells: INSTANTANEOUS or MOVING_MEAN."""


@dataclass(frozen=True, eq=False)
class Recording:
    """One round of one run of one sampler, or the journals of one segment.

    Times are unix seconds where `t0_known`, else seconds from the first sample of each host.
    """

    nodes: Mapping[str, tuple[SensorSeries, ...]]
    """The series of each host, in the order of the hosts' names; may be read when asked for."""
    t0_known: bool
    sampling_period_s: float | None
    source: str
    problems: tuple[Flag, ...] = ()
    execution_dt: str | None = None
    """perun's naive local start time; None for journals."""
    run_id: str | None = None
    round_id: str | None = None
    format: str = PERUN
    """The format of the files; `scalewatt.recordings.formats` has those of other tools."""
    windows: tuple[Mapping[str, Any], ...] = ()
    """Of totals by window, each one: `window` (its name), `start_s` (unix s, or None), `duration_s`,
    `energy_j` and `gpus_j` (by the index of each GPU) in J, None where unknown, and `counted`, False of
    one that lies within another."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names of the hosts, also of those without a sample."""
        return tuple(self.nodes)

    @property
    def series(self) -> tuple[SensorSeries, ...]:
        """Return all series at once: of a large recording, take one node after the other."""
        return tuple(s for node in self.nodes.values() for s in node)


def in_order_of_time(parts: Sequence[Any]) -> Any:
    """Return the samples (`time_s`, `values`) of all series as one, sorted; the rest is the first one's."""
    if len(parts) == 1:
        return parts[0]
    time_s = np.concatenate([part.time_s for part in parts])
    order = np.argsort(time_s, kind="stable")
    values = np.concatenate([part.values for part in parts])
    return replace(parts[0], time_s=time_s[order], values=values[order])


def by_node(
    series: Iterable[SensorSeries], hosts: Iterable[str] = ()
) -> dict[str, tuple[SensorSeries, ...]]:
    """Sort series to their nodes; `hosts` names nodes that may have none."""
    found: dict[str, list[SensorSeries]] = {host: [] for host in hosts}
    for one in series:
        found.setdefault(one.node, []).append(one)
    return {node: tuple(found[node]) for node in sorted(found)}


def index_in_name(sensor: str) -> int | None:
    """Return the device index that a sensor's name states, or None (ROCm names hold a UUID)."""
    found = _INDEX.match(sensor)
    return int(found.group(1)) if found else None


def number_devices(series: list[SensorSeries]) -> tuple[SensorSeries, ...]:
    """Sort by node, kind and name; number the devices whose name states no index (-1) by name.

    The sensors of one ROCm device share the part of their names before the first underscore.
    """
    ordered = sorted(series, key=lambda s: (s.node, s.device_kind, s.device_index, s.sensor))
    used: dict[tuple[str, str], dict[str, int]] = {}
    result = []
    for one in ordered:
        if one.device_index == NO_INDEX:
            names = used.setdefault((one.node, one.device_kind), {})
            stem = one.sensor.split("_")[0] if one.sensor.startswith("ROCM:") else one.sensor
            first = 1 + max(
                (
                    s.device_index
                    for s in ordered
                    if (s.node, s.device_kind) == (one.node, one.device_kind)
                ),
                default=-1,
            )
            index = names.setdefault(stem, first + len(names))
            one = replace(one, device_index=index)
        result.append(one)
    return tuple(result)


def finite_number(value: Any) -> float | None:
    """Return a finite number; None for anything else, also for one that no float64 can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def nodes_by_name(*sources: Iterable[str]) -> dict[str, str]:
    """Return the node of each name, given the names that each source has for its nodes.

    A short name stands for its full one, "n1" for "n1.cluster". It stays itself where several fit
    ("n1.rowA", "n1.rowB"), or where a source has both. Two full names are two nodes, and no address is
    a part of a name.
    """
    by_source = [frozenset(source) for source in sources]
    alike: dict[str, list[str]] = {}
    for name in sorted(frozenset().union(*by_source)):
        alike.setdefault(name if _is_address(name) else name.split(".")[0], []).append(name)
    return {name: _full_name(name, names, by_source) for names in alike.values() for name in names}


def _full_name(name: str, alike: Sequence[str], by_source: Iterable[frozenset[str]]) -> str:
    full = sorted((other for other in alike if other.startswith(f"{name}.")), key=len)
    is_clear = all(longer.startswith(f"{shorter}.") for shorter, longer in pairwise(full))
    if not full or not is_clear or any(name in s and not s.isdisjoint(full) for s in by_source):
        return name
    return full[-1]


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def same_node(name: str, names: Iterable[str], beside: Iterable[str] = ()) -> str | None:
    """Return which of `names` is of the same node as `name`, None if none is.

    `names` are a source's for its nodes, as are `name` and those `beside` it of another source.
    """
    names = set(names)
    if name in names:
        return name
    nodes = nodes_by_name([name, *beside], names)
    return next((other for other in names if nodes[other] == nodes[name]), None)


INSTANTANEOUS, MEAN, MOVING_MEAN = "instantaneous", "mean", "moving_mean"
"""Instantaneous power, the mean since the sample before, or the mean over the last MEAN_OVER_S seconds."""
MEAN_OVER_S = 1.0

_INSTANTANEOUS = re.compile(
    r"\b(A100|A800|A30|GA100|V100S?|P100|P40|T4|K80|Quadro RTX \d000|TITAN RTX|RTX 20\d\d)\b",
    re.IGNORECASE,
)
_AVERAGED = re.compile(
    r"\b(A2|A10|A10G|A16|A40|L4|L40S?|H100|H800|H200|H20|GH200|B100|B200|B300|GB200|GB300"
    r"|RTX A\d{3,4}|RTX \d{4}(?: SFF)? Ada|RTX [345]0\d\d|RTX PRO \d{4})\b",
    re.IGNORECASE,
)


def gpu_quantity(device_name: str) -> str | None:
    """Return INSTANTANEOUS, MOVING_MEAN, or None if the GPU is not known.

    `device_name` is as a driver or a cluster file gives it.
    """
    if _INSTANTANEOUS.search(device_name):
        return INSTANTANEOUS
    return MOVING_MEAN if _AVERAGED.search(device_name) else None


def sample_quantity(series: SensorSeries, device_name: str | None) -> str | None:
    """Return what a sample of a series stands for; None if unknown, and of an estimate.

    `device_name` is that of the run's GPUs.
    """
    if series.origin == ESTIMATED:
        return None
    if series.quantity in ("counter", "mean_power"):
        return MEAN
    if series.samples:
        return series.samples
    return gpu_quantity(device_name or "") if series.device_kind == "gpu" else None


def with_sample_quantity(series: SensorSeries, device_name: str | None) -> SensorSeries:
    """Return a series of GPU power with what its samples stand for by the GPU's name; any other as it is."""
    if series.device_kind != "gpu" or series.quantity != "power":
        return series
    return replace(series, samples=sample_quantity(series, device_name))
