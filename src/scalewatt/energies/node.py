"""Energy of one node in one segment: a sensor for each device, its curve, and what it used by interval.

Of each device one sensor counts: a counter before a power, a measured one before an estimate. The window of a
node is [first, last sample] of all its sensors; nothing is extrapolated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalewatt.energies.estimate import (
    FACTOR,
    estimated_cpu,
    estimated_gpus,
    estimated_ram,
    is_load_of,
    node_utilisation,
)
from scalewatt.energies.integrate import (
    EnergyCurve,
    Validated,
    bounds,
    validate,
)
from scalewatt.energies.stages import STAGES, UNATTRIBUTED, StageIntervals
from scalewatt.energies.tables import MAX_UNCOVERED, PIECES, Pieces, nothing, pieces
from scalewatt.recordings.block import Block, select
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
)

UNUSED_GPU = "unused_gpu"
DISAGREE = 0.03
"""Relative difference of two sensors of one device from which on both values are stated."""
MIRROR_S = 0.005
"""Two counters of one socket are read within so many seconds."""
_MODULE = re.compile(r"\bG[HB]200\b")
"""GPUs whose counter is that of their module, with its CPU and memory."""
_DIE = re.compile(r"(package-\d+)-die-\d+")

Window = tuple[float, float]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Device:
    """A device, with the sensor that counts of it: a column of a block."""

    sensor: Any
    """Row of the block's frame of sensors."""
    block: Block
    column: int
    validated: Validated
    bounds: tuple[EnergyCurve, EnergyCurve] | None = None
    """Curves at the ends of an estimate's interval."""

    @property
    def curve(self) -> EnergyCurve:
        """Its energy curve."""
        return self.validated.curve

    @property
    def most_w(self) -> float:
        """Its power limit in W, or the largest power that it had; 0 if neither is known."""
        power_w = self.validated.power_w
        if self.sensor.origin == ESTIMATED:
            ends = self.block.bounds
            power_w = FACTOR * power_w if ends is None else ends[1][:, self.column]
        limit_w = 0.0 if np.isnan(self.sensor.limit_w) else self.sensor.limit_w
        return float(np.fmax.reduce(power_w, initial=limit_w))


