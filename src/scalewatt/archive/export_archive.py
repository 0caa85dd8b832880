"""`scalewatt export`: write a campaign's results as one archive, without what reveals this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scalewatt.archive.bag import BagInfo, Source, write_bag
from scalewatt.archive.cluster_facts import facts_text
from scalewatt.archive.private_texts import check_texts, not_searched_for, private_words
from scalewatt.archive.ro_crate import PAPER, Description
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.exclusions import exclusions_path
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json_object
from scalewatt.reproduction.manifest import FOLDERS, SUMS, read_manifest
from scalewatt.results.tables.read_table import RUN_KEY, read_checked
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.tables.table_schema import RUNS
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import PROVENANCE, RunName

SUFFIX = ".crate.zip"
RESULTS = re.compile(
    r"""(?!.*/\.)  # nothing hidden, nothing that is run or loaded as weights
      report\.html | SHA256SUMS | [^/.][^/]*\.json
    | (tables|figures)/.+\.(parquet|csv|md|tex|pdf|svg|png)
    | (datasets|idle)/.+\.json
    | (energy|traces)/[^/]+/\d+(\.\w+)?\.parquet
    | runs/[^/]+/\d+/(spec\.json|history\.parquet|events\.parquet|provenance\.json)
    | superseded/[^/]+/\d+/[^/]+/(set-aside\.json|energy\.parquet|run/(spec|provenance)\.json)""",
    re.VERBOSE,
)
"""Files of an archive, by their paths below the campaign's results."""
_REMEDY = (
    "Snakemake's target `{}` makes it, of a part of the runs with --config results_only=true; results of "
    "another cluster have its --site"
)


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export."""

    traces: bool = False
    license: str | None = None
    authors: tuple[str, ...] = ()
    allow_private: bool = False
    out: Path | None = None
    """Default: <campaign>.crate.zip."""


def export_campaign(
    file: Path, cluster_file: Path, results: Path, options: ExportOptions
) -> list[str]:
    """Write the archive of a campaign's results below `results`; return what to print, in lines.

    InputError if results are missing or out of date, if something in them reveals this machine, or if
    the archive exists already.
    """
    cluster = load_cluster(cluster_file)
    campaign = load_campaign(file, cluster, to_run=False).whole
    folder = results / campaign.name
    # Tables of other runs, and files that were edited, are refused.
    planned = [(run.configuration.id, run.repeat) for run in campaign.runs()]
    runs = [run for run in planned if (RunFiles(folder, *run).folder / PROVENANCE).exists()]
    if not runs:
        raise InputError(f"{folder}: has no finished run; {_REMEDY.format('all')}")
    _check_tables(folder, runs)
    _check_recorded(folder)
    # Nothing that reveals this machine leaves it.
    files: dict[str, Source] = {
        f"results/{campaign.name}/{name}": folder / name
        for name in _select(folder, runs, options.traces)
    }
    files |= campaign_files(campaign, facts_text(campaign, cluster).encode())
    check_texts(files, private_words(cluster), options.allow_private)
    # What is missing is named, here and in the archive.
    missing = tuple(_missing(campaign, folder, runs, planned))
    missing += () if options.traces else ("power traces (--traces)",)
    info = BagInfo(campaign.name, len(runs), missing)
    out = options.out or Path(f"{campaign.name}{SUFFIX}")
    size = write_bag(files, info, out, _description(campaign, folder, runs, options).metadata)
    return [
        *(f"not in it: {text}" for text in missing),
        *([] if options.allow_private else not_searched_for(cluster)),
        f"{out}: {size / 1e6:.3g} MB, runs: {len(runs)}, files: {len(files) + 1}",
    ]


def _check_tables(results: Path, runs: list[RunName]) -> None:
    """Refuse tables that are not of the finished runs: everything else is made from these."""
    for name in ("runs", "configurations", "scaling", "comparisons", "cross_checks"):
        _check_exists(results / "tables" / f"{name}.parquet", "tables")
    path = results / "tables" / "runs.parquet"
    rows = read_checked(path, RUNS).select(RUN_KEY).to_pylist()
    in_table = {(row["configuration"], row["repeat"]) for row in rows}
    if other := sorted(in_table ^ set(runs)):
        names = listed((f"{configuration}/{repeat}" for configuration, repeat in other), 3)
        raise InputError(
            f"{path}: is not of the finished runs: {names}; {_REMEDY.format('tables')}"
        )


def _check_exists(path: Path, target: str) -> None:
    if not path.exists():
        raise InputError(f"{path}: is missing; {_REMEDY.format(target)}")


def _check_recorded(results: Path) -> None:
    """Refuse files that differ from the campaign's manifest: an importer would find the difference."""
    if not (results / SUMS).exists():
        return
    different = [
        path
        for path, sha256 in read_manifest(results).files.items()
        if path.startswith(FOLDERS)  # what can be made again
        if not (results / path).is_file() or file_sha256(results / path) != sha256
    ]
    if different:
        raise InputError(
            f"{results / SUMS}: differs: {listed(different, 5)}; delete these files, and Snakemake's target "
            "`all` makes them, or, if they are correct, record them: --forcerun manifest"
        )


