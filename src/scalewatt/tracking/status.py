"""A campaign at a glance, from its files alone: what each run does, how far it is, what was used.

Works while jobs run and without any of them: nothing is waited for but one answer of squeue, and nothing is
written. Files may change or vanish while they are read, and may be damaged: what cannot be read is null.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
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
from scalewatt.common.files import read_json_object
from scalewatt.events import EVENTS_FILE, HISTORY_FILE
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.stage_log import EVALUATIONS, final_reports, read_json_lines
from scalewatt.run_files.inventory import Inventory, Published, last_used_s
from scalewatt.run_files.record import Progress, read_position, read_progress, read_segments
from scalewatt.slurm.job_queue import Queue, job_of_run, queued_jobs
from scalewatt.slurm.slurm_commands import NoAnswerError
from scalewatt.tracking.changed_files import changed_files
from scalewatt.tracking.energy_used import (
    DAMAGED,
    EnergyUsed,
    energy_used,
    node_totals,
    powers_of,
    recorded_run,
)
from scalewatt.tracking.run_state import STATES, RunState, number, run_state

if TYPE_CHECKING:
    from scalewatt.energies.read import Powers

STALE_S = 30.0
"""A running total that is older than this, or than ten sampling periods, says nothing of now."""
Row = dict[str, Any]
UNDER_WAY = (
    *("epoch", "epochs", "step", "steps", "stage", "samples_per_s", "progress_written_s"),
    *("power_w", "left_s", "left_at_least"),
)
"""Keys of a run's row that only a running one has values of, or a command whose script reports."""


def campaign_status(
    campaign: Campaign, cluster: Cluster, results: Path, work_root: Path
) -> dict[str, Any]:
    """Look at a campaign whose results and working directories are in folders of its name.

    JSON-ready values, as docs/status.md has them: times are Unix s, what is not known is null.
    """
    results, work = results / campaign.name, work_root / campaign.name
    inventory, rated = Inventory.of(results, work), powers_of(cluster.devices)
    used = energy_used(campaign, results, inventory, rated)
    queue = _ask_queue(cluster)
    look = _Look(campaign, cluster, results, inventory, queue or {}, rated, used)
    excluded = {
        (row["configuration"], row["repeat"]): row["reason"]
        for row in excluded_runs(read_exclusions(campaign), results)
    }
    superseded = Counter((run.configuration, run.repeat) for run in inventory.superseded)
    runs = [look.run(spec) for spec in _specs(campaign, results)]
    for row in runs:
        run = row["configuration"], row["repeat"]
        row["excluded"] = excluded.get(run, row["excluded"])
        row["superseded"] = superseded[run]
    series = {name: [row for row in runs if name in row["series"]] for name in campaign.series}
    low_kwh, high_kwh = used.bounds_kwh
    return {
        "campaign": campaign.name,
        "campaign_file": str(campaign.path),
        "cluster": cluster.name,
        "results": str(results),
        "work": str(work),
        "asked_s": time.time(),
        "queue_answered": queue is not None,
        **_sums(runs),
        "excluded": sum(row["excluded"] is not None for row in runs),
        "energy_kwh": used.kwh,
        "energy_low_kwh": low_kwh,
        "energy_high_kwh": high_kwh,
        "energy_budget_kwh": campaign.energy_budget_kwh,
        "energy_kwh_by_origin": dict(used.by_origin),
        "energy_unknown_runs": list(used.unknown_runs),
        "superseded_energy_kwh": used.superseded_kwh,
        "probes_energy_kwh": used.probes_kwh,
        "gpu_hours": used.gpu_hours,
        "left_out": list(campaign.left_out),
        "changed_files": changed_files(campaign, results, work),
        "series": [{"series": name, **_sums(rows)} for name, rows in series.items()],
        "runs": runs,
    }


