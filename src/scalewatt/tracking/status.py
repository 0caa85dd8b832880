"""A campaign at a glance, from its files alone: what each run does, how far it is, what was used.

Works while jobs run and without any of them: nothing is waited for but one answer of squeue, and nothing is
written. Files may change or vanish while they are read, and may be damaged: what cannot be read is null.
"""

from __future__ import annotations

import json
import math
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, campaign_path, load_site
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.load import load_campaign
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.energies.tables import records
from scalewatt.events import EVENTS_FILE, HISTORY_FILE
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.stage_log import final_reports, read_json_lines
from scalewatt.results.text.number_format import MISSING, listed, with_unit
from scalewatt.run_files.inventory import (
    Inventory,
    Published,
    is_of_campaign,
    last_used_s,
    run_folder,
)
from scalewatt.run_files.lock import BEAT_S, is_alive, read_holder, silence_s
from scalewatt.run_files.record import (
    read_ended_run,
    read_position,
    read_progress,
    read_segments,
    reason_to_end,
)
from scalewatt.slurm.slurm_commands import (
    NoAnswerError,
    Queue,
    QueuedJob,
    job_of_run,
    never_starts,
    queued_jobs,
)
from scalewatt.tracking.changed_files import changed_files
from scalewatt.tracking.energy_used import (
    CURRENT,
    DAMAGED,
    Powers,
    energy_sums,
    energy_used,
    node_totals,
    powers_of,
    recorded_run,
)

Row = dict[str, Any]
STATES = (
    *("done", "running", "queued", "stopped", "failed", "refused"),
    *("out_of_date", "not_started"),
)
GONE_SILENT_S = 4 * BEAT_S
STALE_S = 30.0
"""A running total that is older than this, or than ten sampling periods, says nothing of now."""
_CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal, and goes to its first line."""
_NAMED = 3
"""Runs that are named where only their number matters."""
_EVERY = ["state", "progress", "energy", "at_least", "job", "since"]
_RUNNING = [
    *("segment", "epoch", "epochs", "step", "steps", "stage", "samples_per_s", "power_w"),
    *("left", "job", "host", "since"),
]
"""Columns of the tables of all runs, and of those under way."""
UNDER_WAY = (
    *("segment", "updates", "epoch", "epochs", "step", "steps", "stage", "samples_per_s"),
    *("progress_written_s", "power_w", "left_s"),
)
"""Columns that mostly a running run has values of."""


def campaign_status(campaign: Campaign, cluster: Cluster, results: Path, work_root: Path) -> Row:
    """State of a campaign whose results and working directories are in folders of its name.

    By the keys of docs/guide/status.md, ready for JSON: times in Unix s, null where unknown.
    """
    results, work = results / campaign.name, work_root / campaign.name
    inventory, rated = Inventory.of(results, work), powers_of(cluster.devices)
    used = energy_used(campaign, results, inventory, rated)
    queue: Queue | None = {}  # None: no answer
    if any(device.partition for device in cluster.devices.values()):
        try:
            queue = queued_jobs()
        except NoAnswerError:
            queue = None
    rows = list(_rows(campaign, cluster, results, inventory, queue or {}, rated))
    runs = pd.DataFrame(rows, dtype=object)

    # The energy of a run is that of all its measurements but for those that were set aside.
    by_run = used[used["part"] == CURRENT].groupby("key")
    energy = {"energy_kwh": by_run["kwh"].sum(min_count=1), "energy_known": by_run["known"].all()}
    runs = runs.join(pd.DataFrame(energy), on="key").drop(columns="key")
    runs["energy_known"] = runs["energy_known"].fillna(True).astype(bool)
    excluded = {
        (row["configuration"], row["repeat"]): row["reason"]
        for row in excluded_runs(read_exclusions(campaign), results)
    }
    names = zip(runs["configuration"], runs["repeat"], strict=True)
    runs["excluded"] = [excluded.get(name) for name in names]

    by_series = runs.explode("series").groupby("series", sort=False)
    return {
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
        "changed_files": [*changed_files(campaign, results)],
        **_sums(runs),
        "series": [{"series": name, **_sums(rows)} for name, rows in by_series],
        "runs": records(runs),
    }


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
    for name in campaign.runs():
        spec = run_spec(campaign, *name)
        if campaign.registered:  # as far as it was written
            with suppress(InputError):
                spec = read_spec(run_folder(results, name) / "spec.json")
        published = inventory.published.get(name)
        is_current = published is not None and is_of_campaign(campaign, results, name)
        folders = sorted(inventory.working.get(spec.key, []), key=last_used_s, reverse=True)
        job = job_of_run(queue, results.absolute().parents[1], results.name, *name)
        state = run_state(spec, published, is_current, folders, job, cluster.crash_retries)
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


def run_state(
    spec: RunSpec,
    published: Published | None,
    is_current: bool,
    folders: Sequence[Path],
    job: QueuedJob | None,
    crash_retries: int,
) -> Row:
    """State of a run, the first of guide/status.md that holds, since when, where and why; None if unknown.

    `is_current`: what is published is of the campaign's spec; `folders`: its working directories, the last
    used first; `job`: its job in the queue. `since_s` of a run that is not under way is when it ended.
    """
    folder = folders[0] if folders else None
    if published is not None and is_current:
        log = str(published.folder / "train.log")
        return _row("done", folder, since_s=published.mtime_ns / 1e9, log=log)
    for path in folders:
        holder = read_holder(path)
        if holder is not None and is_alive(path, holder):
            silent_s = silence_s(path) or 0.0
            row = _row("running", path, since_s=holder.since_s, host=holder.host, job=holder.job)
            return {**row, "silent_s": silent_s if silent_s > GONE_SILENT_S else None}
    if job is not None:
        return _queued(job, folder)
    if folder is not None and (ended := _ended(folder, spec, crash_retries)):
        return ended
    if published is not None:
        reason = "its results are of another spec; the next start trains it again"
        return _row("out_of_date", since_s=published.mtime_ns / 1e9, reason=reason)
    return _row("not_started")


def _row(state: str, folder: Path | None = None, **facts: Any) -> Row:
    """State of a run with a working directory, and what is known of it."""
    log = folder / "train.log" if folder else None
    return {
        "state": state,
        **dict.fromkeys(("since_s", "host", "job", "silent_s", "reason")),
        "log": str(log) if log and log.exists() else None,
        "work_folder": str(folder) if folder else None,
        **facts,
    }


def _queued(job: QueuedJob, folder: Path | None) -> Row:
    """State of a run whose job has not come to its training, or waits."""
    if not job.is_waiting:
        return _row("running", folder, host=job.nodes or None, job=job.id)
    reason = job.waits_for
    if folder is not None and any(s.get("job") == job.id for s in read_segments(folder)):
        reason = f"its job was put back into the queue{f' ({reason})' if reason else ''}"
    return _row("queued", folder, job=job.id, reason=reason)


def _ended(folder: Path, spec: RunSpec, crash_retries: int) -> Row | None:
    """State of a run by what its last start left; None if it left nothing."""
    run = read_ended_run(folder, spec)
    if run["refusal"]:
        return _row("refused", folder, reason=run["refusal"])
    if not run["segments"]:
        return None
    last = run["segments"][-1]
    ended_s, no_further = last.get("ended_s"), reason_to_end(run, spec, crash_retries)
    since = {"since_s": ended_s or last_used_s(folder), "job": last.get("job")}
    detail = last.get("detail")
    match last["outcome"]:
        case "finished" if no_further is None:
            reason = "it is trained; the next start publishes its results"
            return _row("stopped", folder, reason=reason, **since)
        case "stopped" | "monitor_lost" if no_further is None:
            return _row("stopped", folder, reason=detail, **since)
        case "refused":
            return _row("refused", folder, reason=no_further, **since)
        case "killed":
            detail = detail or "it was killed, or its node was lost"
    return _row("failed", folder, reason=no_further or detail, **since)


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
    row["progress_written_s"] = progress["written_s"]
    if progress["samples_per_s"]:
        left = (progress["updates_total"] - progress["updates"]) * spec.global_batch_size
        row["left_s"] = left / progress["samples_per_s"]
    return row


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
    watts = float(devices["power_w"].sum(skipna=False))
    return None if np.isnan(watts) else watts


def _reported(folder: Path, spec: RunSpec) -> Row:
    """How far a command is, by its script's reports and marks; empty without any."""
    try:
        reports = final_reports(folder / HISTORY_FILE)
        marks = read_json_lines(folder / EVENTS_FILE)
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


