"""`scalewatt export`: write a campaign's results as one archive, without what reveals this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from scalewatt.archive.bag import BagInfo, Source, write_bag
from scalewatt.archive.cluster_facts import facts_text
from scalewatt.archive.private_texts import check_texts, not_searched_for, private_words
from scalewatt.archive.ro_crate import METADATA, PAPER, metadata
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import load_cluster
from scalewatt.campaign.exclusions import exclusions_path
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json_object
from scalewatt.reproduction.manifest import SUMS, read_manifest
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.text.number_format import listed
from scalewatt.run_files.inventory import PROVENANCE, RunName, is_of_campaign

SUFFIX = ".crate.zip"
RESULTS = re.compile(
    r"""(?!.*/\.)  # nothing hidden, nothing that is run or loaded as weights
      report\.html | SHA256SUMS | [^/.][^/]*\.json
    | (tables|figures)/.+\.(parquet|csv|json|md|tex|pdf|svg|png)
    | (datasets|idle)/.+\.json
    | (energy|traces)/[^/]+/\d+(\.[\w-]+)?\.parquet
    | runs/[^/]+/\d+/(spec\.json|history\.parquet|events\.parquet|provenance\.json)
    | superseded/[^/]+/\d+/[^/]+/(set-aside\.json|energy\.parquet|run/(spec|provenance)\.json)""",
    re.VERBOSE,
)
"""Files of an archive, by their paths below the campaign's results."""


def export_campaign(
    file: Path,
    cluster_file: Path,
    results: Path,
    out: Path | None = None,
    *,
    traces: bool = False,
    license_: str | None = None,
    authors: Sequence[str] = (),
    allow_private: bool = False,
) -> list[str]:
    """Write the archive of a campaign's results below `results`; return what to print, in lines.

    `out`: by default <campaign>.crate.zip. InputError if there are no results, if they are not what the
    manifest records, if something in them reveals this machine, or if the archive exists already.
    """
    cluster = load_cluster(cluster_file)
    if cluster.simulates:
        raise InputError(f"{cluster_file}: simulates, and anybody can; expected the site of runs")
    campaign = load_campaign(file, cluster, to_run=False).whole
    folder = results / campaign.name
    # What the manifest records, as it records it: else who imports it would find the difference.
    recorded = read_manifest(folder).files
    different = [
        path
        for path, sha256 in recorded.items()
        if not (folder / path).is_file() or file_sha256(folder / path) != sha256
    ]
    if different:
        raise InputError(
            f"{folder / SUMS}: differs: {listed(different, 5)}; Snakemake makes deleted tables and figures "
            "again, and --forcerun manifest records files as they are"
        )
    planned = list(campaign.runs())
    runs = [run for run in planned if f"runs/{run[0]}/{run[1]}/{PROVENANCE}" in recorded]
    check_specs(campaign, folder, runs)
    files: dict[str, Source] = {
        f"results/{campaign.name}/{name}": folder / name for name in _select(folder, runs, traces)
    }
    files |= campaign_files(campaign, facts_text(campaign, cluster).encode())
    # Nothing that reveals this machine leaves it; what is missing is named, here and in the archive.
    check_texts(files, private_words(cluster), allow_private)
    missing = tuple(_missing(campaign, folder, runs, planned, traces))
    info = BagInfo(campaign.name, len(runs), missing)
    out = out or Path(f"{campaign.name}{SUFFIX}")
    about = _description(campaign, folder, runs)
    terms = license_, authors
    size = write_bag(files, info, out, (METADATA, lambda packed: metadata(packed, *about, *terms)))
    return [
        *(f"not in it: {text}" for text in missing),
        *([] if allow_private else not_searched_for(cluster)),
        f"{out}: {size / 1e6:.3g} MB, runs: {len(runs)}, files: {len(files) + 1}",
    ]


def check_specs(campaign: Campaign, folder: Path, runs: Iterable[RunName]) -> None:
    """Raise InputError for runs that were made with other settings than the campaign has now."""
    other = [f"{id_}/{n}" for id_, n in runs if not is_of_campaign(campaign, folder, (id_, n))]
    if other:
        raise InputError(
            f"{folder}: runs of other settings than {campaign.path} has ({len(other)}): {listed(other, 3)}; "
            "make them again, or restore the settings"
        )


def _select(results: Path, runs: list[RunName], traces: bool) -> Iterator[str]:
    """Yield the files that go into the archive, by path below `results`."""
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
    campaign: Campaign, results: Path, runs: list[RunName], planned: list[RunName], traces: bool
) -> Iterator[str]:
    """Yield what the campaign asks for and is not in the archive."""
    if left := sorted(set(planned) - set(runs)):
        names = listed((f"{configuration}/{repeat}" for configuration, repeat in left), 3)
        yield f"runs ({len(left)} of {len(planned)}): {names}"
    wanted = [
        "tables/table1.csv" if name == "table1" else f"figures/{name}.svg"
        for name in campaign.figures
    ]
    wanted += ["tables/claims.csv"] if campaign.has_papers_models else []
    yield from (path for path in (*wanted, "report.html") if not (results / path).exists())
    lacking = sum(not (results / "energy" / id_ / f"{n}.parquet").exists() for id_, n in runs)
    if lacking:
        yield f"energies of runs ({lacking} of {len(runs)})"
    if not traces:
        yield "power traces (--traces)"


def _description(campaign: Campaign, results: Path, runs: list[RunName]) -> tuple[str, str, str]:
    """Name, description and date of an archive: the end of the last run or, if none records that, today."""
    records = [read_json_object(RunFiles(results, *run).folder / PROVENANCE) for run in runs]
    segments = [segment for record in records for segment in record.get("segments") or ()]
    times = [s["ended_s"] for s in segments if s.get("ended_s") is not None]
    last = datetime.fromtimestamp(max(times, default=time.time()), UTC)
    description = (
        f"Specs, energies, tables, figures and provenance of {len(runs)} runs on "
        f"{', '.join(sorted(campaign.devices()))}. The study follows {PAPER}. `scalewatt import` imports it."
    )
    return f"scalewatt: results of the campaign {campaign.name}", description, f"{last:%Y-%m-%d}"
