"""Setting a finished measurement aside, so that the next Snakemake measures the run again.

Nothing is overwritten or deleted: what was measured moves by rename to
`superseded/<configuration>/<repeat>/<k>/` below the campaign's results, and below its folder of working
directories. The row in the table of exclusions is written first and the run folder moves last, in one
rename: until then the run is finished, and the same command goes on with what was begun.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from scalewatt.campaign.campaign_types import Campaign, Cluster
from scalewatt.campaign.cluster import is_results_only
from scalewatt.campaign.exclusions import (
    REMEASURE,
    changing,
    check_run,
    exclusion,
    exclusions_path,
    latest,
    measurement_of,
    read_exclusions,
    write_exclusions,
)
from scalewatt.campaign.run_spec import RunSpec, run_spec
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, write_json
from scalewatt.run_files.attempt_log import read_attempt, read_submission
from scalewatt.run_files.lock_owner import owner_is_alive, read_owner
from scalewatt.run_files.progress_files import find_workdirs
from scalewatt.run_files.run_inventory import (
    RUN,
    SET_ASIDE,
    SUPERSEDED,
    published_run,
    work_folders,
)
from scalewatt.slurm.job_queue import ask_queue

WEIGHTS = "weights.pt"


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
        """Return the spec of one of its runs."""
        return run_spec(self.campaign, *run)

    def folder(self, run: tuple[str, int]) -> Path:
        """Return a run's folder."""
        return self.results / "runs" / run[0] / str(run[1])

    def started_from(self, run: tuple[str, int]) -> list[tuple[str, int]]:
        """Return the runs that start from the weights of a run."""
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
        try:
            _set_aside(place, run, number)
        except OSError as error:
            raise InputError(
                f"{error.filename or place.folder(run)}: cannot be moved ({error.strerror}); "
                "the same command goes on with what was begun"
            ) from error
        return _summary(place, run, number)


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
            "(results_only), so nothing would train it again; give the profile that does, e.g. "
            "--profile profiles/horeka"
        )
    found = published_run(place.folder(run), *run)
    if found is None or found.spec_sha256 != place.spec(run).sha256:
        raise InputError(
            f"{place.folder(run)}: the results are of another spec; the next start trains "
            "the run again as it is, or restore the campaign"
        )


def _check_unused(place: Place, run: tuple[str, int]) -> None:
    """Raise InputError if a run is being trained, or a job for it may be in Slurm's queue."""
    spec = place.spec(run)
    for folder in find_workdirs(place.work, spec):
        owner = read_owner(folder)
        if owner is not None and owner_is_alive(owner, folder) is not False:
            raise InputError(f"{_name(run)}: is being trained by {owner}; wait for it or end it")
    submission = read_submission(place.work, spec)
    if submission is None:
        return
    job, queue = submission.job, ask_queue([submission.job])
    if queue is None:
        attempt = read_attempt(place.work, spec, job)
        if attempt is None or attempt.ended_s is None:
            raise InputError(
                f"{_name(run)}: whether its job {job} is in the queue, Slurm does not say; "
                "ask again where squeue answers"
            )
    elif queue.state(job) != "gone":
        raise InputError(
            f"{_name(run)}: its job {job} is in Slurm's queue ({queue.state(job)}); wait for it or end "
            f"it (scancel {job})"
        )


def _note(place: Place, run: tuple[str, int], reason: str | None, measurement: str) -> None:
    """Append the row, unless an earlier call has."""
    rows = read_exclusions(place.campaign)
    noted = latest(rows, run, REMEASURE)
    if noted is None or noted.measurement != measurement:
        new = exclusion(run, REMEASURE, reason, measurement)
        write_exclusions(place.campaign, (*rows, new))


def _next_number(place: Place, run: tuple[str, int]) -> int:
    """Return the first number that no whole measurement has: the run folder moves last."""
    number = 1
    while (superseded(place.results, run, number) / RUN).exists():
        number += 1
    return number


def superseded(folder: Path, run: tuple[str, int], number: int) -> Path:
    """Return where a measurement that was set aside lies below the campaign's results or work."""
    return folder / SUPERSEDED / run[0] / str(run[1]) / str(number)


def _set_aside(place: Place, run: tuple[str, int], number: int) -> None:
    """Move all that belongs to a measurement, the run folder last."""
    kept = superseded(place.results, run, number)
    for source, name in _tables(place.results, run):
        _move(source, kept / name)
    kept_work, key = superseded(place.work, run, number), place.spec(run).key
    for folder in work_folders(place.work).get(key, ()):
        _move(folder.path, kept_work / folder.path.name)
    for note in sorted((place.work / "attempts").glob(f"{key}.*")):
        _move(note, kept_work / "attempts" / note.name)
    _note_set_aside(place, run, kept / SET_ASIDE)
    _move(place.folder(run), kept / RUN)
    _leave_weights(place, run, kept / RUN / WEIGHTS)


def _note_set_aside(place: Place, run: tuple[str, int], path: Path) -> None:
    """Write what Snakemake sees that the run is needed again by.

    A run that is missing alone does not make it train, as long as all tables are there: they have this
    note among their inputs. Its time makes each note another one, though it be written twice.
    """
    asked = latest(read_exclusions(place.campaign), run, REMEASURE)
    write_json(path, {**(asdict(asked) if asked else {}), "set_aside_s": time.time()})


def _tables(results: Path, run: tuple[str, int]) -> Iterator[tuple[Path, str]]:
    """Return a run's tables of traces and energy, each with its name among what is set aside."""
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
    """Return what was done, and what follows from it."""
    asked = latest(read_exclusions(place.campaign), run, REMEASURE)
    lines = [
        f"{_name(run)}: set aside: {superseded(place.results, run, number)}",
        f"  the next start of Snakemake trains it again ({asked.reason if asked else 'no reason'})",
    ]
    for other in place.started_from(run):
        if measurement_of(place.results, *other) is not None:
            lines.append(
                f"  {_name(other)} started from its weights: is finished and stays as it is; "
                f"to measure it too: scalewatt remeasure {other[0]} {other[1]} --reason …"
            )
        elif find_workdirs(place.work, place.spec(other)):
            lines.append(
                f"  {_name(other)} started from its weights: goes on from its checkpoint, if it has "
                "one, else from the new weights"
            )
    kept_out = [e for e in read_exclusions(place.campaign) if e.run == run and e.excludes(None)]
    if kept_out:
        lines.append("  it stays excluded: its row of exclude names no measurement")
    return [*lines, f"  noted in {exclusions_path(place.campaign)}: keep it with the campaign file"]


def _name(run: tuple[str, int]) -> str:
    return f"{run[0]} repeat {run[1]}"
