"""Energy of one node in one segment: which sensor of each device counts, and what it used by interval.

Of each device one sensor counts: a measured one before an estimate, a counter before a power. The window of a
node is [first, last sample] of all its sensors; nothing is extrapolated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalewatt.energies.estimate import (
    FACTOR,
    estimated_cpu,
    estimated_gpus,
    estimated_ram,
    loads_of,
    node_utilisation,
)
from scalewatt.energies.integrate import (
    EnergyCurve,
    Validated,
    bounds,
    validate,
)
from scalewatt.energies.stages import STAGES, UNATTRIBUTED, StageIntervals, tile_window
from scalewatt.energies.tables import MAX_UNCOVERED, PIECES, Pieces, nothing, pieces
from scalewatt.recordings.block import Block
from scalewatt.recordings.terms import (
    DEVICE_KINDS,
    ESTIMATED,
    GAP_PERIODS,
    MEAN_OVER_S,
    NODE,
    PLAUSIBLE_W,
    Flag,
    Floats,
    flag,
    gpu_quantity,
)

UNUSED_GPU = "unused_gpu"
MAX_DIFFERENCE = 0.03
"""Relative difference of two sources of one energy from which on both values are stated."""
SIGMAS = 3.0
"""Standard errors of the mean by which a power that was read now and then may differ."""
MIRROR_S = 0.005
"""Two counters of one socket are read within so many seconds."""
MODULE = re.compile(r"\bG[HB]200\b")
"""GPUs whose counter is that of their module."""
_MODULE_DETAIL = "counts the whole module with its CPU and memory: it is a meter of the node"
_DIE = re.compile(r"(package-\d+)-die-\d+")

Window = tuple[float, float]
Row = dict[str, Any]


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

    @cached_property
    def curves(self) -> tuple[EnergyCurve, EnergyCurve, EnergyCurve]:
        """Its energy and both ends of its interval, which are the same of what was measured."""
        if self.row.origin != ESTIMATED:
            return self.curve, self.curve, self.curve
        return self.curve, *bounds(self.block, self.column, self.curve, self.period_s)

    @property
    def most_w(self) -> float:
        """Most that its device can draw in W: its limit, or more where more was recorded; 0 if unknown."""
        power_w = self.validated.power_w
        if self.block.bounds is not None:
            power_w = self.block.bounds[1][:, self.column]
        elif self.row.origin == ESTIMATED:
            power_w = FACTOR * power_w
        return float(np.fmax.reduce(power_w, initial=np.fmax(self.row.limit_w, 0.0)))


@dataclass(frozen=True, eq=False)
class KindEnergy:
    """What the devices of one kind of a node used over its window."""

    node: str
    device_kind: str
    coverage: float | None
    """Share of `device_s` with a known power; None if the node has nothing of the kind."""
    flags: tuple[Flag, ...]
    devices: tuple[Sensor, ...] = ()
    """The sensor that counts of each device."""
    count: int = 0
    """How many devices (CPU sockets, memories, GPUs) the energy belongs to."""
    device_s: float = 0.0
    """Device seconds of which the power should be known."""
    period_s: float = 0.0
    """What its samples resolve in time: the longest sampling period; 0 without any."""
    uncounted_known: bool = True
    """Whether the energy of the time that does not count may be stated."""
    most_w: tuple[float, ...] = ()
    """Most that each device can draw in W."""
    lacking_w: float = 0.0
    """Most that the devices that must be there and have no sensor can draw in W."""
    shared: bool = False
    """Whether another run was measured on the node at the same time, and cannot be told apart."""

    @property
    def known(self) -> bool:
        """Whether the energy of this node in this segment may be stated by itself."""
        return not self.shared and self.coverage is not None and self.coverage >= 1 - MAX_UNCOVERED

    @property
    def origin(self) -> str | None:
        """measured, estimated or simulated; None without a device."""
        return self.devices[0].row.origin if self.devices else None

    def recorded_j(self, window: Window) -> float:
        """Energy recorded between two times in J, whether or not that is enough to state."""
        return sum(float(device.curve.between(*window)) for device in self.devices)

    def bounds_j(self, window: Window) -> tuple[float, float]:
        """Interval in J of what all devices used between two times, as `intervals_j` has it."""
        _, low, high = self.intervals_j(tile_window((), window)[0])
        return float(low.sum()), float(high.sum() + self.lacking_w * (window[1] - window[0]))

    def intervals_j(self, intervals: StageIntervals, outside_s: float = 0.0) -> Floats:
        """Energy in J of each device in each interval, and both ends of it, (3, devices, k).

        The ends are what an estimate leaves open. In uncovered time a device used at least nothing, and at
        most `most_w`; `outside_s` is uncovered time outside of the intervals, put to the first one. Sums
        take it that the errors of all devices and nodes have the same sign.
        """
        energies_j = np.zeros((3, len(self.devices), intervals.seconds.size))
        for i, (device, most_w) in enumerate(zip(self.devices, self.most_w, strict=True)):
            energies_j[:, i] = [intervals.energy_j(curve) for curve in device.curves]
            uncovered_s = intervals.uncovered_s(device.curve)
            uncovered_s[0] += outside_s
            energies_j[2, i] += most_w * uncovered_s
        return energies_j

    @property
    def described(self) -> list[Row]:
        """Index, sensor and uuid of each device."""
        rows = (device.row for device in self.devices)
        return [{"device_index": r.index, "sensor": r.name, "uuid": r.uuid or None} for r in rows]

    def part(self, segment: int, intervals: StageIntervals, unrecorded_s: float) -> Row:
        """Row of the parts of a run (`tables.Collected`)."""
        return {
            **{"segment": segment, "node": self.node, "device_kind": self.device_kind},
            **{"sensors": len(self.devices), "devices": self.count, "energy_origin": self.origin},
            **{"coverage": self.coverage, "device_s": self.device_s, "shared": self.shared},
            **{"seconds": float(intervals.seconds.sum()), "unrecorded_s": unrecorded_s},
            **{"period_s": self.period_s, "uncounted_known": self.uncounted_known},
        }

    def pieces(self, intervals: StageIntervals, lost: Window, unrecorded_s: float = 0.0) -> Pieces:
        """Energy of each device in each stage of each epoch, as PIECES; `lost`: span of discarded work.

        `unrecorded_s` is how long the run was at work outside of the recording: what it can have used then
        is put to the first interval.
        """
        stages, group = stage_seconds(intervals, self.period_s)
        if not self.devices:
            return nothing(stages)
        count, size = len(self.devices), stages["stage"].size

        def summed(values: NDArray[Any]) -> NDArray[Any]:
            """Sums of the intervals, (devices, k), by stage and epoch, (devices * size,)."""
            sums = np.zeros((size, len(values)), values.dtype)
            np.add.at(sums, group, values.T)
            return sums.T.ravel()

        energies = map(summed, self.intervals_j(intervals, unrecorded_s))
        inside = {id(b): intervals.counts(np.sort(b.time_s)) for b in _blocks(self.devices)}
        samples = np.array([inside[id(device.block)] for device in self.devices])
        columns = {
            **{name: np.tile(values, count) for name, values in stages.items()},
            **dict(zip(("recorded_j", "low_j", "high_j"), energies, strict=True)),
            "device": np.repeat(np.arange(count), size),
            "discarded_j": summed(self.intervals_j(intervals.within(*lost))[0]),
            "covered_s": summed(np.array([intervals.covered_s(d.curve) for d in self.devices])),
            "samples": summed(samples[:, 1:-1]),
        }
        rows = [pieces(**columns)]
        outside = samples[:, 0] + samples[:, -1]
        for device in np.flatnonzero(outside):
            of_device = {"device": device, "samples": outside[device], "outside": True}
            rows.append(pieces(**of_device, stage=STAGES.index(UNATTRIBUTED)))
        if self.lacking_w:
            expected_s = intervals.seconds.copy()
            expected_s[0] += unrecorded_s
            rows.append(pieces(**stages, high_j=summed(self.lacking_w * expected_s[None])))
        return {name: np.concatenate([row[name] for row in rows]) for name in PIECES}


def _blocks(devices: Iterable[Sensor]) -> Iterable[Block]:
    """Blocks of some devices, which may share them."""
    return {id(device.block): device.block for device in devices}.values()


def part_of(kind: str) -> str:
    """gpu of the GPUs that the run did not hold, any other kind as it is."""
    return kind.removeprefix("unused_")


def stage_seconds(
    intervals: StageIntervals, period_s: float = 0.0
) -> tuple[Pieces, NDArray[np.intp]]:
    """Columns of pieces that hold of any device, for each stage of an epoch, and the row of each interval.

    `period_s` is what the samples resolve.
    """
    stage = np.array([STAGES.index(name) for name in intervals.stage])
    epoch = np.array([-1 if number is None else number for number in intervals.epoch])
    keys, group = np.unique(epoch * len(STAGES) + stage, return_inverse=True)
    epochs, stages = np.divmod(keys, len(STAGES))
    known = stages != STAGES.index(UNATTRIBUTED)
    return {
        "stage": stages,
        "epoch": epochs,
        "duration_s": np.bincount(group, intervals.seconds, keys.size),
        "short_s": np.where(known, intervals.short_pieces_s(period_s, stage)[stages], np.nan),
        "short_epoch": known & ~np.isnan(intervals.short_pieces_s(period_s, group)),
    }, group


# --- the devices of a node ------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeFacts:
    """What is known of a node in a segment in addition to its sensors."""

    name: str
    window: Window
    """Time that counts."""
    period_s: float | None = None
    """Declared sampling period."""
    powers: Mapping[str, Any] = field(default_factory=dict)
    """Rated powers by device kind, to estimate what was not measured."""
    lost_s: float = 0.0
    """Known run time outside of the recording, uncovered for every kind."""
    uncounted: Sequence[Window] = ()
    """Spans in the window that do not count."""
    used_gpus: Sequence[int] | None = None
    """Indices of the GPUs that the run held; None: all recorded."""
    expected_gpus: int | None = None
    """How many GPUs there must be: those without a sensor are uncovered."""
    has_gpus: bool = False
    """Whether there are GPUs, even if none was recorded."""
    model: str = ""
    """Name of the GPUs, if no sensor states it."""


def node_window(blocks: Iterable[Block]) -> Window | None:
    """First and last sample time of a node over all its sensors; None without samples.

    Stamps that a clock running forward cannot have made do not count.
    """
    spans = [block.ends_s for block in blocks if block.ends_s is not None]
    return (float(np.min(spans)), float(np.max(spans))) if spans else None


def sensors_of(blocks: Iterable[Block], period_s: float | None = None) -> list[Sensor]:
    """Sensors of all blocks."""
    return [Sensor(row, block, i, period_s) for block in blocks for i, row in enumerate(block.rows)]


def node_kinds(facts: NodeFacts, blocks: Iterable[Block]) -> list[KindEnergy]:
    """Energies of gpu, cpu, ram and, if there are any, unused_gpu and node of one node.

    If the node's meter is all that there is, nothing is expected or estimated of its parts.
    """
    blocks = _as_named(blocks, facts.model)
    sensors = [s for s in sensors_of(blocks, facts.period_s) if s.row.quantity != "utilisation"]
    recorded = {sensor.row.kind for sensor in sensors}
    if recorded == {NODE}:
        facts = NodeFacts(facts.name, facts.window, facts.period_s)
    kinds = []
    for kind in (*DEVICE_KINDS, NODE) if NODE in recorded else DEVICE_KINDS:
        of_kind = [sensor for sensor in sensors if sensor.row.kind == kind]
        flags: list[Flag] = []
        if not of_kind:
            estimates, flags = _estimates(kind, blocks, facts.powers.get(kind))
            of_kind = sensors_of(estimates, facts.period_s)
        devices, of_others = _devices(kind, of_kind, facts)
        used = devices
        if kind == "gpu" and facts.used_gpus is not None:
            used = [device for device in devices if device.row.index in facts.used_gpus]
        kinds.append(_kind_energy(kind, used, [*flags, *of_others], facts))
        if unused := [device for device in devices if device not in used]:
            kinds.append(_kind_energy(UNUSED_GPU, unused, [], facts))
    return kinds


def _as_named(blocks: Iterable[Block], model: str) -> list[Block]:
    """Blocks with what the name of their GPUs tells, where a sensor states none that of `model`.

    A power's samples are those of GPUs of its name, and the counter of a module is one of the node.
    """
    named = []
    for block in blocks:
        sensors = block.sensors
        names = sensors["device"].where(sensors["device"] != "", model)
        of_gpu = (sensors["kind"] == "gpu") & (names != "")
        unknown = of_gpu & (sensors["quantity"] == "power") & (sensors["samples"] == "")
        is_module = of_gpu & (sensors["quantity"] == "counter") & names.str.contains(MODULE)
        if (unknown | is_module).any():
            samples = names.map(lambda name: gpu_quantity(name) or "")
            sensors = sensors.assign(
                samples=sensors["samples"].mask(unknown, samples),
                kind=sensors["kind"].mask(is_module, NODE),
            )
            flags = (
                flag("second_sensor", name, _MODULE_DETAIL) for name in sensors["name"][is_module]
            )
            block = replace(block, sensors=sensors, flags=(*block.flags, *flags))
        named.append(block)
    return named


def _estimates(
    kind: str, blocks: Sequence[Block], rated: Mapping[str, Any] | None
) -> tuple[list[Block], list[Flag]]:
    """Estimated powers of the devices of a kind, from the rated power and the load."""
    if not rated or not blocks:
        return [], []
    if kind == "ram":
        return [estimated_ram(max(blocks, key=lambda block: block.time_s.size), rated)], []
    if kind == "cpu":
        load, flags = node_utilisation(blocks)
        return [] if load is None else [estimated_cpu(load, rated)], flags
    return [estimated_gpus(load, rated) for load in loads_of(blocks, "gpu")], []


# --- the sensor that counts -----------------------------------------------------------------------


def _devices(
    kind: str, sensors: Sequence[Sensor], facts: NodeFacts
) -> tuple[list[Sensor], list[Flag]]:
    """The sensor that counts of each device of a kind, and flags of the others."""
    counted: list[Sensor] = []
    flags: list[Flag] = []
    for _, group in groupby(sorted(sensors, key=_preference), lambda sensor: sensor.row.index):
        of_device = [*group]
        first = of_device[0]
        if kind == "gpu" and first.row.quantity == "counter":
            first = next((s for s in of_device if _counts_more(first, s, facts.window)), first)
        for sensor in of_device:
            flags += _second(first, sensor, facts) if sensor is not first else []
        # A die whose counter repeats another's of its socket.
        same = next((other for other in counted if _mirrors(first, other)), None)
        if same is None:
            counted.append(first)
        else:
            detail = f"not added: it repeats {same.row.name}, the counter of the whole socket"
            flags.append(flag("duplicate", first.row.name, detail))
    return counted, flags


def _preference(sensor: Sensor) -> tuple[int, bool, bool, bool, bool, str]:
    """Key that sorts the sensors of a device by how far they are to be trusted."""
    row = sensor.row
    unsure = any(f["code"] == "assumed" and f["device"] == row.name for f in sensor.block.flags)
    is_power = row.name.endswith("_POWER")
    return row.index, unsure, row.totals, row.quantity != "counter", not is_power, row.name


def _counts_more(counter: Sensor, power: Sensor, window: Window) -> bool:
    """Whether a GPU's counter has so much more than its power that it must be that of a whole module."""
    if power.row.quantity == "counter":
        return False
    counted_j, power_j, _ = _energies(counter, power, window)
    return counted_j > (1 + tolerance_of(power.validated.power_w)) * power_j


