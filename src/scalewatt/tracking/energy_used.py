"""What a campaign has used so far: kWh and GPU hours of finished, unfinished and abandoned runs.

The energy of a finished run is that of its energy table, staging included, whatever the protocol.
What has none yet is counted from its journals, lost work too. A working directory whose spec the
campaign has no more counts as well, and so does a measurement that was set aside: it was used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.run_spec import read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.run_inputs import PlannedRun, Run
from scalewatt.energies.tables import (
    BOUNDS,
    LEAST_OF_A_NODE,
    MAX_UNCOVERED,
    EnergyTotals,
)
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.node_names import nodes_by_name
from scalewatt.recordings.stage_log import read_json_lines
from scalewatt.recordings.terms import J_PER_KWH
from scalewatt.run_files.inventory import (
    Published,
    WorkFolder,
    began_s,
    folders,
    json_object,
    published_runs,
    superseded_runs,
    work_folders,
)
from scalewatt.run_files.record import read_segments
from scalewatt.tracking.running_total import JournalSum, read_so_far

if TYPE_CHECKING:
    from scalewatt.energies.read import Powers

_NOTHING_RATED: dict[str, Any] = {"cpu": None, "gpu": None, "ram": None}


@dataclass(frozen=True)
class RunEnergy:
    """Energy and GPU time that one run, or one probe, has used so far."""

    joules: Mapping[str, float] = field(default_factory=dict)
    """By energy origin, as far as it was recorded."""
    gpu_s: float = 0.0
    """GPUs times recorded seconds."""
    known: bool = True
    """True if that is all; else more was used than was recorded."""
    bounds_j: tuple[float, float] = (0.0, 0.0)
    """The interval of all joules by what is estimated and not covered."""

    @property
    def kwh(self) -> float:
        """Return the kWh of all origins together."""
        return sum(self.joules.values()) / J_PER_KWH

    @property
    def bounds_kwh(self) -> tuple[float, float]:
        """Return the interval of `kwh`."""
        return self.bounds_j[0] / J_PER_KWH, self.bounds_j[1] / J_PER_KWH

    def __add__(self, other: RunEnergy) -> RunEnergy:
        origins = {*self.joules, *other.joules}
        joules = {o: self.joules.get(o, 0.0) + other.joules.get(o, 0.0) for o in origins}
        bounds = self.bounds_j[0] + other.bounds_j[0], self.bounds_j[1] + other.bounds_j[1]
        return RunEnergy(joules, self.gpu_s + other.gpu_s, self.known and other.known, bounds)


@dataclass(frozen=True)
class EnergyUsed:
    """Energy and GPU hours that a campaign has used so far."""

    kwh: float
    """At least: of `unknown_runs` only what was recorded is in it."""
    gpu_hours: float
    by_origin: Mapping[str, float]
    """kWh by energy origin."""
    unknown_runs: tuple[str, ...]
    """Runs that used more than was recorded, by configuration and repeat."""
    superseded_kwh: float = 0.0
    """The part of runs whose spec the campaign has no more, and of measurements that were set aside."""
    probes_kwh: float = 0.0
    """The part of idle probes."""
    bounds_kwh: tuple[float, float] = (0.0, 0.0)
    """The interval of `kwh` by what is estimated and not covered."""
    runs: Mapping[str, RunEnergy] = field(default_factory=dict)
    """By run key."""


def energy_used_kwh(
    campaign: Campaign,
    results: Path,
    work: Path,
    powers: Powers,
    published: Mapping[tuple[str, int], Published] | None = None,
    working: Mapping[str, Sequence[WorkFolder]] | None = None,
) -> EnergyUsed:
    """Return what a campaign has used so far.

    `results` and `work` are the campaign's own folders, `powers` gives the rated powers of a spec's
    device. `published` and `working` are what the folders hold, if they are known already.
    Nodes that two runs shared count for both.
    """
    published = published_runs(results) if published is None else published
    working = work_folders(work) if working is None else working
    rated = powers_or_none(powers)
    runs: dict[str, RunEnergy] = {}
    names: dict[str, str] = {}
    for key, name, energy in _runs(results, published, working, rated):
        runs[key] = runs.get(key, RunEnergy()) + energy
        names[key] = name
    probes = _probes(campaign, results, rated)
    current = _current_keys(campaign, published)
    whole = sum((*runs.values(), *probes.values()), RunEnergy())
    unknown = [names[key] for key, one in runs.items() if not one.known]
    return EnergyUsed(
        kwh=whole.kwh,
        gpu_hours=whole.gpu_s / 3600,
        by_origin={origin: joules / J_PER_KWH for origin, joules in whole.joules.items()},
        unknown_runs=(*unknown, *(name for name, one in probes.items() if not one.known)),
        superseded_kwh=sum(one.kwh for key, one in runs.items() if key not in current),
        probes_kwh=sum(one.kwh for one in probes.values()),
        bounds_kwh=whole.bounds_kwh,
        runs=runs,
    )


def _current_keys(campaign: Campaign, published: Mapping[tuple[str, int], Published]) -> set[str]:
    """Return the run keys of all that the campaign asks for; registered runs are known by their results."""
    campaign = campaign.whole
    runs = [(run.configuration.id, run.repeat) for run in campaign.runs()]
    if campaign.registered:
        return {published[run].key for run in runs if run in published}
    return {f"{c}-{r}-{run_spec(campaign, c, r).sha256[:12]}" for c, r in runs}


def _runs(
    results: Path,
    published: Mapping[tuple[str, int], Published],
    working: Mapping[str, Sequence[WorkFolder]],
    powers: Powers,
) -> Iterator[tuple[str, str, RunEnergy]]:
    """Yield key, name and energy of runs that are finished, at work or left, and set aside; each once."""
    counted = set()
    for run in published.values():
        table = results / "energy" / run.configuration / f"{run.repeat}.parquet"
        energy = _of_table(run, table)
        if energy is None and not working.get(run.key):
            energy = _without_new_table(run, table, powers)
        if energy is not None:
            counted.add(run.work_name)
            yield run.key, f"{run.configuration} repeat {run.repeat}", energy
    for folder in chain.from_iterable(working.values()):
        if folder.path.name not in counted:
            name = f"{folder.configuration} repeat {folder.repeat}"
            yield folder.key, name, _of_folder(folder.path, folder.spec_sha256, powers)
    for run in superseded_runs(results):
        if not _is_at_work(run, working):  # else it is counted with its working directory
            table, number = run.folder.parent / "energy.parquet", run.folder.parent.name
            name = f"{run.configuration} repeat {run.repeat}, superseded measurement {number}"
            energy = _of_table(run, table) or _without_new_table(run, table, powers)
            yield f"{run.key} superseded {number}", name, energy


def _is_at_work(run: Published, working: Mapping[str, Sequence[WorkFolder]]) -> bool:
    """Return True if a superseded measurement still has its working directory."""
    folders_ = (one for one in working.get(run.key, ()) if one.path.name == run.work_name)
    return run.began_s is not None and any(
        began_s(read_segments(one.path)) == run.began_s for one in folders_
    )


# --- finished runs ------------------------------------------------------------------------------


def _without_new_table(run: Published, path: Path, powers: Powers) -> RunEnergy:
    """Return what a finished run used whose table, if there is any, seems older than its results."""
    energy = _of_folder(run.folder, run.spec_sha256, powers)
    if energy.joules:
        return energy
    # A copy may have lost the times of files, and other tools' recordings have no journal.
    return _of_table(run, path, of_any_time=True) or replace(energy, known=False)


def _of_table(run: Published, path: Path, of_any_time: bool = False) -> RunEnergy | None:
    """Return what a run's energy table says; None if there is none as new as these results."""
    try:
        if path.stat().st_mtime_ns < run.mtime_ns and not of_any_time:
            return None
        totals = EnergyTotals(pq.read_table(path).to_pandas(), with_staging=True)
        gpu_s = read_spec(run.folder / "spec.json").gpus * totals.runtime_s
        rows = totals.in_scope
    except (OSError, pa.ArrowException, InputError, KeyError, TypeError, ValueError):
        return None
    if rows.empty:
        return RunEnergy(gpu_s=gpu_s, known=False)
    rows = rows.dropna(subset=["energy_origin", "recorded_j"])
    # Of an energy that may not be stated, what was recorded counts.
    low, high = (float(rows[name].fillna(rows["recorded_j"]).sum()) for name in BOUNDS)
    joules = _by_origin(rows["recorded_j"], rows["energy_origin"])
    return RunEnergy(joules, gpu_s, totals.total_j is not None, (low, high))