# --- the files ------------------------------------------------------------------------------------


def _select(results: Path, runs: list[RunName], traces: bool) -> Iterator[str]:
    """Yield the files that go into the archive, by path below `results`.

    InputError if a finished run lacks a file.
    """
    for run in runs:
        files = RunFiles(results, *run)
        for path in (files.folder / "history.parquet", files.energy, files.flags):
            _check_exists(path, "tables")
        if traces:
            _check_exists(files.traces, "run_pages")
    for path in sorted(path for path in results.rglob("*") if path.is_file()):
        name = path.relative_to(results).as_posix()
        folder, *parts = name.split("/")
        if not RESULTS.fullmatch(name) or (folder == "traces" and not traces):
            continue
        is_of_run = folder in ("runs", "energy", "traces")
        if not is_of_run or (parts[0], int(parts[1].partition(".")[0])) in runs:
            yield name


def campaign_files(campaign: Campaign, cluster: bytes) -> dict[str, Source]:
    """Files of the campaign itself by path in the archive: its file, its cluster's facts, exclusions."""
    stem = f"campaigns/{campaign.name}"
    files: dict[str, Source] = {f"{stem}.yaml": campaign.path, f"{stem}.cluster.yaml": cluster}
    exclusions = exclusions_path(campaign)
    if exclusions.exists():
        files[f"{stem}.exclusions.csv"] = exclusions
    return files


def _missing(
    campaign: Campaign, results: Path, runs: list[RunName], planned: list[RunName]
) -> Iterator[str]:
    """Yield what the campaign asks for beyond the required tables and does not exist."""
    if left := sorted(set(planned) - set(runs)):
        names = listed((f"{configuration}/{repeat}" for configuration, repeat in left), 3)
        yield f"runs ({len(left)} of {len(planned)}): {names}"
    wanted = [
        "tables/table1.csv" if name == "table1" else f"figures/{name}.svg"
        for name in campaign.figures
    ]
    wanted += ["tables/claims.csv"] if campaign.has_papers_models else []
    yield from (path for path in (*wanted, "report.html", SUMS) if not (results / path).exists())
    pages = [
        (results / "figures/runs" / configuration / f"{repeat}.svg").exists()
        for configuration, repeat in runs
    ]
    if not all(pages):
        yield f"pages of runs ({pages.count(False)} of {len(pages)})"


def _description(
    campaign: Campaign, results: Path, runs: list[RunName], options: ExportOptions
) -> Description:
    records = [read_json_object(RunFiles(results, *run).folder / PROVENANCE) for run in runs]
    segments = [segment for record in records for segment in record.get("segments") or ()]
    times = [s["ended_s"] for s in segments if s.get("ended_s") is not None]
    simulated = sum(bool(record.get("simulated")) for record in records)
    sentences = [
        f"Specs, energies, tables, figures and provenance of {len(runs)} of "
        f"{sum(campaign.repeats.values())} planned runs on {', '.join(sorted(campaign.devices()))}.",
        f"Runs simulated with a scaling model, not trained: {simulated}." if simulated else "",
        f"The study follows {PAPER}. The date is the day on which the last run ended or, where no run "
        "records that, of the export. `scalewatt import` imports it.",
    ]
    last = datetime.fromtimestamp(max(times, default=time.time()), UTC)
    return Description(
        name=f"scalewatt: results of the campaign {campaign.name}",
        description=" ".join(filter(None, sentences)),
        date_published=f"{last:%Y-%m-%d}",
        license=options.license,
        authors=options.authors,
    )
