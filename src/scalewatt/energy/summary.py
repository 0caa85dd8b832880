"""What a recording says, whoever made it: a perun file, a journal, or the folder of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from scalewatt.energy.account import NodeAccount, Run, node_accounts, run_segments
from scalewatt.energy.conditions import read_conditions
from scalewatt.energy.journal import read_journal
from scalewatt.energy.node import UNUSED_GPU, KindEnergy
from scalewatt.energy.perun_file import list_runs, open_perun_file
from scalewatt.energy.rows import Known
from scalewatt.energy.samples import DEVICE_KINDS, J_PER_KWH, Flag, Recording, flag
from scalewatt.energy.segments import Segment, open_segment, segment_numbers
from scalewatt.energy.stages import STAGES, read_events, segment_events
from scalewatt.errors import InputError
from scalewatt.files import read_json

_NUMBER = re.compile(r"segment-(\d+)")
# Without stages it does not matter when a recording was made.
_ABOUT_CLOCKS = {"clock_from_execution_dt", "clock_unknown"}


def read_recording(path: Path | str, run_id: str | None = None) -> Recording:
    """Read a perun HDF5 file or, if the content begins like one, a journal, all of it at once."""
    if is_journal(path):
        return read_journal(path)
    with open_perun_file(path, run_id) as recording:
        return replace(recording, nodes=dict(recording.nodes))


def is_journal(path: Path | str) -> bool:
    """Whether a file's content begins like a journal."""
    try:
        with open(path, "rb") as handle:
            begin = handle.read(16)
    except OSError:
        return False
    return begin.lstrip().startswith((b'{"t"', b'{"journal"', b'{"mono"'))


