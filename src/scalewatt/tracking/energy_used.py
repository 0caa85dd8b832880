"""What a campaign has used so far: kWh and GPU hours of finished, unfinished and abandoned runs.

A finished run counts by its energy table, staging included, whatever the protocol. What has none yet counts
by its samplers' running totals, lost work too, or is accounted for as the energy step will do it. Working
directories whose spec the campaign no longer has count as well, and so do measurements that were set aside;
idle probes do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Device, powers
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.account import Run, account, segment_numbers
from scalewatt.energies.node import MAX_UNCOVERED
from scalewatt.energies.tables import ENERGY_SCHEMA, EnergyTotals
from scalewatt.monitoring.sampler import TOTAL_EVERY_S, read_total
from scalewatt.recordings.journal import journal_files, last_stamps
from scalewatt.recordings.stages import read_stages
from scalewatt.recordings.terms import DEVICE_KINDS, ESTIMATED, J_PER_KWH, MEASURED, SIMULATED
from scalewatt.results.tables.frames import read_checked
from scalewatt.run_files.inventory import Inventory, Published, began_s, json_object
from scalewatt.run_files.record import description_path, read_segments

Powers = Callable[[str, str], dict[str, Any]]
"""Rated powers of a device, by its name and that of the run, which messages name."""
ORIGINS = [MEASURED, ESTIMATED, SIMULATED]
CURRENT, SUPERSEDED = "current", "superseded"
DAMAGED = (OSError, pa.ArrowException, InputError)
MOST_BEHIND, MOST_BEHIND_S = 0.01, 2 * TOTAL_EVERY_S
"""By how much a total may be older than its journal, as a share of it and in s; else the journal counts."""

Use = dict[str, Any]
"""kWh of a measurement by energy origin, `gpu_h`, and `known`: whether that is all."""
NOTHING: Use = {"known": True}
UNKNOWN: Use = {"known": False}


def energy_used(
    campaign: Campaign, results: Path, inventory: Inventory, rated: Powers
) -> pd.DataFrame:
    """Energy that each measurement of a campaign has used so far, as far as it was recorded.

    `results` is the campaign's folder, `rated` gives the rated powers of a spec's device. Nodes that two
    runs shared count for both. Columns: `key` and `name` of the run, `part` (current or superseded),
    `kwh` and its parts by energy origin (NaN: nothing was recorded), `gpu_h`, and `known`, false if more was
    used than was recorded.
    """
    rows = [*_runs(results, inventory, rated)]
    used = pd.DataFrame(rows, columns=["key", "name", "part", "known", "gpu_h", *ORIGINS])
    used = used.astype({"known": bool, "gpu_h": float, **dict.fromkeys(ORIGINS, float)})
    is_left = ~used["key"].isin(_current_keys(campaign, inventory.published))
    used.loc[(used["part"] == CURRENT) & is_left, "part"] = SUPERSEDED
    return used.assign(kwh=used[ORIGINS].sum(axis=1, min_count=1))


def energy_sums(used: pd.DataFrame) -> dict[str, Any]:
    """Sums over all measurements, by their keys in the status."""
    return {
        "energy_kwh": float(used["kwh"].sum()),
        "energy_kwh_by_origin": used[ORIGINS].sum(min_count=1).dropna().to_dict(),
        "energy_unknown_runs": [*used.loc[~used["known"], "name"].unique()],
        "superseded_energy_kwh": float(used.loc[used["part"] == SUPERSEDED, "kwh"].sum()),
        "gpu_hours": float(used["gpu_h"].sum()),
    }


def check_budget(
    campaign: Campaign, devices: Mapping[str, Device], results: Path, work: Path, spec: RunSpec
) -> None:
    """Raise InputError if the campaign's budget is used up; `results` and `work` are its folders."""
    budget_kwh = campaign.energy_budget_kwh
    if budget_kwh is None:
        return
    used = energy_used(campaign, results, Inventory.of(results, work), powers_of(devices))
    used_kwh = used["kwh"].sum()
    if used_kwh >= budget_kwh:
        raise InputError(
            f"{spec.name}: the campaign's energy budget is used up: {used_kwh:.6g} of {budget_kwh:g} kWh; "
            "what was submitted goes on, nothing else is (energy_budget_kwh of the campaign file)"
        )


def powers_of(devices: Mapping[str, Device]) -> Powers:
    """Function to the rated powers of a cluster's device; null for a device that it lacks."""
    nothing: dict[str, Any] = dict.fromkeys(DEVICE_KINDS)
    return lambda device, _: powers(devices[device]) if device in devices else nothing


def _current_keys(campaign: Campaign, published: Mapping[tuple[str, int], Published]) -> set[str]:
    """Run keys of all that the campaign asks for; registered runs are known by their results."""
    runs = campaign.whole.runs()
    if campaign.registered:
        return {published[run].key for run in runs if run in published}
    return {run_spec(campaign.whole, *run).key for run in runs}


# --- measurements ---------------------------------------------------------------------------------


