"""Energy of one node in one segment: which sensor of each device counts, and what it used by interval.

One sensor counts for each device: measured before estimated, a counter before a power. The window of a
node is [first, last sample] of all its sensors; nothing is extrapolated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from scalewatt.energies.integrate import EnergyCurve, Validated, validate
from scalewatt.energies.stages import (
    STAGES,
    UNATTRIBUTED,
    Window,
    samples_in,
    seconds_where,
    short_pieces_s,
)
from scalewatt.recordings import terms
from scalewatt.recordings.block import Block, sensor_frame
from scalewatt.recordings.telemetry import readings
from scalewatt.recordings.terms import Flag, Floats, flag

UNUSED_GPU = "unused_gpu"
MAX_UNCOVERED = 0.05
"""Share of a kind's device seconds that may lack a known power, or its energy is null: three of 64 nodes."""
MAX_DIFFERENCE = 0.03
"""Relative difference of two sources of one energy from which on both values are stated."""
SIGMAS = 3.0
"""Standard errors of the mean by which a power that was read now and then may differ."""
MIRROR_S = 0.005
"""Two counters of one socket are read within so many seconds."""
LEAST_UNCOVERED_S = 1e-4
"""Less is the rounding of unix seconds, and of sums of their steps."""
MODULE = re.compile(r"\bG[HB]200\b")
"""GPUs whose counter is that of their module."""
TDP_SHARE, IDLE_SHARE = 0.74, 0.1
"""Share of its TDP that a CPU draws at full load, and share of that when idle."""
FACTOR = 5.4
"""An estimate lies within × or ÷ this of the true power, if no other factor is given. It is known of CPUs
alone: GPUs and memory get the same, as no data support less."""
_DIE = re.compile(r"(package-\d+)-die-\d+")

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Node:
    """A node in a segment: what was recorded of it, and what is known of it in addition."""

    name: str
    blocks: Sequence[Block]
    period_s: float | None = None
    """Declared sampling period."""
    telemetry: Sequence[Block] = ()
    flags: tuple[Flag, ...] = ()
    clock_known: bool = True
    """True if times are unix times, and not seconds from an unknown start."""
    perun_j: Mapping[str, float] = field(default_factory=dict)
    """Perun's own energies in J by device kind."""
    window: Window = (0.0, 0.0)
    """Time that counts."""
    overlap_s: float = 0.0
    """Seconds of the recording that another segment has counted."""
    ahead_s: float = 0.0
    """By how much the clock was ahead of rank 0's, by which the stages are noted."""
    lost_s: float = 0.0
    """Known run time outside of the recording, uncovered for every kind."""
    powers: Mapping[str, Any] = field(default_factory=dict)
    """Rated powers by device kind, to estimate what was not measured."""
    held: Sequence[int] | None = None
    """Indices of the GPUs that the run held; None: all recorded."""
    expected_gpus: int | None = None
    """Number of GPUs that must be there: those without a sensor are uncovered."""
    model: str = ""
    """Name of the GPUs, if no sensor states it."""

    @property
    def length_s(self) -> float:
        """Length of the window in s."""
        return self.window[1] - self.window[0]

    @cached_property
    def shared_s(self) -> float:
        """Seconds of the window for which another run was measured on the node."""
        counts = readings(self.telemetry, "concurrent_samplers")
        seconds = (seconds_where(b.time_s, others > 0, self.window) for b, _, others in counts)
        return max(seconds, default=0.0)


@dataclass(frozen=True, eq=False)
class Sensor:
    """A column of a block, and the energy of its device."""

    row: Any
    """Row of the block's frame of sensors."""
    block: Block
    column: int
    period_s: float | None = None
    """Declared sampling period."""

    @cached_property
    def validated(self) -> Validated:
        """Its samples, validated."""
        return validate(self.block, self.column, self.period_s)

    @property
    def curve(self) -> EnergyCurve:
        """Its energy curve."""
        return self.validated.curve

    @property
    def factor(self) -> float:
        """The true power is within × or ÷ this: 1 of what was measured."""
        stated = FACTOR if np.isnan(self.row.factor) else float(self.row.factor)
        return stated if self.row.origin == terms.ESTIMATED else 1.0

    @property
    def most_w(self) -> float:
        """Most that its device can draw in W: its limit, or more where more was recorded; 0 if unknown."""
        recorded_w = np.fmax.reduce(self.validated.power_w, initial=0.0)
        return float(np.fmax(self.row.limit_w, self.factor * recorded_w))


