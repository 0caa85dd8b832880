"""What a campaign has used so far: kWh and GPU hours of finished, unfinished and abandoned runs.

A finished run counts by its energy table, staging included, whatever the protocol. What has none yet counts
by its samplers' running totals, lost work too, or is accounted for as the energy step will do it. Working
directories whose spec the campaign no longer has count as well, and so do measurements that were set aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Device, powers
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.account import account
from scalewatt.energies.node import MAX_UNCOVERED
from scalewatt.energies.segments import PlannedRun, Run, segment_numbers
from scalewatt.energies.tables import BOUNDS, ENERGY_SCHEMA, EnergyTotals
from scalewatt.monitoring.running_total import TOTAL_EVERY_S, read_total
from scalewatt.recordings.journal import journal_files, last_stamps
from scalewatt.recordings.node_names import same_node
from scalewatt.recordings.stages import read_stages
from scalewatt.recordings.terms import DEVICE_KINDS, J_PER_KWH, MEASURED
from scalewatt.results.tables.read_table import read_checked
from scalewatt.run_files.inventory import (
    Inventory,
    Published,
    WorkFolder,
    began_s,
    folders,
    json_object,
)
from scalewatt.run_files.record import description_path, read_segments

if TYPE_CHECKING:
    from scalewatt.energies.read import Powers

MOST_BEHIND, MOST_BEHIND_S = 0.01, 2 * TOTAL_EVERY_S
"""By how much a total may be older than its journal, as a share of it and in s; else the journal counts."""
DAMAGED = (OSError, pa.ArrowException, InputError)
_NOTHING_RATED: dict[str, Any] = dict.fromkeys(DEVICE_KINDS)


@dataclass(frozen=True)
class Use:
    """What one measurement has used so far."""

    joules: Mapping[str, float] = field(default_factory=dict)
    """By energy origin, as far as it was recorded."""
    bounds_j: tuple[float, float] = (0.0, 0.0)
    """Interval of all joules, by what is estimated and not covered."""
    gpu_s: float = 0.0
    """GPUs times recorded seconds."""
    known: bool = True
    """Whether that is all; else more was used than was recorded."""


UNKNOWN = Use(known=False)


@dataclass(frozen=True, eq=False)
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
    """Part of runs that the campaign no longer has, and of measurements that were set aside."""
    probes_kwh: float = 0.0
    """Part of idle probes."""
    bounds_kwh: tuple[float, float] = (0.0, 0.0)
    """Interval of `kwh` by what is estimated and not covered."""
    runs: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Columns kwh, low_kwh, high_kwh, known, by run key; kwh is NaN if nothing was recorded."""


def energy_used(
    campaign: Campaign, results: Path, inventory: Inventory, rated: Powers
) -> EnergyUsed:
    """What a campaign has used so far.

    `results` is the campaign's folder, `rated` gives the rated powers of a spec's device. Nodes that two
    runs shared count for both.
    """
    runs = [*_runs(results, inventory, rated)]
    probes = [*_probes(campaign, results, rated)]
    uses = [use for _, _, use in (*runs, *probes)]
    joules = pd.DataFrame([use.joules for use in uses], dtype=float)
    table = pd.DataFrame(
        {
            "key": [key for key, _, _ in (*runs, *probes)],
            "kwh": joules.sum(axis=1, min_count=1) / J_PER_KWH,
            "low_kwh": [use.bounds_j[0] / J_PER_KWH for use in uses],
            "high_kwh": [use.bounds_j[1] / J_PER_KWH for use in uses],
            "known": [use.known for use in uses],
        }
    )
    is_probe = table.index >= len(runs)
    is_superseded = ~is_probe & ~table["key"].isin(_current_keys(campaign, inventory.published))
    names = dict.fromkeys(name for _, name, use in (*runs, *probes) if not use.known)
    kwh = ["kwh", "low_kwh", "high_kwh"]
    by_run = table[~is_probe].groupby("key")
    return EnergyUsed(
        kwh=float(table["kwh"].sum()),
        gpu_hours=sum(use.gpu_s for use in uses) / 3600,
        by_origin={str(o): float(j) / J_PER_KWH for o, j in joules.sum().items()},
        unknown_runs=tuple(names),
        superseded_kwh=float(table["kwh"][is_superseded].sum()),
        probes_kwh=float(table["kwh"][is_probe].sum()),
        bounds_kwh=(float(table["low_kwh"].sum()), float(table["high_kwh"].sum())),
        runs=by_run[kwh].sum(min_count=1).join(by_run["known"].all()),
    )


