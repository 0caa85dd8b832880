"""What a training holds against a prepared folder before it starts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from scalewatt.errors import InputError
from scalewatt.files import read_json

MANIFEST = "manifest.json"
_INDEX = "index-*.parquet"


def content_of_prepared(folder: Path) -> str:
    """SHA-256 of a prepared dataset's content, as its manifest says.

    InputError where it is not prepared to its end, or an index of images is not the one that was
    prepared.
    """
    manifest = read_json(folder / MANIFEST)
    if not manifest["marker"]:
        raise InputError(f"{folder}: the dataset is not prepared to its end; prepare it first")
    if (path := changed_index(folder, manifest)) is not None:
        raise InputError(
            f"{path}: is not the index that {MANIFEST} describes; prepare the dataset again: "
            "snakemake --profile PROFILE prepare_imagenet -R dataset"
        )
    return str(manifest["marker"]["content_sha256"])


def definition_of_prepared(folder: Path) -> dict[str, Any]:
    """What a folder was prepared for; InputError where it was not."""
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder}: is not prepared yet; expected --definition")
    return dict(read_json(folder / MANIFEST)["definition"])


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


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
