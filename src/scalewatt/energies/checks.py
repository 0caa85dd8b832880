"""Checks of what was counted: other sources of the same energy, throttling, and settings that were asked for.

Cross-checks of a GPU: NVML's energy counter, and its instantaneous and averaged power. Of a node: its meter.
Of a device kind of a node: perun's own total. Of a segment: Slurm's ConsumedEnergy. They are never counted.
A difference over the tolerance is flagged; that of a power that was read now and then is SIGMAS standard
errors of its mean, if that is more. A node's meter counts more than its parts: below their sum it is flagged
likewise, above it only over MOST_BEYOND, and only if the parts are GPUs, CPUs and memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.energies.estimate import node_utilisation
from scalewatt.energies.integrate import validate
from scalewatt.energies.node import UNUSED_GPU, KindEnergy, Window, part_of
from scalewatt.energies.stages import StageIntervals, seconds_where
from scalewatt.energies.tables import MAX_UNCOVERED, TELEMETRY_SCHEMA
from scalewatt.recordings.block import Block, sensor_frame
from scalewatt.recordings.terms import (
    DEVICE_KINDS,
    ESTIMATED,
    GAP_PERIODS,
    MEASURED,
    NODE,
    PERUN,
    Flag,
    Floats,
    flag,
)

MAX_DIFFERENCE = 0.03
MOST_BEYOND = 0.5
"""Fans, boards, drives and losses of power supplies draw no more than this share of what the parts do."""
ALL_PARTS = "gpu+cpu+ram"
"""If less is recorded, a node's meter cannot be too high."""
SIGMAS = 3.0
SHORTEST_S = 10.0
"""Below this the moments of reading matter more than the sources."""
SOURCES = {
    "energy_total": "nvml_energy_counter",
    "power_instant": "nvml_power_instant",
    "power_average": "nvml_power_average",
}
METERS = {"node_power_hwmon": "hwmon"}
"""Telemetry of a whole node, and the source that it is."""
NODE_METER = "node_meter"
"""Source of a node's meter that another tool recorded."""
WHOLE_NODE = (*METERS.values(), "slurm_consumed_energy", NODE_METER)
"""Sources that also count fans, boards, disks and network, and losses of the power supply."""

# perun adds up the same samples; it lacks a step or two where it computes with powers of counters.
PERUN_TOLERANCE, PERUN_STEPS = 0.01, 2
_COUNTED = {"constant", "gap", "assumed"}
"""Flags of samples that perun counts as we do, where gaps are bridged."""

Row = dict[str, Any]
Bools = NDArray[np.bool_]


# --- telemetry ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reading:
    """A column of telemetry: what was read of one quantity of one device, (n,)."""

    node: str
    sensor: Any
    """Row of the block's sensors; `quantity` is that of telemetry."""
    time_s: Floats
    values: Floats


def readings(telemetry: Iterable[Block], *quantities: str) -> list[Reading]:
    """Columns of telemetry, of some quantities or of all."""
    return [
        Reading(block.node, row, block.time_s, block.values[:, i])
        for block in telemetry
        for i, row in enumerate(block.sensors.itertuples(index=False))
        if not quantities or row.quantity in quantities
    ]


def gpu_loads(telemetry: Iterable[Block]) -> list[Block]:
    """Loads of the GPUs (0..1), to estimate from where their power is unknown."""
    return [
        _column(r, 0.01 * r.values, "gpu", "utilisation", f"GPU {r.sensor.index} utilisation")
        for r in readings(telemetry, "gpu_utilisation")
    ]


def node_meters(telemetry: Iterable[Block]) -> list[Block]:
    """Power of the node's meter. How long a reading that failed is missing shows in the times."""
    meters = readings(telemetry, *METERS)
    known = (Reading(r.node, r.sensor, *_finite(r)) for r in meters)
    return [_column(r, r.values, NODE, "power", r.sensor.quantity) for r in known if r.time_s.size]


def _finite(reading: Reading) -> tuple[Floats, Floats]:
    known = np.isfinite(reading.values)
    return reading.time_s[known], reading.values[known]


