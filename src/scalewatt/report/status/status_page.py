"""The page of a campaign's status: one self-contained HTML file."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt import __version__
from scalewatt.common.untrusted_text import printable
from scalewatt.report.html_tables import STYLE, templates
from scalewatt.report.page_scripts import script_of
from scalewatt.report.status.log_tail import last_lines
from scalewatt.report.status.outlook import Outlook
from scalewatt.results.text.number_format import MISSING, number
from scalewatt.tracking.run_state import STATES, State
from scalewatt.tracking.status import CampaignStatus, RunStatus, updates_of
from scalewatt.tracking.status_text import (
    STATE_WORDS,
    clock,
    duration,
    energy_sentences,
    kwh_text,
    left_text,
    remarks,
    whole_percent,
)

_FOLDER = Path(__file__).parent
_FAILED: tuple[State, ...] = ("failed", "refused")
MOST_LOGS = 20
"""Runs whose logs are shown."""


@dataclass(frozen=True)
class Writing:
    """How the page is kept up to date."""

    every_s: float | None = None
    """None: it is not written again."""
    ended: str | None = None
    """Why it is no longer written, where it was."""


@dataclass(frozen=True)
class Share:
    """How far something is."""

    words: str
    done: float
    total: float

    @property
    def percent(self) -> int:
        """Return the share in whole per cent, rounded down; that of a budget may be above 100."""
        return whole_percent(self.done, self.total)

    @property
    def full(self) -> int:
        """Return the share in per cent that a bar shows."""
        return min(100, self.percent)


def status_page(status: CampaignStatus, expected: Outlook, writing: Writing) -> str:
    """Return the page; every text of names, reasons and logs is escaped."""
    states = [state for state in STATES if status.counts()[state]]
    running = [run for run in status.runs if run.state.state == "running"]
    return (
        templates(_FOLDER)
        .get_template("page.html.j2")
        .render(
            campaign=printable(status.campaign.name),
            file=printable(str(status.campaign.path)),
            cluster=printable(status.cluster),
            written_s=status.asked_s,
            written=time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(status.asked_s)),
            writing=writing,
            facts=_facts(status, expected, running),
            shares=_shares(status),
            energy=[_sentence(one) for one in energy_sentences(status)],
            expected=expected,
            states=[STATE_WORDS[state] for state in states],
            series=[
                _series(name, runs, states, status) for name, runs in status.of_series().items()
            ],
            running=[_running(run, status.asked_s) for run in running],
            failures=list(_failures(status)),
            runs=[_row(run, status.asked_s) for run in status.runs],
            remarks=[_sentence(printable(one.strip())) for one in remarks(status)],
            version=__version__,
            style=STYLE.read_text(encoding="utf-8")
            + (_FOLDER / "status.css").read_text(encoding="utf-8"),
            script=script_of(_FOLDER / "status.js"),
        )
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _facts(
    status: CampaignStatus, expected: Outlook, running: list[RunStatus]
) -> list[tuple[str, str, str]]:
    """Return what is known at a glance: name, value, and a note."""
    counts = status.counts()
    failed = sum(counts[state] for state in _FAILED)
    ends, in_time = MISSING, ""
    if expected.ends_s is not None:
        minute = clock(expected.ends_s, status.asked_s).rpartition(":")[0]
        ends, in_time = f"about {minute}", f"in {duration(expected.ends_s - status.asked_s)}"
    return [
        ("runs done", f"{counts['done']} of {len(status.runs)}", ""),
        ("running now", str(len(running)), ""),
        ("failed or refused", str(failed), ""),
        ("power now", *_power(running)),
        ("predicted end", ends, in_time),
        ("energy so far", *_energy(status)),
        ("energy in the end", *_energy_in_the_end(status, expected)),
    ]


def _power(running: list[RunStatus]) -> tuple[str, str]:
    known = [run.power for run in running if run.power is not None]
    if not known:
        return MISSING, "" if not running else "of no running run is it known"
    watts = sum(power.watts for power in known)
    origins = {power.origin or "of unknown origin" for power in known}
    origin = origins.pop() if len(origins) == 1 else "mixed"
    origin = "measured and estimated" if origin == "mixed" else origin
    part = "" if len(known) == len(running) else f", of {len(known)} of {len(running)} running runs"
    return f"{watts / 1000:.3g} kW" if watts >= 10_000 else f"{watts:.0f} W", f"{origin}{part}"


def _energy(status: CampaignStatus) -> tuple[str, str]:
    used, budget = status.energy_used, status.campaign.energy_budget_kwh
    least = "≥ " if used.unknown_runs else ""
    note = f"of a budget of {budget:g} kWh" if budget is not None else "no budget"
    origins = ", ".join(sorted(used.by_origin))
    return f"{least}{kwh_text(used.kwh)} kWh", f"{note}{f'; {origins}' if origins else ''}"


def _energy_in_the_end(status: CampaignStatus, expected: Outlook) -> tuple[str, str]:
    if expected.more_kwh is None:
        return MISSING, "what is left cannot be predicted"
    whole, budget = status.energy_used.kwh + expected.more_kwh, status.campaign.energy_budget_kwh
    note = "so far, and what is left as predicted"
    if budget is not None and whole > budget:
        note = f"above the budget of {budget:g} kWh, as predicted"
    if any(run.state.state in ("failed", "refused") for run in status.runs):
        note += "; runs that failed or were refused left out"
    least = "at least" if status.energy_used.unknown_runs else "about"
    return f"{least} {number(whole, 3)} kWh", note


def _shares(status: CampaignStatus) -> list[Share]:
    updates, total = updates_of(status.runs)
    runs = Share("runs", status.counts()["done"], len(status.runs))
    found = [runs, *([Share("updates", updates, total)] if total else [])]
    budget = status.campaign.energy_budget_kwh
    if budget is not None:
        found.append(Share("energy budget", status.energy_used.kwh, budget))
    return found


def _series(
    name: str, runs: list[RunStatus], states: list[State], status: CampaignStatus
) -> dict[str, Any]:
    updates, total = updates_of(runs)
    counts = status.counts(runs)
    share = Share(name, updates, total) if total else Share(name, counts["done"], len(runs))
    return {
        "name": printable(name),
        "runs": len(runs),
        "counts": [counts[state] for state in states],
        "share": share,
    }


def _running(run: RunStatus, now_s: float) -> dict[str, str]:
    """Return the cells of a running run."""
    state, progress = run.state, run.progress
    power = MISSING
    if run.power is not None:
        origin = "" if run.power.origin == "measured" else f" ({run.power.origin})"
        power = f"{run.power.watts:.0f} W{origin}"
    where = " on ".join(filter(None, [state.job and f"job {state.job}", state.host]))
    silent = ""
    if state.silent_s is not None:
        silent = f"no sign of life for {duration(state.silent_s)}: its process or node may be dead"
    position = "starts"
    if progress is not None:
        epoch = min(progress.epoch + 1, progress.epochs)
        position = f"epoch {epoch} of {progress.epochs}, {progress.stage}"
    speed = None if progress is None else progress.samples_per_s
    return {
        "name": printable(f"{run.configuration} repeat {run.repeat}"),
        "position": printable(position),
        "speed": MISSING if speed is None else f"{speed:.4g}",
        "power": power,
        "kwh": MISSING if run.kwh is None else kwh_text(run.kwh),
        "where": printable(where) or MISSING,
        "since": MISSING if state.since_s is None else clock(state.since_s, now_s),
        "ends": printable(left_text(run, now_s).removeprefix("; ")) or MISSING,
        "silent": silent,
    }


def _failures(status: CampaignStatus) -> Iterable[dict[str, Any]]:
    """Yield the runs that failed or were refused, with the last lines of their logs."""
    found = [run for run in status.runs if run.state.state in _FAILED]
    for place, run in enumerate(found):
        state = run.state
        when = "" if state.since_s is None else clock(state.since_s, status.asked_s)
        lines = None if state.log is None or place >= MOST_LOGS else last_lines(state.log)
        yield {
            "id": f"failure-{run.configuration}-{run.repeat}",
            "name": printable(f"{run.configuration} repeat {run.repeat}"),
            "state": STATE_WORDS[state.state],
            "when": when,
            "job": printable(state.job or ""),
            "reason": printable(state.reason or "it did not say why"),
            "log": None if state.log is None else printable(str(state.log)),
            "lines": lines,
        }


def _row(run: RunStatus, now_s: float) -> list[str]:
    """Return the cells of a run in the table of all."""
    known = run.updates_total and run.updates is not None
    since = run.state.since_s
    energy = MISSING
    if run.kwh is not None:
        energy = f"{'' if run.kwh_known else '≥ '}{kwh_text(run.kwh)}"
    return [
        printable(run.configuration),
        str(run.repeat),
        STATE_WORDS[run.state.state],
        f"{whole_percent(run.updates or 0, run.updates_total or 1)} %" if known else MISSING,
        energy,
        printable(run.state.job or MISSING),
        MISSING if since is None else clock(since, now_s),
        "" if run.excluded is None else printable(f"excluded: {run.excluded}"),
    ]
