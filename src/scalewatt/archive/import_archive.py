"""`scalewatt import`: check an archive, and make it a campaign with its results here."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scalewatt import __version__
from scalewatt.archive.archive_file import (
    Opened,
    check_content,
    opened,
    read_manifest,
    write_content,
)
from scalewatt.archive.file_selection import belongs
from scalewatt.archive.ro_crate import METADATA
from scalewatt.campaign.campaign_types import Campaign
from scalewatt.campaign.imported_campaign import NAME, SUFFIX, imported_content, read_imported
from scalewatt.campaign.load import SIMULATED, load_campaign
from scalewatt.common.errors import InputError
from scalewatt.common.files import require_space, write_text
from scalewatt.common.yaml_files import read_yaml
from scalewatt.reproduction.manifests import REFERENCE, ArchiveManifest
from scalewatt.results.text.number_format import count

_OF_CAMPAIGN = (".yaml", SUFFIX, ".exclusions.csv")
_MUST = (".yaml", SUFFIX)


def check_archive(path: Path) -> list[str]:
    """Check an archive, a ZIP file or a folder of its content; return what to print, in lines."""
    with opened(path) as one:
        manifest = _checked(one)
    return [_sound(path, manifest), *_incomplete(manifest)]


def import_archive(
    path: Path, results: Path, campaigns: Path, name: str | None = None
) -> list[str]:
    """Import an archive as results/<name> and campaigns/<name>.yaml; return what to print, in lines.

    An archive of the published rows is only checked. InputError if it is damaged, or if anything of that
    name is here.
    """
    with opened(path) as one:
        manifest = read_manifest(one)
        own = name or manifest.name
        if name is not None and manifest.kind == REFERENCE:
            raise InputError(f"--name {name}: {path} has no runs, so there is nothing to import")
        if manifest.kind == REFERENCE:
            _checked(one)
            return [_sound(path, manifest), *_of_reference(path)]
        if not NAME.fullmatch(own):
            raise InputError(f"--name {own}: allowed: lower-case letters, digits and hyphens")
        targets = _targets(path, manifest, own)
        _check_free(own, results, campaigns)
        _check_room(path, manifest, results, campaigns)
        with _unpacking(results, own) as folder:
            write_content(one, manifest, {p: folder / target for p, target in targets.items()})
            try:
                campaign = _renamed(folder / "campaigns" / f"{own}.yaml", own)
            except InputError as error:  # the folder of unpacking is gone when it is read
                raise InputError(str(error).replace(f"{folder}/", f"{path}: ")) from error
            # One time for all files, later than any code's, so that nothing is re-run.
            now = time.time_ns()
            for file in folder.rglob("*"):
                os.utime(file, ns=(now, now))
            _check_free(own, results, campaigns)
            _place(folder, own, results, campaigns)
    written = f"written by scalewatt {manifest.scalewatt}, this is {__version__}"
    return [
        f"imported: {count(manifest.runs, 'run')} of the campaign {own}, in {results / own}",
        *_incomplete(manifest),
        *([] if manifest.scalewatt == __version__ else [written]),
        *_next(campaign, campaigns / f"{own}.yaml", results / own),
    ]


def _checked(one: Opened) -> ArchiveManifest:
    manifest = read_manifest(one)
    if manifest.kind != REFERENCE:
        _targets(one.path, manifest, manifest.name)
    check_content(one, manifest)
    return manifest


def _targets(path: Path, manifest: ArchiveManifest, own: str) -> dict[str, Path]:
    """Return where each file goes, below the folder of unpacking; InputError for one without a place."""
    found: dict[str, Path] = {METADATA: Path(METADATA)}
    stem, results = f"campaigns/{manifest.name}", f"results/{manifest.name}/"
    for name in manifest.files.keys() - {METADATA}:
        if name.startswith(results) and not belongs(name.removeprefix(results)):
            raise InputError(f"{path}: {name}: is not a file of a campaign's results")
        if name.startswith(results):
            found[name] = Path("results", name.removeprefix(results))
        elif name in {stem + end for end in _OF_CAMPAIGN}:
            found[name] = Path("campaigns", own + name.removeprefix(stem))
        else:
            raise InputError(f"{path}: {name}: allowed: files below {results} and {stem}.yaml")
    for end in _MUST:
        if stem + end not in found:
            raise InputError(f"{path}: has no {stem}{end}; expected what `scalewatt export` wrote")
    return found


def _check_free(name: str, results: Path, campaigns: Path) -> None:
    """Raise InputError if a campaign of the name, or any file of it, is here."""
    there = [results / name, *(campaigns / f"{name}{ending}" for ending in _OF_CAMPAIGN)]
    for path in there:
        if path.exists() or path.is_symlink():
            raise InputError(
                f"{path}: exists already, and nothing is overwritten; allowed: --name OTHER, or remove it"
            )
    for file in (campaigns.parent / "config.yaml", *sorted(campaigns.glob("*.yaml"))):
        if name in _names(file):
            raise InputError(
                f"{file}: is the campaign {name} here, whose runs lie in {results / name}; allowed: "
                "--name OTHER"
            )


def _names(file: Path) -> set[str]:
    """Return the folders of results of a campaign file, trained or simulated; none of an unreadable one."""
    try:
        one = read_imported(file)
        name = one.name if one else read_yaml(file).get("name")
    except InputError:
        return set()
    return {f"{name}", f"{name}{SIMULATED}"}


def _check_room(path: Path, manifest: ArchiveManifest, results: Path, campaigns: Path) -> None:
    """Raise InputError if the archive's content does not fit where it is to lie, before it is read.

    All of it is unpacked beside the results; beside campaigns lies the campaign's own file and few more.
    """
    total = sum(entry.bytes for entry in manifest.files.values())
    own = sum(one.bytes for name, one in manifest.files.items() if name.startswith("campaigns/"))
    for folder, needed in ((results, total), (campaigns, own)):
        there = folder.absolute()
        while not there.exists():
            there = there.parent
        require_space(there, needed, f"{folder}", f"the files of {path}")


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


def _renamed(file: Path, own: str) -> Campaign:
    """Return the unpacked campaign, under its name here; InputError if it is damaged."""
    one = read_imported(file)
    assert one is not None  # it is among the required files
    if one.name != own:
        first = one.original or one.name
        here = replace(one, name=own, original=None if own == first else first)
        text = json.dumps(imported_content(here), indent=1, ensure_ascii=False)
        write_text(file.with_name(f"{own}{SUFFIX}"), text + "\n")
    return load_campaign(file)


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
        (folder / "results").rename(results / own)
    except BaseException:
        for path in placed:
            path.unlink(missing_ok=True)
        (results / own).rmdir()
        raise


def _sound(path: Path, manifest: ArchiveManifest) -> str:
    total = sum(one.bytes for one in manifest.files.values())
    runs = f", {count(manifest.runs, 'run')}" if manifest.kind != REFERENCE else ""
    return (
        f"{path}: sound: {manifest.kind} {manifest.name}{runs}, {count(len(manifest.files), 'file')}, "
        f"{total} bytes, each as in its manifest"
    )


def _incomplete(manifest: ArchiveManifest) -> list[str]:
    lines = [f"not in it: {one}" for one in manifest.missing]
    if manifest.kind != REFERENCE and not manifest.traces:
        lines.append("not in it: power traces (export --traces)")
    return lines


def _next(campaign: Campaign, file: Path, results: Path) -> list[str]:
    drawn = next((name for name in campaign.figures if name != "table1"), "figures")
    claims = f"  scalewatt claims --results {results} --campaign {file}"
    return [
        "nothing of it is trained here; to check, draw, validate and view it:",
        f"  scalewatt reproduce --campaign {file}",
        f"  snakemake --profile profiles/local {drawn} --config campaign={file}",
        *([claims] if campaign.has_papers_models else []),
        f"  scalewatt status --campaign {file}",
    ]


def _of_reference(path: Path) -> list[str]:
    return [
        "the published rows: no runs, so nothing is imported; they are used by:",
        f"  scalewatt claims --results {path}",
        f"  scalewatt calibrate {path} --out model.json",
        "  `overlay: published` of a figure, or of Table 1, in a campaign",
    ]