def _column(reading: Reading, values: Floats, kind: str, quantity: str, name: str) -> Block:
    row = {"name": name, "kind": kind, "index": reading.sensor.index, "quantity": quantity}
    return Block(reading.node, reading.time_s, values[:, None], sensor_frame([row]))


def telemetry_table(blocks: Sequence[Block], telemetry: Sequence[Block], segment: int) -> pa.Table:
    """Rows of TELEMETRY_SCHEMA of one node: its telemetry, and its CPUs' load."""
    found = readings(telemetry)
    load, _ = node_utilisation(blocks)
    if load is not None:
        row = SimpleNamespace(kind="cpu", index=0, quantity="cpu_utilisation", unit="%")
        found.append(Reading(load.node, row, load.time_s, 100 * load.values[:, 0]))
    return pa.concat_tables([TELEMETRY_SCHEMA.empty_table(), *(_rows(r, segment) for r in found)])


def _rows(reading: Reading, segment: int) -> pa.Table:
    sensor, size = reading.sensor, reading.time_s.size
    same = {"segment": segment, "node": reading.node, "device_kind": sensor.kind}
    same |= {"device_index": int(sensor.index), "quantity": sensor.quantity, "unit": sensor.unit}
    columns = {
        **{name: pa.repeat(value, size) for name, value in same.items()},
        "time": np.rint(reading.time_s * 1e6).astype("datetime64[us]"),
        "value": pa.array(reading.values, from_pandas=True),
    }
    arrays = [pa.array(columns[f.name]).cast(f.type) for f in TELEMETRY_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=TELEMETRY_SCHEMA)


# --- cross-checks ---------------------------------------------------------------------------------


def cross_check(
    node: str | None,
    kind: str,
    index: int | None,
    source: str,
    duration_s: float,
    energy_j: float | None,
    recorded_j: float | None,
    tolerance: float = MAX_DIFFERENCE,
    scope: str | None = None,
) -> Row:
    """Row of the cross-checks of a GPU, a node, a kind of it, or (node None) all nodes of a segment.

    `energy_j` is None if the source was not read over enough of the time, `recorded_j` if nothing was
    measured. `difference` is relative; of a node's meter `scope` names the kinds that `recorded_j` is the
    sum of, and `extra_w` is what it has beyond them.
    """
    difference = extra_w = None
    if energy_j is not None and recorded_j:
        difference = energy_j / recorded_j - 1
        if scope is not None and duration_s > 0:
            extra_w = difference * recorded_j / duration_s
    return {
        **{"node": node, "device_kind": kind, "device_index": index, "source": source},
        **{"duration_s": duration_s, "energy_j": energy_j, "recorded_j": recorded_j},
        **{"difference": difference, "tolerance": tolerance, "recorded_scope": scope},
        "extra_w": extra_w,
    }


def differs(row: Row) -> bool:
    """Whether the difference of a cross-check is over the tolerance."""
    difference, scope = row["difference"], row["recorded_scope"]
    if difference is None:
        return False
    if scope is None:
        return bool(abs(difference) > row["tolerance"])
    return (scope == ALL_PARTS and difference > MOST_BEYOND) or difference < -row["tolerance"]


def cross_check_flags(rows: Iterable[Row], kind: str) -> list[Flag]:
    """A flag for each cross-check of a device kind (`node`: of all) that differs."""
    return [
        flag("disagrees", None, _sentence(row))
        for row in rows
        if row["device_kind"] == kind and row.get("comparable", True) and differs(row)
    ]


def _sentence(row: Row) -> str:
    where = row["node"] or "all nodes"
    if row["device_index"] is not None and row["device_kind"] != NODE:
        where += f": GPU {row['device_index']}"
    if row["source"] == PERUN:
        where += f": {row['device_kind']}"
    scope = ", which counts the whole node" if row["source"] in WHOLE_NODE else ""
    scope = ", its own total" if row["source"] == PERUN else scope
    parts = f" of {row['recorded_scope']}" if row["recorded_scope"] else ""
    return (
        f"{where}: {row['source']}{scope}: {row['energy_j']:.0f} J over "
        f"{row['duration_s']:.0f} s, recorded {row['recorded_j']:.0f} J{parts} "
        f"({100 * row['difference']:+.1f} %)"
    )


