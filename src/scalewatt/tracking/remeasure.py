"""Setting a finished measurement aside: so that the next Snakemake measures the run again, or before it does.

Nothing is overwritten or deleted: what was measured moves by rename to
`superseded/<configuration>/<repeat>/<k>/` below the campaign's results, and below its folder of working
directories. The run folder moves last, in one rename: until then the run is finished, and the same command
moves the rest.

Snakemake deletes a job's outputs before it starts: what it is going to train again (`trained_again`) is set
aside before any job (`set_replaced_aside`), without a row in the table. The working directory of another
spec, or of other data, stays: with the earlier setting the run is published from it once more.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster
from scalewatt.campaign.exclusions import (
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
from scalewatt.campaign.load import is_results_only
from scalewatt.campaign.run_spec import RunSpec, read_spec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, write_json
from scalewatt.run_files.inventory import (
    RUN,
    SET_ASIDE,
    SUPERSEDED,
    find_workdirs,
    json_object,
    published_run,
    work_folders,
)
from scalewatt.run_files.lock import is_alive, read_holder
from scalewatt.scheduling.preflight import queued_runs

WEIGHTS, SPEC = "weights.pt", "spec.json"
_INCOMPLETE = "results incomplete or out of date"


@dataclass(frozen=True)
class Place:
    """A campaign and where its files are."""

    campaign: Campaign
    cluster: Cluster
    results: Path
    """The campaign's own folder of results."""
    work: Path
    """The campaign's own folder of working directories."""

    def spec(self, run: tuple[str, int]) -> RunSpec:
        """Spec of one of its runs; of one that the campaign has no more, as it was written."""
        if run[0] not in self.campaign.configurations:
            return read_spec(self.folder(run) / SPEC)
        return run_spec(self.campaign, *run)

    def folder(self, run: tuple[str, int]) -> Path:
        """A run's folder."""
        return self.results / "runs" / run[0] / str(run[1])

    def started_from(self, run: tuple[str, int]) -> list[tuple[str, int]]:
        """Runs that start from the weights of a run."""
        campaign, (configuration, repeat) = self.campaign, run
        return [
            (id_, repeat)
            for id_, other in campaign.configurations.items()
            if other.initial_weights == configuration and repeat <= campaign.repeats[id_]
        ]


def remeasure(place: Place, run: tuple[str, int], reason: str | None) -> list[str]:
    """Set a run's measurement aside and return what was done, in lines.

    InputError if the run is not there to be measured again, or it is in use.
    """
    check_run(place.campaign, *run, "scalewatt remeasure")
    finished_measurement(place, run)  # a refusal leaves nothing behind, not even a lock
    with changing(place.results):
        measurement = finished_measurement(place, run)
        _check_trainable(place, run)
        for each in (run, *place.started_from(run)):
            _check_unused(place, each)
        row = exclusion(run, REMEASURE, reason, measurement)
        write_exclusions(place.campaign, (*read_exclusions(place.campaign), row))
        kept = _set_aside(place, run, row)
    lines = [
        f"{_name(run)}: set aside: {kept}",
        f"  the next start of Snakemake trains it again ({row.reason})",
        *(
            f"  {_name(other)} started from its weights and stays as it is"
            for other in place.started_from(run)
            if measurement_of(place.results, *other)
        ),
    ]
    if any(row.run == run and row.excludes(None) for row in read_exclusions(place.campaign)):
        lines.append("  it stays excluded: its row of exclude names no measurement")
    return [*lines, f"  noted in {exclusions_path(place.campaign)}: keep it with the campaign file"]


def finished_measurement(place: Place, run: tuple[str, int]) -> str:
    """Name of a run's measurement; InputError if the run is not finished."""
    measurement = measurement_of(place.results, *run)
    if measurement is None:
        raise InputError(
            f"{_name(run)}: is not finished, so there is nothing to leave out or to measure again; "
            "scalewatt status says what it does"
        )
    return measurement


@dataclass(frozen=True)
class ToTrain:
    """A run that Snakemake is going to train."""

    run: tuple[str, int]
    forced: bool = False
    """A person asked for it (--forcerun): even if nothing has changed."""
    new_data: bool = False
    """Its dataset is prepared in the same call."""


def trained_again(place: Place, jobs: Iterable[ToTrain]) -> list[tuple[ToTrain, str]]:
    """Choose the runs that are finished and will be measured again, each with the reason.

    Not those that are only published once more, from the working directory of the same measurement.
    """
    return [(job, why) for job in jobs if (why := _why_again(place, job)) is not None]


