"""`scalewatt import`: check an archive, and make it a campaign with its results here."""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalewatt import __version__
from scalewatt.archive.bag import Bag, BagInfo, opened
from scalewatt.archive.cluster_facts import SUFFIX, read_facts
from scalewatt.archive.file_selection import belongs
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.campaign_file import CampaignName
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import require_space, write_text
from scalewatt.common.settings import validated
from scalewatt.common.yaml_files import read_yaml

_REQUIRED = (".yaml", SUFFIX)
"""Endings of the campaign's files that an archive must have."""


def check_archive(path: Path) -> list[str]:
    """Check an archive; return what to print, in lines. InputError if it is damaged."""
    with opened(path) as bag:
        _targets(bag, bag.info.name, "")
        bag.check()
        total = sum(bag.sizes.values())
        sound = f"{path}: sound: campaign {bag.info.name}, runs: {bag.info.runs}, files: {len(bag.sizes)}"
        return [f"{sound}, bytes: {total}", *_incomplete(bag.info)]


def import_archive(
    path: Path, results: Path, campaigns: Path, name: str | None = None
) -> list[str]:
    """Import an archive as results/<name> and campaigns/<name>.yaml; return what to print, in lines.

    Simulated runs go to results/<name>-simulated. InputError if it is damaged, or if anything of that
    name is here.
    """
    with opened(path) as bag:
        info = bag.info
        simulated = SIMULATED if info.name.endswith(SIMULATED) else ""
        name = validated(CampaignName, name or info.name.removesuffix(simulated), "--name")
        targets = _targets(bag, name, simulated)
        _check_free(name, simulated, results, campaigns)
        require_space(
            _existing(results), sum(bag.sizes.values()), f"{results}", f"the files of {path}"
        )
        with _unpacking(results, name) as folder:
            bag.write({file: folder / target for file, target in targets.items()})
            try:
                campaign = _renamed(folder / "campaigns", name)
            except InputError as error:  # the folder of unpacking is gone when it is read
                raise InputError(str(error).replace(f"{folder}/", f"{path}: ")) from error
            # One time for all files, later than any code's, so that nothing is re-run.
            now = time.time_ns()
            for file in folder.rglob("*"):
                os.utime(file, ns=(now, now))
            runs = os.path.relpath(results / name / "runs", campaigns)
            _name_runs(folder / "campaigns" / f"{name}.yaml", runs)
            _check_free(name, simulated, results, campaigns)  # unpacking takes long
            _place(folder, name + simulated, results, campaigns)
    written = f"written by scalewatt {info.scalewatt}, this is {__version__}"
    return [
        f"imported: campaign {name}, runs: {info.runs}, in {results / campaign.name}",
        *_incomplete(info),
        *([] if info.scalewatt == __version__ else [written]),
        *_next(campaign, campaigns / f"{name}{SUFFIX}", results / campaign.name),
    ]


def _targets(bag: Bag, name: str, simulated: str) -> dict[str, Path]:
    """Map each file to its path below the folder of unpacking; InputError for what is not of a campaign."""
    stem, results = f"campaigns/{bag.info.name}", f"results/{bag.info.name}/"
    targets = {METADATA: Path(METADATA)}
    for ending, file in _campaign_files(name, simulated).items():
        if f"{stem}{ending}" in bag.sizes:
            targets[f"{stem}{ending}"] = Path("campaigns", file)
        elif ending in _REQUIRED:
            raise InputError(f"{bag.path}: has no {stem}{ending}; `scalewatt export` writes it")
    for file in bag.sizes.keys() - targets.keys():
        below = file.removeprefix(results)
        if not file.startswith(results) or not belongs(below):
            raise InputError(f"{bag.path}: {file}: is not a file of the campaign's results")
        targets[file] = Path("results", name + simulated, below)
    return targets


def _campaign_files(name: str, simulated: str) -> dict[str, str]:
    """Names of a campaign's own files, by their endings in an archive."""
    return {
        ".yaml": f"{name}.yaml",
        SUFFIX: f"{name}{SUFFIX}",
        ".exclusions.csv": f"{name}{simulated}.exclusions.csv",
    }


