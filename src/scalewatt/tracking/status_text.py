"""Print the status of a campaign: as text (at most WIDTH columns), or as JSON."""

from __future__ import annotations

import json
import math
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewatt.campaign.cluster import campaign_path, load_site
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.recordings.terms import ESTIMATED
from scalewatt.results.text.number_format import listed
from scalewatt.slurm.job_queue import never_starts
from scalewatt.tracking.run_state import STATES
from scalewatt.tracking.status import Row, campaign_status

WIDTH = 100
_CLEAR = "\x1b[2J\x1b[H"
"""Clears a terminal, and goes to its first line."""
_BAR = 40
_MEANING = {
    "queued": "submitted, not started",
    "stopped": "at a checkpoint, until their next job",
    "out_of_date": "results of another spec",
}
_IN_DETAIL = ("running", "failed", "refused")
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
        text = json.dumps(status, indent=1, allow_nan=False) if as_json else ""
        print(text or status_text(status, every_run), flush=True)
        if watch_s is None:
            return
        time.sleep(watch_s)
        print(_CLEAR, end="")


def status_text(status: Mapping[str, Any], every_run: bool = False) -> str:
    """The status as text: a line for each series, or for each run, and what needs attention."""
    now_s, runs = status["asked_s"], status["runs"]
    parts = [_head(status), _run_table(runs, now_s) if every_run else _series_table(status)]
    stuck = [r for r in runs if r["state"] == "queued" and never_starts(r["reason"])]
    titles = {f"{_words(state)}:": [r for r in runs if r["state"] == state] for state in _IN_DETAIL}
    titles["queued, and not to start by itself, by Slurm's reason:"] = stuck
    for title, rows in titles.items():
        if rows:
            parts.append([title, *(line for row in rows for line in _details(row, now_s))])
    parts.append(_remarks(status))
    return "\n\n".join("\n".join(_cut(line) for line in part) for part in parts if part)


def _words(state: str) -> str:
    return state.replace("_", " ")


def _head(status: Mapping[str, Any]) -> list[str]:
    """The campaign as a whole: its progress, runs by state, energy and end."""
    now_s, done, runs = status["asked_s"], status["counts"]["done"], status["runs_total"]
    updates, total = status["updates"], status["updates_total"]
    states = (f"{count} {_words(state)}" for state, count in status["counts"].items() if count)
    lines = [
        f"{status['campaign']} ({status['campaign_file']}) on {status['cluster']}, {clock(now_s, now_s)}",
        f"runs     {bar(done, runs)}  {done} of {runs}",
    ]
    if total:
        lines.append(f"updates  {bar(updates, total)}  {updates:,} of {total:,}".replace(",", " "))
    lines += [f"         {', '.join(states)}", f"energy   {_energy(status)}"]
    if ESTIMATED in status["energy_kwh_by_origin"]:
        low, high = (kwh_text(status[f"energy_{end}_kwh"]) for end in ("low", "high"))
        lines.append(f"         {low} to {high} kWh by what is estimated (docs/energy.md)")
    return lines


def _energy(status: Mapping[str, Any]) -> str:
    """What was used so far, by origin, of the budget."""
    by_origin = sorted(status["energy_kwh_by_origin"].items())
    origins = ", ".join(f"{kwh_text(kwh)} {origin}" for origin, kwh in by_origin)
    least = "at least " if status["energy_unknown_runs"] else ""
    budget_kwh = status["energy_budget_kwh"]
    return (
        f"{least}{kwh_text(status['energy_kwh'])} kWh so far"
        + (f" ({origins})" if origins else "")
        + (f" of {budget_kwh:g}" if budget_kwh is not None else "")
        + f", {status['gpu_hours']:.1f} GPUh"
    )


def _series_table(status: Mapping[str, Any]) -> list[str]:
    states = [state for state in STATES if status["counts"][state]]
    rows = [["series", "runs", *map(_words, states), "updates"]]
    for series in status["series"]:
        counts = [str(series["counts"][state] or "·") for state in states]
        rows.append([series["series"], str(series["runs_total"]), *counts, _share(series)])
    return _columns(rows, {0})


def _run_table(runs: Sequence[Row], now_s: float) -> list[str]:
    rows = [["run", "repeat", "state", "updates", "kWh", "job", "since"]]
    for run in runs:
        kwh, since_s, least = run["energy_kwh"], run["since_s"], "" if run["energy_known"] else "≥ "
        energy = _NONE if kwh is None else f"{least}{kwh_text(kwh)}"
        since = _NONE if since_s is None else clock(since_s, now_s)
        name, state = [run["configuration"], str(run["repeat"])], _words(run["state"])
        rows.append([*name, state, _share(run), energy, run["job"] or _NONE, since])
    return _columns(rows, {0, 2})