@dataclass(frozen=True, eq=False)
class KindEnergy:
    """What the devices of one kind of a node used over its window."""

    node: str
    device_kind: str
    devices: tuple[Device, ...]
    count: int
    """How many devices (CPU sockets, memories, GPUs) the energy belongs to."""
    coverage: float | None
    """Share of `device_s` with a known power; None if the node has nothing of the kind."""
    flags: tuple[Flag, ...]
    device_s: float = 0.0
    """Device seconds of which the power should be known."""
    shared: bool = False
    """Whether another run was measured on the node at the same time, and cannot be told apart."""
    period_s: float = 0.0
    """What its samples resolve in time: the longest sampling period; 0 without any."""
    uncounted_known: bool = True
    """Whether the energy of the time that does not count may be stated."""
    lacking: int = 0
    """Devices that must be there and have no sensor: they are uncovered."""
    rated_w: float = 0.0
    """What a device draws at most by the cluster file; 0 if unknown."""

    @property
    def known(self) -> bool:
        """Whether the energy of this node in this segment may be stated by itself."""
        return not self.shared and self.coverage is not None and self.coverage >= 1 - MAX_UNCOVERED

    @property
    def origin(self) -> str | None:
        """measured, estimated or simulated; None without a device."""
        return self.devices[0].sensor.origin if self.devices else None

    def recorded_j(self, window: Window) -> float:
        """What was recorded between two times in J, whether or not that is enough to state."""
        return sum(float(device.curve.between(*window)) for device in self.devices)

    def bounds_j(self, window: Window) -> tuple[float, float]:
        """Interval of what all devices used between two times, as `intervals_j` has it."""
        _, low, high = self.intervals_j(StageIntervals.of_window(window))
        return float(low.sum()), float(high.sum() + self.lacking_w * (window[1] - window[0]))

    @cached_property
    def most_w(self) -> Floats:
        """Most that each device can draw in W, (devices,).

        That is its limit by the recording or the cluster file, or more where more was recorded; of an
        estimate the upper end. Where nothing tells, what its like drew, or what no such device exceeds.
        """
        most = np.array([max(device.most_w, self.rated_w) for device in self.devices])
        unknown = most.max(initial=0.0) or PLAUSIBLE_W[part_of(self.device_kind)]
        return np.where(most > 0, most, unknown)

    @property
    def lacking_w(self) -> float:
        """Most that the devices without a sensor can draw in W."""
        return self.lacking * float(self.most_w.max(initial=0.0)) if self.lacking else 0.0

    def intervals_j(
        self, intervals: StageIntervals, outside_s: float = 0.0
    ) -> tuple[Floats, Floats, Floats]:
        """Energy in J of each device in each interval, (devices, k), and both ends of it.

        The ends are what an estimate leaves open. In uncovered time a device used at least nothing, and at
        most `most_w`; `outside_s` is uncovered time outside of the intervals, put to the first one. Sums
        take it that the errors of all devices and nodes have the same sign.
        """
        shape = len(self.devices), intervals.start_s.size

        def each(values: Iterable[Floats]) -> Floats:
            return np.array([*values], dtype=np.float64).reshape(shape)

        curves = [device.curve for device in self.devices]
        energies = low = high = each(map(intervals.energy_j, curves))
        if any(device.bounds for device in self.devices):
            ends = [device.bounds or (device.curve, device.curve) for device in self.devices]
            low, high = (each(intervals.energy_j(pair[i]) for pair in ends) for i in (0, 1))
        uncovered = each(map(intervals.uncovered_s, curves))
        uncovered[:, :1] += outside_s
        return energies, low, high + self.most_w[:, None] * uncovered

    @property
    def described(self) -> list[Row]:
        """Index, sensor and uuid of each device."""
        rows = (device.sensor for device in self.devices)
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
        """What each device used in each stage of each epoch, as PIECES; `lost`: span of discarded work.

        `unrecorded_s` is how long the run was at work outside of the recording: what it can have used then
        is put to the first interval.
        """
        seconds, group = stage_seconds(intervals)
        if not self.devices:
            return nothing(seconds)
        count, size = len(self.devices), seconds["stage"].size

        def summed(values: Floats) -> Floats:
            sums = np.zeros((size, len(values)))
            np.add.at(sums, group, values.T)
            return sums.T.ravel()

        energies = self.intervals_j(intervals, unrecorded_s)
        discarded = np.zeros(count * size)
        if lost[0] < lost[1]:
            discarded = summed(self.intervals_j(intervals.within(*lost))[0])
        covered = np.array([intervals.covered_s(device.curve) for device in self.devices])
        samples, outside = _samples(self.devices, intervals, group, size)
        made = {name: np.tile(values, count) for name, values in seconds.items()}
        made |= zip(("recorded_j", "low_j", "high_j"), map(summed, energies), strict=True)
        made |= {"device": np.repeat(np.arange(count), size), "samples": samples.ravel()}
        made |= {"covered_s": summed(covered), "discarded_j": discarded}
        rows = [pieces(**made), *(pieces(**each) for each in outside)]
        if self.lacking:
            expected_s = intervals.seconds.copy()
            expected_s[:1] += unrecorded_s
            rows.append(pieces(**seconds, high_j=summed(self.lacking_w * expected_s[None])))
        found = {name: np.concatenate([each[name] for each in rows]) for name in PIECES}
        return {**found, **self._short(found, intervals)}

    def _short(self, found: Pieces, intervals: StageIntervals) -> Pieces:
        """Columns `short_s` and `short_epoch` of pieces."""
        short_s = np.full(len(STAGES), np.nan)
        for stage, length_s in intervals.short_stages(self.period_s).items():
            short_s[STAGES.index(stage)] = length_s
        short = {
            (-1 if epoch is None else epoch, STAGES.index(stage))
            for epoch, stage in intervals.short_epochs(self.period_s)
        }
        keys = zip(found["epoch"].tolist(), found["stage"].tolist(), strict=True)
        return {
            "short_s": short_s[found["stage"]],
            "short_epoch": np.array([key in short for key in keys], dtype=np.bool_),
        }


def part_of(kind: str) -> str:
    """gpu of the GPUs that the run did not hold, any other kind as it is."""
    return kind.removeprefix("unused_")


