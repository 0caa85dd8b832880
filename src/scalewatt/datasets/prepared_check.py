"""Checks of a prepared folder before a training starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json_object
from scalewatt.common.schema_validation import check, one_of, schema, shown

MANIFEST = "manifest.json"
AGAIN = "prepare it again, on its own: snakemake --profile PROFILE prepare_imagenet prepare_era5 -R dataset"
_INDEX = "index-*.parquet"


def content_of_prepared(folder: Path) -> str:
    """Return the SHA-256 of a prepared dataset's content, from its manifest.

    InputError if the preparation is unfinished, or an index of images is not the prepared one.
    """
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder}: has no prepared dataset (any more); {AGAIN}")
    manifest = read_json_object(folder / MANIFEST, "marker", "files")
    if not isinstance(manifest["marker"], dict):
        raise InputError(f"{folder}: the preparation of the dataset is unfinished; {AGAIN}")
    if (path := changed_index(folder, manifest)) is not None:
        raise InputError(f"{path}: is not the index that {MANIFEST} describes; {AGAIN}")
    return str(manifest["marker"]["content_sha256"])


def checked_definition(given: Any, where: str = "--definition") -> dict[str, Any]:
    """Return a dataset's definition, a campaign's with its `name`; InputError, which begins with `where`."""
    root = schema("campaign")
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise InputError(f"{where}: {shown(given)}; expected an object with name and format")
    check(given["name"], root["properties"]["datasets"]["propertyNames"], f"{where}: name", root)
    formats = [part["$ref"].rpartition("/")[2] for part in _kinds(root)]
    if given.get("format") not in formats:
        named = given.get("format")
        raise InputError(f"{where}: format: {shown(named)}; {one_of(named, formats)}")
    rest = {key: value for key, value in given.items() if key != "name"}
    check(rest, root["$defs"][given["format"]], where, root)
    return given


def _kinds(root: dict[str, Any]) -> list[dict[str, str]]:
    return root["properties"]["datasets"]["additionalProperties"]["oneOf"]


def definition_of_prepared(folder: Path) -> dict[str, Any]:
    """Return the definition that a folder was prepared for; InputError if it was not prepared."""
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder}: is not prepared yet; expected --definition")
    return checked_definition(
        read_json_object(folder / MANIFEST, "definition")["definition"], str(folder / MANIFEST)
    )


def source_warning(folder: Path, source: str | dict[str, Any] | None) -> str | None:
    """Return a warning about prepared data that are gone or from another source; None if there is none."""
    if not (folder / MANIFEST).exists():
        return f"{folder}: has no prepared dataset any more; {AGAIN}"
    made_from = read_json_object(folder / MANIFEST).get("made_from", source)
    if source is None or made_from == source:
        return None
    return (
        f"{folder}: was prepared from {made_from or 'its own content'}, the cluster file names "
        f"{source}; what is prepared is used as it is. To change that, {AGAIN}"
    )


def is_staged(spec: RunSpec, scratch: str | None) -> bool:
    """Return True if a run reads images from a copy on its nodes' own disks."""
    images = spec.dataset["format"] == "imagenet"
    return scratch is not None and images and spec.settings.get("loader") != "synthetic"


def changed_index(folder: Path, manifest: dict[str, Any]) -> Path | None:
    """Return an index of images that differs from the manifest; None if there is none."""
    for path in sorted(folder.glob(_INDEX)):
        expected = manifest["files"].get(path.name, {}).get("sha256")
        if expected and file_sha256(path) != expected:
            return path
    return None
