"""Compare the histories and energies of re-runs with those of the campaign."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.common.errors import InputError
from scalewatt.reproduction.check_result import (
    DIFFERS,
    ENERGY,
    HISTORY,
    NOT_CHECKED,
    Finding,
    compared,
    not_checked,
)
from scalewatt.reproduction.energy_check import energy_findings
from scalewatt.reproduction.history_check import history_findings, other_circumstances, read_table
from scalewatt.reproduction.provenance_check import commits_of
from scalewatt.reproduction.run_selection import Run, again_folder, run_folder
from scalewatt.results.tables.derived_quantities import Facility
from scalewatt.results.tables.run_row import RunFiles, run_row
from scalewatt.run_files.run_inventory import json_object, published_runs

_OTHER = {
    "data": "the re-run used other data: what it learnt is not comparable",
    "commit": "the re-run used other code: check out the first commit to compare",
}


@dataclass(frozen=True)
class Repeat:
    """A re-run of a run of the campaign."""

    configuration: str
    repeat: int
    made: str
    """When, in UTC, as ISO 8601 writes it."""
    on: str | None
    """The machine's device."""
    circumstances: tuple[str, ...]
    """Differences from the first run in machine and packages."""


def found_repeats(results: Path) -> list[Repeat]:
    """Return the re-runs below a campaign's results."""
    found = []
    for (configuration, repeat), one in sorted(published_runs(again_folder(results)).items()):
        first = _provenance(results, (configuration, repeat))
        again = json_object(one.folder / "provenance.json")
        made = datetime.fromtimestamp(one.mtime_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")
        words = tuple(other_circumstances(first, again))
        found.append(Repeat(configuration, repeat, made, again.get("device_name"), words))
    return found


def repeat_findings(results: Path, campaign: Campaign) -> list[Finding]:
    """Return the findings of histories, then of energies, of all re-runs."""
    runs = sorted(published_runs(again_folder(results)))
    histories = [one for run in runs for one in _tried(HISTORY, run, results, campaign)]
    return histories + [one for run in runs for one in _tried(ENERGY, run, results, campaign)]


def _tried(check: str, run: Run, results: Path, campaign: Campaign) -> list[Finding]:
    """Return the findings of one check of a run; an unreadable history is a difference."""
    name = f"{run[0]}/{run[1]}"
    own, again = _provenance(results, run), _provenance(again_folder(results), run)
    if not own:
        return [not_checked(check, name, "the run itself does not exist any more")]
    if own.get("spec_sha256") != again.get("spec_sha256"):
        why = "the re-run has another spec than the run has now: repeat it"
        return [not_checked(check, name, why)]
    try:
        if check == HISTORY:
            return _history(name, run, results, own, again)
        return _energy(name, run, results, campaign)
    except InputError as error:
        outcome = DIFFERS if check == HISTORY else NOT_CHECKED
        return [Finding(check, name, outcome, detail=str(error))]


def _history(
    name: str, run: Run, results: Path, own: Mapping[str, Any], again: Mapping[str, Any]
) -> list[Finding]:
    first = read_table(run_folder(results, run) / "history.parquet")
    second = read_table(run_folder(again_folder(results), run) / "history.parquet")
    # A simulation computes on the CPU alone, whatever device it is of.
    simulated = "simulated" in own and "simulated" in again
    on_gpu = not simulated and "cuda" in (own.get("torch_device"), again.get("torch_device"))
    context = "; ".join(other_circumstances(own, again)) or None
    learnt = history_findings(name, first, second, on_gpu, own.get("metric_name"), context)
    return [*made_alike(name, own, again), *learnt]


def made_alike(name: str, own: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether a re-run had the same data and code, where both record them."""
    pairs = {
        "data": (own.get("dataset_sha256"), again.get("dataset_sha256")),
        "commit": (commits_of(own), commits_of(again)),
    }
    for what, (first, second) in pairs.items():
        if first is not None and second is not None:
            yield compared(HISTORY, f"{name}: {what}", first, second, _OTHER[what])


def _energy(name: str, run: Run, results: Path, campaign: Campaign) -> list[Finding]:
    again = run_row(RunFiles(again_folder(results), *run), results.name, Facility())
    rows = read_exclusions(campaign)
    left_out = {(one["configuration"], one["repeat"]) for one in excluded_runs(rows, results)}
    earlier = [
        run_row(RunFiles(results, *one), results.name, Facility())
        for one in sorted(published_runs(results))
        if one[0] == run[0] and one not in left_out
    ]
    return energy_findings(name, earlier, again)


def _provenance(results: Path, run: Run) -> dict[str, Any]:
    return json_object(run_folder(results, run) / "provenance.json")