def _share(row: Mapping[str, Any]) -> str:
    done, total = row["updates"], row["updates_total"]
    return f"{whole_percent(done, total)} %" if total and done is not None else _NONE


def _columns(rows: Sequence[Sequence[str]], words: set[int]) -> list[str]:
    """Rows as aligned columns, those of `words` to the left; the first gives way where it is wide."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = max(min(widths[0], WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)), 8)
    return [
        "  ".join(
            _cut(cell, width).ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# --- a run ----------------------------------------------------------------------------------------


def _details(run: Row, now_s: float) -> Iterator[str]:
    yield f"  {run['configuration']} repeat {run['repeat']}"
    for line in _running(run, now_s) if run["state"] == "running" else _ended(run, now_s):
        yield f"    {line}"


def _running(run: Row, now_s: float) -> Iterator[str]:
    yield ", ".join(_progress(run))
    where = f"job {run['job']}" if run["job"] else "no job"
    where += f" on {run['host']}" if run["host"] else ""
    segment = f", segment {run['segment']}" if run["segment"] is not None else ""
    since = f" since {clock(run['since_s'], now_s)}" if run["since_s"] is not None else ""
    yield f"{where}{segment}{since}{_left(run)}"
    if run["silent_s"] is not None:
        yield f"no sign of life for {duration(run['silent_s'])}: its process or node may be dead"


def _progress(run: Row) -> Iterator[str]:
    """How far a running one is, at what rate and power."""
    if run["epoch"] is None:
        yield "starts" if run["segment"] is None else f"segment {run['segment']}: starts"
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


def _left(run: Row) -> str:
    """Training that is left of a running one, after a semicolon; empty if unknown."""
    if run["left_s"] is None:
        return ""
    least = "at least " if run["left_at_least"] else ""
    return f"; {least}{duration(run['left_s'])} of training left"


def _ended(run: Row, now_s: float) -> Iterator[str]:
    when = f" ({clock(run['since_s'], now_s)})" if run["since_s"] is not None else ""
    reason = run["reason"] or "it did not say why"
    job = f"job {run['job']}: " if run["job"] and run["job"] not in reason else ""
    yield f"{job}{reason}{when}"
    if run["log"] is not None:
        yield f"log: {run['log']}"


# --- remarks --------------------------------------------------------------------------------------


def _remarks(status: Mapping[str, Any]) -> list[str]:
    """What else there is to say: meanings of states, exclusions, energies of no current run."""
    counts = status["counts"]
    lines = [f"{_words(state)}: {text}" for state, text in _MEANING.items() if counts[state]]
    lines += [f"not shown: {points}" for points in status["left_out"]]
    excluded = [
        f"{run['configuration']} repeat {run['repeat']} ({run['excluded']})"
        for run in status["runs"]
        if run["excluded"] is not None
    ]
    sentences = list(status["changed_files"])
    if excluded:
        named = f"{listed(excluded, _NAMED)} (all: scalewatt exclude)"
        sentences.insert(0, f"excluded from tables and figures: {named}")
    if not status["queue_answered"]:
        sentences.append("Slurm's queue gives no answer: jobs that wait there count as not started")
    if superseded_kwh := status["superseded_energy_kwh"]:
        of = "of runs no longer in the campaign, or measured again"
        sentences.append(f"{kwh_text(superseded_kwh)} kWh are {of}")
    if probes_kwh := status["probes_energy_kwh"]:
        sentences.append(f"{kwh_text(probes_kwh)} kWh are of idle probes")
    if unknown := status["energy_unknown_runs"]:
        named = listed(unknown, _NAMED)
        sentences.append(f"more was used than was recorded by (all: --json): {named}")
    for sentence in sentences:
        lines += textwrap.wrap(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return lines


# --- numbers --------------------------------------------------------------------------------------


def bar(done: float, total: float) -> str:
    """A bar of _BAR signs and the share in percent; full only when all is done."""
    full = int(_BAR * done / total) if total else 0
    return f"[{'#' * full}{'.' * (_BAR - full)}] {whole_percent(done, total):3d} %"


def whole_percent(done: float, total: float) -> int:
    """A share in whole percent, rounded down; 0 of nothing."""
    return int(100 * done / total) if total else 0


def duration(seconds: float) -> str:
    """A duration in its two largest units: 45 s, 3 min 20 s, 5 h 10 min, 2 d 3 h."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def clock(unix_s: float, now_s: float) -> str:
    """A time of this machine's clock; of another day with its date."""
    then, now = time.localtime(unix_s), time.localtime(now_s)
    same_day = then[:3] == now[:3] and unix_s != now_s
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", then)


def kwh_text(kwh: float) -> str:
    """An energy in kWh to three digits."""
    return "0" if kwh == 0 else f"{kwh:.1f}" if kwh >= 100 else f"{kwh:.3g}"


def _cut(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