@dataclass(frozen=True, eq=False)
class KindEnergy:
    """Energy that the devices of one kind of a node used over its window."""

    node: str
    device_kind: str
    coverage: float | None
    """Share of `device_s` with a known power; None if the node has nothing of the kind."""
    flags: tuple[Flag, ...] = ()
    devices: tuple[Sensor, ...] = ()
    """The sensor that counts of each device."""
    count: int = 0
    """Number of devices (CPU sockets, memories, GPUs) that the energy belongs to."""
    device_s: float = 0.0
    """Device seconds of which the power should be known."""
    period_s: float = 0.0
    """Time in s that its samples resolve: the longest sampling period; 0 without any."""
    most_w: tuple[float, ...] = ()
    """Most that each device can draw in W."""
    lacking_w: float = 0.0
    """Most that the devices that must be there and have no sensor can draw in W."""
    shared: bool = False
    """True if another run was measured on the node at the same time, and cannot be told apart."""

    @property
    def known(self) -> bool:
        """True if the energy of this node in this segment may be stated by itself."""
        return not self.shared and self.coverage is not None and self.coverage >= 1 - MAX_UNCOVERED

    @property
    def origin(self) -> str | None:
        """measured, estimated or simulated; None without a device."""
        return self.devices[0].row.origin if self.devices else None

    def recorded_j(self, window: Window) -> float:
        """Energy recorded between two times in J, whether or not that is enough to state."""
        return sum(float(device.curve.between(*window)) for device in self.devices)

    def pieces(
        self, intervals: pd.DataFrame, lost: Window = (0.0, 0.0), unrecorded_s: float = 0.0
    ) -> dict[str, NDArray[Any]]:
        """Energy in J of each device in each stage of each epoch, and its bounds: columns of a table with
        a row for each device and interval.

        `stage` numbers STAGES, `device` the devices, -1 for those without a series. The bounds are what an
        estimate leaves open; in uncovered time a device used at least nothing, and at most `most_w`. Sums
        assume that the errors of all devices and nodes have the same sign.
        `lost`: span of discarded work. `unrecorded_s` is how long the run was at work outside of the
        recording: what it can have used then is put to the first interval.
        `short_s`: mean length of a stage's pieces if too short; `short_epoch`: true if an epoch's are.
        """
        start_s, end_s, epoch = (intervals[n].to_numpy() for n in ("start_s", "end_s", "epoch"))
        seconds = end_s - start_s
        lost_s = np.clip(start_s, *lost), np.clip(end_s, *lost)
        blocks = {id(device.block): device.block for device in self.devices}
        samples = {key: samples_in(intervals, block.time_s) for key, block in blocks.items()}

        # A row a device, and one of those without a series
        rows: list[tuple[Any, ...]] = []
        for number, (device, most_w) in enumerate(zip(self.devices, self.most_w, strict=True)):
            curve, count = device.curve, samples[id(device.block)]
            energies_j = curve.between(start_s, end_s), curve.between(*lost_s)
            covered_s = curve.covered_s(start_s, end_s)
            rows.append((number, most_w, device.factor, count, covered_s, *energies_j))
        if self.lacking_w or not rows:
            none = np.full(seconds.size, 0.0 if rows else np.nan)
            rows.append((-1, self.lacking_w, 1.0, np.zeros_like(epoch), 0.0 * seconds, none, none))
        numbers, mosts_w, factors, counts, covered_s, recorded_j, discarded_j = (
            np.array(column).reshape(len(rows), -1) for column in zip(*rows, strict=True)
        )
        uncovered_s = seconds - covered_s
        uncovered_s = np.where(uncovered_s > LEAST_UNCOVERED_S, uncovered_s, 0.0)
        uncovered_s[:, 0] += unrecorded_s

        # Stages are resolved or not, as a whole and within their epochs
        stage = intervals["stage"].cat.codes.to_numpy(np.int64)
        groups = stage, stage + len(STAGES) * epoch
        short_s, epoch_s = (short_pieces_s(group, seconds, self.period_s) for group in groups)
        is_named = stage != STAGES.index(UNATTRIBUTED)
        columns = {
            **{"stage": stage, "epoch": epoch, "duration_s": seconds, "device": numbers},
            **{"samples": counts, "covered_s": covered_s, "recorded_j": recorded_j},
            **{
                "low_j": recorded_j / factors,
                "high_j": recorded_j * factors + mosts_w * uncovered_s,
            },
            **{"discarded_j": discarded_j, "short_s": np.where(is_named, short_s, np.nan)},
            "short_epoch": is_named & np.isfinite(epoch_s),
        }
        shape = recorded_j.shape
        return {name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()}


