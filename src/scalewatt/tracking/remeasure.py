"""Leaving finished runs out, and measuring them again: the commands, and what Snakemake itself replaces.

`exclude` writes a row of the campaign's table. `remeasure` sets a measurement aside besides: nothing is
overwritten or deleted, what was measured moves by rename to `superseded/<configuration>/<repeat>/<k>/` below
the campaign's results, and below its folder of working directories. The run folder moves last, in one rename:
until then the run is finished, and the same command moves the rest.

Snakemake deletes a job's outputs before it starts: what it is going to train again is set aside before any
job (`set_replaced_aside`), without a row in the table. The working directory of another spec, or of other
data, stays: with the earlier setting the run is published from it once more.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, campaign_path, load_site
from scalewatt.campaign.exclusions import (
    EXCLUDE,
    REMEASURE,
    REPLACED,
    Exclusion,
    changing,
    check_run,
    exclusion,
    exclusions_path,
    measurement_of,
    read_exclusions,
    write_exclusions,
)
from scalewatt.campaign.load import is_results_only, load_campaign
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, write_json
from scalewatt.run_files.inventory import (
    RUN,
    SET_ASIDE,
    SUPERSEDED,
    RunName,
    find_workdirs,
    json_object,
    published_run,
    run_folder,
)
from scalewatt.run_files.lock import is_alive, read_holder
from scalewatt.scheduling.preflight import queued_runs

WEIGHTS, SPEC = "weights.pt", "spec.json"
_INCOMPLETE = "results incomplete or out of date"


@dataclass(frozen=True)
class CampaignFolders:
    """A campaign and where its files are."""

    campaign: Campaign
    cluster: Cluster
    results: Path
    """The campaign's own folder of results."""
    work: Path
    """The campaign's own folder of working directories."""

    @classmethod
    def find(
        cls, site: str, campaign: Path | None, results: Path, work: Path | None
    ) -> CampaignFolders:
        """The campaign that a command is about, as `scalewatt status` finds it."""
        cluster = load_site(site)
        loaded = load_campaign(campaign or campaign_path(cluster), cluster, to_run=False).whole
        root = work or Path(cluster.work_root)
        return cls(loaded, cluster, results / loaded.name, root / loaded.name)

    def spec(self, run: RunName) -> RunSpec:
        """Spec of one of its runs; as it was written if the campaign no longer has the run."""
        if run[0] not in self.campaign.configurations:
            return read_spec(self.folder(run) / SPEC)
        return run_spec(self.campaign, *run)

    def folder(self, run: RunName) -> Path:
        """A run's folder."""
        return run_folder(self.results, run)

    def measurement(self, run: RunName) -> str:
        """Name of a run's measurement; InputError if there is no such run, or it is not finished."""
        check_run(self.campaign, *run, _name(run))
        measurement = measurement_of(self.results, *run)
        if measurement is None:
            raise InputError(f"{_name(run)}: is not finished; expected a run that is done")
        return measurement

    def started_from(self, run: RunName) -> list[RunName]:
        """Runs that start from the weights of a run."""
        return [
            (id_, run[1])
            for id_, other in self.campaign.configurations.items()
            if other.initial_weights == run[0] and run[1] <= self.campaign.repeats[id_]
        ]


# --- exclude ----------------------------------------------------------------------------------------


def exclude(folders: CampaignFolders, run: RunName, reason: str | None) -> list[str]:
    """Leave a run's present measurement out; InputError if there is none, or it is left out already."""
    measurement = folders.measurement(run)
    with changing(folders.results):
        rows = read_exclusions(folders.campaign)
        if any(row.run == run and row.excludes(measurement) for row in rows):
            raise InputError(f"{_name(run)}: is excluded already")
        row = exclusion(run, EXCLUDE, reason, measurement)
        write_exclusions(folders.campaign, (*rows, row))
    return [
        f"excluded: {_name(run)}: {row.reason}",
        f"  noted in {exclusions_path(folders.campaign)}: keep it with the campaign file",
    ]


def _name(run: RunName) -> str:
    return f"{run[0]} repeat {run[1]}"


# --- remeasure --------------------------------------------------------------------------------------


def remeasure(folders: CampaignFolders, run: RunName, reason: str | None) -> list[str]:
    """Set a run's measurement aside; InputError if nothing would measure it again, or it is in use."""
    folders.measurement(run)  # a refusal leaves nothing behind, not even a lock
    if is_results_only(folders.campaign, folders.cluster):
        raise InputError(
            f"{_name(run)}: on '{folders.cluster.name}' nothing trains it (results_only, or registered); "
            "expected the site that does, or scalewatt exclude"
        )
    started_from = folders.started_from(run)
    with changing(folders.results):
        measurement = folders.measurement(run)
        published = published_run(folders.folder(run), *run)
        if published is None or published.spec_sha256 != folders.spec(run).sha256:
            raise InputError(
                f"{folders.folder(run)}: its results are of another spec; the next start trains it again "
                "anyway"
            )
        for each in (run, *started_from):
            _check_unused(folders, each)
        row = exclusion(run, REMEASURE, reason, measurement)
        write_exclusions(folders.campaign, (*read_exclusions(folders.campaign), row))
        kept = _set_aside(folders, run, row)
    stay = [other for other in started_from if measurement_of(folders.results, *other)]
    return [
        f"{_name(run)}: set aside: {kept}",
        f"  the next start of Snakemake trains it again ({row.reason})",
        *(f"  {_name(other)} started from its weights and stays as it is" for other in stay),
        f"  noted in {exclusions_path(folders.campaign)}: keep it with the campaign file",
    ]


