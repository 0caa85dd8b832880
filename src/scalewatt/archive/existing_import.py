"""Import an archive into a campaign that is here already: add what is missing, never change what differs.

The campaign is the same where its file says the same, whatever comments there are; likewise its exclusions
and what the archive tells of its cluster. Runs with their energies are compared byte by byte. What is made
from runs (tables, figures, the report) is replaced by the archive's where that brings further runs and has
all that are here; else it stays, and Snakemake makes it of all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scalewatt.campaign.imported_campaign import SUFFIX
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json, write_text
from scalewatt.common.schema_validation import shown
from scalewatt.common.yaml_files import read_yaml
from scalewatt.results.text.number_format import count, listed

EXCLUSIONS = ".exclusions.csv"
_MADE_FROM_RUNS = ("requests", "tables", "figures", "report.html")
_MOST_NAMED = 5


@dataclass(frozen=True)
class Place:
    """Where a campaign is here."""

    name: str
    results: Path
    """Folder of all results."""
    campaigns: Path

    @property
    def own(self) -> Path:
        """The campaign's own results."""
        return self.results / self.name

    def beside(self, ending: str) -> Path:
        """Return the campaign's file with an ending: .yaml, SUFFIX or EXCLUSIONS."""
        return self.campaigns / f"{self.name}{ending}"

    @property
    def is_there(self) -> bool:
        """True if the campaign's file is there, as a plain file."""
        file = self.beside(".yaml")
        return file.is_file() and not file.is_symlink()


def add_to(place: Place, unpacked: Path) -> str:
    """Add an unpacked archive's results to a campaign that is there; return what was done, in a sentence.

    `unpacked` has campaigns/ and results/, checked, under the campaign's name here. InputError, which names
    what differs, before anything is written.
    """
    _check_campaign(place, unpacked / "campaigns")
    theirs = _files(unpacked / "results")
    ours = _files(place.own)
    _check_not_empty(place, ours)
    missing = sorted(path for path in theirs if path not in ours)
    other = sorted(path for path in theirs if path in ours and _differs(theirs[path], ours[path]))
    brings_runs = any(not _is_made(path) for path in missing)
    differ = [path for path in other if _is_made(path)]
    _check_results(place, [path for path in other if not _is_made(path)])
    if not ours:
        _place_all(place, unpacked)
        return _added(place, missing, "")
    lacks_runs = any(path not in theirs and not _is_made(path) for path in ours)
    if brings_runs and lacks_runs:
        # Neither has the runs of the other: what each made is of its own alone.
        runs = [path for path in missing if not _is_made(path)]
        _check_imported(place)
        _drop_requests(place)
        _add(place, unpacked, runs, alone=True)
        command = (
            f"snakemake --profile profiles/local all --config campaign={place.beside('.yaml')}"
        )
        return _added(
            place, runs, f"; tables and figures are still those of before; now: {command}"
        )
    kept = f"; kept as here: {listed(differ, _MOST_NAMED)}" if differ else ""
    if not missing or lacks_runs:  # what it made is of fewer runs
        return f"the campaign {place.name} and its results were here already: nothing to add{kept}"
    _check_imported(place)
    # Where tables differ and stay, they may be older than their runs; to Snakemake too.
    stays = bool(differ) and not brings_runs
    _add(place, unpacked, [*(differ if brings_runs else []), *missing], alone=stays)
    tables = count(len(differ), "table or figure", "tables and figures")
    replaced = f", {tables} replaced by the archive's" if differ else ""
    return _added(place, missing, replaced if brings_runs else kept)


def _added(place: Place, paths: list[str], more: str) -> str:
    files = count(len(paths), "file")
    return f"the campaign {place.name} was here already, the same; added: {files}{more}"


def _files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder by path in it, without hidden ones."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def _differs(one: Path, other: Path) -> bool:
    return one.stat().st_size != other.stat().st_size or file_sha256(one) != file_sha256(other)


def _is_made(path: str) -> bool:
    """Return True for what is made from runs: tables, figures, the report, notes about all of them."""
    return path.partition("/")[0] in _MADE_FROM_RUNS or ("/" not in path and path.endswith(".json"))


# --- what must be the same ------------------------------------------------------------------------


