"""A campaign at a glance, from its files alone: what each run does, how far it is, what was used.

Works while jobs run and without any of them: nothing is waited for but one answer of squeue, and nothing
is written but notes that make the next look cheap (`energy_used`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, Device, powers
from scalewatt.campaign.exclusions import excluded_runs, read_exclusions
from scalewatt.campaign.external_command import is_command_spec
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object
from scalewatt.energies.run_inputs import PlannedRun, Run
from scalewatt.events import EVENTS_FILE, HISTORY_FILE
from scalewatt.recordings.journal import journal_files
from scalewatt.recordings.node_names import nodes_by_name
from scalewatt.recordings.stage_log import final_reports, read_json_lines
from scalewatt.run_files.inventory import (
    Published,
    WorkFolder,
    last_used_s,
    published_runs,
    superseded_runs,
    work_folders,
)
from scalewatt.run_files.record import Progress, read_progress, read_segments
from scalewatt.slurm.job_queue import Queue, job_of_run, queued_jobs
from scalewatt.slurm.slurm_commands import NoAnswerError
from scalewatt.tracking.energy_used import (
    EnergyUsed,
    described_segment,
    energy_used_kwh,
    powers_or_none,
)
from scalewatt.tracking.eta import TimeLeft, time_left
from scalewatt.tracking.run_state import (
    STATES,
    RunState,
    State,
    checkpoint_updates,
    number,
    run_state,
)
from scalewatt.tracking.running_total import read_so_far

if TYPE_CHECKING:
    from scalewatt.energies.read import Powers

STALE_S = 30.0
"""A journal whose last sample is older than this, or than ten periods, says nothing of now."""


@dataclass(frozen=True)
class Power:
    """The current power of a run's nodes, in W."""

    watts: float
    origin: str | None


@dataclass(frozen=True)
class ScriptProgress:
    """How far a command is, by its script's reports."""

    epochs: int
    """That were reported."""
    updates: int | None
    """Of these; None where an epoch's were not reported."""
    stage: str | None
    """Of a running one: the stage that the script began last."""


@dataclass(frozen=True)
class RunStatus:
    """One run."""

    configuration: str
    repeat: int
    gpus: int
    series: tuple[str, ...]
    state: RunState
    updates: int | None
    """Of the whole run so far; of one that does not run, those in its checkpoint."""
    updates_total: int | None
    segment: int | None = None
    progress: Progress | None = None
    """Of a running one, once its training has begun."""
    epochs: int = 0
    """That it is to do."""
    script: ScriptProgress | None = None
    """Of a command, once its script has reported an epoch or marked a stage."""
    power: Power | None = None
    left: TimeLeft | None = None
    """Training left after the note of progress."""
    ends_s: float | None = None
    """When it will have finished, in Unix s; None if its job ends before, or it is unknown."""
    kwh: float | None = None
    """At least; None if nothing was recorded."""
    kwh_bounds: tuple[float | None, float | None] = (None, None)
    """The interval of `kwh` by what is estimated of it."""
    kwh_known: bool = True
    excluded: str | None = None
    """Why it is left out of tables and figures; None if it is not."""
    superseded: int = 0
    """Earlier measurements of it that were set aside."""


@dataclass(frozen=True)
class CampaignStatus:
    """A campaign at one time."""

    campaign: Campaign
    cluster: str
    results: Path
    work: Path
    asked_s: float
    queue_asked: bool
    """False if Slurm's queue gave no answer."""
    runs: tuple[RunStatus, ...]
    energy_used: EnergyUsed

    def counts(self, runs: Iterable[RunStatus] | None = None) -> dict[State, int]:
        """Return how many of the runs are in each state."""
        found = Counter(run.state.state for run in (self.runs if runs is None else runs))
        return {state: found[state] for state in STATES}

    def of_series(self) -> dict[str, list[RunStatus]]:
        """Return the runs of each series; those that series share are in each of them."""
        return {name: [r for r in self.runs if name in r.series] for name in self.campaign.series}

    @property
    def ends_s(self) -> float | None:
        """Return when the last run will have finished, in Unix s; None unless all that are left run."""
        left = [run for run in self.runs if run.state.state != "done"]
        ends = [run.ends_s for run in left]
        return None if not ends or None in ends else max(e for e in ends if e is not None)


def updates_of(runs: Iterable[RunStatus]) -> tuple[int, int]:
    """Return the updates done and in total, of the runs whose number of updates is known."""
    known = [run for run in runs if run.updates_total is not None]
    return sum(r.updates or 0 for r in known), sum(r.updates_total or 0 for r in known)


