"""Which runs are left out, and which were asked to be measured again: a small table beside the campaign.

`<campaign>.exclusions.csv` is meant for version control. A row is about one measurement of a run: a
run that was measured again since is not the one that was meant.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import SIMULATED
from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import write_text
from scalewatt.common.schema_validation import nearest, one_of
from scalewatt.common.tabular_files import csv_rows

EXCLUDE, REMEASURE = "exclude", "remeasure"
ACTIONS = (EXCLUDE, REMEASURE)
REPLACED = "replaced"
"""In the note of a measurement that was set aside because Snakemake made another: no row of the table."""
DIGITS = 12
"""Of the SHA-256 of a run's provenance.json: they name its measurement."""
_MEASUREMENT = re.compile(rf"[0-9a-f]{{{DIGITS}}}")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_DATES = {"%Y-%m-%d": "2026-01-31", "%Y-%m-%dT%H:%M:%SZ": "2026-01-31T09:30:00Z"}
"""How a date is written, with an example of each."""


@dataclass(frozen=True)
class Exclusion:
    """One row of the table."""

    configuration: str
    repeat: int
    action: str
    """`exclude` or `remeasure`."""
    reason: str
    date: str
    """UTC, as ISO 8601 writes it."""
    measurement: str = ""
    """Which measurement of the run it is about; empty: whatever measurement there is."""

    @property
    def run(self) -> tuple[str, int]:
        """Return the run: configuration and repeat."""
        return self.configuration, self.repeat

    def excludes(self, measurement: str | None) -> bool:
        """Return True if it leaves out a run whose measurement is this one, None if it has none."""
        return self.action == EXCLUDE and self.measurement in ("", measurement)


COLUMNS = tuple(one.name for one in fields(Exclusion))


def exclusions_path(campaign: Campaign) -> Path:
    """Return where the table of a campaign lies; that of simulated runs has another name."""
    own = campaign.imported is None  # else the file's name says it
    simulated = SIMULATED if own and campaign.name.endswith(SIMULATED) else ""
    return campaign.path.with_name(f"{campaign.path.stem}{simulated}.exclusions.csv")


def read_exclusions(campaign: Campaign) -> tuple[Exclusion, ...]:
    """Read the rows of a campaign's table, in order; none where there is no file.

    InputError names the file, the line and what is allowed.
    """
    path = exclusions_path(campaign)
    if not path.exists():
        return ()
    found: dict[tuple[object, ...], Exclusion] = {}
    for line, row in csv_rows(path).items():
        where = f"{path}: line {line}"
        one = _exclusion(where, row, campaign)
        same = (*one.run, one.action, one.measurement)
        if same in found:
            raise InputError(
                f"{where}: duplicate row: {one.action} {one.configuration} {one.repeat} of the same "
                "measurement; allowed: one"
            )
        found[same] = one
    return tuple(found.values())


def write_exclusions(campaign: Campaign, rows: Iterable[Exclusion]) -> None:
    """Replace a campaign's table, by rename; InputError if it cannot be written."""
    path, text = exclusions_path(campaign), io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    try:
        write_text(path, text.getvalue())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


@contextmanager
def changing(results: Path) -> Iterator[None]:
    """Keep others from changing a campaign's table, and from moving its measurements, meanwhile."""
    results.mkdir(parents=True, exist_ok=True)
    with waiting_lock(results / ".exclusions.lock", f"{results}: in use by another; waiting"):
        yield


def measurement_of(results: Path, configuration: str, repeat: int) -> str | None:
    """Name the present measurement of a run; None if the run is not finished.

    `results` is the campaign's own folder.
    """
    path = results / "runs" / configuration / str(repeat) / "provenance.json"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:DIGITS]
    except OSError:
        return None


def excluded_runs(
    exclusions: Iterable[Exclusion], results: Path, finished: bool = False
) -> list[dict[str, Any]]:
    """Return {configuration, repeat, reason} of the runs that are left out, in order, each once.

    `results` is the campaign's own folder. `finished`: of the finished runs alone, where no other
    will ever be one.
    """
    found: dict[tuple[str, int], str] = {}
    for one in exclusions:
        measurement = measurement_of(results, *one.run)
        there = measurement is not None or not finished
        if one.action == EXCLUDE and there and one.excludes(measurement):
            found.setdefault(one.run, one.reason)
    return [{"configuration": c, "repeat": r, "reason": found[c, r]} for c, r in sorted(found)]


