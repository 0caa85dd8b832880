"""`scalewatt import`: check an archive, and make it a campaign with its results here."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from pathlib import Path

import yaml

from scalewatt.archive.bag import Bag, open_bag
from scalewatt.archive.cluster_facts import SUFFIX, read_facts
from scalewatt.archive.export_archive import RESULTS
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.campaign_file import CampaignName
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.settings import validated

_REQUIRED = (".yaml", SUFFIX)
"""Endings of the campaign's files that an archive must have."""


def check_archive(path: Path) -> list[str]:
    """Check an archive; return what to print, in lines. InputError if it is damaged."""
    with open_bag(path) as bag, open(os.devnull, "wb") as nowhere:
        _targets(bag, bag.info.name)
        for name in bag.files:
            bag.copy(name, nowhere)
        return [
            f"{path}: sound: campaign {bag.info.name}, runs: {bag.info.runs}, files: {len(bag.files)}",
            *(f"not in it: {text}" for text in bag.info.missing),
        ]


def import_archive(
    path: Path, results: Path, campaigns: Path, name: str | None = None
) -> list[str]:
    """Import an archive as results/<name> and campaigns/<name>.yaml; return what to print, in lines.

    InputError if it is damaged, or if anything of that name is here.
    """
    with open_bag(path) as bag:
        name = validated(CampaignName, name or bag.info.name, "--name")
        targets = _targets(bag, name)
        _check_free(name, [*targets.values()], results, campaigns)
        folder = results / f".{name}.{uuid.uuid4().hex[:8]}.importing"
        try:
            for file, target in targets.items():
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                with open(folder / target, "xb") as out:
                    bag.copy(file, out)
            campaign = _rename(path, folder, name, os.path.relpath(results, campaigns))
            # One time for all files, later than any code's, so that nothing is re-run.
            now = time.time_ns()
            for unpacked in folder.rglob("*"):
                os.utime(unpacked, ns=(now, now))
            _place(folder, results / campaign.name, campaigns)
        except OSError as error:
            where = error.filename or results
            raise InputError(f"{where}: cannot be written ({error.strerror})") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    facts = campaigns / f"{name}{SUFFIX}"
    return [
        f"imported: campaign {name}, runs: {bag.info.runs}, in {results / campaign.name}",
        *(f"not in it: {text}" for text in bag.info.missing),
        "nothing of it is trained; to check, draw and view it:",
        f"  scalewatt reproduce --site {facts}",
        f"  snakemake --profile profiles/local figures --configfile={facts}",
        f"  scalewatt status --site {facts}",
    ]


def _targets(bag: Bag, name: str) -> dict[str, Path]:
    """Map each file to its path below the temporary folder; InputError for what is not of a campaign."""
    stem, results = f"campaigns/{bag.info.name}", f"results/{bag.info.name}/"
    targets = {METADATA: Path(METADATA)}
    for ending in (".yaml", SUFFIX, ".exclusions.csv"):
        if f"{stem}{ending}" in bag.files:
            targets[f"{stem}{ending}"] = Path("campaigns", f"{name}{ending}")
        elif ending in _REQUIRED:
            raise InputError(f"{bag.path}: has no {stem}{ending}; `scalewatt export` writes it")
    for file in bag.files.keys() - targets.keys():
        below = file.removeprefix(results)
        if not file.startswith(results) or not RESULTS.fullmatch(below):
            raise InputError(f"{bag.path}: {file}: is not a file of the campaign's results")
        targets[file] = Path("results", name, below)
    return targets


def _check_free(name: str, targets: list[Path], results: Path, campaigns: Path) -> None:
    """Raise InputError if a campaign of the name, or any file of it, is here."""
    folders = {"results": results, "campaigns": campaigns}
    for kind, first in {target.parts[:2] for target in targets if len(target.parts) > 1}:
        if (path := folders[kind] / first).exists():
            raise InputError(
                f"{path}: exists already, and nothing is overwritten; allowed: --name OTHER, or remove it"
            )
    named = re.compile(rf"""(?m)^name: *["']?{name}["']?\s*(#.*)?$""")
    for file in campaigns.glob("*.yaml"):
        if named.search(file.read_text(errors="replace")):
            raise InputError(f"{file}: is the campaign {name} here; allowed: --name OTHER")


def _rename(archive: Path, folder: Path, name: str, results: str) -> Campaign:
    """Give the unpacked campaign its name here; InputError if it is damaged.

    `results`: the folder of all results, as seen from that of the campaigns.
    """
    file, facts = (folder / "campaigns" / f"{name}{ending}" for ending in (".yaml", SUFFIX))
    for path, key, value in ((file, "name", name), (facts, "campaign", f"campaigns/{name}.yaml")):
        line = yaml.safe_dump({key: value}).strip()  # in quotes where it would be read as a number
        text = path.read_text(encoding="utf-8-sig")
        text = re.sub(rf"(?m)^{key}:.*$", line, text, count=1)
        # The folder of registered runs is another one here.
        path.write_text(re.sub(r"(?m)^runs:.*\n?", "", text), encoding="utf-8")
    try:
        campaign = load_campaign(file, read_facts(facts), to_run=False)
    except InputError as error:  # the temporary folder is gone when this is read
        raise InputError(str(error).replace(f"{folder}/", f"{archive}: ")) from error
    if campaign.name != name:
        raise InputError(f"{archive}: name: expected on a line of its own, to be changed to {name}")
    if campaign.registered:  # it names the folder of its runs
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"\nruns: {results}/{name}/runs\n")
    return campaign


def _place(folder: Path, results: Path, campaigns: Path) -> None:
    """Move everything to its place, or nothing: the results last, in one step."""
    written: list[Path] = []
    campaigns.mkdir(parents=True, exist_ok=True)
    try:
        # Whoever makes this folder has the name; renaming onto an empty folder is allowed.
        results.mkdir()
        written.append(results)
        for source in (folder / "campaigns").iterdir():
            # A copy, as the two folders may lie on different disks.
            with open(campaigns / source.name, "xb") as target:
                written.append(campaigns / source.name)
                target.write(source.read_bytes())
        (folder / "results" / results.name).rename(results)
    except BaseException as error:
        for path in reversed(written):
            path.unlink() if path.is_file() else path.rmdir()
        if isinstance(error, FileExistsError):
            raise InputError(f"{error.filename}: exists already: was made meanwhile") from error
        raise
