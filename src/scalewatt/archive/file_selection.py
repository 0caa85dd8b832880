"""Select the files of a campaign that go into its archive, and find what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import exclusions_path
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.reproduction.manifest import FOLDERS, SUMS, read_manifest
from scalewatt.reproduction.manifests import Given
from scalewatt.results.tables.read_table import RUN_KEY, read_checked
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.number_format import count, listed

_OF_RUN = ("spec.json", "history.parquet", "events.parquet", "provenance.json")
"""Files of a run folder; without its recordings (perun/), weights and log."""
_OF_SET_ASIDE = ("set-aside.json", "energy.parquet", "run/spec.json", "run/provenance.json")

_TABLES = ("runs", "configurations", "scaling", "comparisons", "cross_checks")
"""Tables of all runs; everything else is made from these and the runs."""
_FOLDERS = (
    *("runs", "energy", "traces", "tables", "figures", "datasets", "idle"),
    "superseded",
)
_SUFFIXES = (*(".json", ".parquet", ".csv", ".md", ".tex", ".pdf", ".svg", ".png", ".html"),)

Run = tuple[str, int]


def belongs(path: str) -> bool:
    """Return True if a file, by its path below the campaign's results, may be in an archive.

    An archive brings results: nothing that is run or loaded as weights, and nothing hidden.
    """
    place = PurePosixPath(path)
    hidden = any(part.startswith(".") for part in place.parts)
    known = len(place.parts) == 1 or place.parts[0] in _FOLDERS
    return known and (place.suffix in _SUFFIXES or path == SUMS) and not hidden


@dataclass(frozen=True)
class Content:
    """The content of an archive."""

    files: dict[str, Given]
    """By path below results/<campaign>."""
    runs: tuple[Run, ...]
    missing: tuple[str, ...]
    """Human-readable: what the campaign asks for and does not exist."""


def results_content(campaign: Campaign, results: Path, traces: bool, snakemake: str) -> Content:
    """Return the files of a campaign's results folder that go into its archive.

    InputError, with the command that helps (for finished runs alone, where some have not finished), where
    there is no finished run, where its tables are missing or lack a finished run, where tables or figures
    differ from its manifest, and, with `traces`, where those of a finished run are missing.
    """
    finished = [
        (run.configuration.id, run.repeat)
        for run in campaign.runs()
        if RunFiles(results, run.configuration.id, run.repeat).folder.joinpath(_OF_RUN[-1]).exists()
    ]
    command = f"{snakemake} {{}} --config campaign={campaign.path}"
    if finished and _waits_for_others(campaign, len(finished)):
        command += " results_only=true"
    if not finished:
        raise InputError(
            f"{results}: has no finished run of {campaign.path}; `{command.format('all')}` makes "
            "them, and another cluster's are found with --site"
        )
    for run in finished:
        one = RunFiles(results, *run)
        for path in (*(one.folder / name for name in _OF_RUN[:2]), one.energy, one.flags):
            if not path.exists():
                raise InputError(
                    f"{path}: is missing, of a finished run; `{command.format('tables')}` makes it"
                )
    runs = tuple(finished)
    _check_tables(results, runs, command.format("tables"))
    _check_recorded(results, command.format("all"))
    found = dict(_files(results, runs))
    files = {path: given for path, given in found.items() if belongs(path)}
    foreign = [
        f"{path}, which scalewatt does not make" for path in sorted(found.keys() - files.keys())
    ]
    if traces:
        for run in runs:
            path = RunFiles(results, *run).traces
            if not path.exists():
                raise InputError(
                    f"{path}: is missing; `{command.format('run_pages')}` makes it, or export without "
                    "--traces"
                )
            files[path.relative_to(results).as_posix()] = path
    return Content(
        dict(sorted(files.items())), runs, (*_missing(campaign, results, runs), *foreign)
    )


def _waits_for_others(campaign: Campaign, finished: int) -> bool:
    """Return True if a target would train the runs that are missing before it makes any table."""
    return not campaign.registered and finished < sum(campaign.repeats.values())


def _check_tables(results: Path, runs: tuple[Run, ...], command: str) -> None:
    for name in _TABLES:
        path = results / "tables" / f"{name}.parquet"
        if not path.exists():
            raise InputError(f"{path}: is missing; `{command}` makes it")
    path = results / "tables" / "runs.parquet"
    rows = read_checked(path, RUNS).select(RUN_KEY).to_pylist()
    listed = {(row["configuration"], row["repeat"]) for row in rows}
    for what, some in (("lacks", set(runs) - listed), ("has, though deleted,", listed - set(runs))):
        if some:
            first = " repeat ".join(map(str, min(some)))
            raise InputError(
                f"{path}: {what} {count(len(some), 'run')}, first {first}; `{command}` makes it"
            )


def _check_recorded(results: Path, command: str) -> None:
    """Refuse files that differ from the campaign's manifest: an importer would find the difference."""
    if not (results / SUMS).exists():
        return
    other = [
        path
        for path, sha256 in read_manifest(results).files.items()
        if path.startswith(FOLDERS)  # what can be made again
        if not (results / path).is_file() or file_sha256(results / path) != sha256
    ]
    if other:
        one = len(other) == 1
        it = "it" if one else "them"
        raise InputError(
            f"{results / SUMS}: {count(len(other), 'file')} {'is' if one else 'are'} not as it recorded "
            f"{it}: {listed(other, 5)}; delete {it} and `{command}` regenerates {it}, or, if "
            f"{'it is' if one else 'they are'} correct, `{command} --forcerun manifest` records {it}"
        )