def describe(
    path: Path | str,
    run_id: str | None = None,
    stages: Path | None = None,
    gpus_per_node: int | None = None,
    powers: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the energy of one recording by device kind, device and stage, ready for JSON.

    Absent is None. A total is None where one of its parts is recorded but may not be stated; what
    was recorded of it stands in `recorded_energy_kwh`. `runtime_s` is the longest of the hosts,
    summed over segments, `coverage` the smallest of a kind. `stages`: a file of stage events;
    `gpus_per_node`: how many GPUs each node must have recorded. Of a run folder all segments count,
    with the run's own stages, and `powers` may give the rated powers of its spec's device, to
    estimate from where nothing was measured. Raises InputError.
    """
    path = Path(path)
    events = read_events(stages) if stages else None
    if path.is_dir():
        return {"path": str(path), **_of_folder(path, events, gpus_per_node, powers)}
    with _opened(path, run_id) as segment:
        run = _unknown_run(path, segment, events, gpus_per_node)
        summary = _Summary()
        summary.flags += segment.flags
        for node in node_accounts(run, segment, _events_of(events, path), {}):
            summary.add(node)
        if events is None:
            summary.flags = [f for f in summary.flags if f["code"] not in _ABOUT_CLOCKS]
        summary.flags += _without_samples(segment.hosts, summary.hosts)
        record = segment.record
        named = {"run": record.run_id, "round": record.round_id} if record else {}
    return {"path": str(path), **named, **summary.result(), **_others(path, run_id)}


@contextmanager
def _opened(path: Path, run_id: str | None) -> Iterator[Segment]:
    """Open a file as if it were the only segment of a run."""
    if is_journal(path):
        journal = read_journal(path)
        beside = path.with_suffix(".conditions")
        conditions, doubts = read_conditions([beside] if beside.exists() else [])
        flags = (*journal.problems, *doubts)
        yield Segment(0, None, journal, tuple(conditions), flags, alone=True)
        return
    with open_perun_file(path, run_id) as record:
        yield Segment(0, record, None, (), record.problems)


def _unknown_run(
    path: Path, segment: Segment, events: pa.Table | None, gpus_per_node: int | None
) -> Run:
    """A run of which nothing is known but its recording."""
    spec = {"nodes": len(segment.hosts), "ranks_per_node": gpus_per_node}
    return Run(path.parent, spec, {}, {}, events)


def _events_of(events: pa.Table | None, path: Path) -> list[dict[str, Any]]:
    """Return the events of a file's segment, by its name; all, where it has no such name."""
    found = _NUMBER.search(path.name)
    if events is None:
        return []
    if found:
        return segment_events(events, int(found.group(1)))
    rows = events.set_column(0, "segment", pa.array([0] * len(events), pa.int32()))
    return segment_events(rows, 0)


def _of_folder(
    folder: Path,
    events: pa.Table | None,
    gpus_per_node: int | None,
    powers: Callable[[dict[str, Any]], dict[str, Any]] | None,
) -> dict[str, Any]:
    """Describe all segments of a run folder, or of a folder with a segment's files in it."""
    spec_path = folder / "spec.json"
    known = read_json(spec_path) if spec_path.exists() else {}
    run = Run.of(folder, known, powers(known) if powers and known else {})
    if events is not None:
        run = replace(run, events=events)
    if gpus_per_node is not None:
        run = replace(run, spec={**known, "ranks_per_node": gpus_per_node})
    if not segment_numbers(run.recordings):
        raise InputError(
            f"{folder}: holds no recording of a run; expected perun/segment-000.hdf5 or "
            "perun/segment-000.<host>.journal"
        )
    summary = _Summary()
    ends: dict[str, float] = {}
    numbers, idle = run_segments(run)
    summary.flags += idle
    for number in numbers:
        with open_segment(run.recordings, number) as segment:
            summary.flags += segment.flags
            for node in node_accounts(run, segment, segment_events(run.events, number), ends):
                summary.add(node, number)
            summary.flags += _without_samples(segment.hosts, summary.hosts)
    return {"segments": numbers, **summary.result()}


def _others(path: Path, run_id: str | None) -> dict[str, Any]:
    """Return the runs of a file that holds several, so that one of them can be asked for."""
    if run_id is not None or is_journal(path):
        return {}
    runs = list_runs(path)
    if len(runs) < 2:
        return {}
    return {
        "runs": [
            {"run": one.run_id, "rounds": list(one.round_ids), "started": one.execution_dt}
            for one in runs
        ]
    }


def _without_samples(hosts: Iterable[str], recorded: Iterable[str]) -> list[Flag]:
    return [flag("no_samples", None, f"{h}: no samples") for h in hosts if h not in set(recorded)]


class _Summary:
    """Adds up the nodes of a recording."""

    def __init__(self) -> None:
        self.flags: list[Flag] = []
        self.hosts: list[str] = []
        self._kinds: list[KindEnergy] = []
        self._times: dict[int, float] = {}
        self._recorded: dict[str, float] = dict.fromkeys((*DEVICE_KINDS, UNUSED_GPU), 0.0)
        self._known = Known()
        self._scope: set[str] = set()
        self._device_s: dict[str, float] = {}
        self._devices: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._stages: dict[str, dict[str, Any]] = {}
        self._epochs: dict[int, dict[str, Any]] = {}

    def add(self, node: NodeAccount, segment: int = 0) -> None:
        """Add one node of one segment."""
        if node.node not in self.hosts:
            self.hosts.append(node.node)
        self._times[segment] = max(self._times.get(segment, 0.0), node.length_s)
        self.flags += node.flags
        for kind in node.kinds:
            self._kinds.append(kind)
            self._known.add(kind)
            if kind.series:
                self._add_kind(kind, node)

    def _add_kind(self, kind: KindEnergy, node: NodeAccount) -> None:
        name = kind.device_kind
        self._scope.add(name)
        self._recorded[name] += kind.recorded_j(node.window)
        for series, curve in zip(kind.series, kind.curves, strict=True):
            covered = float(curve.covered_s(*node.window))
            self._device_s[name] = self._device_s.get(name, 0.0) + covered
            row = self._devices.setdefault(
                (kind.node, name, series.sensor),
                {
                    "node": kind.node,
                    "device_kind": name,
                    "device_index": series.device_index,
                    "device": series.sensor,
                    "uuid": series.uuid,
                    "recorded_j": 0.0,
                    "covered_s": 0.0,
                    "window_s": 0.0,
                    "samples": 0,
                },
            )
            row["recorded_j"] += float(curve.between(*node.window))
            row["covered_s"] += covered
            row["window_s"] += node.length_s
            row["samples"] += int(series.time_s.size)
        if name in DEVICE_KINDS:
            self._add_stages(kind, node)

    def _add_stages(self, kind: KindEnergy, node: NodeAccount) -> None:
        energies = kind.intervals_j(node.intervals)
        for stage, energy in node.intervals.by_stage(energies).items():
            _count(self._stages.setdefault(stage, {"stage": stage}), kind, energy)
        for (epoch, _), energy in node.intervals.by_epoch(energies).items():
            if epoch is not None:
                _count(self._epochs.setdefault(epoch, {"epoch": epoch}), kind, energy)

    def result(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        scope = [kind for kind in DEVICE_KINDS if kind in self._scope]
        coverages = [self._known.coverage(kind) for kind in scope]
        flags = [*self.flags, *_kind_flags(self._kinds)]
        if not scope:
            detail = "no sensor of power or energy was recorded, and nothing is estimated"
            flags.append(flag("no_power_sensors", None, detail))
        totals = {"": scope, **{f"{kind}_": [kind] for kind in (*DEVICE_KINDS, UNUSED_GPU)}}
        energies = {prefix: self._energy_j(kinds) for prefix, kinds in totals.items()}
        return {
            **{f"{prefix}energy_kwh": _kwh(energy) for prefix, energy in energies.items()},
            **{f"{prefix}energy_j": energy for prefix, energy in energies.items()},
            "recorded_energy_kwh": _kwh(sum(self._recorded[k] for k in scope)) if scope else None,
            **{
                f"{kind}_mean_power_w": _ratio(self._energy_j([kind]), self._device_s.get(kind))
                for kind in DEVICE_KINDS
            },
            "energy_scope": "+".join(scope) or None,
            "runtime_s": sum(self._times.values()) if self._times else None,
            "hosts": sorted(self.hosts),
            "gpus": sum(1 for _, kind, _ in self._devices if kind == "gpu"),
            "origin": self._origin(),
            "coverage": min(coverages, default=None),
            "flags": _once(flags),
            "devices": [
                _device_row(row, self._known(row["device_kind"])) for row in self._devices.values()
            ],
            "stages": [
                self._part(self._stages[s])
                for s in STAGES
                if s in self._stages and len(self._stages) > 1
            ],
            "epochs": [self._part(self._epochs[epoch]) for epoch in sorted(self._epochs)],
        }

    def _part(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the energies of a stage or an epoch, as far as they may be stated."""
        found = {k: row[f"{k}_energy_j"] for k in DEVICE_KINDS if f"{k}_energy_j" in row}
        stated = {f"{k}_energy_j": e if self._known(k) else None for k, e in found.items()}
        whole = None if None in stated.values() else sum(found.values())
        return row | stated | {"energy_j": whole}

    def _origin(self) -> str | None:
        counted = (kind for kind in self._kinds if kind.device_kind in DEVICE_KINDS)
        origins = {kind.origin for kind in counted if kind.origin is not None}
        return origins.pop() if len(origins) == 1 else ("mixed" if origins else None)

    def _energy_j(self, kinds: Sequence[str]) -> float | None:
        if not kinds or not all(kind in self._scope and self._known(kind) for kind in kinds):
            return None
        return sum(self._recorded[kind] for kind in kinds)


def _count(row: dict[str, Any], kind: KindEnergy, energy_j: float) -> None:
    """Add a kind's recorded energy to its own in a row."""
    name = f"{kind.device_kind}_energy_j"
    row[name] = row.get(name, 0.0) + energy_j


def _kind_flags(kinds: Sequence[KindEnergy]) -> list[Flag]:
    """Return the flags of all kinds; each names its host, because sensor names repeat.

    A kind that no host has is no doubt; one that only some have is.
    """
    flags = []
    present = {kind.device_kind for kind in kinds if kind.series}
    for kind in kinds:
        for one in kind.flags:
            if one["code"] == "absent" and kind.device_kind not in present:
                continue
            detail = one["detail"]
            if not detail.startswith(f"{kind.node}:"):
                detail = f"{kind.node}: {detail}"
            flags.append({**one, "detail": detail})
    return flags


def _once(flags: Sequence[Flag]) -> list[Flag]:
    return list({(f["code"], f["device"], f["detail"]): f for f in flags}.values())


def _device_row(row: dict[str, Any], known: bool) -> dict[str, Any]:
    energy = row["recorded_j"] if known else None
    coverage = _ratio(row["covered_s"], row["window_s"])
    return {
        **{k: row[k] for k in ("node", "device_kind", "device_index", "device", "uuid")},
        "energy_j": energy,
        "energy_kwh": _kwh(energy),
        "recorded_j": row["recorded_j"],
        "mean_power_w": _ratio(row["recorded_j"], row["covered_s"]),
        "coverage": min(coverage or 0.0, 1.0),
        "samples": row["samples"],
    }


def _kwh(energy_j: float | None) -> float | None:
    return None if energy_j is None else energy_j / J_PER_KWH


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None