def _runs(results: Path, inventory: Inventory, rated: Powers) -> Iterator[Use]:
    """Yield what finished, unfinished and superseded measurements have used, each once."""
    finished = {run.work_name for run in inventory.published.values()}
    for run in inventory.published.values():
        table = results / "energy" / run.configuration / f"{run.repeat}.parquet"
        name = f"{run.configuration} repeat {run.repeat}"
        yield {"key": run.key, "name": name, "part": CURRENT, **_use(run.folder, rated, table)}

    at_work = set()
    for key, path in ((key, path) for key, paths in inventory.working.items() for path in paths):
        at_work.add((path.name, began_s(read_segments(path))))
        if path.name not in finished:
            configuration, repeat, _ = key.rsplit("-", 2)
            name = f"{configuration} repeat {repeat}"
            yield {"key": key, "name": name, "part": CURRENT, **_use(path, rated)}

    for run in inventory.superseded:
        # What still has its working directory was counted by that.
        if run.began_s is None or (run.work_name, run.began_s) not in at_work:
            kept = run.folder.parent
            name = f"{run.configuration} repeat {run.repeat}, superseded measurement {kept.name}"
            use = _use(run.folder, rated, kept / "energy.parquet")
            yield {"key": run.key, "name": name, "part": SUPERSEDED, **use}


def _use(folder: Path, rated: Powers, table: Path | None = None) -> Use:
    """Use of a run by its energy table; by the recordings in its folder if there is none yet."""
    try:
        spec = read_spec(folder / "spec.json")
        if table is not None:
            with suppress(*DAMAGED):
                return _accounted_use(read_checked(table, ENERGY_SCHEMA).to_pandas(), spec.gpus)
        run = recorded_run(folder, spec, rated)
        is_published = (folder / "provenance.json").exists()
        if not (is_published or segment_numbers(run.recordings)):
            # A run that got beyond its start-up has used what nothing recorded.
            stages = {"startup", *(run.events["stage"].to_pylist() if run.events else ())}
            return NOTHING if stages == {"startup"} else UNKNOWN
        return _summed_use(run, spec.gpus) or _accounted_use(account(run).energy, spec.gpus)
    except DAMAGED:
        return UNKNOWN


def _accounted_use(energy: pd.DataFrame, gpus: int) -> Use:
    """Use by a table of energies; of an energy that may not be stated, what was recorded counts."""
    totals = EnergyTotals(energy, with_staging=True)
    joules = totals.in_scope.groupby("energy_origin")["recorded_j"].sum()
    kwh = {str(origin): float(j) / J_PER_KWH for origin, j in joules.items()}
    gpu_h = gpus * totals.runtime_s / 3600
    return {"known": totals.joules() is not None, "gpu_h": gpu_h, **kwh}


def recorded_run(folder: Path, spec: RunSpec, rated: Powers) -> Run:
    """A run's folder as the accounting reads it, published or not."""
    provenance, events = json_object(folder / "provenance.json"), folder / "events.parquet"
    if not provenance:  # as far as the accounting needs it
        numbers = [row["segment"] for row in read_segments(folder)]
        notes = [json_object(description_path(folder, number)) for number in numbers]
        ranks = zip(numbers, (note.get("ranks") for note in notes), strict=True)
        devices = [note["torch_device"] for note in notes if "torch_device" in note]
        provenance = {
            "torch_device": devices[-1] if devices else None,
            "segments": [{"segment": number, "ranks": of_segment} for number, of_segment in ranks],
        }
        events = folder / "events.jsonl"
    try:
        stages = read_stages(events, unended=True) if events.exists() else None
    except DAMAGED:
        stages = None
    return Run(folder, spec.as_json(), rated(spec.device, spec.name), provenance, stages)


# --- the samplers' totals -------------------------------------------------------------------------


def _summed_use(run: Run, gpus: int) -> Use | None:
    """Use that the samplers have added up; None if that lacks a part of a node, segment or kind."""
    files = journal_files(run.recordings)
    nodes = [node_totals(run, segment, journals) for segment, journals in files.items()]
    if not nodes or any(node is None for node in nodes):
        return None
    devices = pd.concat(nodes, ignore_index=True)
    # What no sensor saw, of a rated kind or in a segment, is estimated or flagged by the accounting.
    rated = {kind for kind in DEVICE_KINDS if run.powers.get(kind)}
    kinds = devices.groupby(["segment", "host"])["kind"].agg(set)
    segments = {row["segment"] for row in run.provenance.get("segments") or []}
    if segments - set(devices["segment"]) or not all(rated <= seen for seen in kinds):
        return None
    due_s = (MOST_BEHIND * devices["seconds"]).clip(upper=MOST_BEHIND_S)
    # The first and the last step of a counter may be open.
    least_s = (1 - MAX_UNCOVERED) * (devices["seconds"] - 2 * devices["period_s"])
    is_whole = (devices["behind_s"] <= due_s) & (devices["covered_s"] >= least_s)
    if not (is_whole & devices["joules"].notna()).all():
        return None
    seconds = devices.groupby("segment")["seconds"].max().sum()
    kwh = float(devices["joules"].sum()) / J_PER_KWH
    return {"known": True, "gpu_h": gpus * seconds / 3600, MEASURED: kwh}


def node_totals(run: Run, segment: int, journals: Mapping[str, Path]) -> pd.DataFrame | None:
    """Samplers' running totals of a segment by its journals; None if a node or a GPU that was held has none.

    A row for each device that the run held: kind, joules, covered_s, power_w, and segment, host, seconds,
    period_s, last_s (Unix s) of its node, and behind_s, by how much the total is older than the journal.
    """
    hosts = run.hosts_of(segment) or [*journals]
    if len(hosts) != len(journals) or not {*hosts} <= {*journals}:
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
            if not {*held} <= {*devices.loc[is_gpu, "index"]}:
                return None
            devices = devices[~is_gpu | devices["index"].isin(held)]
        node = {name: total[name] for name in ("host", "seconds", "period_s", "last_s")}
        behind_s = last[1] - total["mono"]  # by the clock that nobody sets
        frames.append(devices.assign(segment=segment, behind_s=behind_s, **node))
    return pd.concat(frames, ignore_index=True) if frames else None
