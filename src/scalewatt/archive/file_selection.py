"""Select the files of a campaign that go into its archive, and find what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from scalewatt.archive.bag import Given
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.exclusions import exclusions_path
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256
from scalewatt.reproduction.manifest import FOLDERS, SUMS, read_manifest
from scalewatt.results.tables.read_table import RUN_KEY, read_checked
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.number_format import listed

_RUN_FILES = ("spec.json", "history.parquet", "events.parquet", "provenance.json")
"""Files of a run folder; without its recordings (perun/), weights and log."""
_KEPT = (
    *("report.html", SUMS, "*.json", "tables/**/*", "figures/**/*", "datasets/**/*.json"),
    *("idle/**/*.json", "superseded/*/*/*/set-aside.json", "superseded/*/*/*/energy.parquet"),
    *("superseded/*/*/*/run/spec.json", "superseded/*/*/*/run/provenance.json"),
)
_FOLDERS = ("runs", "energy", "traces", "tables", "figures", "datasets", "idle", "superseded")
_SUFFIXES = (".json", ".parquet", ".csv", ".md", ".tex", ".pdf", ".svg", ".png", ".html")

Run = tuple[str, int]


def belongs(path: str) -> bool:
    """True if a file, by its path below the campaign's results, may be in an archive.

    An archive brings results: nothing that is run or loaded as weights, and nothing hidden.
    """
    parts = PurePosixPath(path).parts
    known = len(parts) == 1 or parts[0] in _FOLDERS
    hidden = any(part.startswith(".") for part in parts)
    return known and not hidden and (path.endswith(_SUFFIXES) or path == SUMS)


@dataclass(frozen=True)
class Content:
    """The content of an archive."""

    files: dict[str, Given]
    """By path below results/<campaign>."""
    runs: tuple[Run, ...]
    missing: tuple[str, ...]
    """What the campaign asks for and does not exist, in words."""


def results_content(campaign: Campaign, results: Path, traces: bool, snakemake: str) -> Content:
    """Files of a campaign's results folder that go into its archive.

    InputError, with the command that helps, where there is no finished run, where its tables are missing or
    lack a finished run, where tables or figures differ from its manifest, and, with `traces`, where those of
    a finished run are missing.
    """
    planned = [(run.configuration.id, run.repeat) for run in campaign.runs()]
    runs = [run for run in planned if (RunFiles(results, *run).folder / _RUN_FILES[-1]).exists()]
    command = f"{snakemake} {{}} --config campaign={campaign.path}"
    if runs and not campaign.registered and len(runs) < len(planned):
        command += " results_only=true"  # else it would train those that are missing first
    if not runs:
        raise InputError(
            f"{results}: has no finished run of {campaign.path}; `{command.format('all')}` makes "
            "them, and another cluster's are found with --site"
        )
    paths = []
    for run in runs:
        files = RunFiles(results, *run)
        needed = [*(files.folder / name for name in _RUN_FILES[:2]), files.energy, files.flags]
        for path in needed:
            _check_there(path, command.format("tables"))
        if traces:
            _check_there(files.traces, command.format("run_pages"))
            needed.append(files.traces)
        paths += [*needed, *(files.folder / name for name in _RUN_FILES[2:])]
        paths += files.energy.parent.glob(f"{run[1]}.*.parquet")
    _check_tables(results, runs, command.format("tables"))
    _check_recorded(results, command.format("all"))
    paths += [path for pattern in _KEPT for path in results.glob(pattern)]
    names = {path.relative_to(results).as_posix(): path for path in paths if path.is_file()}
    selected: dict[str, Given] = {name: names[name] for name in sorted(names) if belongs(name)}
    visible = (name for name in sorted(names.keys() - selected) if "/." not in f"/{name}")
    foreign = [f"{name}, which scalewatt does not make" for name in visible]
    return Content(selected, tuple(runs), (*_missing(campaign, results, runs, planned), *foreign))


def _check_there(path: Path, command: str) -> None:
    if not path.exists():
        raise InputError(f"{path}: is missing; `{command}` makes it")


def _check_tables(results: Path, runs: list[Run], command: str) -> None:
    """Refuse tables that are not of the finished runs: everything else is made from these."""
    for name in ("runs", "configurations", "scaling", "comparisons", "cross_checks"):
        _check_there(results / "tables" / f"{name}.parquet", command)
    path = results / "tables" / "runs.parquet"
    rows = read_checked(path, RUNS).select(RUN_KEY).to_pylist()
    in_table = {(row["configuration"], row["repeat"]) for row in rows}
    for what, some in (("lacks", set(runs) - in_table), ("has deleted runs", in_table - set(runs))):
        if some:
            named = listed((f"{id_} repeat {repeat}" for id_, repeat in sorted(some)), 3)
            raise InputError(f"{path}: {what}: {named}; `{command}` makes it")


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
        raise InputError(
            f"{results / SUMS}: differs: {listed(other, 5)}; delete these files and `{command}` makes them, "
            f"or, if they are correct, `{command} --forcerun manifest` records them"
        )


def _missing(
    campaign: Campaign, results: Path, runs: list[Run], planned: list[Run]
) -> Iterator[str]:
    """Yield what the campaign asks for beyond the required tables and does not exist."""
    if left := sorted(set(planned) - set(runs)):
        named = listed((f"{id_} {repeat}" for id_, repeat in left), 3)
        yield f"runs ({len(left)} of {len(planned)}): {named}"
    for name in campaign.figures:
        wanted = [f"tables/{name}.parquet", f"figures/{name}.svg"]
        if name == "table1":
            wanted = [f"tables/{name}.csv"]
        if not all((results / path).exists() for path in wanted):
            yield name
    pages = [(results / "figures/runs" / id_ / f"{repeat}.svg").exists() for id_, repeat in runs]
    if not all(pages):
        yield f"pages of runs ({pages.count(False)} of {len(pages)})"
    claims = ("tables/claims.csv",) if campaign.has_papers_models else ()
    yield from (path for path in (*claims, "report.html", SUMS) if not (results / path).exists())


def campaign_files(campaign: Campaign, cluster: bytes) -> dict[str, Given]:
    """Files of the campaign itself by path in the archive: its file, its cluster's facts, exclusions."""
    stem = f"campaigns/{campaign.name}"
    files: dict[str, Given] = {f"{stem}.yaml": campaign.path, f"{stem}.cluster.yaml": cluster}
    left_out = exclusions_path(campaign)
    if left_out.exists():
        files[f"{stem}.exclusions.csv"] = left_out
    return files