def campaign_status(
    campaign: Campaign, cluster: Cluster, results: Path, work_root: Path
) -> CampaignStatus:
    """Look at a campaign whose results and working directories are in folders of its name."""
    results, work = results / campaign.name, work_root / campaign.name
    excluded = excluded_runs(read_exclusions(campaign), results)
    published, working = published_runs(results), work_folders(work)
    rated = powers_or_none(lambda device, _: powers(cluster.devices[device]))
    energy_used = energy_used_kwh(campaign, results, work, rated, published, working)
    specs = _specs(campaign, results)
    queue = _ask_queue(cluster)
    out = {(e["configuration"], e["repeat"]): e["reason"] for e in excluded}
    earlier = Counter((one.configuration, one.repeat) for one in superseded_runs(results))
    look = _Look(
        campaign,
        cluster,
        results,
        published,
        working,
        queue or {},
        rated,
        energy_used,
        out,
        earlier,
    )
    return CampaignStatus(
        campaign,
        cluster.name,
        results,
        work,
        time.time(),
        queue is not None,
        tuple(look.run(spec) for spec in specs),
        energy_used,
    )


def _specs(campaign: Campaign, results: Path) -> list[RunSpec]:
    """Return the specs of all runs, by the campaign; of registered runs, as far as they were written."""
    runs = [(run.configuration.id, run.repeat) for run in campaign.runs()]
    if not campaign.registered:
        return [run_spec(campaign, *run) for run in runs]
    found: list[RunSpec] = []
    for configuration, repeat in runs:
        try:
            path = results / "runs" / configuration / str(repeat) / "spec.json"
            found.append(read_spec(path))
        except InputError:
            found.append(run_spec(campaign, configuration, repeat))
    return found


def _ask_queue(cluster: Cluster) -> Queue | None:
    """The user's jobs in Slurm's queue; None without an answer, empty on a machine without Slurm."""
    if not any(device.partition for device in cluster.devices.values()):
        return {}
    try:
        return queued_jobs()
    except NoAnswerError:
        return None


@dataclass(frozen=True)
class _Look:
    """One look at the runs of a campaign."""

    campaign: Campaign
    cluster: Cluster
    results: Path
    published: Mapping[tuple[str, int], Published]
    working: Mapping[str, Sequence[WorkFolder]]
    queue: Queue
    rated: Powers
    energy_used: EnergyUsed
    excluded: Mapping[tuple[str, int], str]
    """Reasons."""
    superseded: Mapping[tuple[str, int], int]

    def run(self, spec: RunSpec) -> RunStatus:
        """Look at one run."""
        configuration, repeat = spec.configuration, spec.repeat
        published = self.published.get((configuration, repeat))
        is_current = published is not None and (
            bool(self.campaign.registered) or published.spec_sha256 == spec.sha256
        )
        folders = [folder.path for folder in self.working.get(spec.key, ())]
        folders.sort(key=last_used_s, reverse=True)
        project = self.results.resolve().parents[1]
        job = job_of_run(self.queue, project, configuration, repeat)
        retries = self.cluster.crash_retries
        state = run_state(spec, published, is_current, folders, job, retries)
        key = published.key if published and state.state == "done" else spec.key
        energy_used = self.energy_used.runs.get(key)
        facts: dict[str, Any] = {
            "configuration": configuration,
            "repeat": repeat,
            "gpus": spec.gpus,
            "series": tuple(self.campaign.series_of(configuration)),
            "state": state,
            "updates_total": spec.updates,
            "epochs": spec.epochs,
            "kwh": energy_used.kwh if energy_used and energy_used.joules else None,
            "kwh_bounds": energy_used.bounds_kwh
            if energy_used and energy_used.joules
            else (None, None),
            "kwh_known": energy_used.known if energy_used else True,
            "excluded": self.excluded.get((configuration, repeat)),
            "superseded": self.superseded.get((configuration, repeat), 0),
        }
        folder = state.folder
        if is_command_spec(spec) and folder is not None:
            facts["script"] = script_progress(folder)
        if state.state == "running" and folder is not None:
            under_way = self._under_way(spec, state, folder)
            if facts.get("script"):
                under_way["updates"] = facts["script"].updates
            return RunStatus(**facts, **under_way)
        trained = state.state == "done" or (
            folder is not None and (folder / "result.json").exists()
        )
        updates = spec.updates if trained else checkpoint_updates(folder)
        script = facts.get("script")
        if script is not None and (script.updates is not None or not trained):
            updates = script.updates
        if state.state == "done" and published is not None and is_command_spec(spec):
            facts["excluded"] = facts["excluded"] or _left_out(spec, published.folder)
        segments = read_segments(folder) if folder else []
        return RunStatus(**facts, updates=updates, segment=len(segments) - 1 if segments else None)

    def _under_way(self, spec: RunSpec, state: RunState, folder: Path) -> dict[str, Any]:
        """Return what the files of a running run say of it."""
        segments = read_segments(folder)
        last = segments[-1] if segments else {}
        segment = last.get("segment")
        if last.get("outcome") != "running" or type(segment) is not int:  # it is about to begin
            return {"updates": checkpoint_updates(folder), "segment": None}
        progress = read_progress(folder)
        if progress is None or progress.segment != segment:
            progress = None
        power = power_now(folder, spec, self.rated, segment)
        updates = progress.updates if progress else checkpoint_updates(folder)
        facts = {"segment": segment, "power": power, "progress": progress, "updates": updates}
        if progress is None:
            return facts
        before = number(last.get("from_updates"))
        left = time_left(progress, None if before is None else int(before), _marks(folder))
        if left is None or left.at_least or state.silent_s is not None:
            return {**facts, "left": left}
        ends_s = progress.written_s + left.seconds
        if ends_s > self._job_ends_s(spec, state, last):
            return {**facts, "left": left}
        return {**facts, "left": left, "ends_s": max(ends_s, time.time())}

    def _job_ends_s(self, spec: RunSpec, state: RunState, segment: dict[str, Any]) -> float:
        """Return when a run's job is told to stop at a checkpoint, in Unix s; infinite without a limit."""
        if state.job is None:
            return float("inf")
        job = self.queue.get(state.job)
        ends_s = job.ends_s if job else None
        if ends_s is None:
            device: Device | None = self.cluster.devices.get(spec.device)
            limit_min = device.time_limit_min if device else None
            began_s = number(segment.get("started_s"))
            if limit_min is None or began_s is None:
                return float("inf")
            ends_s = began_s + 60 * limit_min
        return ends_s - self.cluster.stop_warning_s