def _sums(runs: Sequence[Row]) -> dict[str, Any]:
    """Number of runs, by state too, and updates of those whose number of updates is known."""
    counts = Counter(row["state"] for row in runs)
    known = [row for row in runs if row["updates_total"] is not None]
    return {
        "runs_total": len(runs),
        "counts": {state: counts[state] for state in STATES},
        "updates": sum(row["updates"] or 0 for row in known),
        "updates_total": sum(row["updates_total"] for row in known),
    }


def _specs(campaign: Campaign, results: Path) -> list[RunSpec]:
    """Specs of all runs, by the campaign; of registered runs, as far as they were written."""
    specs = []
    for run in campaign.runs():
        configuration, repeat = run.configuration.id, run.repeat
        spec = run_spec(campaign, configuration, repeat)
        if campaign.registered:
            with suppress(InputError):
                spec = read_spec(results / "runs" / configuration / str(repeat) / "spec.json")
        specs.append(spec)
    return specs


def _ask_queue(cluster: Cluster) -> Queue | None:
    """The user's jobs in Slurm's queue; None without an answer, empty on a machine without Slurm."""
    if not any(device.partition for device in cluster.devices.values()):
        return {}
    try:
        return queued_jobs()
    except NoAnswerError:
        return None


# --- a run ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Look:
    """What is known of all runs of a campaign together."""

    campaign: Campaign
    cluster: Cluster
    results: Path
    inventory: Inventory
    queue: Queue
    rated: Powers
    used: EnergyUsed

    def run(self, spec: RunSpec) -> Row:
        """One run's row."""
        published = self.inventory.published.get((spec.configuration, spec.repeat))
        state = self._state(spec, published)
        key = published.key if published and state.state == "done" else spec.key
        row = {
            "configuration": spec.configuration,
            "repeat": spec.repeat,
            "gpus": spec.gpus,
            "series": list(self.campaign.series_of(spec.configuration)),
            "state": state.state,
            "since_s": state.since_s,
            "host": state.host,
            "job": state.job,
            "segment": None,
            "updates": None,
            "updates_total": spec.updates,
            **dict.fromkeys(UNDER_WAY),
            **_energy(self.used.runs, key),
            "silent_s": state.silent_s,
            "reason": state.reason,
            "log": str(state.log) if state.log else None,
            "work_folder": str(state.folder) if state.folder else None,
            "excluded": None,
        }
        if state.folder is not None:
            row |= self._position(spec, state, state.folder)
        if state.state == "done":
            row["updates"] = spec.updates
        if is_command_spec(spec):
            row |= _reported(state.folder, spec) if state.folder else {}
            if state.state == "done" and published is not None:
                row["excluded"] = _contradiction(spec, published.folder)
        return row

    def _state(self, spec: RunSpec, published: Published | None) -> RunState:
        is_current = published is not None and (
            bool(self.campaign.registered) or published.spec_sha256 == spec.sha256
        )
        folders = [folder.path for folder in self.inventory.working.get(spec.key, ())]
        folders.sort(key=last_used_s, reverse=True)
        project = self.results.resolve().parents[1]
        job = job_of_run(self.queue, project, self.results.name, spec.configuration, spec.repeat)
        return run_state(spec, published, is_current, folders, job, self.cluster.crash_retries)

    def _position(self, spec: RunSpec, state: RunState, folder: Path) -> Row:
        """How far a run is: while it runs by its progress, else by its checkpoint."""
        segments = read_segments(folder)
        last = segments[-1] if segments else {}
        position = read_position(folder)
        row: Row = {"segment": last.get("segment"), "updates": position and position["updates"]}
        if state.state != "running":
            is_trained = (folder / "result.json").exists()
            return {**row, "updates": spec.updates if is_trained else row["updates"]}
        if last.get("outcome") != "running":  # it is about to begin
            return {**row, "segment": None}
        row["power_w"] = power_now(folder, spec, self.rated, last["segment"])
        progress = read_progress(folder)
        if progress is None or progress.segment != last["segment"]:
            return row
        names = ("updates", "epoch", "epochs", "step", "steps", "stage", "samples_per_s")
        row |= {name: getattr(progress, name) for name in names}
        row["progress_written_s"] = progress.written_s
        left_s, at_least = time_left(progress, number(last.get("from_updates")), _marks(folder))
        row |= {"left_s": left_s, "left_at_least": None if left_s is None else at_least}
        return row