def _files(results: Path, runs: tuple[Run, ...]) -> Iterator[tuple[str, Given]]:
    for configuration, repeat in runs:
        one = RunFiles(results, configuration, repeat)
        paths = [one.folder / name for name in _OF_RUN]
        paths += [one.energy, *one.energy.parent.glob(f"{repeat}.*.parquet")]
        yield from _named(results, paths)
    for folder in ("tables", "figures"):
        yield from _named(results, (results / folder).rglob("*"))
    yield from _named(results, [results / "report.html", results / SUMS, *results.glob("*.json")])
    yield from _named(results, (results / "datasets").rglob("*.json"))
    yield from _named(results, (results / "idle").rglob("*.json"))
    for aside in (results / "superseded").glob("*/*/*"):
        yield from _named(results, [aside / name for name in _OF_SET_ASIDE])


def _named(results: Path, paths: Any) -> Iterator[tuple[str, Given]]:
    """Yield the files that exist, by path below the results, without hidden and half-written ones."""
    for path in paths:
        relative = path.relative_to(results)
        if path.is_file() and not any(part.startswith(".") for part in relative.parts):
            yield relative.as_posix(), path


def _missing(campaign: Campaign, results: Path, runs: tuple[Run, ...]) -> Iterator[str]:
    """Yield what the campaign asks for beyond the required tables and does not exist."""
    planned = sum(campaign.repeats.values())
    if len(runs) < planned:
        left = {(r.configuration.id, r.repeat) for r in campaign.runs()} - set(runs)
        named = ", ".join(f"{configuration} {repeat}" for configuration, repeat in sorted(left)[:3])
        yield f"{len(left)} of {count(planned, 'run')}: {named}{', …' if len(left) > 3 else ''}"
    for name in campaign.figures:
        wanted = [f"tables/{name}.parquet", f"figures/{name}.svg"]
        if name == "table1":
            wanted = [f"tables/{name}.csv"]
        if not all((results / path).exists() for path in wanted):
            yield name
    pages = [
        run for run in runs if not (results / "figures/runs" / run[0] / f"{run[1]}.svg").exists()
    ]
    if pages:
        yield f"pages of {len(pages)} of {count(len(runs), 'run')}"
    claims = ("tables/claims.csv",) if campaign.has_papers_models else ()
    for path in (*claims, "report.html", SUMS):
        if not (results / path).exists():
            yield path


def campaign_files(campaign: Campaign, cluster: bytes) -> dict[str, Given]:
    """Files of the campaign itself by path in the archive: its file, its cluster's facts, exclusions."""
    stem = f"campaigns/{campaign.name}"
    files: dict[str, Given] = {f"{stem}.yaml": campaign.path, f"{stem}.cluster.yaml": cluster}
    left_out = exclusions_path(campaign)
    if left_out.exists():
        files[f"{stem}.exclusions.csv"] = left_out
    return files
