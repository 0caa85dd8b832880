"""What a training holds against a prepared folder before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json

MANIFEST = "manifest.json"
AGAIN = "prepare it again, by itself: snakemake --profile PROFILE prepare_imagenet prepare_era5 -R dataset"
_INDEX = "index-*.parquet"


def content_of_prepared(folder: Path) -> str:
    """SHA-256 of a prepared dataset's content, as its manifest says.

    InputError where it is not prepared to its end, or an index of images is not the one that was
    prepared.
    """
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder}: holds no prepared dataset (any more); {AGAIN}")
    manifest = read_json(folder / MANIFEST)
    if not manifest["marker"]:
        raise InputError(f"{folder}: the dataset is not prepared to its end; {AGAIN}")
    if (path := changed_index(folder, manifest)) is not None:
        raise InputError(f"{path}: is not the index that {MANIFEST} describes; {AGAIN}")
    return str(manifest["marker"]["content_sha256"])


def definition_of_prepared(folder: Path) -> dict[str, Any]:
    """What a folder was prepared for; InputError where it was not."""
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder}: is not prepared yet; expected --definition")
    return dict(read_json(folder / MANIFEST)["definition"])


def out_of_step(folder: Path, source: str | dict[str, Any] | None) -> str | None:
    """What a user should know of data that were prepared before: gone, or made from another source."""
    if not (folder / MANIFEST).exists():
        return f"{folder}: holds no prepared dataset any more; {AGAIN}"
    made_from = read_json(folder / MANIFEST).get("made_from", source)
    if source is None or made_from == source:
        return None
    return (
        f"{folder}: was prepared from {made_from or 'what lay in it'}, the cluster file names "
        f"{source}; what is prepared is used as it is. To change that, {AGAIN}"
    )


def is_staged(spec: dict[str, Any], scratch: str | None) -> bool:
    """Whether a run reads images from a copy on its nodes' own disks."""
    images = spec["dataset"]["format"] == "imagenet"
    return scratch is not None and images and spec["settings"].get("loader") != "synthetic"


def changed_index(folder: Path, manifest: dict[str, Any]) -> Path | None:
    """An index of images that is not the one that the manifest describes."""
    for path in sorted(folder.glob(_INDEX)):
        expected = manifest["files"].get(path.name, {}).get("sha256")
        if expected and file_sha256(path) != expected:
            return path
    return None