def _by_origin(joules: pd.Series, origins: pd.Series) -> dict[str, float]:
    return {str(origin): float(energy) for origin, energy in joules.groupby(origins).sum().items()}


# --- journals -----------------------------------------------------------------------------------


def _of_folder(folder: Path, sha256: str, powers: Powers) -> RunEnergy:
    """Count the journals of all segments of a run, the hash of whose spec begins with `sha256`."""
    try:
        spec = read_spec(folder / "spec.json")
    except InputError:
        return RunEnergy(known=False)
    if not spec.sha256.startswith(sha256):
        return RunEnergy(known=False)
    rated = powers(spec.device, spec.name)
    planned = PlannedRun.of(spec)
    sums: dict[int, list[JournalSum]] = {}
    known = True
    for number, journals in journal_files(folder / "perun").items():
        run = Run(folder, planned, rated, described_segment(folder, number), None)
        sums[number] = _sums(journals, run)
        hosts = {one.host for one in sums[number]}
        nodes = nodes_by_name(hosts, run.hostnames)
        known &= {nodes[host] for host in run.hostnames} <= {nodes[host] for host in hosts}
    known &= not _worked_without(folder, {number for number, found in sums.items() if found})
    return _run_energy(sums, spec.gpus, known)


def described_segment(folder: Path, segment: int) -> dict[str, Any]:
    """Return what a segment noted of its hosts and GPUs, as the accounting wants it."""
    description = json_object(folder / f"segment-{segment:03d}.json")
    try:
        if not description:
            description = json_object(folder / "provenance.json")
            run = Run(folder, PlannedRun(), {}, description, None)
            description = {**description, **run.held(segment), "hostnames": run.hosts_of(segment)}
        hosts = [str(host) for host in description.get("hostnames") or []]
        device = description.get("torch_device")
        held = {name: description.get(name) for name in ("gpus", "gpu_uuids")}
        return {**held, "torch_device": device, "hostnames": hosts}
    except (TypeError, AttributeError, KeyError):
        return {}


