"""`scalewatt export`: write a campaign's results as one archive, without what reveals this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from scalewatt.archive.archive_file import write_archive
from scalewatt.archive.cluster_facts import facts_text
from scalewatt.archive.file_selection import Content, Run, campaign_files, results_content
from scalewatt.archive.ro_crate import METADATA, PAPER, Description, metadata
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json, read_json_object
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.redaction import absolute_paths, known_keys
from scalewatt.reproduction.manifests import CAMPAIGN, ArchiveManifest, Given, entries_of
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.text.number_format import count, part_of

SUFFIX = ".crate.zip"
_FOLDERS = {
    "runs": "Of each run: its spec, its history by epoch, the times of its stages, and its provenance",
    "energy": "Energy of each run by node, device kind and stage, and by epoch; with flags",
    "traces": "Power of each device against time, of each run",
    "tables": "Runs, configurations, each figure's points, claims; as Parquet and CSV",
    "figures": "Figures as PDF, SVG and PNG, with exactly the plotted points as CSV",
    "datasets": "What the prepared datasets were, by hash",
    "idle": "Idle power of each device, by its probes",
    "superseded": "Measurements that were replaced: why, and their energy",
}


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

    InputError if results are missing, where something in them reveals this machine, or where
    the archive exists already.
    """
    cluster = load_cluster(cluster_file)
    campaign = load_campaign(file, cluster, to_run=False).whole
    command = _snakemake(cluster_file)
    content = results_content(campaign, results / campaign.name, options.traces, command)
    files = {f"results/{campaign.name}/{path}": given for path, given in content.files.items()}
    files |= campaign_files(campaign, facts_text(campaign, cluster).encode())
    check_keys(files)
    if not options.allow_private:
        check_private(files, private_words(cluster))
    entries = entries_of(files)
    described = metadata(entries, _description_of(campaign, results, content, options))
    entries |= entries_of({METADATA: described})
    manifest = ArchiveManifest(
        campaign.name, CAMPAIGN, entries, len(content.runs), content.missing, traces=options.traces
    )
    out = options.out or Path(f"{campaign.name}{SUFFIX}")
    size = write_archive({**files, METADATA: described}, manifest, out)
    return [
        *(f"not in it: {one}" for one in content.missing),
        *([] if options.allow_private else not_searched_for(cluster)),
        f"{out}: {_size(size)}, {count(len(content.runs), 'run')}, {count(len(entries), 'file')}",
    ]


def _snakemake(cluster_file: Path) -> str:
    """Snakemake's command for a site: with its profile, where there is one of its name."""
    name = "local" if cluster_file.name == "config.yaml" else cluster_file.stem
    if Path("profiles", name).is_dir():
        return f"snakemake --profile profiles/{name}"
    return f"snakemake --configfile={cluster_file}"  # with a space it takes the target, too


def _description_of(
    campaign: Campaign, results: Path, content: Content, options: ExportOptions
) -> Description:
    base = f"results/{campaign.name}"
    runs = [_provenance(results / campaign.name, run) for run in content.runs]
    folders = sorted({path.split("/")[0] for path in content.files if "/" in path})
    day = _last_day(runs)
    planned = sum(campaign.repeats.values())
    simulated = sum(bool(run.get("simulated")) for run in runs)
    dated = (
        "the day of the last run's end" if day else "the day of the export: no run records its time"
    )
    sentences = [
        f"{len(content.runs)} of {count(planned, 'run')} of "
        f"{count(len(campaign.configurations), 'configuration')} on "
        f"{', '.join(sorted(campaign.devices()))}: specs, energies, tables, figures and provenance.",
        f"{part_of(simulated, len(runs), 'run')} simulated with a scaling model, not trained."
        if simulated
        else "",
        f"The study follows {PAPER}.",
        f"Date: {dated}.",
        "`scalewatt import` imports it; manifest.json has the SHA-256 of every other file.",
    ]
    return Description(
        name=f"scalewatt: results of the campaign {campaign.name}",
        description=" ".join(filter(None, sentences)),
        date_published=day or datetime.now(UTC).strftime("%Y-%m-%d"),
        license=options.license,
        authors=options.authors,
        descriptions={
            "campaigns/": "What was asked for, what is left out of the tables, and the cluster's facts",
            f"{base}/": "The report, and the folders of all other results",
            **{f"{base}/{name}/": _FOLDERS.get(name, "Further files") for name in folders},
            f"{base}/report.html": "All results on one self-contained page",
        },
    )