def _check_campaign(place: Place, theirs: Path) -> None:
    file = place.beside(".yaml")
    _refuse_keys(file, read_yaml(file), read_yaml(theirs / file.name))
    facts = place.beside(SUFFIX)
    if facts.exists():
        _refuse_keys(facts, read_json(facts), read_json(theirs / facts.name))
    left_out = place.beside(EXCLUSIONS)
    here, there = (
        path.read_bytes() if path.exists() else None for path in (left_out, theirs / left_out.name)
    )
    has_results = place.own.is_dir() and any(place.own.iterdir())
    if here != there and (here is not None or has_results):
        raise InputError(
            f"{left_out}: leaves other runs out than the archive's; nothing was imported. {_allowed(place)}"
        )


def _refuse_keys(file: Path, here: Any, there: Any) -> None:
    found = [
        f"{key} ({shown(one)} here, {shown(other)} in the archive)"
        for key, one, other in _differences(here, there)
    ]
    if found:
        raise InputError(
            f"{file}: is another campaign than the archive's: {listed(found, _MOST_NAMED)}; nothing was "
            "imported. allowed: --name OTHER"
        )


def _differences(here: Any, there: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each key, with dots, whose value differs, and both values; of a missing key None."""
    if isinstance(here, dict) and isinstance(there, dict):
        for name in dict.fromkeys((*here, *there)):
            below = f"{key}.{name}" if key else str(name)
            yield from _differences(here.get(name), there.get(name), below)
    elif here != there:
        yield key or "its content", here, there


def _check_results(place: Place, other: list[str]) -> None:
    if other:
        differ = "differs" if len(other) == 1 else "differ"
        raise InputError(
            f"{place.own}: {count(len(other), 'file')} {differ} from the archive's: "
            f"{listed(other, _MOST_NAMED)}; nothing was imported. {_allowed(place)}"
        )


def _check_not_empty(place: Place, ours: Mapping[str, Path]) -> None:
    """Raise InputError for results without a file: another import may be about to fill the folder."""
    if place.own.is_dir() and not ours:
        raise InputError(
            f"{place.own}: holds no file: another import is at it, or was cut off; allowed: wait, or "
            "remove it"
        )


def _check_imported(place: Place) -> None:
    """Raise InputError where results are one's own: what an archive adds would pass for them."""
    if not place.beside(SUFFIX).exists():
        raise InputError(
            f"{place.own}: has results that did not come with an archive, and this one has more; nothing "
            f"was imported. {_allowed(place)}"
        )


def _allowed(place: Place) -> str:
    return f"allowed: --name OTHER, or remove {place.own} and {place.beside(SUFFIX)}"


# --- adding ---------------------------------------------------------------------------------------


def _place_all(place: Place, unpacked: Path) -> None:
    """Move all results to their place in one step, or nothing."""
    place.results.mkdir(parents=True, exist_ok=True)
    try:
        # Whoever makes it has the name; renaming onto an empty folder is allowed.
        place.own.mkdir()
    except FileExistsError:
        raise InputError(f"{place.own}: exists already: another import was faster") from None
    written: list[Path] = []
    try:
        _write_beside(place, unpacked, written)
        (unpacked / "results").rename(place.own)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        place.own.rmdir()
        raise


def _write_beside(place: Place, unpacked: Path, written: list[Path]) -> None:
    """Write what the archive has beside the campaign's file and is missing here; it goes into `written`."""
    for ending in (SUFFIX, EXCLUSIONS):
        source, target = unpacked / "campaigns" / f"{place.name}{ending}", place.beside(ending)
        if source.exists() and not target.exists():
            written.append(target)
            # A copy: the two folders may lie on different disks.
            write_text(target, source.read_text(encoding="utf-8"))


def _drop_requests(place: Place) -> None:
    """Remove what says which runs tables are of: Snakemake writes it anew, for all that are there then."""
    for path in (place.own / "requests").glob("*.json"):
        path.unlink()


def _add(place: Place, unpacked: Path, paths: list[str], alone: bool) -> None:
    """Move files to their places; those of runs last, so that an import that is cut off can be repeated.

    All results get one time, later than any code's, so that nothing is re-run; or, if `alone`, the added
    files alone, so that what is made from older ones is.
    """
    _write_beside(place, unpacked, [])
    for path in sorted(paths, key=lambda path: not _is_made(path)):
        target = place.own / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (unpacked / "results" / path).replace(target)
    now = time.time_ns()
    for file in [place.own / path for path in paths] if alone else place.own.rglob("*"):
        os.utime(file, ns=(now, now))