def tolerance_of(values: Floats) -> float:
    """Tolerance of a power that was read now and then, by the spread of its readings."""
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) / np.sqrt(values.size)
    return max(MAX_DIFFERENCE, SIGMAS * spread / mean if mean > 0 else 0.0)


def gpu_checks(
    telemetry: Iterable[Block], kinds: Sequence[KindEnergy], window: Window
) -> Iterator[Row]:
    """Cross-checks of a node's GPUs by NVML."""
    for reading in readings(telemetry, *SOURCES):
        time_s, values = _finite(reading)
        inside = (time_s >= window[0]) & (time_s <= window[1])
        time_s, values = time_s[inside], values[inside]
        if time_s.size < 2 or time_s[-1] - time_s[0] < SHORTEST_S:
            continue
        is_counter = reading.sensor.unit == "J"
        energy = values[-1] - values[0] if is_counter else np.trapezoid(values, time_s)
        tolerance = MAX_DIFFERENCE if is_counter else tolerance_of(values)
        span = float(time_s[0]), float(time_s[-1])
        index = int(reading.sensor.index)
        kind, recorded = _gpu_j(kinds, index, span)
        source = SOURCES[reading.sensor.quantity], span[1] - span[0]
        yield cross_check(reading.node, kind, index, *source, float(energy), recorded, tolerance)


def _gpu_j(kinds: Sequence[KindEnergy], index: int, span: Window) -> tuple[str, float | None]:
    """Kind of a GPU, held or not, and what it was measured to use; None if it was not."""
    for kind in kinds:
        if part_of(kind.device_kind) == "gpu" and kind.origin == MEASURED:
            for device in kind.devices:
                if device.sensor.index == index:
                    return kind.device_kind, float(device.curve.between(*span))
    return "gpu", None


def perun_checks(perun_j: Mapping[str, float], kinds: Sequence[KindEnergy]) -> Iterator[Row]:
    """Compare perun's own total of each kind with all samples of it.

    `comparable` is False if another flag says already that perun has counted samples that are none.
    """
    for kind in kinds:
        if (stated := perun_j.get(kind.device_kind)) is None or not kind.devices:
            continue
        # GPUs that the run did not hold are in perun's total too, and it bridges a gap of any length.
        parts = [other for other in kinds if part_of(other.device_kind) == kind.device_kind]
        codes = {each["code"] for part in parts for each in part.flags}
        whole = all(part.coverage is None or part.coverage > 1 - 1e-9 for part in parts)
        recorded = sum(part.recorded_j((-np.inf, np.inf)) for part in parts)
        # Of power perun takes the same trapezoids.
        sizes = [d.block.time_s.size for d in kind.devices if d.sensor.quantity != "power"]
        tolerance = max(PERUN_TOLERANCE, *(PERUN_STEPS / max(n - 1, 1) for n in sizes), 0.0)
        times = [d.curve.time_s for d in kind.devices if d.curve.time_s.size]
        length_s = max((float(time[-1] - time[0]) for time in times), default=0.0)
        place = kind.node, kind.device_kind, None, PERUN, length_s
        row = cross_check(*place, stated, recorded, tolerance)
        yield {**row, "comparable": whole and not codes - _COUNTED}


def meter_checks(
    node: str, telemetry: Sequence[Block], kinds: Sequence[KindEnergy], window: Window
) -> list[Row]:
    """Compare each meter of a node with the sum of what its parts were measured to use.

    A meter that was not read over enough of the window has no energy here. Of the parts only those
    count whose energy is measured and known; without any there is nothing to compare with.
    """
    found = [_meter_check(meter, kinds, window) for meter in node_meters(telemetry)]
    own = next((kind for kind in kinds if kind.device_kind == NODE and kind.devices), None)
    if own is not None and not found:  # a meter that another tool recorded
        scope, parts_j = _parts(kinds, window)
        energy_j = own.recorded_j(window) if own.known else None
        place = node, NODE, None, NODE_METER, window[1] - window[0]
        found = [cross_check(*place, energy_j, parts_j, MAX_DIFFERENCE, scope)] if scope else []
    return found