def check_budget(
    campaign: Campaign, devices: Mapping[str, Device], results: Path, work: Path, spec: RunSpec
) -> None:
    """Raise InputError if the campaign's budget is used up; `results` and `work` are its folders."""
    budget_kwh = campaign.energy_budget_kwh
    if budget_kwh is None:
        return
    inventory = Inventory.of(results, work)
    used_kwh = energy_used(campaign, results, inventory, powers_of(devices)).kwh
    if used_kwh >= budget_kwh:
        raise InputError(
            f"{spec.name}: the campaign's energy budget is used up: {used_kwh:.6g} of {budget_kwh:g} kWh; "
            "what was submitted goes on, nothing else is (energy_budget_kwh of the campaign file)"
        )


def powers_of(devices: Mapping[str, Device]) -> Powers:
    """Function to the rated powers of a cluster's device; of one that it does not have none are known."""
    return lambda device, _: powers(devices[device]) if device in devices else _NOTHING_RATED


def _current_keys(campaign: Campaign, published: Mapping[tuple[str, int], Published]) -> set[str]:
    """Run keys of all that the campaign asks for; registered runs are known by their results."""
    runs = [(run.configuration.id, run.repeat) for run in campaign.whole.runs()]
    if campaign.registered:
        return {published[run].key for run in runs if run in published}
    return {run_spec(campaign.whole, *run).key for run in runs}


# --- measurements ---------------------------------------------------------------------------------


def _runs(results: Path, inventory: Inventory, rated: Powers) -> Iterator[tuple[str, str, Use]]:
    """Key, name and use of runs that are finished, at work or left, and set aside; each once."""
    counted, working = set(), inventory.working
    for run in inventory.published.values():
        use = _of_published(
            run, results / "energy" / run.configuration / f"{run.repeat}.parquet", rated
        )
        if use.joules or run.key not in working:
            counted.add(run.work_name)
            yield run.key, f"{run.configuration} repeat {run.repeat}", use
    for folder in chain.from_iterable(working.values()):
        if folder.path.name not in counted:
            name = f"{folder.configuration} repeat {folder.repeat}"
            yield folder.key, name, _of_folder(folder.path, folder.spec_sha256, rated)
    for run in inventory.superseded:
        if not _is_at_work(run, working):  # else it counts by its working directory
            number = run.folder.parent.name
            name = f"{run.configuration} repeat {run.repeat}, superseded measurement {number}"
            table = run.folder.parent / "energy.parquet"
            yield f"{run.key} superseded {number}", name, _of_published(run, table, rated)


def _is_at_work(run: Published, working: Mapping[str, list[WorkFolder]]) -> bool:
    """True if a superseded measurement still has its working directory."""
    same = (each.path for each in working.get(run.key, ()) if each.path.name == run.work_name)
    return run.began_s is not None and any(began_s(read_segments(p)) == run.began_s for p in same)


def _of_published(run: Published, table: Path, rated: Powers) -> Use:
    """What a finished run used, by its energy table; by its recordings where that is not there yet."""
    try:
        spec = read_spec(run.folder / "spec.json")
        return _of_table(read_checked(table, ENERGY_SCHEMA).to_pandas(), spec.gpus)
    except DAMAGED:
        return _of_folder(run.folder, run.spec_sha256, rated)


def _of_table(energy: pd.DataFrame, gpus: int) -> Use:
    """What a table of energies states; of an energy that may not be stated, what was recorded counts."""
    totals = EnergyTotals(energy, with_staging=True)
    rows = totals.in_scope.dropna(subset=["energy_origin", "recorded_j"])
    low, high = (float(rows[name].fillna(rows["recorded_j"]).sum()) for name in BOUNDS)
    by_origin = rows.groupby("energy_origin")["recorded_j"].sum()
    joules = {str(origin): float(joules) for origin, joules in by_origin.items()}
    return Use(joules, (low, high), gpus * totals.runtime_s, totals.total_j is not None)


def _of_folder(folder: Path, sha256: str, rated: Powers) -> Use:
    """What the recordings in a run's folder state, the hash of whose spec begins with `sha256`."""
    try:
        spec = read_spec(folder / "spec.json")
        if not spec.sha256.startswith(sha256):
            return UNKNOWN
        run = recorded_run(folder, spec, rated)
        is_published = (folder / "provenance.json").exists()
        if not (is_published or segment_numbers(run.recordings) or _has_worked(run)):
            return Use()
        return _of_totals(run, spec.gpus) or _of_table(account(run).energy, spec.gpus)
    except DAMAGED:
        return UNKNOWN


def _has_worked(run: Run) -> bool:
    """Whether a segment got beyond its start-up."""
    stages = set(run.events["stage"].to_pylist()) if run.events else set()
    return bool(stages - {"startup"})


def recorded_run(folder: Path, spec: RunSpec, rated: Powers) -> Run:
    """A run's folder as the accounting reads it, published or not."""
    planned, powers_w = PlannedRun.of(spec), rated(spec.device, spec.name)
    if provenance := json_object(folder / "provenance.json"):
        events = folder / "events.parquet"
    else:
        provenance, events = _described(folder), folder / "events.jsonl"
    try:
        stages = read_stages(events, own=True) if events.exists() else None
    except DAMAGED:
        stages = None
    return Run(folder, planned, powers_w, provenance, stages)


