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

from scalewatt.archive.bag import Bag, open_bag
from scalewatt.archive.cluster_facts import SUFFIX, read_facts
from scalewatt.archive.export_archive import RESULTS
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.campaign_file import CampaignName
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import require_space, write_text
from scalewatt.common.settings import validated

_REQUIRED = (".yaml", SUFFIX)
"""Endings of the campaign's files that an archive must have."""


def check_archive(path: Path) -> list[str]:
    """Check an archive; return what to print, in lines. InputError if it is damaged."""
    with open_bag(path) as bag:
        _targets(bag, bag.info.name, "")
        bag.check()
        return [
            f"{path}: sound: campaign {bag.info.name}, runs: {bag.info.runs}, files: {len(bag.sizes)}, "
            f"bytes: {sum(bag.sizes.values())}",
            *(f"not in it: {text}" for text in bag.info.missing),
        ]


def import_archive(
    path: Path, results: Path, campaigns: Path, name: str | None = None
) -> list[str]:
    """Import an archive as results/<name> and campaigns/<name>.yaml; return what to print, in lines.

    Simulated runs go to results/<name>-simulated. InputError if it is damaged, or if anything of that
    name is here.
    """
    with open_bag(path) as bag:
        simulated = SIMULATED if bag.info.name.endswith(SIMULATED) else ""
        name = validated(CampaignName, name or bag.info.name.removesuffix(simulated), "--name")
        targets = _targets(bag, name, simulated)
        _check_free(name, simulated, results, campaigns)
        with _unpacking(results, name) as folder:
            size = sum(bag.sizes.values())
            require_space(folder, size, f"{results}", f"the files of {path}")
            bag.unpack({file: folder / target for file, target in targets.items()})
            try:
                campaign = _rename(folder / "campaigns", name)
            except InputError as error:  # the temporary folder is gone when this is read
                raise InputError(str(error).replace(f"{folder}/", f"{path}: ")) from error
            if campaign.registered:  # it names the folder of its runs
                runs = os.path.relpath(results / name / "runs", campaigns)
                with (folder / "campaigns" / f"{name}.yaml").open("a", encoding="utf-8") as file:
                    file.write(f"\nruns: {runs}\n")
            # One time for all files, later than any code's, so that nothing is re-run.
            now = time.time_ns()
            for unpacked in folder.rglob("*"):
                os.utime(unpacked, ns=(now, now))
            _check_free(name, simulated, results, campaigns)  # unpacking takes long
            _place(folder, name + simulated, results, campaigns)
    facts = campaigns / f"{name}{SUFFIX}"
    return [
        f"imported: campaign {name}, runs: {bag.info.runs}, in {results / campaign.name}",
        *(f"not in it: {text}" for text in bag.info.missing),
        "nothing of it is trained; to check, draw and view it:",
        f"  scalewatt reproduce --site {facts}",
        f"  snakemake --profile profiles/local figures --configfile={facts}",
        f"  scalewatt status --site {facts}",
    ]


def _targets(bag: Bag, name: str, simulated: str) -> dict[str, Path]:
    """Map each file to its path below the temporary folder; InputError for what is not of a campaign."""
    stem, results = f"campaigns/{bag.info.name}", f"results/{bag.info.name}/"
    targets = {METADATA: Path(METADATA)}
    for ending, file in _campaign_files(name, simulated).items():
        if f"{stem}{ending}" in bag.sizes:
            targets[f"{stem}{ending}"] = Path("campaigns", file)
        elif ending in _REQUIRED:
            raise InputError(f"{bag.path}: has no {stem}{ending}; `scalewatt export` writes it")
    for file in bag.sizes.keys() - targets.keys():
        below = file.removeprefix(results)
        if not file.startswith(results) or not RESULTS.fullmatch(below):
            raise InputError(f"{bag.path}: {file}: is not a file of the campaign's results")
        targets[file] = Path("results", name + simulated, below)
    return targets


def _campaign_files(name: str, simulated: str) -> dict[str, str]:
    """Names of a campaign's files here, by their endings in an archive."""
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
    named = re.compile(rf"""(?m)^name: *["']?{name}["']?\s*(#.*)?$""")
    for file in campaigns.glob("*.yaml"):
        if named.search(file.read_text(errors="replace")):
            raise InputError(f"{file}: is the campaign {name} here; allowed: --name OTHER")


@contextmanager
def _unpacking(results: Path, name: str) -> Iterator[Path]:
    """Create a temporary folder among the results; what is still in it at the end is deleted."""
    folder = results / f".{name}.{uuid.uuid4().hex[:8]}.importing"
    try:
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        raise InputError(f"{results}: the archive cannot be unpacked ({error.strerror})") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rename(folder: Path, name: str) -> Campaign:
    """Give the unpacked campaign its name here; InputError if it is damaged."""
    file, facts = folder / f"{name}.yaml", folder / f"{name}{SUFFIX}"
    for path, key, value in (
        (file, "name", name),
        (facts, "campaign", f"campaigns/{name}.yaml"),
    ):
        text = path.read_text(encoding="utf-8")
        text = re.sub(rf"(?m)^{key}:.*$", f"{key}: {value}", text, count=1)
        # The folder of registered runs is another one here.
        path.write_text(re.sub(r"(?m)^runs:.*\n?", "", text), encoding="utf-8")
    campaign = load_campaign(file, read_facts(facts))
    if campaign.name.removesuffix(SIMULATED) != name:
        raise InputError(f"{file}: name: expected on a line of its own, to be changed to {name}")
    return campaign


def _place(folder: Path, name: str, results: Path, campaigns: Path) -> None:
    """Move everything to its place, or nothing: the results last, in one step."""
    try:
        # Whoever makes this folder has the name; renaming onto an empty folder is allowed.
        (results / name).mkdir()
    except FileExistsError:
        raise InputError(f"{results / name}: exists already: another import was faster") from None
    sources = list((folder / "campaigns").iterdir())
    try:
        for source in sources:
            # A copy, as the two folders may lie on different disks.
            write_text(campaigns / source.name, source.read_text(encoding="utf-8"))
        (folder / "results" / name).rename(results / name)
    except BaseException:
        for source in sources:
            (campaigns / source.name).unlink(missing_ok=True)
        (results / name).rmdir()
        raise
