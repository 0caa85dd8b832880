"""A campaign at a glance, from its files alone: what each run does, how far it is, what was used.

Works while jobs run and without any of them: nothing is waited for but one answer of squeue, and nothing is
written. Files may change or vanish while they are read, and may be damaged: what cannot be read is null.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.tables import records
from scalewatt.events import EVENTS_FILE, HISTORY_FILE
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.stage_log import final_reports, read_json_lines
from scalewatt.run_files.inventory import Inventory, last_used_s
from scalewatt.run_files.record import read_position, read_progress, read_segments
from scalewatt.slurm.job_queue import Queue, job_of_run, queued_jobs
from scalewatt.slurm.slurm_commands import NoAnswerError
from scalewatt.tracking.changed_files import changed_files
from scalewatt.tracking.energy_used import (
    CURRENT,
    DAMAGED,
    energy_sums,
    energy_used,
    node_totals,
    powers_of,
    recorded_run,
)
from scalewatt.tracking.run_state import STATES, Row, run_state

if TYPE_CHECKING:
    from scalewatt.energies.read import Powers

STALE_S = 30.0
"""A running total that is older than this, or than ten sampling periods, says nothing of now."""
UNDER_WAY = (
    *("segment", "updates", "epoch", "epochs", "step", "steps", "stage", "samples_per_s"),
    *("progress_written_s", "power_w", "left_s"),
)
"""Columns that mostly a running run has values of."""


@dataclass(frozen=True, eq=False)
class Status:
    """What a campaign does, by the keys that docs/status.md explains: times in Unix s, unknown is null."""

    campaign: dict[str, Any]
    """What is of the campaign as a whole."""
    runs: pd.DataFrame
    """A row for each run."""

    def series(self) -> list[Row]:
        """Runs by state and updates of each series, in the order of the campaign."""
        by_series = self.runs.explode("series").groupby("series", sort=False)
        return [{"series": name, **_sums(runs)} for name, runs in by_series]

    def as_json(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        runs = records(self.runs)
        return {**self.campaign, **_sums(self.runs), "series": self.series(), "runs": runs}


def _sums(runs: pd.DataFrame) -> dict[str, Any]:
    """Number of runs, by state too, and updates of those whose number of updates is known."""
    counts = runs["state"].value_counts()
    known = runs[runs["updates_total"].notna()]
    return {
        "runs_total": len(runs),
        "counts": {state: int(counts.get(state, 0)) for state in STATES},
        "updates": sum(known["updates"].dropna()),
        "updates_total": sum(known["updates_total"]),
    }


def campaign_status(campaign: Campaign, cluster: Cluster, results: Path, work_root: Path) -> Status:
    """Look at a campaign whose results and working directories are in folders of its name."""
    results, work = results / campaign.name, work_root / campaign.name
    inventory, rated = Inventory.of(results, work), powers_of(cluster.devices)
    used = energy_used(campaign, results, inventory, rated)
    queue = _ask_queue(cluster)
    rows = list(_rows(campaign, cluster, results, inventory, queue or {}, rated))
    runs = pd.DataFrame(rows, dtype=object)

    # The energy of a run is that of all its measurements but for those that were set aside.
    measurements = used[used["part"] == CURRENT].groupby("key")
    energy = measurements["kwh"].sum(min_count=1).to_dict()
    runs["energy_kwh"] = [_known(energy.get(key)) for key in runs["key"]]
    known = measurements["known"].all().to_dict()
    runs["energy_known"] = [bool(known.get(key, True)) for key in runs.pop("key")]
    excluded = {
        (row["configuration"], row["repeat"]): row["reason"]
        for row in excluded_runs(read_exclusions(campaign), results)
    }
    names = zip(runs["configuration"], runs["repeat"], strict=True)
    runs["excluded"] = [excluded.get(name) for name in names]

    facts = {
        "campaign": campaign.name,
        "campaign_file": str(campaign.path),
        "cluster": cluster.name,
        "results": str(results),
        "work": str(work),
        "asked_s": time.time(),
        "queue_answered": queue is not None,
        "energy_budget_kwh": campaign.energy_budget_kwh,
        **energy_sums(used),
        "left_out": list(campaign.left_out),
        "changed_files": changed_files(campaign, results, work),
    }
    return Status(facts, runs)


def _known(value: float | None) -> float | None:
    return None if value is None or pd.isna(value) else float(value)


def _ask_queue(cluster: Cluster) -> Queue | None:
    """The user's jobs in Slurm's queue; None without an answer, empty on a machine without Slurm."""
    if not any(device.partition for device in cluster.devices.values()):
        return {}
    try:
        return queued_jobs()
    except NoAnswerError:
        return None


# --- a run ----------------------------------------------------------------------------------------


def _rows(
    campaign: Campaign,
    cluster: Cluster,
    results: Path,
    inventory: Inventory,
    queue: Queue,
    rated: Powers,
) -> Iterator[Row]:
    """Yield a row for each run; its `key` is that of the measurements that count for it."""
    for run in campaign.runs():
        name = run.configuration.id, run.repeat
        spec = run_spec(campaign, *name)
        if campaign.registered:  # as far as it was written
            with suppress(InputError):
                spec = read_spec(results / "runs" / name[0] / str(run.repeat) / "spec.json")
        published = inventory.published.get(name)
        is_current = campaign.registered or (published and published.spec_sha256 == spec.sha256)
        folders = sorted(inventory.working.get(spec.key, []), key=last_used_s, reverse=True)
        job = job_of_run(queue, results.resolve().parents[1], results.name, *name)
        state = run_state(spec, published, bool(is_current), folders, job, cluster.crash_retries)
        is_done = state["state"] == "done"
        yield {
            "key": published.key if published and is_done else spec.key,
            "configuration": spec.configuration,
            "repeat": spec.repeat,
            "gpus": spec.gpus,
            "series": campaign.series_of(spec.configuration),
            **state,
            "updates_total": spec.updates,
            **dict.fromkeys(UNDER_WAY),
            **({"updates": spec.updates} if is_done else {}),
            **(_position(spec, state, rated) if state["work_folder"] else {}),
        }


def _position(spec: RunSpec, state: Row, rated: Powers) -> Row:
    """How far a run is: while it runs by its progress, else by its checkpoint."""
    folder = Path(state["work_folder"])
    last = (read_segments(folder) or [{}])[-1]
    position = read_position(folder)
    row: Row = {"segment": last.get("segment"), "updates": position and position["updates"]}
    if state["state"] == "done" or (folder / "result.json").exists():
        row["updates"] = spec.updates
    if is_command_spec(spec):
        row |= _reported(folder, spec)
    if state["state"] != "running":
        return row
    if last.get("outcome") != "running":  # it is about to begin
        return {**row, "segment": None}
    row["power_w"] = power_now(folder, spec, rated, last["segment"])
    progress = read_progress(folder)
    if progress is None or progress["segment"] != last["segment"]:
        return row
    names = ("updates", "epoch", "epochs", "step", "steps", "stage", "samples_per_s")
    row |= {name: progress[name] for name in names}
    left_s = time_left(progress, last.get("from_updates"), _marks(folder / "events.jsonl"))
    return {**row, "progress_written_s": progress["written_s"], "left_s": left_s}


def time_left(progress: Row, before: int | None, marks: Sequence[Row]) -> float | None:
    """Seconds of training left after a note of progress, None if unknown.

    `before`: updates of the run when the segment began; `marks`: the run's stages. The rest takes as long an
    update as the segment did so far, evaluations and checkpoints included.
    """
    starts_s = [
        mark["start_s"]
        for mark in marks
        if mark.get("segment") == progress["segment"] and mark.get("stage") == "train"
    ]
    if not starts_s or before is None or progress["updates"] <= before:
        return None
    pace_s = (progress["written_s"] - starts_s[0]) / (progress["updates"] - before)
    return float(pace_s * (progress["updates_total"] - progress["updates"]))


def power_now(folder: Path, spec: RunSpec, rated: Powers, segment: int) -> float | None:
    """Power in W that the sensors of a running segment's nodes read; None if one of them does not say."""
    try:
        run = recorded_run(folder, spec, rated)
        devices = node_totals(run, segment, journal_files(run.recordings).get(segment, {}))
    except DAMAGED:
        return None
    stale_s = max(STALE_S, 10 * (spec.sampling_period_s or 0.0))
    if devices is None or devices.empty or (time.time() - devices["last_s"] > stale_s).any():
        return None
    return _known(devices["power_w"].sum(skipna=False))


def _reported(folder: Path, spec: RunSpec) -> Row:
    """How far a command is, by its script's reports and marks; empty without any."""
    try:
        reports, marks = final_reports(folder / HISTORY_FILE), _marks(folder / EVENTS_FILE)
        counts = [report["updates"] for report in reports]
        row = {
            "epoch": int(reports[-1]["epoch"]) + 1 if reports else 0,
            "epochs": spec.epochs,
            "updates": None if None in counts else sum(counts),
            "stage": str(marks[-1]["stage"]) if marks else None,
        }
        known = {name: value for name, value in row.items() if value is not None}
        return known if reports or marks else {}
    except (*DAMAGED, LookupError, TypeError, ValueError, OverflowError):
        return {}


def _marks(path: Path) -> list[Row]:
    try:
        return read_json_lines(path)
    except OSError:
        return []