def physical_kind(kind: str) -> str:
    """gpu of the GPUs that the run did not hold, any other kind as it is."""
    return kind.removeprefix("unused_")


# --- the devices of a node ------------------------------------------------------------------------


def node_window(blocks: Iterable[Block]) -> Window | None:
    """First and last sample time of a node over all its sensors; None without samples.

    Stamps that a clock running forward cannot have made do not count.
    """
    spans = [block.span_s for block in blocks if block.span_s is not None]
    return (float(np.min(spans)), float(np.max(spans))) if spans else None


def list_sensors(blocks: Iterable[Block], period_s: float | None = None) -> list[Sensor]:
    """Sensors of all blocks."""
    return [Sensor(row, block, i, period_s) for block in blocks for i, row in enumerate(block.rows)]


def node_kinds(node: Node) -> list[KindEnergy]:
    """Energies of gpu, cpu, ram and, if there are any, unused_gpu and node of one node.

    If the node's meter is all that there is, nothing is expected or estimated of its parts.
    """
    blocks = [_as_named(block, node.model) for block in node.blocks]
    sensors = [s for s in list_sensors(blocks, node.period_s) if s.row.quantity != "utilisation"]
    recorded = {sensor.row.kind for sensor in sensors}
    if recorded == {terms.NODE}:
        node = replace(node, powers={}, held=None, expected_gpus=None, lost_s=0.0)
    kinds = []
    for kind in (*terms.DEVICE_KINDS, terms.NODE) if terms.NODE in recorded else terms.DEVICE_KINDS:
        of_kind = [sensor for sensor in sensors if sensor.row.kind == kind]
        if not of_kind and node.powers.get(kind):
            of_kind = list_sensors(estimates(kind, blocks, node.powers[kind]), node.period_s)
        devices, flags = _devices(kind, of_kind, node)
        held = node.held if kind == "gpu" else None
        used = [device for device in devices if held is None or device.row.index in held]
        kinds.append(_kind_energy(kind, used, flags, node))
        if unused := [device for device in devices if device not in used]:
            kinds.append(_kind_energy(UNUSED_GPU, unused, [], node))
    return kinds


def _as_named(block: Block, model: str) -> Block:
    """Block with what the name of its GPUs tells, where a sensor states none that of `model`.

    A power's samples are those of GPUs of its name, and the counter of a module is one of the node.
    """
    rows, flags = [], list[Flag]()
    for row in block.rows:
        name = row.device or model
        if row.kind == "gpu" and row.quantity == "power":
            row = row._replace(samples=row.samples or terms.gpu_fact(name, "samples"))
        elif row.kind == "gpu" and row.quantity == "counter" and MODULE.search(name):
            row = row._replace(kind=terms.NODE)
            detail = "counts the whole module with its CPU and memory: it is a meter of the node"
            flags.append(flag("second_sensor", row.name, detail))
        rows.append(row)
    if rows == block.rows:
        return block
    sensors = sensor_frame([row._asdict() for row in rows])
    return replace(block, sensors=sensors, flags=(*block.flags, *flags))


