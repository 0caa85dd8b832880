"""Which years of ERA5 one job prepares, by the job's name: "1979", or "1979-1988" with both ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from scalewatt.common.errors import InputError

_NAME = re.compile(r"([0-9]{4})(?:-([0-9]{4}))?")


def years_of_job(name: str, years: Sequence[int]) -> list[int]:
    """Return the years of a dataset that a job of this name prepares; InputError if there are none."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise InputError(
            f"--year: {name!r}; allowed: a year, or the first and last such as 1979-1988"
        )
    chosen = _years_between(found, years)
    if not chosen:
        said = ", ".join(map(str, years))
        raise InputError(f"--year: {name}: the dataset has no such year; its years: {said}")
    return chosen


def year_jobs(years: Sequence[int], per_job: int, done: Iterable[str] = ()) -> list[str]:
    """Return the names of the jobs that prepare all `years` (ascending), in the order of their years.

    Jobs that are `done` stay as they are, however many years each had: another `per_job` prepares
    nothing again.
    """
    rest, kept = set(years), []
    for name in sorted(done):
        found = _NAME.fullmatch(name)
        own = set(_years_between(found, years)) if found else set()
        if own and own <= rest and {min(own), max(own)} == _ends(found):
            kept.append(name)
            rest -= own
    jobs: list[list[int]] = []
    previous: int | None = None
    for year in years:
        if year in rest:
            if previous not in rest or len(jobs[-1]) == per_job:
                jobs.append([])
            jobs[-1].append(year)
        previous = year
    return sorted([*kept, *map(_name, jobs)])


def _years_between(found: re.Match[str], years: Sequence[int]) -> list[int]:
    first, last = int(found[1]), int(found[2] or found[1])
    return [year for year in years if first <= year <= last]


def _ends(found: re.Match[str] | None) -> set[int]:
    return set() if found is None else {int(found[1]), int(found[2] or found[1])}


def _name(years: Sequence[int]) -> str:
    return str(years[0]) if len(years) == 1 else f"{years[0]}-{years[-1]}"
