"""Print the status of a campaign: as text (at most WIDTH columns), or as JSON."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import campaign_path, load_site
from scalewatt.campaign.load import load_campaign
from scalewatt.energies.estimate import FACTOR
from scalewatt.recordings.terms import ESTIMATED
from scalewatt.results.text.number_format import listed
from scalewatt.slurm.job_queue import never_starts
from scalewatt.tracking.changed_files import changed_files
from scalewatt.tracking.run_state import STATES, State
from scalewatt.tracking.status import (
    CampaignStatus,
    RunStatus,
    ScriptProgress,
    campaign_status,
    updates_of,
)

WIDTH = 100
CLEAR_SCREEN = "\x1b[H\x1b[2J"
_BAR = 40
STATE_WORDS: dict[State, str] = {
    "done": "done",
    "running": "running",
    "queued": "queued",
    "stopped": "stopped",
    "failed": "failed",
    "refused": "refused",
    "out_of_date": "out of date",
    "not_started": "not started",
}
"""States as people read them."""
_MEANING: dict[State, str] = {
    "queued": "submitted, not started",
    "stopped": "at a checkpoint, until their next job",
    "out_of_date": "results of another spec",
}
_IN_DETAIL: tuple[State, ...] = ("running", "failed", "refused")
_NONE = "–"
_NAMED = 3
"""Runs that are named where only their number matters."""


def show_status(
    site: str,
    campaign: Path | None,
    results: Path,
    work: Path | None,
    every_run: bool = False,
    as_json: bool = False,
    watch_s: float | None = None,
    max_gpus: int | None = None,
) -> int:
    """Print the status of a campaign; with `watch_s`, again so often until it is interrupted.

    `max_gpus`: larger points are left out; by default those that the cluster leaves out.

    InputError if the cluster file or the campaign is wrong.
    """
    cluster = load_site(site)
    found = load_campaign(campaign or campaign_path(cluster), cluster, max_gpus, to_run=False)
    while True:
        status = campaign_status(found, cluster, results, work or Path(cluster.work_root))
        if as_json:
            text = json.dumps(status_json(status), indent=None if watch_s else 1, allow_nan=False)
        else:
            text = status_text(status, every_run)
        clear = watch_s is not None and not as_json and sys.stdout.isatty()
        print((CLEAR_SCREEN if clear else "") + text, flush=True)
        if watch_s is None:
            return 0
        time.sleep(watch_s)


def status_text(status: CampaignStatus, every_run: bool = False) -> str:
    """Return the status as text: a line for each series, or for each run, and what needs attention."""
    parts = [_head(status)]
    if every_run:
        parts.append(_run_table(status))
    else:
        parts.append(_series_table(status))
    for state in _IN_DETAIL:
        found = [run for run in status.runs if run.state.state == state]
        if found:
            lines = [line for run in found for line in _details(run, status.asked_s)]
            parts.append([f"{STATE_WORDS[state]}:", *lines])
    stuck = [r for r in status.runs if r.state.state == "queued" and never_starts(r.state.reason)]
    if stuck:
        lines = [line for run in stuck for line in _details(run, status.asked_s)]
        parts.append(["queued, and not to start by itself, by Slurm's reason:", *lines])
    parts.append(_remarks(status))
    return "\n\n".join("\n".join(_cut(line) for line in part) for part in parts if part)


def _head(status: CampaignStatus) -> list[str]:
    campaign = status.campaign
    runs, done = len(status.runs), status.counts()["done"]
    updates, total = updates_of(status.runs)
    states = ", ".join(
        f"{count} {STATE_WORDS[state]}" for state, count in status.counts().items() if count
    )
    lines = [
        f"{campaign.name} ({campaign.path}) on {status.cluster}, {clock(status.asked_s, status.asked_s)}",
        f"runs     {bar(done, runs)}  {done} of {runs}",
    ]
    if total:
        lines.append(f"updates  {bar(updates, total)}  {updates:,} of {total:,}".replace(",", " "))
    energy, *bounds = _energy_sentences(status)
    lines += [f"         {states}", f"energy   {energy}", *(f"         {one}" for one in bounds)]
    if status.ends_s is not None:
        lines.append(f"ends     about {clock(status.ends_s, status.asked_s)}")
    return lines


def _energy_sentences(status: CampaignStatus) -> list[str]:
    """Return what was used so far, by origin and beside the budget; then within what estimates leave it."""
    budget, energy_used = status.campaign.energy_budget_kwh, status.energy_used
    origins = ", ".join(
        f"{kwh_text(kwh)} {origin}" for origin, kwh in sorted(energy_used.by_origin.items())
    )
    least = "at least " if energy_used.unknown_runs else ""
    energy = f"{least}{kwh_text(energy_used.kwh)} kWh so far" + (f" ({origins})" if origins else "")
    if budget is not None:
        energy += f" of {budget:g}"
    lines = [f"{energy}, {energy_used.gpu_hours:.1f} GPUh"]
    if ESTIMATED in energy_used.by_origin:
        low, high = energy_used.bounds_kwh
        said = f"estimates may be off by × or ÷ {FACTOR:g}, or as the cluster file says"
        if low is not None and high is not None:
            said = f"the true value lies between {kwh_text(low)} and {kwh_text(high)} kWh"
        lines.append(f"{said} (docs/energy.md)")
    return lines


def _series_table(status: CampaignStatus) -> list[str]:
    used = [state for state in STATES if any(run.state.state == state for run in status.runs)]
    rows = [["series", "runs", *(STATE_WORDS[state] for state in used), "updates"]]
    for name, runs in status.of_series().items():
        counts = status.counts(runs)
        numbers = [str(counts[state] or "·") for state in used]
        rows.append([name, str(len(runs)), *numbers, _share(*updates_of(runs))])
    return _columns(rows, {0})


def _run_table(status: CampaignStatus) -> list[str]:
    rows = [["run", "repeat", "state", "updates", "kWh", "job", "since"]]
    for run in status.runs:
        since, least = run.state.since_s, "" if run.kwh_known else "≥ "
        rows.append(
            [
                run.configuration,
                str(run.repeat),
                STATE_WORDS[run.state.state],
                _share(run.updates, run.updates_total),
                _NONE if run.kwh is None else f"{least}{kwh_text(run.kwh)}",
                run.state.job or _NONE,
                _NONE if since is None else clock(since, status.asked_s),
            ]
        )
    return _columns(rows, {0, 2})


def _share(done: int | None, total: int | None) -> str:
    return f"{whole_percent(done, total)} %" if total and done is not None else _NONE


def _columns(rows: Sequence[Sequence[str]], words: set[int]) -> list[str]:
    """Return rows as aligned columns, those of `words` to the left; the first gives way where it is wide."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = max(min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)), 8)
    return [
        "  ".join(
            _cut(cell, width).ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _details(run: RunStatus, now_s: float) -> Iterator[str]:
    state = run.state
    yield f"  {run.configuration} repeat {run.repeat}"
    for line in _running(run, now_s) if state.state == "running" else _ended(run, now_s):
        yield f"    {line}"


def _running(run: RunStatus, now_s: float) -> Iterator[str]:
    state, progress = run.state, run.progress
    if progress is None and run.script is not None:
        yield ", ".join(_reported(run.script, run.epochs))
    elif progress is None:
        yield "starts" if run.segment is None else f"segment {run.segment}: starts"
    else:
        parts = [
            f"epoch {min(progress.epoch + 1, progress.epochs)} of {progress.epochs}, "
            f"step {progress.step} of {progress.steps}",
            progress.stage,
        ]
        if progress.samples_per_s is not None:
            parts.append(f"{progress.samples_per_s:.4g} samples/s")
        if run.power is not None:
            origin = "" if run.power.origin == "measured" else f" ({run.power.origin})"
            parts.append(f"{run.power.watts:.0f} W{origin}")
        yield ", ".join(parts)
    where = f"job {state.job}" if state.job else "no job"
    where += f" on {state.host}" if state.host else ""
    segment = f", segment {run.segment}" if run.segment is not None else ""
    since = f" since {clock(state.since_s, now_s)}" if state.since_s is not None else ""
    yield f"{where}{segment}{since}{_left_text(run, now_s)}"
    if state.silent_s is not None:
        yield f"no sign of life for {duration(state.silent_s)}: its process or node may be dead"


def _reported(script: ScriptProgress, epochs: int) -> Iterator[str]:
    yield f"{script.epochs} of {epochs} epochs reported"
    if script.updates:
        yield f"{script.updates} updates"
    if script.stage is not None:
        yield script.stage


def _left_text(run: RunStatus, now_s: float) -> str:
    """Return when a running one ends, or what is left of it, after a semicolon; empty if unknown."""
    if run.ends_s is not None:
        return f"; ends about {clock(run.ends_s, now_s)} (in {duration(run.ends_s - now_s)})"
    if run.left is None:
        return ""
    if run.left.at_least:
        return f"; at least {duration(run.left.seconds)} left"
    return f"; {duration(run.left.seconds)} of training left"


def _ended(run: RunStatus, now_s: float) -> Iterator[str]:
    state = run.state
    when = f" ({clock(state.since_s, now_s)})" if state.since_s is not None else ""
    job = f"job {state.job}: " if state.job and state.job not in (state.reason or "") else ""
    yield f"{job}{state.reason or 'it did not say why'}{when}"
    if state.log is not None:
        yield f"log: {state.log}"


def _remarks(status: CampaignStatus) -> list[str]:
    """Return what else there is to say: meanings of states, exclusions, energies of no current run."""
    energy_used, lines = status.energy_used, []
    for state, meaning in _MEANING.items():
        if status.counts()[state]:
            lines.append(f"{STATE_WORDS[state]}: {meaning}")
    lines += [f"not shown: {one}" for one in status.campaign.left_out]
    lines += _excluded(status)
    for sentence in changed_files(status.campaign, status.results, status.work):
        lines += _wrapped(sentence)
    if status.queue_asked is False:
        lines.append("Slurm's queue gives no answer: jobs that wait there count as not started")
    if energy_used.superseded_kwh:
        lines.append(
            f"{kwh_text(energy_used.superseded_kwh)} kWh are of runs no longer in the campaign, or "
            "measured again"
        )
    if energy_used.probes_kwh:
        lines.append(f"{kwh_text(energy_used.probes_kwh)} kWh are of idle probes")
    if energy_used.unknown_runs:
        named = listed(energy_used.unknown_runs, _NAMED)
        lines += _wrapped(f"more was used than was recorded by (all: --json): {named}")
    return lines


def _excluded(status: CampaignStatus) -> list[str]:
    reasons = [
        f"{run.configuration} repeat {run.repeat} ({run.excluded})"
        for run in status.runs
        if run.excluded is not None
    ]
    named = f"{listed(reasons, _NAMED)} (all: scalewatt exclude)"
    return _wrapped(f"excluded from tables and figures: {named}") if reasons else []


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def status_json(status: CampaignStatus) -> dict[str, Any]:
    """Return the status as JSON-ready values; times are Unix s, what is not known is null."""
    energy_used = status.energy_used
    updates, total = updates_of(status.runs)
    return {
        "campaign": status.campaign.name,
        "campaign_file": str(status.campaign.path),
        "cluster": status.cluster,
        "results": str(status.results),
        "work": str(status.work),
        "asked_s": status.asked_s,
        "queue_answered": status.queue_asked,
        "runs_total": len(status.runs),
        "counts": status.counts(),
        "excluded": sum(run.excluded is not None for run in status.runs),
        "updates": updates,
        "updates_total": total,
        "ends_s": status.ends_s,
        "energy_kwh": energy_used.kwh,
        "energy_low_kwh": energy_used.bounds_kwh[0],
        "energy_high_kwh": energy_used.bounds_kwh[1],
        "energy_budget_kwh": status.campaign.energy_budget_kwh,
        "energy_kwh_by_origin": dict(energy_used.by_origin),
        "energy_unknown_runs": list(energy_used.unknown_runs),
        "superseded_energy_kwh": energy_used.superseded_kwh,
        "probes_energy_kwh": energy_used.probes_kwh,
        "gpu_hours": energy_used.gpu_hours,
        "series": [
            {
                "series": name,
                "runs": len(runs),
                "counts": status.counts(runs),
                **dict(zip(("updates", "updates_total"), updates_of(runs), strict=True)),
            }
            for name, runs in status.of_series().items()
        ],
        "runs": [_run_json(run) for run in status.runs],
    }


def _run_json(run: RunStatus) -> dict[str, Any]:
    state, progress = run.state, run.progress
    now = None if progress is None else asdict(progress)
    return {
        "configuration": run.configuration,
        "repeat": run.repeat,
        "gpus": run.gpus,
        "series": list(run.series),
        "state": state.state,
        "since_s": state.since_s,
        "host": state.host,
        "job": state.job,
        "segment": run.segment,
        "updates": run.updates,
        "updates_total": run.updates_total,
        **{
            name: now[name] if now else None
            for name in ("epoch", "epochs", "step", "steps", "stage", "samples_per_s")
        },
        **(_script_json(run.script, run.epochs) if run.script else {}),
        "progress_written_s": progress.written_s if progress else None,
        "power_w": run.power.watts if run.power else None,
        "power_origin": run.power.origin if run.power else None,
        "left_s": run.left.seconds if run.left else None,
        "left_at_least": run.left.at_least if run.left else None,
        "ends_s": run.ends_s,
        "silent_s": state.silent_s,
        "energy_kwh": run.kwh,
        "energy_low_kwh": run.kwh_bounds[0],
        "energy_high_kwh": run.kwh_bounds[1],
        "energy_known": run.kwh_known,
        "excluded": run.excluded,
        "superseded": run.superseded,
        "reason": state.reason,
        "log": str(state.log) if state.log else None,
        "work_folder": str(state.folder) if state.folder else None,
    }


def _script_json(script: ScriptProgress, epochs: int) -> dict[str, Any]:
    return {"epoch": script.epochs, "epochs": epochs, "stage": script.stage}


def bar(done: float, total: float) -> str:
    """Return a bar of _BAR signs and the share in percent; full only when all is done."""
    full = int(_BAR * done / total) if total else 0
    return f"[{'#' * full}{'.' * (_BAR - full)}] {whole_percent(done, total):3d} %"


def whole_percent(done: float, total: float) -> int:
    """Return a share in whole per cent, rounded down; 0 of nothing."""
    return int(100 * done / total) if total else 0


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: 45 s, 3 min 20 s, 5 h 10 min, 2 d 3 h."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def clock(unix_s: float, now_s: float) -> str:
    """Return a time of this machine's clock; of another day with its date."""
    then, now = time.localtime(unix_s), time.localtime(now_s)
    same_day = then[:3] == now[:3] and unix_s != now_s
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", then)


def kwh_text(kwh: float) -> str:
    """Return an energy in kWh to three digits."""
    return "0" if kwh == 0 else f"{kwh:.1f}" if kwh >= 100 else f"{kwh:.3g}"


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
