"""Checks of what was counted: other sources of the same energy, slowed GPUs, clocks and limits not held.

Cross-check of a GPU: NVML's energy counter. Of a node: its meter. Of a device kind of a node: perun's total.
They are never counted. A difference over the tolerance is flagged; a node's meter counts more than its parts,
and is flagged only below their sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from scalewatt.energies.node import (
    MAX_DIFFERENCE,
    UNUSED_GPU,
    KindEnergy,
    Node,
    physical_kind,
    relative_tolerance,
)
from scalewatt.energies.stages import Window, seconds_where
from scalewatt.recordings.block import Block, sensor_frame
from scalewatt.recordings.telemetry import readings
from scalewatt.recordings.terms import DEVICE_KINDS, MEASURED, NODE, PERUN, Flag, flag

SHORTEST_S = 10.0
"""Below this the moments of reading matter more than the sources."""
NVML = "nvml_energy_counter"
GPU_LOAD = "gpu_utilisation"
METERS = {"node_power_hwmon": "hwmon"}
"""Telemetry of a whole node, and the source that it is."""
NODE_METER = "node_meter"
"""Source of a node's meter that another tool recorded."""

# perun adds up the same samples; it lacks a step or two where it computes with powers of counters.
PERUN_TOLERANCE, PERUN_STEPS = 0.01, 2
_COMPARABLE = {"constant", "gap", "assumed"}
"""Flags of samples that perun counts as we do, where gaps are bridged."""

Row = dict[str, Any]


# --- telemetry ------------------------------------------------------------------------------------


def as_sensors(telemetry: Iterable[Block], *quantities: str) -> list[Block]:
    """Loads of GPUs (0..1) to estimate from, or powers of the node's meter, as sensors that count.

    How long a reading that failed is missing shows in the times.
    """
    blocks = []
    for block, sensor, values in readings(telemetry, *quantities):
        row = {"name": sensor.quantity, "kind": sensor.kind, "index": sensor.index}
        if sensor.quantity == GPU_LOAD:
            name = f"GPU {sensor.index} utilisation"
            row |= {"name": name, "quantity": "utilisation"}
            values = 0.01 * values
        if (known := np.isfinite(values)).any():
            sensors = sensor_frame([row])
            blocks.append(Block(block.node, block.time_s[known], values[known, None], sensors))
    return blocks


# --- cross-checks ---------------------------------------------------------------------------------
# Rows of CROSS_CHECKS_SCHEMA. `energy_j` is None if the source was not read over
# enough of the time, `recorded_j` if nothing was measured; that is the sum of the kinds of `recorded_scope`.


def cross_check_flags(rows: Iterable[Row], kind: str) -> Iterator[Flag]:
    """Flag each cross-check of a device kind that differs."""
    for row in rows:
        energy_j, recorded_j, scope = row["energy_j"], row["recorded_j"], row.get("recorded_scope")
        if row["device_kind"] != kind or energy_j is None or not recorded_j:
            continue
        difference, tolerance = energy_j / recorded_j - 1, row["tolerance"]
        if -tolerance <= difference <= (tolerance if scope is None else np.inf):
            continue
        device = f"GPU {row['device_index']}" if row["source"] == NVML else kind
        detail = (
            f"{row['node']}: {device}: {row['source']}: {energy_j:.0f} J over {row['duration_s']:.0f} s, "
            f"recorded {recorded_j:.0f} J of {scope or device}"
        )
        yield flag("disagrees", None, detail)


def cross_checks(node: Node, kinds: Sequence[KindEnergy]) -> list[Row]:
    """Compare the energies of a node's kinds with those of all other sources."""
    return [*_gpu_checks(node, kinds), *_meter_checks(node, kinds), *_perun_checks(node, kinds)]


def _gpu_checks(node: Node, kinds: Iterable[KindEnergy]) -> Iterator[Row]:
    """Cross-checks of a node's GPUs by NVML, held or not."""
    gpus = {
        device.row.index: (kind.device_kind, device.curve)
        for kind in kinds
        if physical_kind(kind.device_kind) == "gpu" and kind.origin == MEASURED
        for device in kind.devices
    }
    for block, sensor, values in readings(node.telemetry, "energy_total"):
        is_within = (block.time_s >= node.window[0]) & (block.time_s <= node.window[1])
        time_s, values = (each[np.isfinite(values) & is_within] for each in (block.time_s, values))
        if not time_s.size or (length_s := float(np.ptp(time_s))) < SHORTEST_S:
            continue
        kind, curve = gpus.get(sensor.index, ("gpu", None))
        yield {
            **{"node": node.name, "device_kind": kind, "device_index": int(sensor.index)},
            **{"source": NVML, "duration_s": length_s, "energy_j": float(values[-1] - values[0])},
            "recorded_j": curve and float(curve.between(time_s[0], time_s[-1])),
            "tolerance": MAX_DIFFERENCE,
        }


def _perun_checks(node: Node, kinds: Sequence[KindEnergy]) -> Iterator[Row]:
    """Compare perun's total of each kind with all samples of it.

    No difference counts if flags say that perun has counted samples that are none, or a gap of any length.
    """
    for kind in (k for k in kinds if k.devices and k.device_kind in node.perun_j):
        # GPUs that the run did not hold are in perun's total too.
        parts = [other for other in kinds if physical_kind(other.device_kind) == kind.device_kind]
        codes = {each["code"] for part in parts for each in part.flags}
        is_whole = all(part.coverage is None or part.coverage > 1 - 1e-9 for part in parts)
        # Of power perun takes the same trapezoids.
        sizes = [d.block.time_s.size for d in kind.devices if d.row.quantity != "power"]
        tolerance = max(PERUN_TOLERANCE, *(PERUN_STEPS / max(n - 1, 1) for n in sizes), 0.0)
        lengths_s = (np.ptp(d.curve.time_s) for d in kind.devices if d.curve.time_s.size)
        yield {
            **{"node": node.name, "device_kind": kind.device_kind, "source": PERUN},
            "duration_s": float(max(lengths_s, default=0.0)),
            "energy_j": node.perun_j[kind.device_kind],
            "recorded_j": sum(part.recorded_j((-np.inf, np.inf)) for part in parts),
            "tolerance": tolerance if is_whole and codes <= _COMPARABLE else np.inf,
        }