def _provenance(results: Path, run: Run) -> dict[str, Any]:
    return read_json_object(RunFiles(results, *run).folder / "provenance.json")


def _last_day(runs: Iterable[dict[str, Any]]) -> str | None:
    """Return the day on which the last run ended; None if no run records that."""
    segments = [one for run in runs for one in run.get("segments") or ()]
    ends = [one["ended_s"] for one in segments if one.get("ended_s") is not None]
    return datetime.fromtimestamp(max(ends), UTC).strftime("%Y-%m-%d") if ends else None


def _size(bytes_: float) -> str:
    for unit in ("B", "kB", "MB"):
        if bytes_ < 1000:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.3g} GB"


# --- what must not leave the machine --------------------------------------------------------------

_TEXTS = (".json", ".csv", ".md", ".tex", ".yaml", ".html", ".svg")
_SHORTEST = 4
"""Minimum length of a folder that is searched for; of an account, any length is."""


def private_words(cluster: Cluster) -> dict[str, str]:
    """Return the texts that must not be exported, with what each is."""
    found = {
        str(Path.home()): "the home folder",
        str(PROJECT_ROOT): "the folder of scalewatt",
        str(Path.cwd()): "the working folder",
        _account(cluster): "the account",
    }
    folders = [cluster.work_root, cluster.scratch or "", *cluster.data_roots.values()]
    sources = _strings(cluster.model_dump()["sources"])
    found |= dict.fromkeys(map(str, [*folders, *sources]), "a folder of the cluster file")
    return {
        word: what
        for word, what in found.items()
        if (word if what == "the account" else word.startswith("/") and len(word) >= _SHORTEST)
    }


def not_searched_for(cluster: Cluster) -> list[str]:
    """Return what cannot be searched for here: an account whose variable is not set."""
    if not cluster.account or _account(cluster):
        return []
    return [f"not searched for: the account, as {cluster.account} is not set here"]


def _account(cluster: Cluster) -> str:
    account = os.path.expandvars(cluster.account or "")
    return "" if "$" in account else account


def check_keys(files: Mapping[str, Given]) -> None:
    """Raise InputError, naming files and lines but no key, for files with a key of a known form.

    There is no option to export it: whoever has the archive could use it.
    """
    found = [
        f"{name}: line {line} ({kind})"
        for name, given in files.items()
        if name.endswith(_TEXTS)
        for line, kind in islice(known_keys(_text(given)), 1)
    ]
    _refuse(
        "whoever has it could use it",
        found,
        "none: take it out, and have its provider replace it where others have seen the file",
    )


def _text(given: Given) -> str:
    content = given if isinstance(given, bytes) else given.read_bytes()
    return content.decode(errors="replace")


def check_private(files: Mapping[str, Given], words: Mapping[str, str]) -> None:
    """Raise InputError, naming files and texts, for files with absolute paths or one of `words`."""
    found = [
        f"{name} ({problem})"
        for name, given in files.items()
        for problem in _private(name, given, words)
    ]
    _refuse(
        "it would reveal this machine or somebody",
        found,
        "relative paths, or --allow-private",
    )


def _refuse(why: str, found: Sequence[str], allowed: str) -> None:
    """Raise InputError, naming the first of what was found, if anything was."""
    if found:
        rest = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise InputError(
            f"not exported, as {why}: {'; '.join(found[:5])}{rest}; allowed: {allowed}"
        )


def _private(name: str, given: Given, words: Mapping[str, str]) -> Iterator[str]:
    if not name.endswith(_TEXTS):
        return
    text = _text(given)
    for word, what in words.items():
        if re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text):
            yield f"{what}: {word}"
            return
    # Pages and drawings are full of texts that look like paths: end tags, and encoded images.
    if name.endswith((".json", ".csv", ".yaml")):
        looked: Iterable[str] = (text,)
        if name.endswith(".json"):
            with suppress(ValueError):
                looked = _strings(parse_json(text))
        yield from islice((path for one in looked for path in absolute_paths(one)), 1)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from (str(key), *_strings(one))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _strings(one)