def _meter_check(meter: Block, kinds: Sequence[KindEnergy], window: Window) -> Row:
    span, energy_j = _between_readings(meter, window)
    scope, parts_j = _parts(kinds, span)
    values = meter.values[:, 0]
    tolerance = tolerance_of(values) if values.size > 1 else MAX_DIFFERENCE
    place = meter.node, NODE, 0, METERS[meter.sensors["name"][0]], span[1] - span[0]
    return cross_check(*place, energy_j, parts_j, tolerance, scope)


def _between_readings(meter: Block, window: Window) -> tuple[Window, float | None]:
    """From when to when a meter was read in a window, and its energy.

    None if more than MAX_UNCOVERED of that time is without a known power, or if so much of the
    window lies before its first reading and after its last, three of its steps apart.
    """
    inside = meter.time_s[(meter.time_s >= window[0]) & (meter.time_s <= window[1])]
    if inside.size < 2 or inside[-1] - inside[0] < SHORTEST_S:
        return window, None
    span = float(inside[0]), float(inside[-1])
    curve = validate(meter, 0).curve
    length_s, of_window_s = span[1] - span[0], window[1] - window[0]
    longest = max(MAX_UNCOVERED * of_window_s, GAP_PERIODS * float(np.median(np.diff(inside))))
    late = of_window_s - length_s > longest
    if late or curve.covered_s(*span) < (1 - MAX_UNCOVERED) * length_s:
        return span, None
    return span, float(curve.between(*span))


def _parts(kinds: Sequence[KindEnergy], span: Window) -> tuple[str | None, float | None]:
    """Kinds of a node's devices that were measured, joined by +, and their energy; None without any."""
    known = {kind.device_kind: kind for kind in kinds if kind.origin == MEASURED and kind.known}
    unused = any(kind.device_kind == UNUSED_GPU for kind in kinds)
    if unused and UNUSED_GPU not in known:
        known.pop("gpu", None)  # the meter counts all of the node's GPUs
    scope = "+".join(kind for kind in DEVICE_KINDS if kind in known)
    if not scope:
        return None, None
    return scope, sum(known[k].recorded_j(span) for k in (*DEVICE_KINDS, UNUSED_GPU) if k in known)


def measured_j(kinds: Sequence[KindEnergy], window: Window) -> float | None:
    """What the parts of a node were measured to use, whatever its own meter says.

    None if one is estimated or not known, and if none was measured.
    """
    parts = [kind for kind in kinds if kind.device_kind != NODE]
    unknown = any(k.origin == ESTIMATED or not (k.known or k.coverage is None) for k in parts)
    if unknown or not any(kind.devices for kind in parts):
        return None
    return sum(kind.recorded_j(window) for kind in parts)


def slurm_check(slurm: Row | None, recorded_j: float | None, recorded_s: float) -> list[Row]:
    """Slurm's energy of a segment of which `recorded_j` were measured (None: not all).

    Slurm's step begins before the recording and ends after it: that time adds to the tolerance.
    """
    if slurm is None or slurm.get("consumed_energy_j") is None:
        return []
    elapsed = float(slurm.get("elapsed_s") or recorded_s)
    outside = abs(elapsed - recorded_s) / recorded_s if recorded_s > 0 else 0.0
    source = None, NODE, None, "slurm_consumed_energy", elapsed
    energy_j = float(slurm["consumed_energy_j"])
    return [cross_check(*source, energy_j, recorded_j, MAX_DIFFERENCE + outside)]


# --- throttling and settings ----------------------------------------------------------------------

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""NVML's clock event reasons that slow a GPU down from outside."""
POWER_CAP = 0x04
NOT_HELD_SHARE = 0.05
"""Of the training's time; beyond it a run did not have the clock or limit that it asked for."""