def _energies(first: Sensor, other: Sensor, window: Window) -> tuple[float, float, float]:
    """Energies in J of two sensors over the time in s that both have; 0 if one of them is not known then."""
    sensors = (first, other)
    if any(sensor.row.totals or not sensor.curve.time_s.size for sensor in sensors):
        return 0.0, 0.0, 0.0
    begin = max(window[0], *(float(sensor.curve.time_s[0]) for sensor in sensors))
    end = max(begin, min(window[1], *(float(sensor.curve.time_s[-1]) for sensor in sensors)))
    if any(_covered_s([s], (begin, end)) < (1 - MAX_UNCOVERED) * (end - begin) for s in sensors):
        return 0.0, 0.0, 0.0
    first_j, other_j = (float(sensor.curve.between(begin, end)) for sensor in sensors)
    return first_j, other_j, end - begin


def tolerance_of(power_w: Floats) -> float:
    """Relative tolerance of a power that was read now and then, by the spread of its readings."""
    known_w = power_w[np.isfinite(power_w)]
    if known_w.size < 2 or known_w.mean() <= 0:
        return MAX_DIFFERENCE
    error_w = known_w.std(ddof=1) / np.sqrt(known_w.size)
    return max(MAX_DIFFERENCE, SIGMAS * float(error_w / known_w.mean()))