def script_progress(folder: Path) -> ScriptProgress | None:
    """Return how far a command is, by its working directory; None where its script reports nothing."""
    try:
        reports = final_reports(folder / HISTORY_FILE)
        marks = read_json_lines(folder / EVENTS_FILE)
        if not reports and not marks:
            return None
        counts = [report["updates"] for report in reports]
        return ScriptProgress(
            int(reports[-1]["epoch"]) + 1 if reports else 0,
            None if None in counts else sum(counts),
            str(marks[-1]["stage"]) if marks else None,
        )
    except (OSError, KeyError, TypeError, ValueError):  # damaged
        return None


def _left_out(spec: RunSpec, folder: Path) -> str | None:
    """Return why a finished command is in no comparison, by what its script reported; None if it is."""
    from scalewatt.results.tables.run_row import read_history  # with pandas
    from scalewatt.results.tables.script_flags import script_flags
    from scalewatt.results.text.flag_labels import left_out

    try:
        provenance = read_json_object(folder / "provenance.json")
        return left_out(script_flags(spec, provenance, read_history(folder / "history.parquet")))
    except InputError:
        return None


def _marks(folder: Path) -> list[Any]:
    try:
        return read_json_lines(folder / "events.jsonl")
    except (OSError, UnicodeDecodeError):
        return []


def power_now(folder: Path, spec: RunSpec, rated: Powers, segment: int) -> Power | None:
    """Return what the nodes of a running segment draw; None if one of them does not say."""
    described = described_segment(folder, segment)
    powers = rated(spec.device, spec.name)
    run = Run(folder, PlannedRun.of(spec), powers, described, None)
    stale_s = max(STALE_S, 10 * (number(spec.sampling_period_s) or 0.0))
    watts, origins, hosts = 0.0, set(), set()
    for path in journal_files(folder / "perun").get(segment, {}).values():
        found = read_so_far(path, run)
        if found is None or found.watts is None or time.time() - found.last_s > stale_s:
            continue
        watts += found.watts
        hosts.add(found.host)
        origins |= set(found.kinds["origin"])
    nodes = nodes_by_name(hosts, run.hostnames)
    expected = {nodes[host] for host in run.hostnames or hosts}
    if not hosts or {nodes[host] for host in hosts} != expected or len(expected) != spec.nodes:
        return None
    return Power(watts, origins.pop() if len(origins) == 1 else "mixed")