def stage_seconds(intervals: StageIntervals) -> tuple[Pieces, NDArray[np.intp]]:
    """`stage`, `epoch` and `duration_s` of the different ones of k intervals, and which each is of, (k,)."""
    stages = np.array([STAGES.index(stage) for stage in intervals.stage], dtype=np.int64)
    epochs = np.array([-1 if e is None else e for e in intervals.epoch], dtype=np.int64)
    keys, group = np.unique(epochs * len(STAGES) + stages, return_inverse=True)
    seconds = np.bincount(group, weights=intervals.seconds, minlength=keys.size)
    epochs, stages = np.divmod(keys, len(STAGES))
    return {"stage": stages, "epoch": epochs, "duration_s": seconds}, group


def _samples(
    devices: Sequence[Device], intervals: StageIntervals, group: NDArray[np.intp], size: int
) -> tuple[NDArray[np.intp], list[Row]]:
    """Samples of each device in each group, (devices, size), and a piece for those outside of the window."""
    of_block: dict[int, NDArray[np.intp]] = {}
    for block in {id(device.block): device.block for device in devices}.values():
        if (inside := intervals.counts(block.time_s)) is None:
            place = np.searchsorted(intervals.start_s, block.time_s, side="right")
            place[block.time_s > intervals.end_s[-1]] = len(group) + 1
            inside = np.bincount(place, minlength=len(group) + 2)
        sums = np.bincount(group, weights=inside[1:-1], minlength=size)
        of_block[id(block)] = sums.astype(np.intp)
    counts = np.array([of_block[id(device.block)] for device in devices])
    left = [device.block.time_s.size - counts[i].sum() for i, device in enumerate(devices)]
    outside = {"stage": STAGES.index(UNATTRIBUTED), "outside": True}
    return counts, [{**outside, "device": i, "samples": n} for i, n in enumerate(left) if n]


@dataclass(frozen=True)
class _Facts:
    """What is known of a node beside its sensors."""

    window: Window
    lost_s: float
    """Known run time outside of the recording."""
    uncounted: tuple[Window, ...]
    """Spans in the window that do not count."""
    period_s: float | None
    powers: Mapping[str, Any]

    @property
    def uncounted_s(self) -> float:
        return sum(end - begin for begin, end in self.uncounted)

    @property
    def counted_s(self) -> float:
        return self.window[1] - self.window[0] + self.lost_s - self.uncounted_s


def node_window(blocks: Iterable[Block]) -> Window | None:
    """First and last sample time of a node over all its sensors; None without samples.

    Stamps that a clock running forward cannot have made do not count.
    """
    ends = [block.ends_s for block in blocks if block.ends_s is not None]
    if not ends:
        return None
    return min(first for first, _ in ends), max(last for _, last in ends)


def node_kinds(
    node: str,
    blocks: Sequence[Block],
    *,
    powers: Mapping[str, Any],
    period_s: float | None,
    used_gpus: Sequence[int] | None = None,
    expected_gpus: int | None = None,
    has_gpus: bool = False,
    lost_s: float = 0.0,
    window: Window | None = None,
    uncounted: Sequence[Window] = (),
    model: str | None = None,
) -> list[KindEnergy]:
    """Energies of gpu, cpu, ram and, if there are any, unused_gpu and node of one node.

    If the node's meter is all that there is, nothing is expected or estimated of its parts.

    `used_gpus` are the indices that the run held (None: all recorded), `expected_gpus` how many
    there must be (`has_gpus`: there are some, even if none was recorded); a GPU that should be
    there and is not counts as uncovered. `lost_s` is known run time outside of the node's
    recording, uncovered for every kind. `window` is the time that counts (None: all that was
    recorded), but for the spans `uncounted` in it. `model` is the name of the GPUs, if no sensor states it.
    """
    facts = _Facts(
        window or node_window(blocks) or (0.0, 0.0), lost_s, tuple(uncounted), period_s, powers
    )
    sensors, of_modules = _modules(sensors_of(blocks), model)
    powers_of = {each.row.kind for each in sensors if each.row.quantity != "utilisation"}
    metered = any(each.row.kind == NODE for each in sensors)
    if metered and powers_of.isdisjoint(DEVICE_KINDS):
        facts, used_gpus, expected_gpus, has_gpus = replace(facts, powers={}), None, None, False
    kinds = []
    for kind in (*DEVICE_KINDS, NODE) if metered else DEVICE_KINDS:
        found, own = _chosen(kind, blocks, sensors, facts)
        own += of_modules if kind == NODE else []
        unused: list[Device] = []
        if kind == "gpu" and used_gpus is not None:
            unused = [device for device in found if device.sensor.index not in used_gpus]
            found = [device for device in found if device.sensor.index in used_gpus]
        # What the run held exists, with or without a sensor.
        expected = expected_gpus if kind == "gpu" else None
        exists = bool(facts.powers.get(kind)) and expected != 0
        exists |= kind == "gpu" and (bool(used_gpus) or has_gpus)
        if expected is not None and len(found) != expected and (found or exists):
            detail = f"{node}: power of {len(found)} GPUs, {expected} expected"
            own.append(flag("device_count", None, detail))
        if found:
            kinds.append(_measure(node, kind, found, own, facts, expected))
        else:
            kinds.append(_without_sensor(node, kind, own, exists))
        if unused:
            kinds.append(_measure(node, UNUSED_GPU, unused, [], facts, None))
    return kinds