def _second(first: Sensor, other: Sensor, facts: NodeFacts) -> list[Flag]:
    """Flag a second sensor of a device, and both values if they disagree."""
    name = first.row.name
    flags = [flag("second_sensor", other.row.name, f"not added: {name} is counted")]
    first_j, other_j, seconds = _energies(first, other, facts.window)
    if abs(first_j - other_j) > MAX_DIFFERENCE * max(first_j, other_j):
        detail = (
            f"{facts.name}: {other_j:.0f} J over {seconds:.0f} s, but {name}, which counts, {first_j:.0f} J: "
            "one of them measures more than the device, or less"
        )
        flags.append(flag("disagrees", other.row.name, detail))
    return flags


def _mirrors(die: Sensor, first: Sensor) -> bool:
    """Whether a die's counter repeats another's of its socket, read at most MIRROR_S later."""
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
    kind: str, devices: Sequence[Sensor], flags: Sequence[Flag], facts: NodeFacts
) -> KindEnergy:
    """Energy of the devices of a kind, of which some or all may lack a sensor."""
    rated = facts.powers.get(part_of(kind)) or {}
    expected = facts.expected_gpus if kind == "gpu" else None
    # What the run held exists, with or without a sensor.
    exists = bool(rated) and expected != 0
    exists |= kind == "gpu" and (bool(facts.used_gpus) or facts.has_gpus)
    if expected is not None and len(devices) != expected and (devices or exists):
        detail = f"{facts.name}: power of {len(devices)} GPUs, {expected} expected"
        flags = [*flags, flag("device_count", None, detail)]
    if not devices and exists:
        detail = (
            f"{facts.name}: there are {kind} devices, but neither power nor utilisation of them"
        )
        return KindEnergy(facts.name, kind, 0.0, (*flags, flag("not_recorded", None, detail)))
    if not devices:
        detail = f"{facts.name}: no {kind} sensor and nothing to estimate from"
        return KindEnergy(facts.name, kind, None, (*flags, flag("absent", None, detail)))
    return _measured(kind, devices, max(len(devices), expected or 0), flags, facts)