def _check_free(name: str, simulated: str, results: Path, campaigns: Path) -> None:
    """Raise InputError if a campaign of the name, or any file of it, is here."""
    files = _campaign_files(name, simulated).values()
    for path in (results / f"{name}{simulated}", *(campaigns / file for file in files)):
        if path.exists() or path.is_symlink():
            raise InputError(
                f"{path}: exists already, and nothing is overwritten; allowed: --name OTHER, or remove it"
            )
    for file in sorted(campaigns.glob("*.yaml")):
        if _name_in(file) == name:
            raise InputError(
                f"{file}: is the campaign {name} here, whose runs lie in {results / name}; allowed: "
                "--name OTHER"
            )


def _name_in(file: Path) -> object:
    """Name in a campaign file; None of an unreadable one."""
    try:
        return read_yaml(file).get("name")
    except InputError:
        return None


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


@contextmanager
def _unpacking(results: Path, own: str) -> Iterator[Path]:
    """Create a folder beside the results, whose content is renamed or deleted."""
    folder = results / f".{own}.{uuid.uuid4().hex[:8]}.importing"
    try:
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        raise InputError(f"{results}: the archive cannot be unpacked ({error.strerror})") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _renamed(folder: Path, name: str) -> Campaign:
    """Give the unpacked campaign its name here; InputError if it is damaged."""
    file, facts = folder / f"{name}.yaml", folder / f"{name}{SUFFIX}"
    for path, key, value in (
        (file, "name", name),
        (facts, "campaign", f"campaigns/{name}.yaml"),
    ):
        text = re.sub(
            rf"(?m)^{key}:.*$", f"{key}: {value}", path.read_text(encoding="utf-8"), count=1
        )
        path.write_text(text, encoding="utf-8")
    _name_runs(file, f"../results/{name}/runs")
    campaign = load_campaign(file, read_facts(facts))
    if campaign.name.removesuffix(SIMULATED) != name:
        raise InputError(f"{file}: name: expected on a line of its own, to be changed to {name}")
    return campaign


def _name_runs(file: Path, runs: str) -> None:
    """Say in a campaign file of registered runs where they are, unless that is the default."""
    text = file.read_text(encoding="utf-8")
    if re.search(r"(?m)^registered:", text):
        text = re.sub(r"(?m)^runs:.*\n?", "", text)
        line = "" if runs == f"../results/{file.stem}/runs" else f"runs: {runs}\n"
        file.write_text(text + line, encoding="utf-8")


def _place(folder: Path, own: str, results: Path, campaigns: Path) -> None:
    """Move everything to its place, or nothing: the results last, in one step."""
    try:
        # Whoever makes it has the name; renaming onto an empty folder is allowed.
        (results / own).mkdir()
    except FileExistsError:
        raise InputError(f"{results / own}: exists already: another import was faster") from None
    placed = []
    try:
        for source in sorted((folder / "campaigns").iterdir()):
            placed.append(campaigns / source.name)
            # A copy: the two folders may lie on different disks.
            write_text(placed[-1], source.read_text(encoding="utf-8"))
        (folder / "results" / own).rename(results / own)
    except BaseException:
        for path in placed:
            path.unlink(missing_ok=True)
        (results / own).rmdir()
        raise


def _incomplete(info: BagInfo) -> list[str]:
    missing = [*info.missing, *([] if info.traces else ["power traces (export --traces)"])]
    return [f"not in it: {each}" for each in missing]


def _next(campaign: Campaign, facts: Path, results: Path) -> list[str]:
    drawn = next((name for name in campaign.figures if name != "table1"), "figures")
    claims = f"  scalewatt claims --results {results} --site {facts}"
    return [
        "nothing of it is trained; to check, draw, validate and view it:",
        f"  scalewatt reproduce --site {facts}",
        f"  snakemake --profile profiles/local {drawn} --configfile={facts}",
        *([claims] if campaign.has_papers_models else []),
        f"  scalewatt status --site {facts}",
    ]
