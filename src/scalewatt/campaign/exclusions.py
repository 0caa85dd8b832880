"""A table next to the campaign: runs that are left out, and runs that were asked to be measured again.

`<campaign>.exclusions.csv` is meant for version control. A row is about one measurement of a run: it
does not count for a run that was measured again since.
"""

from __future__ import annotations

import csv
import hashlib
import io
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import SIMULATED
from scalewatt.common.errors import InputError, nearest
from scalewatt.common.files import csv_rows, waiting_lock, write_text
from scalewatt.common.settings import Settings, matching, validated

EXCLUDE, REMEASURE = "exclude", "remeasure"
REPLACED = "replaced"
"""In the note of a measurement that was set aside because Snakemake made another: no row of the table."""
_DIGITS = 12
"""Digits of the SHA-256 of a run's provenance.json that name its measurement."""


class Exclusion(Settings):
    """A row of the table."""

    configuration: str
    repeat: int = Field(ge=1)
    action: Literal["exclude", "remeasure"]
    reason: Annotated[str, matching(r"[^\r\n]+", "why, in one line")]
    date: str
    """UTC, as ISO 8601 writes it."""
    measurement: Annotated[
        str, matching(r"([0-9a-f]{12})?", f"the first {_DIGITS} digits of a SHA-256, or nothing")
    ]
    """Which measurement of the run it is about; empty: whatever measurement exists."""

    @property
    def run(self) -> tuple[str, int]:
        """The run: configuration and repeat."""
        return self.configuration, self.repeat

    def excludes(self, measurement: str | None) -> bool:
        """True if it leaves out a run whose measurement is this one, None if it has none."""
        return self.action == EXCLUDE and self.measurement in ("", measurement)


COLUMNS = tuple(Exclusion.model_fields)


def exclusions_path(campaign: Campaign) -> Path:
    """Path of a campaign's table; that of simulated runs has another name."""
    simulated = SIMULATED if campaign.name.endswith(SIMULATED) else ""
    return campaign.path.with_name(f"{campaign.path.stem}{simulated}.exclusions.csv")


def read_exclusions(campaign: Campaign) -> tuple[Exclusion, ...]:
    """Read the rows of a campaign's table, in order; none without a file.

    InputError names the file, the line and what is allowed.
    """
    path = exclusions_path(campaign)
    rows = []
    for line, cells in csv_rows(path).items() if path.exists() else ():
        repeat = cells.get("repeat", "")
        content = {**cells, "repeat": int(repeat) if repeat.isdecimal() else repeat}
        row: Exclusion = validated(Exclusion, content, f"{path}: line {line}")
        check_run(campaign, *row.run, f"{path}: line {line}")
        rows.append(row)
    return tuple(rows)


def write_exclusions(campaign: Campaign, rows: Iterable[Exclusion]) -> None:
    """Replace a campaign's table, by rename."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in rows)
    write_text(exclusions_path(campaign), text.getvalue())


@contextmanager
def changing(results: Path) -> Iterator[None]:
    """Keep others from changing a campaign's table, and from moving its measurements, meanwhile."""
    results.mkdir(parents=True, exist_ok=True)
    with waiting_lock(results / ".exclusions.lock", f"{results}: in use by another; waiting"):
        yield


def measurement_of(results: Path, configuration: str, repeat: int) -> str | None:
    """Name of a run's present measurement; None if the run is not finished.

    `results` is the campaign's folder.
    """
    path = results / "runs" / configuration / str(repeat) / "provenance.json"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]
    except OSError:
        return None


def excluded_runs(
    exclusions: Iterable[Exclusion], results: Path, finished: bool = False
) -> list[dict[str, Any]]:
    """{configuration, repeat, reason} of the runs that are left out, in order, each once.

    `results` is the campaign's folder. `finished`: of the finished runs alone, where no other will ever
    be one.
    """
    runs: dict[tuple[str, int], dict[str, Any]] = {}
    for row in exclusions:
        measurement = measurement_of(results, *row.run)
        if row.excludes(measurement) and (measurement or not finished):
            runs.setdefault(row.run, row.model_dump(include={"configuration", "repeat", "reason"}))
    return [runs[run] for run in sorted(runs)]


def exclusion(run: tuple[str, int], action: str, reason: str | None, measurement: str) -> Exclusion:
    """A new row, dated now; InputError without a reason."""
    if not (words := " ".join((reason or "").split())):
        raise InputError(f"--reason: is missing; expected why {run[0]} {run[1]} does not count")
    # Unchecked: notes of replaced runs have this form, too, and an action that no row of the table has.
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    cells: Any = (*run, action, words, date, measurement)
    return Exclusion.model_construct(**dict(zip(COLUMNS, cells, strict=True)))


def check_run(campaign: Campaign, configuration: str, repeat: int, where: str) -> None:
    """Raise InputError if the campaign, all of it, has no such run."""
    repeats = campaign.whole.repeats
    if configuration not in repeats:
        raise InputError(
            f"{where}: no configuration '{configuration}' in {campaign.path}"
            f"{nearest(configuration, repeats)}; scalewatt campaign {campaign.path} lists all"
        )
    if not 1 <= repeat <= repeats[configuration]:
        raise InputError(
            f"{where}: {configuration} has no repeat {repeat}; allowed: 1 to {repeats[configuration]}"
        )