def _measured(
    kind: str, devices: Sequence[Sensor], count: int, flags: Sequence[Flag], facts: NodeFacts
) -> KindEnergy:
    """Energy of devices with a sensor, of `count` that there must be."""
    rated = facts.powers.get(part_of(kind)) or {}
    apart_s = sum(end - begin for begin, end in facts.uncounted)
    counted_s = facts.window[1] - facts.window[0] + facts.lost_s - apart_s
    covered_apart_s = sum(_covered_s(devices, span) for span in facts.uncounted)
    covered_s = _covered_s(devices, facts.window) - covered_apart_s
    coverage = min(covered_s / (count * counted_s), 1.0) if counted_s > 0 else float(apart_s > 0)
    most_w = _most_w(kind, devices, rated)
    flags = [*flags, *_sensor_flags(devices, facts)]
    if coverage < 1 - MAX_UNCOVERED:
        recorded_j = sum(float(device.curve.between(*facts.window)) for device in devices)
        detail = (
            f"{facts.name}: {100 * coverage:.1f} % of {counted_s:.1f} s of {kind} covered; "
            f"{recorded_j:.1f} J were recorded"
        )
        flags.append(flag("coverage", None, detail))
    of_sockets = kind == "cpu" and devices[0].row.origin == ESTIMATED and rated
    return KindEnergy(
        facts.name,
        kind,
        coverage,
        tuple(flags),
        tuple(devices),
        int(rated["sockets"]) if of_sockets else len(devices),
        count * counted_s,
        _resolved_s(devices, facts.period_s),
        uncounted_known=covered_apart_s >= (1 - MAX_UNCOVERED) * count * apart_s,
        most_w=most_w,
        lacking_w=(count - len(devices)) * max(most_w),
    )