def _meter_checks(node: Node, kinds: Sequence[KindEnergy]) -> Iterator[Row]:
    """Compare a node's meter with the sum of what its parts were measured to use while it was read."""
    parts = {kind.device_kind: kind for kind in kinds if kind.device_kind != NODE}
    measured = {name: p for name, p in parts.items() if p.origin == MEASURED and p.known}
    if UNUSED_GPU in parts and UNUSED_GPU not in measured:
        measured.pop("gpu", None)  # the meter counts all of the node's GPUs
    scope = "+".join(kind for kind in DEVICE_KINDS if kind in measured) or None
    for meter in (kind for kind in kinds if kind.device_kind == NODE and kind.devices):
        device = meter.devices[0]
        first, last = device.block.span_s or node.window
        span = max(node.window[0], first), min(node.window[1], last)
        known = meter.known and span[1] - span[0] >= SHORTEST_S
        yield {
            **{"node": node.name, "device_kind": NODE, "device_index": device.row.index},
            **{"source": METERS.get(device.row.name, NODE_METER), "duration_s": span[1] - span[0]},
            "energy_j": meter.recorded_j(span) if known else None,
            "recorded_j": sum(p.recorded_j(span) for p in measured.values()) if scope else None,
            **{"tolerance": relative_tolerance(device.validated.power_w), "recorded_scope": scope},
        }


# --- throttling and settings ----------------------------------------------------------------------

POWER_CAP = 0x04
REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    POWER_CAP: "at its power limit for",
}
"""NVML's clock event reasons that slow a GPU down."""
NOT_HELD_SHARE = 0.05
"""Share of the training; beyond it a run did not have the clock or limit that it asked for."""
SETTINGS = {
    "gpu_clock_mhz": ("clock_sm", "MHz", 15.0, 0.02),
    "gpu_power_limit_w": ("power_limit", "W", 1.0, 0.01),
    "cpu_clock_mhz": ("cpu_clock", "MHz", 50.0, 0.02),
}
"""Quantity of telemetry that shows a setting, its unit, and how far it may be off in that, or as a share."""


def state_flags(node: Node, limit_is_wanted: bool = False) -> Iterator[Flag]:
    """Flag the GPUs that the run held and that were `throttled`.

    If a power limit was asked for, working at it is what was wanted, and no reason.
    """
    for block, sensor, values in readings(node.telemetry, "throttle_reasons", gpus=node.held):
        masks = np.nan_to_num(values).astype(np.int64)
        seconds = {r: seconds_where(block.time_s, masks & r != 0, node.window) for r in REASONS}
        seconds[POWER_CAP] *= not limit_is_wanted
        if words := ", ".join(f"{REASONS[r]} {s:.0f} s" for r, s in seconds.items() if s):
            detail = f"{node.name}: GPU {sensor.index}: {words} of {node.length_s:.0f} s"
            yield flag("throttled", None, detail)


def setting_flags(
    node: Node, point: Mapping[str, float], training: Sequence[Window]
) -> Iterator[Flag]:
    """Flag each setting that a device did not have for over 5 % of the training, or did not show."""
    for name, asked in point.items():
        quantity, unit, least, share = SETTINGS[name]
        tolerance, seen = max(least, share * asked), set()
        for block, sensor, values in readings(node.telemetry, quantity, gpus=node.held):
            at_work = np.isfinite(values)
            above, below = values > asked + tolerance, values < asked - tolerance
            if name == "cpu_clock_mhz":
                below[:] = False  # CPUs that wait run slower, whatever was asked for
            elif name == "gpu_clock_mhz":
                others = {
                    row.quantity: column
                    for _, row, column in readings([block], "gpu_utilisation", "throttle_reasons")
                    if row.index == sensor.index
                }
                at_work &= (
                    others.get("gpu_utilisation", values) != 0
                )  # an idle GPU lowers its clock
                if "gpu_power_limit_w" in point and "throttle_reasons" in others:
                    reasons = np.nan_to_num(others["throttle_reasons"]).astype(np.int64)
                    below &= reasons & POWER_CAP == 0
            outside = (above | below) & at_work
            whole_s, outside_s = (
                sum(seconds_where(block.time_s, holds, span) for span in training)
                for holds in (at_work, outside)
            )
            seen |= {sensor.index} if whole_s else set()
            if outside_s > NOT_HELD_SHARE * whole_s:
                device = f"GPU {sensor.index}" if sensor.kind == "gpu" else "CPUs"
                read = f"{values[outside].mean():.0f} {unit} for {outside_s:.0f} s"
                detail = f"{read} of {whole_s:.0f} s, where {asked:g} were asked for"
                yield flag("contradicts_spec", None, f"{node.name}: {device}: {detail}")
        if not seen or (name.startswith("gpu_") and not seen.issuperset(node.held or ())):
            detail = f"{node.name}: nothing recorded says whether {asked:g} {unit} were held"
            yield flag("unconfirmed", None, detail)