def _sums(journals: Mapping[str, Path], run: Run) -> list[JournalSum]:
    sums = (read_so_far(path, run) for path in journals.values())
    return [one for one in sums if one is not None]


def _worked_without(folder: Path, recorded: set[int]) -> bool:
    """Return True if a segment that was not recorded got beyond its start-up."""
    numbers = (one["segment"] for one in read_segments(folder))
    missing = {number for number in numbers if isinstance(number, int)} - recorded
    if not missing:
        return False
    try:
        marks = read_json_lines(folder / "events.jsonl")
    except (OSError, UnicodeDecodeError):
        return True
    return any(
        isinstance(mark, dict)
        and mark.get("segment") in missing
        and mark.get("stage") not in ("startup", None)
        for mark in marks
    )


def _run_energy(sums: Mapping[int, Sequence[JournalSum]], gpus: int, known: bool) -> RunEnergy:
    """Add up the journals of all segments; it is all if each device kind was covered, on each node."""
    journals = [one for segment in sums.values() for one in segment]
    if not journals:
        return RunEnergy(known=known)
    rows = pd.concat([one.kinds.assign(host=one.host) for one in journals])
    seconds = sum(max((one.seconds for one in segment), default=0.0) for segment in sums.values())
    known &= len({frozenset(one.kinds["kind"]) for one in journals}) == 1 and not rows.empty
    known &= _is_covered(rows, ["kind"], 1 - MAX_UNCOVERED)
    known &= _is_covered(rows, ["host", "kind"], LEAST_OF_A_NODE)
    bounds = float(rows["low_j"].sum()), float(rows["high_j"].sum())
    joules = _by_origin(rows["joules"], rows["origin"])
    return RunEnergy(joules, gpus * seconds, known, bounds)


def _is_covered(rows: pd.DataFrame, keys: list[str], least: float) -> bool:
    sums = rows.groupby(keys)[["covered_s", "device_s"]].sum()
    return bool((sums["covered_s"] >= least * sums["device_s"]).all())


def powers_or_none(powers: Powers) -> Powers:
    """Return `powers`, with nothing rated for a device that the cluster has not."""

    def of(device: str, run: str) -> dict[str, Any]:
        try:
            return powers(device, run)
        except (InputError, KeyError, TypeError):
            return _NOTHING_RATED

    return of


# --- idle probes --------------------------------------------------------------------------------


def _probes(campaign: Campaign, results: Path, powers: Powers) -> dict[str, RunEnergy]:
    """Return what the campaign's idle probes have used, by name; one that failed has left nothing."""
    if campaign.idle_probe is None:
        return {}
    found = {}
    for device in folders(results / "idle"):
        for folder in folders(device):
            name = f"idle probe of {device.name} repeat {folder.name}"
            found[name] = _of_probe(folder, powers(device.name, name))
    return found


def _of_probe(folder: Path, rated: dict[str, Any]) -> RunEnergy:
    probe = json_object(folder / "probe.json")
    held = {name: probe.get(name) for name in ("gpus", "gpu_uuids", "torch_device")}
    run = Run(folder, PlannedRun(nodes=1), rated, held, None)
    recordings = (folder / "perun", *folder.glob(".work/*/perun"))
    journals = next((files for path in recordings if (files := journal_files(path))), {})
    try:
        sums = {number: _sums(own, run) for number, own in journals.items()}
        gpus = sum(len(indices) for indices in (held["gpus"] or {}).values())
    except (TypeError, AttributeError):
        return RunEnergy(known=False)
    return _run_energy(sums, gpus, known=True)