def _most_w(kind: str, devices: Sequence[Sensor], rated: Mapping[str, Any]) -> tuple[float, ...]:
    """Most that each device can draw in W: if nothing tells, what its like drew or none exceeds."""
    rated_w = float(rated.get("rated_w") or rated.get("power_w") or 0.0)
    most_w = [max(device.most_w, rated_w) for device in devices]
    return tuple(w or max(most_w) or PLAUSIBLE_W[part_of(kind)] for w in most_w)


def _covered_s(devices: Iterable[Sensor], span: Window) -> float:
    return sum(float(device.curve.covered_s(*span)) for device in devices)


def _sensor_flags(devices: Sequence[Sensor], facts: NodeFacts) -> list[Flag]:
    """Flags of the sensors that count: from reading them, and of their samples."""
    flags: list[Flag] = []
    for device in devices:
        flags += (each for each in device.block.flags if each["device"] == device.row.name)
        flags += [*device.validated.flags, *_late_flags(device, facts)]
    return [{**each, "detail": f"{facts.name}: {each['detail']}"} for each in flags]


def _late_flags(device: Sensor, facts: NodeFacts) -> list[Flag]:
    """Flag a sensor whose samples begin or end much later or earlier than those of its node."""
    begin, end = facts.window
    first, last = device.block.ends_s or (begin, begin)
    longest_s = GAP_PERIODS * max(device.block.step_s, facts.period_s or 0.0) * (1 + 1e-6)
    missing_s = sum(s for s in (first - begin, end - last) if s > longest_s)
    if missing_s <= 0:
        return []
    detail = (
        f"no samples for {missing_s:.1f} s at the beginning or the end of the recording: uncovered"
    )
    return [flag("recording_short", device.row.name, detail)]