def _why_again(place: Place, job: ToTrain) -> str | None:
    published = published_run(place.folder(job.run), *job.run)
    if published is None:
        return None
    if job.forced:
        return "forced"
    spec = place.spec(job.run)
    if published.spec_sha256 != spec.sha256:
        return "spec changed"
    prepared = json_object(place.results / "datasets" / f"{spec.dataset['name']}.json")
    if job.new_data or published.dataset_sha256 != prepared.get("content_sha256"):
        return "dataset changed"
    kept = place.work / published.work_name
    measured = [
        WEIGHTS,
        *(f"perun/{path.name}" for path in (published.folder / "perun").glob("[!.]*")),
    ]
    needed = ["result.json", *(name for name in measured if (published.folder / name).exists())]
    return None if all((kept / name).exists() for name in needed) else _INCOMPLETE


def set_replaced_aside(place: Place, replaced: Iterable[tuple[ToTrain, str]]) -> None:
    """Set aside what finished runs have measured that are going to be measured again.

    InputError if one of them is in use, or cannot be moved.
    """
    with changing(place.results):
        for job, why in replaced:
            measurement = measurement_of(place.results, *job.run)
            if measurement is not None:
                _check_unused(place, job.run)
                row = exclusion(job.run, REPLACED, why, measurement)
                # Of an incomplete working directory the run could not be published again.
                with_work = job.forced or why == _INCOMPLETE
                kept = _set_aside(place, job.run, row, with_work)
                # Where the training reads it: Snakemake has already decided whether to make it.
                _leave(kept / RUN / SPEC, place.folder(job.run) / SPEC)


def _check_trainable(place: Place, run: tuple[str, int]) -> None:
    """Raise InputError if nothing would train the run, or it will be trained anyway."""
    campaign, cluster, name = place.campaign, place.cluster, _name(run)
    if campaign.registered:
        raise InputError(
            f"{name}: {campaign.path} is of registered runs, which nothing trains; measure it where "
            "it was measured and register it again, or leave it out: scalewatt exclude"
        )
    if is_results_only(campaign, cluster):
        raise InputError(
            f"{name}: on the cluster '{cluster.name}' finished runs are used as they are "
            "(results_only), so nothing would train it again; give the site that does, e.g. "
            "--site horeka"
        )
    found = published_run(place.folder(run), *run)
    if found is None or found.spec_sha256 != place.spec(run).sha256:
        raise InputError(
            f"{place.folder(run)}: the results are of another spec; the next start trains "
            "the run again as it is, or restore the campaign"
        )


def _check_unused(place: Place, run: tuple[str, int]) -> None:
    """Raise InputError if a run is being trained, or a job for it is in Slurm's queue."""
    for folder in find_workdirs(place.work, place.spec(run)):
        holder = read_holder(folder)
        if holder is not None and is_alive(folder, holder):
            raise InputError(
                f"{_name(run)}: {holder} trains it; wait for it or end it ({holder.how_to_end})"
            )
    if any(device.partition for device in place.cluster.devices.values()):
        for problem in queued_runs(place.campaign.name, [run]):
            raise InputError(problem)


def superseded(results: Path, run: tuple[str, int]) -> Path:
    """Folder for the next measurement to be set aside, or that of a move that was broken off."""
    parent = results / SUPERSEDED / run[0] / str(run[1])
    return next(parent / str(n) for n in count(1) if not (parent / str(n) / RUN).exists())


def _set_aside(place: Place, run: tuple[str, int], row: Exclusion, with_work: bool = True) -> Path:
    """Move all that belongs to a measurement, the run folder last; InputError if that fails."""
    kept, folder = superseded(place.results, run), place.folder(run)
    try:
        kept.mkdir(parents=True, exist_ok=True)
        for kind in ("traces", "energy"):
            for path in sorted((place.results / kind / run[0]).glob(f"{run[1]}.*")):
                os.rename(path, kept / (kind + path.name.removeprefix(str(run[1]))))
        working = work_folders(place.work).get(place.spec(run).key, ()) if with_work else ()
        if working:
            kept_work = place.work / kept.relative_to(place.results)
            kept_work.mkdir(parents=True, exist_ok=True)
            for each in working:
                os.rename(each.path, kept_work / each.path.name)
        # Snakemake sees by it that the run is needed again: one that is missing alone does not make it
        # train, as long as all tables are there. Its time makes each note another one.
        write_json(kept / SET_ASIDE, {**row.model_dump(), "set_aside_s": time.time()})
        os.rename(folder, kept / RUN)
        if any(measurement_of(place.results, *other) for other in place.started_from(run)):
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


def _name(run: tuple[str, int]) -> str:
    return f"{run[0]} repeat {run[1]}"