class Sensor(NamedTuple):
    """A column of a block."""

    row: Any
    """Row of the block's frame of sensors."""
    block: Block
    column: int


def sensors_of(blocks: Iterable[Block]) -> list[Sensor]:
    """Sensors of all blocks."""
    return [Sensor(row, block, column) for block in blocks for column, row in enumerate(block.rows)]


def _modules(sensors: list[Sensor], model: str | None) -> tuple[list[Sensor], list[Flag]]:
    """Make the counters of whole modules those of the node, if their GPUs have a power too.

    `model`: name of the GPUs, if the sensors state none.
    """
    gpus = [
        s.row
        for s in sensors
        if s.row.kind == "gpu" and _MODULE.search(s.row.device or model or "")
    ]
    powers = {row.index for row in gpus if row.quantity in ("power", "mean_power")}
    modules = {row.name for row in gpus if row.quantity == "counter" and row.index in powers}
    detail = "counts the whole module with its CPU and memory: it is a meter of the node"
    flags = [flag("second_sensor", name, detail) for name in sorted(modules)]
    return [_of_node(s) if s.row in gpus and s.row.name in modules else s for s in sensors], flags


def _of_node(sensor: Sensor) -> Sensor:
    """The sensor of a GPU as one of the node."""
    kinds = sensor.block.sensors["kind"].where(
        sensor.block.sensors["name"] != sensor.row.name, NODE
    )
    block = replace(sensor.block, sensors=sensor.block.sensors.assign(kind=kinds))
    return Sensor(sensor.row._replace(kind=NODE), block, sensor.column)


def _chosen(
    kind: str, blocks: Sequence[Block], sensors: Sequence[Sensor], facts: _Facts
) -> tuple[list[Device], list[Flag]]:
    """A sensor for each device of a kind, measured if there is any, else estimated."""
    of_kind = [s for s in sensors if s.row.kind == kind and s.row.quantity != "utilisation"]
    if not of_kind:
        estimated, flags = _estimated(kind, blocks, facts.powers)
        found = {sensor.row.index: sensor for sensor in sensors_of(estimated)}
        return [_device(found[index], facts) for index in sorted(found)], flags
    best: dict[int, Device] = {}
    flags = []
    for sensor in sorted(of_kind, key=_preference):
        device = _device(sensor, facts)
        if (first := best.setdefault(sensor.row.index, device)) is not device:
            flags += _second(first, device, facts.window)
    devices = [best[index] for index in sorted(best)]
    return _without_mirrors(devices, flags) if kind == "cpu" else (devices, flags)


def _preference(sensor: Sensor) -> tuple[bool, bool, bool, bool, str]:
    row = sensor.row
    unsure = any(f["code"] == "assumed" and f["device"] == row.name for f in sensor.block.flags)
    is_power = row.name.endswith("_POWER")
    return unsure, row.totals, row.quantity != "counter", not is_power, row.name


def _device(sensor: Sensor, facts: _Facts) -> Device:
    checked = validate(sensor.block, sensor.column, facts.period_s)
    ends = None
    if sensor.row.origin == ESTIMATED:
        ends = bounds(sensor.block, sensor.column, checked.curve, facts.period_s)
    return Device(*sensor, checked, ends)