# --- estimates ------------------------------------------------------------------------------------
# A CPU's power at a load is 0.74 · TDP · (0.1 + 0.9 · load). By five recordings of four CPU models (RAPL
# powers at steps of load: CodeCarbon, data/hardware/cpu_load_profiling, MIT), each left out in turn of what
# the interval was made from, the power of another machine lies within × or ÷ 5.4 of that (95 %, Student's t;
# tests/unit/test_cpu_power_data.py). The error is the machine's, the same in all runs: it averages out over
# nothing.


def estimates(kind: str, blocks: Sequence[Block], rated: Mapping[str, Any]) -> list[Block]:
    """Estimated powers of the devices of a kind, from their rated powers and the load of a node.

    `rated` of CPUs: {"sockets", "rated_w"}, of GPUs {"idle_w", "rated_w"}, of memory {"power_w"}; and perhaps
    {"factor"}. NVML's utilisation states for how long any kernel ran, not how much of the GPU it used.
    """
    loads: list[Block] = []
    if kind == "ram":  # whatever the load
        idle_w = full_w = float(rated["power_w"])
        sensors = sensor_frame([{"name": "rated_power", "kind": "ram"}])
        if blocks:
            longest = max(blocks, key=lambda block: block.time_s.size)
            full = np.ones((longest.time_s.size, 1))
            loads.append(replace(longest, values=full, sensors=sensors))
    elif kind == "gpu":
        idle_w, full_w = float(rated["idle_w"]), float(rated["rated_w"])
        loads += _loads_of(blocks, "gpu")
    else:
        full_w = int(rated["sockets"]) * TDP_SHARE * float(rated["rated_w"])
        idle_w = IDLE_SHARE * full_w
        if load := node_utilisation(blocks):
            loads.append(replace(load, sensors=load.sensors.assign(index=0)))

    factor, estimated = float(rated.get("factor") or FACTOR), []
    for load in loads:
        # Above 1 is rounding of the counters behind it, not more than the rated power. Below 0 it is not
        # idle but unknown.
        share = np.where(load.values < 0, np.nan, np.minimum(load.values, 1.0))
        power_w = np.asfortranarray(idle_w + share * (full_w - idle_w))
        sensors = load.sensors.assign(quantity="power", origin=terms.ESTIMATED, factor=factor)
        estimated.append(Block(load.node, load.time_s, power_w, sensors))
    return estimated


def node_utilisation(blocks: Sequence[Block]) -> Block | None:
    """Utilisation (0..1) of all cores of a node: the sampler's CPU_BUSY, or else perun's CPU_USAGE."""
    loads = (_loads_of(blocks, "cpu", name) for name in ("CPU_BUSY", "CPU_USAGE"))
    return next(chain.from_iterable(loads), None)


def _loads_of(blocks: Sequence[Block], kind: str, name: str = "") -> Iterator[Block]:
    """Select the utilisation of a kind's devices, or a sensor of a name, from the blocks that have it."""
    for block in blocks:
        sensors = block.sensors
        is_load = (sensors["kind"] == kind) & (sensors["quantity"] == "utilisation")
        if name:
            is_load &= sensors["name"] == name
        if is_load.any():
            values = np.asfortranarray(block.values[:, is_load])
            yield replace(block, values=values, sensors=sensors[is_load].reset_index(drop=True))


# --- the sensor that counts -----------------------------------------------------------------------