def _check_unused(folders: CampaignFolders, run: RunName) -> None:
    """Raise InputError if a run is being trained, or a job for it is in Slurm's queue."""
    for folder in find_workdirs(folders.work, folders.spec(run)):
        holder = read_holder(folder)
        if holder is not None and is_alive(folder, holder):
            raise InputError(
                f"{_name(run)}: {holder} trains it; wait for it or end it ({holder.how_to_end})"
            )
    if any(device.partition for device in folders.cluster.devices.values()):
        for problem in queued_runs(folders.campaign.name, [run]):
            raise InputError(problem)


def _set_aside(
    folders: CampaignFolders, run: RunName, row: Exclusion, with_work: bool = True
) -> Path:
    """Move all that belongs to a measurement, the run folder last; InputError if that fails.

    Returns where it is: the next folder, or that of a move that was broken off.
    """
    parent = folders.results / SUPERSEDED / run[0] / str(run[1])
    kept = next(parent / str(n) for n in count(1) if not (parent / str(n) / RUN).exists())
    folder = folders.folder(run)
    try:
        kept.mkdir(parents=True, exist_ok=True)
        for kind in ("traces", "energy"):
            for path in sorted((folders.results / kind / run[0]).glob(f"{run[1]}.*")):
                os.rename(path, kept / (kind + path.name.removeprefix(str(run[1]))))
        for path in find_workdirs(folders.work, folders.spec(run)) if with_work else ():
            kept_work = folders.work / kept.relative_to(folders.results) / path.name
            kept_work.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, kept_work)
        # Snakemake sees by it that the run is needed again: one that is missing alone does not make it
        # train, as long as all tables are there. Its time makes each note another one.
        write_json(kept / SET_ASIDE, {**row.model_dump(), "set_aside_s": time.time()})
        os.rename(folder, kept / RUN)
        if any(measurement_of(folders.results, *other) for other in folders.started_from(run)):
            # Snakemake would train finished runs that started from the weights again if they were missing.
            _leave(kept / RUN / WEIGHTS, folder / WEIGHTS)
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: cannot be moved ({error.strerror}); what was moved is in {kept}, "
            "the same command moves the rest"
        ) from error
    return kept


def _leave(kept: Path, target: Path) -> None:
    """Copy a file of what was set aside, if there is one, to where Snakemake looks for it."""
    if kept.exists():
        with atomic_path(target) as temporary:
            shutil.copy2(kept, temporary)


# --- what Snakemake replaces ------------------------------------------------------------------------


class ToTrain(NamedTuple):
    """A run that Snakemake is going to train."""

    run: RunName
    forced: bool = False
    """A person asked for it (--forcerun): even if nothing has changed."""
    new_data: bool = False
    """Its dataset is prepared in the same call."""


def set_replaced_aside(folders: CampaignFolders, jobs: Iterable[ToTrain]) -> list[str]:
    """Set aside what finished runs have measured that are going to be measured again; return each reason.

    Not of those that are only published once more, from the working directory of the same measurement.
    InputError if one of them is in use, or cannot be moved.
    """
    replaced = [(job, why) for job in jobs if (why := _why_again(folders, job)) is not None]
    with changing(folders.results):
        for job, why in replaced:
            _check_unused(folders, job.run)
            measurement = measurement_of(folders.results, *job.run) or ""
            row = exclusion(job.run, REPLACED, why, measurement)
            # From an incomplete working directory the run could not be published again.
            with_work = job.forced or why == _INCOMPLETE
            kept = _set_aside(folders, job.run, row, with_work)
            # Where the training reads it: Snakemake has already decided whether to make it.
            _leave(kept / RUN / SPEC, folders.folder(job.run) / SPEC)
    return [why for _, why in replaced]


def set_probes_aside(results: Path, probes: Iterable[tuple[str, int]]) -> list[str]:
    """Set aside finished idle probes (device, repeat) that are made again; return where they are.

    InputError if one cannot be moved.
    """
    moved = []
    for device, repeat in probes:
        folder = results / "idle" / device / str(repeat)
        if not (folder / "probe.json").exists():
            continue
        parent = results / SUPERSEDED / "idle" / device / str(repeat)
        kept = next(parent / str(n) for n in count(1) if not (parent / str(n)).exists())
        try:
            parent.mkdir(parents=True, exist_ok=True)
            os.rename(folder, kept)
        except OSError as error:
            raise InputError(f"{folder}: cannot be moved to {kept} ({error.strerror})") from error
        moved.append(str(kept))
    return moved


def _why_again(folders: CampaignFolders, job: ToTrain) -> str | None:
    published = published_run(folders.folder(job.run), *job.run)
    if published is None:
        return None
    if job.forced:
        return "forced"
    spec = folders.spec(job.run)
    if published.spec_sha256 != spec.sha256:
        return "spec changed"
    prepared = json_object(folders.results / "datasets" / f"{spec.dataset['name']}.json")
    if job.new_data or published.dataset_sha256 != prepared.get("content_sha256"):
        return "dataset changed"
    # Whether its working directory still has what a publication takes from there.
    perun = (f"perun/{path.name}" for path in (published.folder / "perun").glob("[!.]*"))
    taken = [name for name in (WEIGHTS, *perun) if (published.folder / name).exists()]
    kept = folders.work / published.work_name
    is_whole = all((kept / name).exists() for name in ("result.json", *taken))
    return None if is_whole else _INCOMPLETE