def state_flags(
    telemetry: Iterable[Block],
    held: Sequence[int] | None,
    window: Window,
    limit_is_wanted: bool = False,
) -> list[Flag]:
    """Flags `throttled` and `power_capped` of the GPUs that the run held (None: all).

    If a power limit was asked for, working at it is what was wanted, and no flag.
    """
    flags = []
    length = window[1] - window[0]
    for reading in readings(telemetry, "throttle_reasons"):
        if held is not None and reading.sensor.index not in held:
            continue
        reasons = np.nan_to_num(reading.values).astype(np.int64)
        slow = {
            word: seconds_where(reading.time_s, reasons & bit != 0, window)
            for bit, word in SLOWDOWNS.items()
        }
        capped = seconds_where(reading.time_s, reasons & POWER_CAP != 0, window)
        device = f"{reading.node}: GPU {reading.sensor.index}"
        if any(slow.values()):
            words = ", ".join(f"{word} {s:.0f} s" for word, s in slow.items() if s)
            flags.append(flag("throttled", None, f"{device}: {words} of {length:.0f} s"))
        if capped and not limit_is_wanted:
            detail = f"{device}: at its power limit for {capped:.0f} s of {length:.0f} s"
            flags.append(flag("power_capped", None, detail))
    return flags


@dataclass(frozen=True)
class _Setting:
    """How a clock or limit that was asked for shows in the telemetry."""

    quantity: str
    unit: str
    least: float
    """By how much a value may differ from what was asked for, in its unit."""
    share: float
    """By what share of it, likewise."""
    only_above: bool = False


SETTINGS = {
    "gpu_clock_mhz": _Setting("clock_sm", "MHz", 15.0, 0.02),
    "gpu_power_limit_w": _Setting("power_limit", "W", 1.0, 0.01),
    # CPUs that wait run slower, whatever was asked for.
    "cpu_clock_mhz": _Setting("cpu_clock", "MHz", 50.0, 0.02, only_above=True),
}


def settings_seen(
    telemetry: Sequence[Block],
    held: Sequence[int] | None,
    point: Mapping[str, float],
    intervals: StageIntervals,
    window: Window,
    node: str,
) -> tuple[list[Row], list[Flag]]:
    """What the devices of a node showed of each setting of `point`, and flags for what nothing did.

    `held`: the GPUs that the run held (None: all). The training counts; without stages the `window`.
    GPUs count while they have work: an idle one lowers its clock. A row has `node`, `setting`, `device`,
    `asked`, `whole_s` (seen at work), `outside_s` (not at the value asked for), `outside` (its mean then)
    and `causes`, NVML's reasons then, with their seconds.
    """
    spans = intervals.spans_of(("train",)) or [window]

    def seconds(reading: Reading, holds: Bools) -> float:
        return sum(seconds_where(reading.time_s, holds, span) for span in spans)

    seen, flags = [], []
    for name, asked in point.items():
        found = [
            reading
            for reading in readings(telemetry, SETTINGS[name].quantity)
            if (reading.sensor.kind != "gpu" or held is None or reading.sensor.index in held)
            and seconds(reading, np.isfinite(reading.values)) > 0
        ]
        counted = [_counted(reading, telemetry) for reading in found]
        at_work = {r.sensor.index for r, c in zip(found, counted, strict=True) if seconds(r, c) > 0}
        expected = set(held) if held is not None else {r.sensor.index for r in found}
        if not found or (found[0].sensor.kind == "gpu" and expected - at_work):
            what = f"{asked:g} {SETTINGS[name].unit}"
            detail = f"{node}: nothing recorded says whether {what} were held"
            flags.append(flag("operating_point_unknown", None, detail))
        for reading, of_work in zip(found, counted, strict=True):
            outside, reasons = _outside(
                reading, telemetry, name, asked, "gpu_power_limit_w" in point
            )
            outside &= of_work
            causes = {
                word: seconds(reading, outside & (reasons & bit != 0))
                for bit, word in {**SLOWDOWNS, POWER_CAP: "power limit"}.items()
            }
            is_gpu = reading.sensor.kind == "gpu"
            seen.append(
                {
                    **{"node": node, "setting": name, "asked": asked, "causes": causes},
                    "device": f"GPU {reading.sensor.index}" if is_gpu else "CPUs",
                    "whole_s": seconds(reading, of_work),
                    "outside_s": seconds(reading, outside),
                    "outside": float(np.mean(reading.values[outside])) if outside.any() else np.nan,
                }
            )
    return seen, flags