def _second(first: Device, other: Device, window: Window) -> list[Flag]:
    """Flag a second sensor of a device, and both values if they disagree."""
    names = first.sensor.name, other.sensor.name
    flags = [flag("second_sensor", names[1], f"not added: {names[0]} is counted")]
    begin, end = _common(first, other, window)
    if end <= begin or first.sensor.totals or other.sensor.totals:
        return flags
    known = all(
        d.curve.covered_s(begin, end) >= (1 - MAX_UNCOVERED) * (end - begin) for d in (first, other)
    )
    ours, theirs = (float(d.curve.between(begin, end)) for d in (first, other))
    if known and abs(ours - theirs) > DISAGREE * max(ours, theirs):
        detail = (
            f"{first.block.node}: {names[0]} {ours:.0f} J, which counts, and {names[1]} {theirs:.0f} J over "
            f"the same {end - begin:.0f} s: one of them measures more than the device, or less"
        )
        flags.append(flag("disagrees", names[1], detail))
    return flags


def _common(first: Device, other: Device, window: Window) -> Window:
    times = [d.curve.time_s for d in (first, other)]
    if not all(time.size for time in times):
        return 0.0, 0.0
    begin = max(window[0], *(float(time[0]) for time in times))
    return begin, min(window[1], *(float(time[-1]) for time in times))


def _without_mirrors(devices: list[Device], flags: list[Flag]) -> tuple[list[Device], list[Flag]]:
    """Leave out counters of dies that repeat another die's of their socket, read a moment later."""
    kept: list[Device] = []
    for device in devices:
        same = next((first for first in kept if _mirrors(device, first)), None)
        if same is None:
            kept.append(device)
        else:
            detail = f"not added: it repeats {same.sensor.name}, the counter of the whole socket"
            flags.append(flag("duplicate", device.sensor.name, detail))
    return kept, flags


def _mirrors(device: Device, first: Device) -> bool:
    """Whether the energies of two dies never differ by more than MIRROR_S of their power."""
    sockets = [_DIE.search(each.sensor.name) for each in (device, first)]
    if not all(sockets) or len({match[1] for match in sockets if match}) > 1:
        return False
    time = device.curve.time_s
    inside = (time >= first.curve.time_s[:1]) & (time <= first.curve.time_s[-1:])
    if np.count_nonzero(inside) < 10:
        return False
    ours, theirs = device.curve.energy_j[inside], first.curve.between(-np.inf, time[inside])
    difference = (ours - ours[0]) - (theirs - theirs[0])
    power = np.diff(ours) / np.diff(time[inside])
    return bool(np.abs(difference).max() <= 2 * MIRROR_S * power.max())


def _estimated(
    kind: str, blocks: Sequence[Block], powers: Mapping[str, Any]
) -> tuple[list[Block], list[Flag]]:
    """Estimated powers of the devices of a kind, from the rated power and the load."""
    rated = powers.get(kind)
    if not rated:
        return [], []
    if kind == "ram":
        axis = max(blocks, key=lambda block: block.time_s.size, default=None)
        return [] if axis is None else [estimated_ram(axis, rated)], []
    if kind == "cpu":
        load, flags = node_utilisation(blocks)
        return [] if load is None else [estimated_cpu(load, rated)], flags
    loads = (select(block, is_load_of(block.sensors, "gpu")) for block in blocks)
    return [estimated_gpus(load, rated) for load in loads if len(load.sensors)], []