def _resolved_s(devices: Sequence[Sensor], declared_s: float | None) -> float:
    """Longest sampling period in s; of GPUs no less than what their sensors may average over."""
    longest = [max(block.step_s, declared_s or 0.0) for block in _blocks(devices)]
    totals = _blocks(device for device in devices if device.row.totals)
    longest += [float(np.diff(block.time_s).max(initial=0.0)) for block in totals]
    if any(d.row.kind == "gpu" and d.row.origin != ESTIMATED for d in devices):
        longest.append(MEAN_OVER_S)
    return max(longest)


def shared_kinds(
    kinds: Iterable[KindEnergy],
    shared_s: float,
    others: Sequence[str] = (),
    knows_gpus: bool = False,
) -> list[KindEnergy]:
    """Kinds of a node on which other runs were measured for `shared_s` at the same time: unknown.

    Their energies cannot be separated, but for those of GPUs if it is known which are this run's
    (`knows_gpus`). `others` names them in the flag `node_shared`.
    """
    who = ", ".join(others) or "another run"
    shared = []
    for kind in kinds:
        known = knows_gpus and part_of(kind.device_kind) == "gpu"
        detail = f"{kind.node}: {who} measured on the node for {shared_s:.1f} s of this run"
        detail += "; its GPUs are known, and count with all that was done on them" if known else ""
        flags = (*kind.flags, flag("node_shared", None, detail))
        shared.append(replace(kind, shared=not known, flags=flags) if kind.devices else kind)
    return shared