def _described(folder: Path) -> dict[str, Any]:
    """The provenance of a run that is not published, as far as the accounting needs it."""
    numbers = [row["segment"] for row in read_segments(folder)]
    notes = {number: json_object(description_path(folder, number)) for number in numbers}
    segments = [{"segment": number, "ranks": note.get("ranks")} for number, note in notes.items()]
    devices = [note["torch_device"] for note in notes.values() if "torch_device" in note]
    return {"torch_device": devices[-1] if devices else None, "segments": segments}


def _probes(campaign: Campaign, results: Path, rated: Powers) -> Iterator[tuple[str, str, Use]]:
    """Key, name and use of the campaign's idle probes; a probe that failed has left nothing."""
    if campaign.idle_probe is None:
        return
    for device in folders(results / "idle"):
        for folder in folders(device):
            name = f"idle probe of {device.name} repeat {folder.name}"
            yield name, name, _of_probe(folder, rated(device.name, name))


def _of_probe(folder: Path, powers_w: dict[str, Any]) -> Use:
    probe = json_object(folder / "probe.json")
    held = {name: probe.get(name) for name in ("gpus", "gpu_uuids", "torch_device")}
    try:
        gpus = sum(len(indices) for indices in (held["gpus"] or {}).values())
        for recordings in (folder, *folder.glob(".work/*")):
            if journal_files(recordings / "perun"):
                run = Run(recordings, PlannedRun(nodes=1), powers_w, held, None)
                return _of_totals(run, gpus) or _of_table(account(run).energy, gpus)
    except DAMAGED:
        return UNKNOWN
    return Use()


# --- the samplers' totals -------------------------------------------------------------------------


def _of_totals(run: Run, gpus: int) -> Use | None:
    """What the samplers of a run have added up; None where that is not all of a node, segment or kind."""
    files = journal_files(run.recordings)
    nodes = [node_totals(run, segment, journals) for segment, journals in files.items()]
    if not nodes or any(node is None for node in nodes):
        return None
    devices = pd.concat(nodes, ignore_index=True)
    needed = {kind for kind in DEVICE_KINDS if run.powers.get(kind)}
    kinds = devices.groupby(["segment", "host"])["kind"].agg(set)
    segments = {row["segment"] for row in run.provenance.get("segments") or []}
    if segments - set(devices["segment"]) or not all(needed <= of_node for of_node in kinds):
        return None
    due_s = (MOST_BEHIND * devices["seconds"]).clip(upper=MOST_BEHIND_S)
    # The first and the last step of a counter may be open.
    least_s = (1 - MAX_UNCOVERED) * (devices["seconds"] - 2 * devices["period_s"])
    is_whole = (devices["behind_s"] <= due_s) & (devices["covered_s"] >= least_s)
    if not (is_whole & devices["joules"].notna()).all():
        return None
    joules = float(devices["joules"].sum())
    seconds = devices.groupby("segment")["seconds"].max().sum()
    return Use({MEASURED: joules}, (joules, joules), float(gpus * seconds))


def node_totals(run: Run, segment: int, journals: Mapping[str, Path]) -> pd.DataFrame | None:
    """Samplers' running totals of a segment by its journals; None if a node has none.

    A row for each device that the run held: kind, joules, covered_s, power_w (NaN of a GPU that no sensor
    saw), and segment, host, seconds, period_s, last_s (Unix s) of its node, and behind_s, by how much the
    total is older than the journal.
    """
    hosts = run.hosts_of(segment) or [*journals]
    if len(hosts) != len(journals) or not all(same_node(host, journals) for host in hosts):
        return None
    frames = []
    for path in journals.values():
        total, last = read_total(path), last_stamps(path)
        if total is None or last is None:
            return None
        sums = ["joules", "covered_s", "power_w"]
        devices = pd.DataFrame(total["sensors"], columns=["kind", "index", "uuid", *sums])
        devices = devices.astype(dict.fromkeys(sums, "float64"))  # null in all rows, too
        is_gpu = devices["kind"] == "gpu"
        pairs = devices.loc[is_gpu, ["index", "uuid"]].itertuples(index=False)
        held = run.used_gpus(total["host"], pairs, segment)
        if held is not None:
            seen = devices.loc[is_gpu, "index"]
            unseen = pd.DataFrame({"kind": "gpu", "index": sorted({*held} - {*seen})})
            devices = devices[~is_gpu | devices["index"].isin(held)]
            devices = pd.concat([devices, unseen]) if len(unseen) else devices
        node = {name: total[name] for name in ("host", "seconds", "period_s", "last_s")}
        behind_s = last[1] - total["mono"]  # by the clock that nobody sets
        frames.append(devices.assign(segment=segment, behind_s=behind_s, **node))
    return pd.concat(frames, ignore_index=True) if frames else None