def _measure(
    node: str,
    kind: str,
    devices: Sequence[Device],
    flags: Sequence[Flag],
    facts: _Facts,
    expected: int | None,
) -> KindEnergy:
    """Energy of devices with a sensor."""
    own: list[Flag] = []
    for device in devices:
        own += (f for f in device.block.flags if f["device"] == device.sensor.name)
        own += [*device.validated.flags, *_late_flags(device, facts)]
    flags = [*flags, *({**each, "detail": f"{node}: {each['detail']}"} for each in own)]
    curves = [device.curve for device in devices]
    count = max(len(devices), expected or 0)
    device_s, apart_s = count * facts.counted_s, count * facts.uncounted_s
    covered_apart_s = sum(float(c.covered_s(*span)) for c in curves for span in facts.uncounted)
    covered_s = sum(float(c.covered_s(*facts.window)) for c in curves) - covered_apart_s
    coverage = min(covered_s / device_s, 1.0) if device_s > 0 else float(facts.uncounted_s > 0)
    if coverage < 1 - MAX_UNCOVERED:
        recorded = sum(float(curve.between(*facts.window)) for curve in curves)
        detail = (
            f"{node}: {100 * coverage:.1f} % of {facts.counted_s:.1f} s of {kind} covered; "
            f"{recorded:.1f} J were recorded"
        )
        flags.append(flag("coverage", None, detail))
    sockets = len(devices)
    if kind == "cpu" and devices[0].sensor.origin == ESTIMATED and facts.powers.get("cpu"):
        sockets = int(facts.powers["cpu"]["sockets"])
    rated = facts.powers.get(part_of(kind)) or {}
    return KindEnergy(
        node,
        kind,
        tuple(devices),
        sockets,
        coverage,
        tuple(flags),
        device_s,
        period_s=_resolved_s(devices, facts.period_s),
        uncounted_known=covered_apart_s >= (1 - MAX_UNCOVERED) * apart_s,
        lacking=count - len(devices),
        rated_w=float(rated.get("rated_w") or rated.get("power_w") or 0.0),
    )


def _resolved_s(devices: Sequence[Device], declared_s: float | None) -> float:
    """Longest sampling period in s; of GPUs no less than what their sensors may average over."""
    blocks = {id(device.block): device.block for device in devices}.values()
    longest = [max(block.step_s, declared_s or 0.0) for block in blocks]
    longest += [
        float(np.diff(device.block.time_s).max(initial=0.0))
        for device in devices
        if device.sensor.totals
    ]
    if any(d.sensor.kind == "gpu" and d.sensor.origin != ESTIMATED for d in devices):
        longest.append(MEAN_OVER_S)
    return max(longest)


def _late_flags(device: Device, facts: _Facts) -> list[Flag]:
    """Flag a sensor whose samples begin or end much later or earlier than those of its node."""
    begin, end = facts.window
    own = device.block.ends_s
    missing = end - begin
    if own is not None:
        outside = max(own[0] - begin, 0.0), max(end - own[1], 0.0)
        if not any(outside):
            return []
        period_s = max(device.block.step_s, facts.period_s or 0.0)
        longest = GAP_PERIODS * period_s * (1 + 1e-6)
        missing = min(sum(s for s in outside if s > longest), missing)
    if missing <= 0:
        return []
    detail = f"no samples for {missing:.1f} s at the beginning or the end of the recording"
    return [flag("recording_short", device.sensor.name, f"{detail}: uncovered")]


def _without_sensor(node: str, kind: str, flags: list[Flag], exists: bool) -> KindEnergy:
    """Energy of a kind that used energy, but it is not known how much; or that is out of scope (`absent`)."""
    if exists:
        detail = f"{node}: there are {kind} devices, but neither power nor utilisation of them"
        return KindEnergy(node, kind, (), 0, 0.0, (*flags, flag("not_recorded", None, detail)))
    detail = f"{node}: no {kind} sensor and nothing to estimate from"
    return KindEnergy(node, kind, (), 0, None, (*flags, flag("absent", None, detail)))


def shared_kinds(
    kinds: Sequence[KindEnergy], shared_s: float, others: Sequence[str] = (), own_gpus: bool = False
) -> list[KindEnergy]:
    """Kinds of a node on which other runs were measured for `shared_s` at the same time: unknown.

    Their energies cannot be separated, but for those of GPUs if it is known which are this run's
    (`own_gpus`). `others` names them in the flag `node_shared`.
    """
    return [_shared(kind, shared_s, others, own_gpus) if kind.devices else kind for kind in kinds]


def _shared(kind: KindEnergy, shared_s: float, others: Sequence[str], own_gpus: bool) -> KindEnergy:
    who = ", ".join(others) or "another run"
    detail = f"{kind.node}: {who} measured on the node for {shared_s:.1f} s of this run"
    known = own_gpus and part_of(kind.device_kind) == "gpu"
    if known:
        detail += "; its own GPUs are known, and count with all that was done on them"
    return replace(kind, shared=not known, flags=(*kind.flags, flag("node_shared", None, detail)))