def _devices(kind: str, sensors: Sequence[Sensor], node: Node) -> tuple[list[Sensor], list[Flag]]:
    """Choose the sensor that counts for each device of a kind, and flag the others."""
    counted: list[Sensor] = []
    flags: list[Flag] = []
    for _, group in groupby(sorted(sensors, key=_preference), lambda sensor: sensor.row.index):
        of_device = [*group]
        first = of_device[0]
        if kind == "gpu" and first.row.quantity == "counter":
            first = next((s for s in of_device if _counts_more(first, s, node.window)), first)
        name = first.row.name

        # A second sensor is not added, and both values are stated if they disagree
        for other in (sensor for sensor in of_device if sensor is not first):
            flags.append(flag("second_sensor", other.row.name, f"not added: {name} is counted"))
            first_j, other_j, seconds = _energies(first, other, node.window)
            if abs(first_j - other_j) > MAX_DIFFERENCE * max(first_j, other_j):
                values = f"{other_j:.0f} J over {seconds:.0f} s, but {name}, which counts, {first_j:.0f} J"
                flags.append(flag("disagrees", other.row.name, f"{node.name}: {values}"))

        # A die whose counter repeats another's of its socket counts once
        if same := next((other for other in counted if _mirrors(first, other)), None):
            detail = f"not added: it repeats {same.row.name}, the counter of the whole socket"
            flags.append(flag("second_sensor", name, detail))
        else:
            counted.append(first)
    return counted, flags


def _preference(sensor: Sensor) -> tuple[int, bool, bool, bool, bool, str]:
    """Key that sorts the sensors of a device by how far they are to be trusted."""
    row = sensor.row
    unsure = any(f["code"] == "assumed" and f["device"] == row.name for f in sensor.block.flags)
    is_power = row.name.endswith("_POWER")
    return row.index, unsure, row.totals, row.quantity != "counter", not is_power, row.name


def _counts_more(counter: Sensor, power: Sensor, window: Window) -> bool:
    """True if a GPU's counter exceeds its power so far that it must be that of a whole module."""
    if power.row.quantity == "counter":
        return False
    counted_j, power_j, _ = _energies(counter, power, window)
    return counted_j > (1 + relative_tolerance(power.validated.power_w)) * power_j


def _energies(first: Sensor, other: Sensor, window: Window) -> tuple[float, float, float]:
    """Energies in J of two sensors over the time in s that both have; 0 if one of them is not known then."""
    curves = first.curve, other.curve
    if first.row.totals or other.row.totals or not all(curve.time_s.size for curve in curves):
        return 0.0, 0.0, 0.0
    begin = max(window[0], *(float(curve.time_s[0]) for curve in curves))
    end = max(begin, min(window[1], *(float(curve.time_s[-1]) for curve in curves)))
    covered_s = min(float(curve.covered_s(begin, end)) for curve in curves)
    if covered_s < (1 - MAX_UNCOVERED) * (end - begin):
        return 0.0, 0.0, 0.0
    first_j, other_j = (float(curve.between(begin, end)) for curve in curves)
    return first_j, other_j, end - begin


def relative_tolerance(power_w: Floats) -> float:
    """Relative tolerance of a power that was read now and then, by the spread of its readings."""
    known_w = power_w[np.isfinite(power_w)]
    if known_w.size < 2 or known_w.mean() <= 0:
        return MAX_DIFFERENCE
    error_w = known_w.std(ddof=1) / np.sqrt(known_w.size)
    return max(MAX_DIFFERENCE, SIGMAS * float(error_w / known_w.mean()))


def _mirrors(die: Sensor, first: Sensor) -> bool:
    """True if a die's counter repeats another one of its socket, read at most MIRROR_S later."""
    sockets = [_DIE.search(device.row.name) for device in (die, first)]
    if not all(sockets) or len({match[1] for match in sockets if match}) > 1:
        return False
    time_s, energy_j = die.curve.time_s, die.curve.energy_j
    if time_s.size < 10:
        return False
    most_w = float((np.diff(energy_j) / np.diff(time_s)).max())
    return float(np.ptp(energy_j - first.curve.between(-np.inf, time_s))) <= 2 * MIRROR_S * most_w


# --- the energy of a kind -------------------------------------------------------------------------


