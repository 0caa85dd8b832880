"""Leaving a finished run out of tables, figures and claims, taking that back, and naming all of it."""

from __future__ import annotations

from pathlib import Path

from scalewatt.campaign.cluster import campaign_path, load_site
from scalewatt.campaign.exclusions import (
    EXCLUDE,
    REMEASURE,
    Exclusion,
    changing,
    check_run,
    exclusion,
    exclusions_path,
    measurement_of,
    read_exclusions,
    write_exclusions,
)
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.tracking.remeasure import Place, finished_measurement, remeasure


def find_place(site: str, campaign: Path | None, results: Path, work: Path | None) -> Place:
    """Campaign that a command is about, as `scalewatt status` finds it."""
    cluster = load_site(site)
    found = load_campaign(campaign or campaign_path(cluster), cluster, to_run=False).whole
    root = work or Path(cluster.work_root)
    return Place(found, cluster, results / found.name, root / found.name)


def run_command(
    command: str,
    place: Place,
    configuration: str | None,
    repeat: int | None,
    reason: str | None,
    undone: bool = False,
) -> list[str]:
    """Exclude a run, or measure it again; without a run, name what is. What to print, in lines.

    InputError if something is missing or wrong.
    """
    if configuration is None and reason is None and not undone:
        return listed(place)
    if configuration is None or repeat is None:
        raise InputError(f"scalewatt {command}: expected CONFIGURATION REPEAT, or neither")
    run = configuration, repeat
    if undone:
        if reason is not None:
            raise InputError("--reason: is of no use with --undo: the row is taken away")
        return undo(place, run)
    return (exclude if command == EXCLUDE else remeasure)(place, run, reason)


def exclude(place: Place, run: tuple[str, int], reason: str | None) -> list[str]:
    """Leave a run's present measurement out and return what was done, in lines.

    InputError if there is none, or it is left out already.
    """
    check_run(place.campaign, *run, "scalewatt exclude")
    measurement = finished_measurement(place, run)
    with changing(place.results):
        rows = read_exclusions(place.campaign)
        for one in rows:
            if one.run == run and one.excludes(measurement):
                raise InputError(
                    f"{run[0]} repeat {run[1]}: is excluded already ({one.date}: {one.reason}); "
                    "--undo takes it back"
                )
        # A recording registered later may add a neighbour to the provenance of a registered run.
        named = "" if place.campaign.registered else measurement
        new = exclusion(run, EXCLUDE, reason, named)
        write_exclusions(place.campaign, (*rows, new))
    return [f"excluded: {run[0]} repeat {run[1]}: {new.reason}", *_left(place, run[0])]


def undo(place: Place, run: tuple[str, int]) -> list[str]:
    """Take back that a run's present measurement is left out; InputError if it is not."""
    check_run(place.campaign, *run, "scalewatt exclude --undo")
    measurement = measurement_of(place.results, *run)
    with changing(place.results):
        rows = read_exclusions(place.campaign)
        kept = [one for one in rows if one.run != run or not one.excludes(measurement)]
        if len(kept) == len(rows):
            raise InputError(
                f"{run[0]} repeat {run[1]}: is not excluded, so there is nothing to undo; "
                "scalewatt exclude names what is"
            )
        write_exclusions(place.campaign, kept)
    return [f"no longer excluded: {run[0]} repeat {run[1]}", *_left(place, run[0])]


def _left(place: Place, configuration: str) -> list[str]:
    """What is left of a configuration, in lines."""
    repeats = range(1, place.campaign.repeats[configuration] + 1)
    measured = {r: measurement_of(place.results, configuration, r) for r in repeats}
    finished = {repeat for repeat, measurement in measured.items() if measurement}
    rows = [row for row in read_exclusions(place.campaign) if row.configuration == configuration]
    left = finished - {row.repeat for row in rows if row.excludes(measured[row.repeat])}
    return [
        f"  {len(left)} of {len(finished)} finished repeats of this configuration are left",
        f"  noted in {exclusions_path(place.campaign)}: keep it with the campaign file",
    ]


def listed(place: Place) -> list[str]:
    """Name what a campaign's table of exclusions says, and what has become of it, in lines."""
    rows = read_exclusions(place.campaign)
    lines = []
    for action, title in ((EXCLUDE, "excluded"), (REMEASURE, "measured again")):
        actions = [row for row in rows if row.action == action]
        lines.append(f"{title}: {len(actions) or 'nothing'}")
        for row in actions:
            lines.append(f"  {row.configuration} repeat {row.repeat}, {row.date}: {row.reason}")
            lines.append(f"    {standing(row, measurement_of(place.results, *row.run))}")
    return lines


def standing(row: Exclusion, measurement: str | None) -> str:
    """What has become of a row, the run's present measurement being this one."""
    present = f"now it is {measurement}" if measurement else "the run is not finished"
    if row.action == EXCLUDE:
        if row.excludes(measurement):
            return f"left out: measurement {row.measurement or 'of any name'}"
        return f"of no effect: about measurement {row.measurement}, {present}"
    if row.measurement == measurement:
        return f"not set aside: scalewatt remeasure {row.configuration} {row.repeat} does it"
    return f"measurement {row.measurement} is set aside; {present}"
