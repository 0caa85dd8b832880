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

from scalewatt.archive.bag import BagInfo, Given, sha256_of, write_bag
from scalewatt.archive.cluster_facts import facts_text
from scalewatt.archive.file_selection import Content, campaign_files, results_content
from scalewatt.archive.ro_crate import METADATA, PAPER, Description, metadata
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.cluster import Cluster, load_cluster
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import parse_json, read_json_object
from scalewatt.common.project_files import PROJECT_ROOT
from scalewatt.common.redaction import absolute_paths, known_keys
from scalewatt.results.tables.run_row import RunFiles
from scalewatt.results.text.number_format import listed

SUFFIX = ".crate.zip"


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
    files[METADATA] = _metadata(files, campaign, results, content, options)
    out = options.out or Path(f"{campaign.name}{SUFFIX}")
    info = BagInfo(campaign.name, len(content.runs), options.traces, content.missing)
    size = write_bag(files, info, out)
    return [
        *(f"not in it: {each}" for each in content.missing),
        *([] if options.allow_private else not_searched_for(cluster)),
        f"{out}: {_size(size)}, runs: {len(content.runs)}, files: {len(files)}",
    ]


def _snakemake(cluster_file: Path) -> str:
    """Snakemake's command for a site: with its profile, where there is one of its name."""
    name = "local" if cluster_file.name == "config.yaml" else cluster_file.stem
    if Path("profiles", name).is_dir():
        return f"snakemake --profile profiles/{name}"
    return f"snakemake --configfile={cluster_file}"  # with a space it takes the target, too


def _metadata(
    files: Mapping[str, Given],
    campaign: Campaign,
    results: Path,
    content: Content,
    options: ExportOptions,
) -> bytes:
    runs = [
        read_json_object(RunFiles(results / campaign.name, *run).folder / "provenance.json")
        for run in content.runs
    ]
    day, simulated = _last_day(runs), sum(bool(run.get("simulated")) for run in runs)
    dated = "the last run's end" if day else "the export, as no run records its time"
    sentences = [
        f"Specs, energies, tables, figures and provenance of {len(runs)} of "
        f"{sum(campaign.repeats.values())} planned runs on {', '.join(sorted(campaign.devices()))}.",
        f"Runs simulated with a scaling model, not trained: {simulated}." if simulated else "",
        f"The study follows {PAPER}. The date is that of {dated}. `scalewatt import` imports it.",
    ]
    description = Description(
        name=f"scalewatt: results of the campaign {campaign.name}",
        description=" ".join(filter(None, sentences)),
        date_published=day or datetime.now(UTC).strftime("%Y-%m-%d"),
        license=options.license,
        authors=options.authors,
    )
    sizes = {
        path: len(given) if isinstance(given, bytes) else given.stat().st_size
        for path, given in files.items()
    }
    return metadata(sha256_of(files), sizes, description)


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
        raise InputError(f"not exported, as {why}: {listed(found, 5)}; allowed: {allowed}")


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