# --- text -----------------------------------------------------------------------------------------


def show_status(
    site: str,
    campaign: Path | None,
    results: Path,
    work: Path | None,
    every_run: bool = False,
    as_json: bool = False,
    max_gpus: int | None = None,
    watch_s: float | None = None,
) -> None:
    """Print the status of a campaign; with `watch_s` again and again, so many seconds apart.

    `max_gpus`: larger points are left out; by default those that the cluster leaves out.
    InputError if the cluster file, the campaign or `watch_s` is wrong.
    """
    if watch_s is not None and not 0 < watch_s < math.inf:
        raise InputError(f"--watch: {watch_s:g}; expected seconds above 0")
    cluster = load_site(site)
    loaded = load_campaign(campaign or campaign_path(cluster), cluster, max_gpus, to_run=False)
    while True:
        facts = campaign_status(loaded, cluster, results, work or Path(cluster.work_root))
        text = json.dumps(facts, indent=1, allow_nan=False) if as_json else ""
        print(text or status_text(facts, every_run), flush=True)
        if watch_s is None:
            return
        time.sleep(watch_s)
        print(_CLEAR, end="")


def status_text(facts: Row, every_run: bool = False) -> str:
    """The status as text: a line for each series, or for each run, and what needs attention."""
    runs = pd.DataFrame(facts["runs"], dtype=object)
    shown = runs.assign(
        run=runs["configuration"] + " " + runs["repeat"].astype(str),
        state=runs["state"].str.replace("_", " "),
        since=[_clock(unix_s) for unix_s in runs["since_s"]],
        left=[_duration(seconds) for seconds in runs["left_s"]],
        energy=[with_unit(kwh, "kWh", 3) for kwh in runs["energy_kwh"]],
        at_least=["yes" if not known else MISSING for known in runs["energy_known"]],
        progress=[_share(row["updates"], row["updates_total"]) for row in facts["runs"]],
    ).set_index("run", drop=False)
    series = pd.DataFrame(
        [
            {
                "runs": row["runs_total"],
                **{
                    state.replace("_", " "): count or None for state, count in row["counts"].items()
                },
                "progress": _share(row["updates"], row["updates_total"]),
            }
            for row in facts["series"]
        ],
        pd.Index([row["series"] for row in facts["series"]]),
        dtype=object,
    )
    running = shown.loc[shown["state"] == "running", _RUNNING]
    parts = [
        [*_head(facts)],
        [_aligned(shown[_EVERY], "run") if every_run else _aligned(series, "series")],
        [] if running.empty else [_aligned(running, "run")],
        [*_problems(shown)],
        [*_remarks(facts)],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _head(facts: Row) -> Iterator[str]:
    """The campaign as a whole: its progress, runs by state, and energy."""
    asked = _clock(facts["asked_s"])
    yield f"{facts['campaign']} ({facts['campaign_file']}) on {facts['cluster']}, {asked}"
    done, total = facts["counts"]["done"], facts["runs_total"]
    yield f"runs     {done} of {total} ({_share(done, total)})"
    if total := facts["updates_total"]:
        yield f"updates  {facts['updates']} of {total} ({_share(facts['updates'], total)})"
    states = facts["counts"].items()
    shown = (f"{count} {state.replace('_', ' ')}" for state, count in states if count)
    yield f"         {', '.join(shown)}"

    at_least = "at least " if facts["energy_unknown_runs"] else ""
    by_origin = sorted(facts["energy_kwh_by_origin"].items())
    origins = ", ".join(f"{with_unit(kwh, 'kWh', 3)} {origin}" for origin, kwh in by_origin)
    budget_kwh = facts["energy_budget_kwh"]
    yield (
        f"energy   {at_least}{with_unit(facts['energy_kwh'], 'kWh', 3)} so far"
        + (f" ({origins})" if origins else "")
        + (f" of {budget_kwh:g} kWh" if budget_kwh is not None else "")
        + f", {facts['gpu_hours']:.1f} GPUh"
    )


def _aligned(table: pd.DataFrame, name: str) -> str:
    """Lines of a table without its empty columns; `name`: what its rows are."""
    table = table.replace(MISSING, None).dropna(axis=1, how="all").convert_dtypes()
    table = table.astype(object).where(table.notna(), MISSING)
    return table.rename_axis(index=None, columns=name).to_string(float_format="{:.4g}".format)


def _problems(runs: pd.DataFrame) -> Iterator[str]:
    """Yield what needs attention: runs that failed, and those that do not begin or go on by themselves."""
    for run in records(runs):
        if run["silent_s"] is not None:
            silence = _duration(run["silent_s"])
            yield f"no sign of life for {silence}: {run['run']}; its process or node may be dead"
        is_stuck = run["state"] == "queued" and never_starts(run["reason"])
        if is_stuck or run["state"] in ("failed", "refused"):
            reason = textwrap.shorten(run["reason"] or "it did not say why", 300)
            state = "queued, and not to start by itself" if is_stuck else run["state"]
            job = f", job {run['job']}" if run["job"] else ""
            log = f"; log: {run['log']}" if run["log"] else ""
            yield f"{state}: {run['run']}{job}: {reason}{log}"


def _remarks(facts: Row) -> Iterator[str]:
    """What else there is to say: points and runs left out, energies of no current run."""
    yield from (f"not shown: {points}" for points in facts["left_out"])
    excluded = [
        f"{run['configuration']} repeat {run['repeat']} ({run['excluded']})"
        for run in facts["runs"]
        if run["excluded"] is not None
    ]
    if excluded:
        yield f"excluded from tables and figures: {listed(excluded, _NAMED)}"
    yield from facts["changed_files"]
    if not facts["queue_answered"]:
        yield "Slurm's queue gives no answer: jobs that wait there count as not started"
    if kwh := facts["superseded_energy_kwh"]:
        energy = with_unit(kwh, "kWh", 3)
        yield f"energy of runs no longer in the campaign, or measured again: {energy}"
    if unknown := facts["energy_unknown_runs"]:
        yield f"more was used than was recorded by (all: --json): {listed(unknown, _NAMED)}"


def _share(done: float | None, total: float | None) -> str:
    """A share in whole percent, rounded down: 100 only when all is done."""
    return f"{int(100 * done / total)} %" if total and done is not None else MISSING


def _duration(seconds: float | None) -> str:
    return with_unit(None if seconds is None else seconds / 3600, "h", 3)


def _clock(unix_s: float | None) -> str:
    """A time of this machine's clock."""
    local = time.localtime(unix_s)
    return MISSING if unix_s is None else time.strftime("%Y-%m-%d %H:%M:%S", local)