def time_left(
    progress: Progress, before: float | None, marks: Iterable[Row]
) -> tuple[float | None, bool]:
    """Seconds of training left after a note of progress, None if unknown; and whether it is at least that.

    `before`: updates of the run when the segment began; `marks`: the run's stages. The rest takes as long an
    update as the segment did so far, evaluations and checkpoints included. It is at least that as long as
    the segment has not evaluated.
    """
    stages = [m for m in marks if m.get("segment") == progress.segment]
    starts = [number(m.get("start_s")) for m in stages if m.get("stage") == "train"]
    done = progress.updates - (before or 0)
    if not starts or starts[0] is None or done <= 0 or (before is None and progress.segment):
        return None, False
    pace_s = (progress.written_s - starts[0]) / done
    has_evaluated = any(m.get("stage") in EVALUATIONS for m in stages)
    return pace_s * (progress.updates_total - progress.updates), not has_evaluated


def power_now(folder: Path, spec: RunSpec, rated: Powers, segment: int) -> float | None:
    """What the sensors of a running segment's nodes read, in W; None if one of them does not say."""
    try:
        run = recorded_run(folder, spec, rated)
        devices = node_totals(run, segment, journal_files(run.recordings).get(segment, {}))
    except DAMAGED:
        return None
    stale_s = max(STALE_S, 10 * (spec.sampling_period_s or 0.0))
    if devices is None or (time.time() - devices["last_s"] > stale_s).any():
        return None
    watts = float(devices["power_w"].sum(skipna=False)) if len(devices) else float("nan")
    return None if pd.isna(watts) else watts


def _energy(runs: pd.DataFrame, key: str) -> Row:
    """A run's energy so far; null if nothing was recorded."""
    names = {"kwh": "energy_kwh", "low_kwh": "energy_low_kwh", "high_kwh": "energy_high_kwh"}
    row: Row = dict.fromkeys(names.values())
    if key not in runs.index:
        return row | {"energy_known": True}
    use = runs.loc[key].to_dict()
    if pd.notna(use["kwh"]):
        row = {names[name]: float(use[name]) for name in names}
    return row | {"energy_known": bool(use["known"])}


def _reported(folder: Path, spec: RunSpec) -> Row:
    """How far a command is, by its script's reports and marks; empty where there are none."""
    try:
        reports = final_reports(folder / HISTORY_FILE)
        marks = read_json_lines(folder / EVENTS_FILE)
        if not reports and not marks:
            return {}
        counts = [report["updates"] for report in reports]
        row = {
            "epoch": int(reports[-1]["epoch"]) + 1 if reports else 0,
            "epochs": spec.epochs,
            "updates": None if None in counts else sum(counts),
            "stage": str(marks[-1]["stage"]) if marks else None,
        }
        return {name: value for name, value in row.items() if value is not None}
    except (*DAMAGED, LookupError, TypeError, ValueError, OverflowError):
        return {}


def _contradiction(spec: RunSpec, folder: Path) -> str | None:
    """Why a finished command is in no comparison, by what its script reported; None if it is."""
    from scalewatt.results.tables.run_row import read_history
    from scalewatt.results.tables.script_flags import script_flags
    from scalewatt.results.text.flag_labels import left_out

    try:
        provenance = read_json_object(folder / "provenance.json")
        return left_out(script_flags(spec, provenance, read_history(folder / "history.parquet")))
    except InputError:
        return None


def _marks(folder: Path) -> list[Row]:
    try:
        return read_json_lines(folder / "events.jsonl")
    except DAMAGED:
        return []
