"""Print the status of a campaign: as text, or as JSON."""

from __future__ import annotations

import json
import math
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from scalewatt.campaign.cluster import campaign_path, load_site
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.energies.tables import records
from scalewatt.results.text.number_format import MISSING, listed, with_unit
from scalewatt.slurm.job_queue import never_starts
from scalewatt.tracking.run_state import STATES, Row
from scalewatt.tracking.status import Status, campaign_status

_CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal, and goes to its first line."""
_BAR, _REASON = 40, 300
"""Signs of a bar, and of a reason at most."""
_NAMED = 3
"""Runs that are named where only their number matters."""


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
        status = campaign_status(loaded, cluster, results, work or Path(cluster.work_root))
        if as_json:
            print(json.dumps(status.as_json(), indent=1, allow_nan=False), flush=True)
        else:
            print(status_text(status, every_run), flush=True)
        if watch_s is None:
            return
        time.sleep(watch_s)
        print(_CLEAR, end="")


def status_text(status: Status, every_run: bool = False) -> str:
    """The status as text: a line for each series, or for each run, and what needs attention."""
    table = _run_table(status.runs) if every_run else _series_table(status)
    parts = ["\n".join(_head(status)), table]
    rows = records(status.runs)
    groups = {state: [row for row in rows if row["state"] == state] for state in STATES}
    details = {f"{state}:": groups[state] for state in ("running", "failed", "refused")}
    stuck = [row for row in groups["queued"] if never_starts(row["reason"])]
    details["queued, and not to start by itself, by Slurm's reason:"] = stuck
    for title, group in details.items():
        if group:
            parts.append("\n".join([title, *(line for row in group for line in _details(row))]))
    parts.append("\n".join(_remarks(status)))
    return "\n\n".join(filter(None, parts))


def _head(status: Status) -> Iterator[str]:
    """The campaign as a whole: its progress, runs by state, and energy."""
    facts = status.as_json()
    asked = _clock(facts["asked_s"])
    yield f"{facts['campaign']} ({facts['campaign_file']}) on {facts['cluster']}, {asked}"
    for name, done, total in (
        ("runs", facts["counts"]["done"], facts["runs_total"]),
        ("updates", facts["updates"], facts["updates_total"]),
    ):
        if total:
            yield f"{name:<7}  {progress_bar(done, total)}  {done} of {total}"
    states = facts["counts"].items()
    shown = (f"{count} {state.replace('_', ' ')}" for state, count in states if count)
    yield f"         {', '.join(shown)}"

    by_origin = sorted(facts["energy_kwh_by_origin"].items())
    origins = ", ".join(f"{_kwh(kwh)} {origin}" for origin, kwh in by_origin)
    budget_kwh = facts["energy_budget_kwh"]
    yield (
        f"energy   {'at least ' if facts['energy_unknown_runs'] else ''}{_kwh(facts['energy_kwh'])} so far"
        + (f" ({origins})" if origins else "")
        + (f" of {budget_kwh:g} kWh" if budget_kwh is not None else "")
        + f", {facts['gpu_hours']:.1f} GPUh"
    )


def _series_table(status: Status) -> str:
    rows = [
        {
            "series": row["series"],
            "runs": row["runs_total"],
            **row["counts"],
            "updates": _share(row),
        }
        for row in status.series()
    ]
    table = pd.DataFrame(rows)
    empty = [state for state in STATES if not table[state].any()]
    table = table.drop(columns=empty).rename(columns=lambda name: name.replace("_", " "))
    return _aligned(table.astype(object).replace(0, "·"))


def _run_table(runs: pd.DataFrame) -> str:
    rows = [
        {
            "run": row["configuration"],
            "repeat": row["repeat"],
            "state": row["state"].replace("_", " "),
            "updates": _share(row),
            "energy": f"{'' if row['energy_known'] else '≥ '}{_kwh(row['energy_kwh'])}",
            "job": row["job"] or MISSING,
            "since": _clock(row["since_s"]),
        }
        for row in records(runs)
    ]
    return _aligned(pd.DataFrame(rows))


def _aligned(table: pd.DataFrame) -> str:
    """A table's lines, the first column to the left, its name in the line of the others'."""
    first = str(table.columns[0])
    table = table.set_index(first).rename_axis(index=None, columns=first)
    return table.to_string()


# --- a run ----------------------------------------------------------------------------------------


def _details(run: Row) -> Iterator[str]:
    yield f"  {run['configuration']} repeat {run['repeat']}"
    lines = _running(run) if run["state"] == "running" else _ended(run)
    yield from (f"    {line}" for line in lines)


def _running(run: Row) -> Iterator[str]:
    yield ", ".join(_progress(run))
    where = [f"job {run['job']}" if run["job"] else "no job"]
    where += [f"on {run['host']}"] if run["host"] else []
    where += [f"since {_clock(run['since_s'])}"] if run["since_s"] is not None else []
    left = run["left_s"]
    yield " ".join(where) + ("" if left is None else f"; by its pace {_duration(left)} left")
    if run["silent_s"] is not None:
        silence = _duration(run["silent_s"])
        yield f"no sign of life for {silence}: its process or node may be dead"


def _progress(run: Row) -> Iterator[str]:
    """How far a running one is, at what rate and power."""
    if run["segment"] is not None:
        yield f"segment {run['segment']}"
    if run["epoch"] is None:
        yield "starts"
    elif run["step"] is None:  # a command, by its script's reports
        yield f"{run['epoch']} of {run['epochs']} epochs reported"
        if run["updates"]:
            yield f"{run['updates']} updates"
    else:
        yield f"epoch {min(run['epoch'] + 1, run['epochs'])} of {run['epochs']}"
        yield f"step {run['step']} of {run['steps']}"
    if run["stage"] is not None:
        yield run["stage"]
    if run["samples_per_s"] is not None:
        yield f"{run['samples_per_s']:.4g} samples/s"
    if run["power_w"] is not None:
        yield f"{run['power_w']:.0f} W"


def _ended(run: Row) -> Iterator[str]:
    when = f" ({_clock(run['since_s'])})" if run["since_s"] is not None else ""
    reason = textwrap.shorten(run["reason"] or "it did not say why", _REASON, placeholder=" …")
    job = f"job {run['job']}: " if run["job"] and run["job"] not in reason else ""
    yield f"{job}{reason}{when}"
    if run["log"] is not None:
        yield f"log: {run['log']}"


# --- remarks --------------------------------------------------------------------------------------


def _remarks(status: Status) -> Iterator[str]:
    """What else there is to say: points and runs left out, energies of no current run."""
    facts, runs = status.campaign, status.runs
    yield from (f"not shown: {points}" for points in facts["left_out"])
    excluded = [
        f"{run['configuration']} repeat {run['repeat']} ({run['excluded']})"
        for run in records(runs[runs["excluded"].notna()])
    ]
    if excluded:
        named = listed(excluded, _NAMED)
        yield f"excluded from tables and figures: {named} (all: scalewatt exclude)"
    yield from facts["changed_files"]
    if not facts["queue_answered"]:
        yield "Slurm's queue gives no answer: jobs that wait there count as not started"
    if superseded_kwh := facts["superseded_energy_kwh"]:
        yield f"of runs no longer in the campaign, or measured again: {_kwh(superseded_kwh)}"
    if probes_kwh := facts["probes_energy_kwh"]:
        yield f"of idle probes: {_kwh(probes_kwh)}"
    if unknown := facts["energy_unknown_runs"]:
        yield f"more was used than was recorded by (all: --json): {listed(unknown, _NAMED)}"


# --- numbers --------------------------------------------------------------------------------------


def progress_bar(done: float, total: float) -> str:
    """A bar and the share in whole percent, full only when all is done."""
    full = int(_BAR * done / total)
    return f"[{'#' * full}{'.' * (_BAR - full)}] {int(100 * done / total):3d} %"


def _share(row: Row) -> str:
    done, total = row["updates"], row["updates_total"]
    return f"{int(100 * done / total)} %" if total and done is not None else MISSING


def _duration(seconds: float) -> str:
    return with_unit(seconds / 3600, "h", 3)


def _kwh(kwh: float | None) -> str:
    return with_unit(kwh, "kWh", 3)


def _clock(unix_s: float | None) -> str:
    """A time of this machine's clock."""
    local = time.localtime(unix_s)
    return MISSING if unix_s is None else time.strftime("%Y-%m-%d %H:%M:%S", local)