def _kind_energy(
    kind: str, devices: Sequence[Sensor], flags: Sequence[Flag], node: Node
) -> KindEnergy:
    """Energy of the devices of a kind, of which some or all may lack a sensor."""
    name, rated = node.name, node.powers.get(physical_kind(kind)) or {}
    expected = node.expected_gpus if kind == "gpu" else None
    # What the run held exists, with or without a sensor.
    exists = bool(rated) and expected != 0
    exists |= kind == "gpu" and bool(node.held)
    flags = [*flags]
    if expected is not None and len(devices) != expected and (devices or exists):
        detail = f"{name}: power of {len(devices)} GPUs, {expected} expected"
        flags.append(flag("not_recorded", None, detail))
    if not devices:
        detail = f"{name}: no {kind} sensor and nothing to estimate from"
        flags.append(flag("not_recorded" if exists else "absent", None, detail))
        return KindEnergy(name, kind, 0.0 if exists else None, tuple(flags))

    # The time whose power should be known, and the share of it that is
    count = max(len(devices), expected or 0)
    counted_s = node.length_s + node.lost_s
    covered_s = sum(float(device.curve.covered_s(*node.window)) for device in devices)
    coverage = min(covered_s / (count * counted_s), 1.0) if counted_s > 0 else 0.0
    flags += [each for device in devices for each in _sensor_flags(device, node)]
    if coverage < 1 - MAX_UNCOVERED:
        detail = f"{name}: {100 * coverage:.1f} % of {counted_s:.1f} s of {kind} covered"
        flags.append(flag("coverage", None, detail))
    if node.shared_s > 0:
        detail = f"{name}: another run measured on the node for {node.shared_s:.1f} s"
        flags.append(flag("node_shared", None, detail))

    # What a device can draw: its limit, else what others of its kind drew, else what none exceeds
    rated_w = float(rated.get("rated_w") or rated.get("power_w") or 0.0)
    most_w = [max(device.most_w, rated_w) for device in devices]
    most_w = [w or max(most_w) or terms.PLAUSIBLE_W[physical_kind(kind)] for w in most_w]

    # The longest sampling period; of GPUs no less than what their sensors may average over
    periods_s = [max(device.block.step_s, node.period_s or 0.0) for device in devices]
    periods_s += [np.diff(d.block.time_s).max(initial=0.0) for d in devices if d.row.totals]
    if any(d.row.kind == "gpu" and d.row.origin != terms.ESTIMATED for d in devices):
        periods_s.append(terms.MEAN_OVER_S)

    of_sockets = kind == "cpu" and devices[0].row.origin == terms.ESTIMATED and rated
    return KindEnergy(
        node=name,
        device_kind=kind,
        coverage=coverage,
        flags=tuple(flags),
        devices=tuple(devices),
        count=int(rated["sockets"]) if of_sockets else len(devices),
        device_s=count * counted_s,
        period_s=float(max(periods_s)),
        most_w=tuple(most_w),
        lacking_w=(count - len(devices)) * max(most_w),
        # The GPUs that are known to be this run's can be told from another's.
        shared=node.shared_s > 0 and not (physical_kind(kind) == "gpu" and node.held is not None),
    )


def _sensor_flags(device: Sensor, node: Node) -> list[Flag]:
    """Flags of a sensor that counts: from reading it, of its samples, and of those that its node has more."""
    name = device.row.name
    flags = [each for each in device.block.flags if each["device"] == name]
    flags += device.validated.flags
    (begin, end), (first, last) = node.window, device.block.span_s or (node.window[0],) * 2
    longest_s = terms.GAP_PERIODS * max(device.block.step_s, node.period_s or 0.0) * (1 + 1e-6)
    missing_s = sum(s for s in (first - begin, end - last) if s > longest_s)
    if missing_s > 0:
        detail = f"no samples for {missing_s:.1f} s at the beginning or the end of the recording"
        flags.append(flag("coverage", name, f"{detail}: uncovered"))
    return [{**each, "detail": f"{node.name}: {each['detail']}"} for each in flags]
