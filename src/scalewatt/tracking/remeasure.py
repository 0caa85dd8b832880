"""Setting a finished measurement aside: so that the next Snakemake measures the run again, or before it does.

Nothing is overwritten or deleted: what was measured moves by rename to
`superseded/<configuration>/<repeat>/<k>/` below the campaign's results, and below its folder of working
directories. The row in the table of exclusions is written first and the run folder moves last, in one
rename: until then the run is finished, and the same command goes on with what was begun.

Snakemake deletes a job's outputs before it starts: what it is going to train again (`trained_again`) is set
aside before any job (`set_replaced_aside`), without a row in the table. The working directory of another
spec, or of other data, stays: with the earlier setting the run is published from it once more.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
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
    latest,
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
    if measurement_of(place.results, *run) is None and _next_number(place, run) == 1:
        raise InputError(
            f"{_name(run)}: is not finished, so there is nothing to measure again; "
            "scalewatt status says what it does"
        )
    with changing(place.results):
        measurement = measurement_of(place.results, *run)
        if measurement is None:
            return _finish(place, run)
        _check_trainable(place, run)
        for one in (run, *place.started_from(run)):
            _check_unused(place, one)
        _note(place, run, reason, measurement)
        number = _next_number(place, run)
        _set_aside(place, run, number, latest(read_exclusions(place.campaign), run, REMEASURE))
        return _summary(place, run, number)


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
                _set_aside(place, job.run, _next_number(place, job.run), row, with_work)
                _leave_spec(place, job.run)


def _leave_spec(place: Place, run: tuple[str, int]) -> None:
    """Leave spec.json where the training reads it: Snakemake has already decided whether to make it."""
    kept = superseded(place.results, run, _next_number(place, run) - 1) / RUN / SPEC
    with suppress(FileNotFoundError), atomic_path(place.folder(run) / SPEC) as temporary:
        shutil.copy2(kept, temporary)


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


def _note(place: Place, run: tuple[str, int], reason: str | None, measurement: str) -> None:
    """Append the row, unless an earlier call has."""
    rows = read_exclusions(place.campaign)
    noted = latest(rows, run, REMEASURE)
    if noted is None or noted.measurement != measurement:
        new = exclusion(run, REMEASURE, reason, measurement)
        write_exclusions(place.campaign, (*rows, new))


def _next_number(place: Place, run: tuple[str, int]) -> int:
    """First number that no whole measurement has: the run folder moves last."""
    number = 1
    while (superseded(place.results, run, number) / RUN).exists():
        number += 1
    return number


def superseded(folder: Path, run: tuple[str, int], number: int) -> Path:
    """Folder of a measurement that was set aside, below the campaign's results or work."""
    return folder / SUPERSEDED / run[0] / str(run[1]) / str(number)


def _set_aside(
    place: Place, run: tuple[str, int], number: int, row: Exclusion | None, with_work: bool = True
) -> None:
    """Move all that belongs to a measurement, the run folder last; InputError if that fails."""
    kept = superseded(place.results, run, number)
    try:
        for source, name in _tables(place.results, run):
            _move(source, kept / name)
        if with_work:
            _set_work_aside(place, run, number)
        # Snakemake sees by it that the run is needed again: one that is missing alone does not make it
        # train, as long as all tables are there. Its time makes each note another one.
        note = {**(row.model_dump() if row else {}), "set_aside_s": time.time()}
        write_json(kept / SET_ASIDE, note)
        _move(place.folder(run), kept / RUN)
        _leave_weights(place, run, kept / RUN / WEIGHTS)
    except OSError as error:
        raise InputError(
            f"{error.filename or place.folder(run)}: cannot be moved ({error.strerror}); "
            "the same command goes on with what was begun"
        ) from error


def _set_work_aside(place: Place, run: tuple[str, int], number: int) -> None:
    """Move a run's working directories."""
    kept, key = superseded(place.work, run, number), place.spec(run).key
    for folder in work_folders(place.work).get(key, ()):
        _move(folder.path, kept / folder.path.name)


def _tables(results: Path, run: tuple[str, int]) -> Iterator[tuple[Path, str]]:
    """A run's tables of traces and energy, each with its name among what is set aside."""
    for kind in ("traces", "energy"):
        for path in sorted((results / kind / run[0]).glob(f"{run[1]}.*")):
            yield path, kind + path.name.removeprefix(str(run[1]))


def _move(source: Path, target: Path) -> None:
    """Rename, to a free name where the target exists: a table may have been rebuilt."""
    target.parent.mkdir(parents=True, exist_ok=True)
    free, number = target, 2
    while free.exists():
        free = target.with_name(f"{target.stem}-{number}{target.suffix}")
        number += 1
    os.rename(source, free)


def _leave_weights(place: Place, run: tuple[str, int], kept: Path) -> None:
    """Leave the weights where finished runs that started from them look for them.

    Snakemake would train these again if the file were missing. It takes it away when the run itself is
    trained again.
    """
    target = place.folder(run) / WEIGHTS
    finished = [one for one in place.started_from(run) if measurement_of(place.results, *one)]
    if not finished or target.exists() or not kept.exists():
        return
    with atomic_path(target) as temporary:
        try:
            os.link(kept, temporary)
        except OSError:  # its file system has no hard links
            shutil.copy2(kept, temporary)


def _finish(place: Place, run: tuple[str, int]) -> list[str]:
    """Finish what an earlier call has begun: all is moved, and nothing has been trained since."""
    number = _next_number(place, run) - 1
    _check_unused(place, run)
    with suppress(OSError):  # the next start says what is wrong
        _leave_weights(place, run, superseded(place.results, run, number) / RUN / WEIGHTS)
    return _summary(place, run, number)


def _summary(place: Place, run: tuple[str, int], number: int) -> list[str]:
    """Say what was done, and what follows from it."""
    asked = latest(read_exclusions(place.campaign), run, REMEASURE)
    lines = [
        f"{_name(run)}: set aside: {superseded(place.results, run, number)}",
        f"  the next start of Snakemake trains it again ({asked.reason if asked else 'no reason'})",
    ]
    for other in place.started_from(run):
        if measurement_of(place.results, *other) is not None:
            lines.append(f"  {_name(other)} started from its weights and stays as it is")
    if any(row.run == run and row.excludes(None) for row in read_exclusions(place.campaign)):
        lines.append("  it stays excluded: its row of exclude names no measurement")
    return [*lines, f"  noted in {exclusions_path(place.campaign)}: keep it with the campaign file"]


def _name(run: tuple[str, int]) -> str:
    return f"{run[0]} repeat {run[1]}"