def remeasured_runs(exclusions: Iterable[Exclusion]) -> list[dict[str, Any]]:
    """Return the rows of runs that were asked to be measured again, in order, as JSON-ready values."""
    return [asdict(one) for one in exclusions if one.action == REMEASURE]


def exclusion(run: tuple[str, int], action: str, reason: str | None, measurement: str) -> Exclusion:
    """Return a new row, dated now; InputError if the reason says nothing."""
    one_line_reason = " ".join((reason or "").split())
    if not one_line_reason:
        raise InputError(
            f"--reason: is missing; expected why {run[0]} {run[1]} is to be "
            f"{'left out' if action == EXCLUDE else 'measured again'}"
        )
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Exclusion(*run, action, one_line_reason, date, measurement)


def check_run(campaign: Campaign, configuration: str, repeat: int, where: str) -> None:
    """Raise InputError if the campaign, all of it, has no such run."""
    campaign = campaign.whole
    if configuration not in campaign.configurations:
        raise InputError(
            f"{where}: no configuration '{configuration}' in {campaign.path}; allowed: one of its "
            f"{len(campaign.configurations)} (scalewatt campaign {campaign.path} lists them)"
            f"{nearest(configuration, campaign.configurations)}"
        )
    count = campaign.repeats[configuration]
    if not 1 <= repeat <= count:
        allowed = "1" if count == 1 else f"1 to {count}"
        raise InputError(f"{where}: {configuration} has no repeat {repeat}; allowed: {allowed}")


def _exclusion(where: str, row: dict[str, str], campaign: Campaign) -> Exclusion:
    _check_columns(where, row)
    if not _NUMBER.fullmatch(row["repeat"]):
        raise InputError(f"{where}: repeat: '{row['repeat']}'; expected a whole number from 1")
    one = Exclusion(**{**row, "repeat": int(row["repeat"])})  # type: ignore[arg-type]
    check_run(campaign, *one.run, where)
    if one.action not in ACTIONS:
        raise InputError(f"{where}: action: '{one.action}'; {one_of(one.action, ACTIONS)}")
    if not one.reason:
        raise InputError(f"{where}: reason: is empty; expected why, in one line")
    if "\n" in one.reason or "\r" in one.reason:
        raise InputError(f"{where}: reason: has more than one line; expected one")
    if not any(_is_date(one.date, pattern) for pattern in _DATES):
        raise InputError(
            f"{where}: date: '{one.date}'; expected a day or a time in UTC, as "
            f"{' or '.join(_DATES.values())}"
        )
    _check_measurement(where, one)
    return one


def _check_columns(where: str, row: dict[str, str]) -> None:
    where = f"{where.rpartition(': line ')[0]}: line 1"  # their names stand there
    for name in row:
        if name not in COLUMNS:
            raise InputError(f"{where}: unknown column '{name}'; {one_of(name, COLUMNS)}")
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise InputError(
            f"{where}: missing column {', '.join(missing)}; expected {', '.join(COLUMNS)}"
        )


def _is_date(text: str, pattern: str) -> bool:
    try:  # and back: strptime takes single digits as well
        return datetime.strptime(text, pattern).strftime(pattern) == text
    except ValueError:
        return False


def _check_measurement(where: str, one: Exclusion) -> None:
    if one.measurement and not _MEASUREMENT.fullmatch(one.measurement):
        raise InputError(
            f"{where}: measurement: '{one.measurement}'; expected the first {DIGITS} digits of the "
            "SHA-256 of the run's provenance.json, or nothing: whatever measurement there is"
        )
    if one.action == REMEASURE and not one.measurement:
        raise InputError(
            f"{where}: measurement: is empty; a run is asked to be measured again by "
            f"scalewatt remeasure {one.configuration} {one.repeat}, which names what it replaces"
        )


def latest(exclusions: Sequence[Exclusion], run: tuple[str, int], action: str) -> Exclusion | None:
    """Return the last row of a run with this action."""
    found = [one for one in exclusions if one.run == run and one.action == action]
    return found[-1] if found else None