def not_held_flags(seen: Sequence[Row]) -> Iterator[tuple[int, str, Flag]]:
    """Segment, node and flag for each setting that the run did not have for over 5 % of its training.

    A segment counts by its device that was outside for longest: all ranks wait for the slowest one.
    """
    rows = pd.DataFrame(seen, columns=["segment", "setting", "whole_s", "outside_s"])
    sums = rows.groupby(["setting", "segment"]).max().groupby("setting").sum()
    wrong = set(sums.index[sums["outside_s"] > NOT_HELD_SHARE * sums["whole_s"]])
    for row in seen:
        if row["setting"] in wrong and row["outside_s"] > NOT_HELD_SHARE * row["whole_s"]:
            causes = ", ".join(f"{word} {s:.0f} s" for word, s in row["causes"].items() if s)
            detail = (
                f"{row['node']}: {row['device']}: {row['outside']:.0f} "
                f"{SETTINGS[row['setting']].unit} for {row['outside_s']:.0f} s of "
                f"{row['whole_s']:.0f} s, where {row['asked']:g} were asked for"
                + (f" ({causes})" if causes else "")
            )
            yield row["segment"], row["node"], flag("not_held", None, detail)


def _counted(reading: Reading, telemetry: Sequence[Block]) -> Bools:
    """Readings that count: those of a clock only while the GPU has work."""
    counted = np.isfinite(reading.values)
    busy = _same_times(telemetry, reading, "gpu_utilisation")
    if busy is not None and reading.sensor.quantity == "clock_sm":
        counted &= ~(busy == 0)
    return counted


def _outside(
    reading: Reading, telemetry: Sequence[Block], name: str, asked: float, allows_capping: bool
) -> tuple[Bools, NDArray[np.int64]]:
    """Readings that are not the value asked for, and NVML's reasons at each reading."""
    setting = SETTINGS[name]
    tolerance = max(setting.least, setting.share * asked)
    above, below = reading.values > asked + tolerance, reading.values < asked - tolerance
    outside = above if setting.only_above else above | below
    reasons = _same_times(telemetry, reading, "throttle_reasons")
    masks = np.zeros(reading.time_s.shape, np.int64)
    if reasons is not None and reading.sensor.quantity == "clock_sm":
        masks = np.nan_to_num(reasons).astype(np.int64)
    if allows_capping:
        outside = outside & ~(below & (masks & POWER_CAP != 0))
    return outside, masks


def _same_times(telemetry: Sequence[Block], reading: Reading, quantity: str) -> Floats | None:
    """Another quantity of the same device, read at the same times; None without."""
    for other in readings(telemetry, quantity):
        same = (other.sensor.kind, other.sensor.index) == (
            reading.sensor.kind,
            reading.sensor.index,
        )
        if same and np.array_equal(other.time_s, reading.time_s):
            return other.values
    return None


def uneven_flags(nodes: Mapping[str, Window]) -> list[Flag]:
    """Flag each node whose recording covers less of the time from the first node's begin to the last's end.

    A node counts from its first to its last sample, so where no stages tell how long the run was,
    nothing else says that energy may be missing. Up to MAX_UNCOVERED of that time is no flag.
    """
    if not nodes:
        return []
    length_s = max(end for _, end in nodes.values()) - min(begin for begin, _ in nodes.values())
    flags = []
    for node, (begin, end) in nodes.items():
        if length_s - (end - begin) > MAX_UNCOVERED * length_s:
            detail = (
                f"{node}: recorded for {end - begin:.1f} s of the {length_s:.1f} s that the nodes were, and "
                "without stages it is not known whether it was at work in the rest, which does not count"
            )
            flags.append(flag("recording_short", None, detail))
    return flags
