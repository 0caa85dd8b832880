"""Prepared datasets: folders in the form that trainings read.

`manifest.json`, written last, records what was made, from which definition and source; a folder without it
is not prepared.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_file import all_years, sample_counts
from scalewatt.campaign.cluster import is_made_here
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.files import read_json_object, waiting_lock, write_json

MANIFEST = "manifest.json"
Prepared = tuple[tuple[int, int], str]
"""Training and validation samples, and the SHA-256 of what identifies the content."""


def prepare_dataset(definition: dict[str, Any], folder: Path, source: str | None) -> dict[str, Any]:
    """Prepare `folder` for `definition`, from a source as in a cluster file, unless it is; return its marker.

    The marker has name, format, source, train_samples, validation_samples and content_sha256, and neither
    path nor time, so that the same data have the same marker anywhere.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if marker := _finished(definition, folder, source):  # of a folder that may be read-only
        return marker
    with waiting_lock(folder / ".lock", f"{folder}: another process prepares it; waiting"):
        return _finished(definition, folder, source) or _prepare(definition, folder, source)


def prepare_dataset_year(
    definition: dict[str, Any], folder: Path, source: str | None, year: int
) -> dict[str, Any]:
    """Prepare a year of a dataset in ERA5's format, and describe it without path and time."""
    from scalewatt.data.era5_prepare import make_year

    if definition["format"] != "era5":
        raise InputError(f"--year: dataset {definition['name']} has no years")
    if year not in (years := all_years(definition)):
        raise InputError(f"--year: dataset {definition['name']} has {years[0]} to {years[-1]}")
    folder.mkdir(parents=True, exist_ok=True)
    _known_manifest(definition, folder)
    return {"name": definition["name"], **make_year(definition, folder, source, year)}


def _known_manifest(definition: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Manifest of a folder, if it has one; InputError if it was prepared for another definition."""
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_manifest(folder)
    if (known := manifest["definition"]) != json.loads(json.dumps(definition)):
        remedy = "name another folder, or delete this one"
        if definition["format"] == "era5":
            remedy = f"name another folder, or delete {MANIFEST} in it: years that fit are kept"
        both = f"{json.dumps(known)}, not {json.dumps(definition)}"
        raise InputError(f"{folder}: was prepared for {both}; {remedy}")
    return manifest


def _finished(
    definition: dict[str, Any], folder: Path, source: str | None
) -> dict[str, Any] | None:
    """Marker of a folder that has the data of this definition and source; else None."""
    if (manifest := _known_manifest(definition, folder)) is None:
        return None
    is_same = is_made_here(definition) or source in (None, manifest["source"])
    return manifest["marker"] if is_same and manifest["files"] == _sizes(folder) else None


def _prepare(definition: dict[str, Any], folder: Path, source: str | None) -> dict[str, Any]:
    """Prepare the data, and write the manifest when all are there."""
    if source is None and not is_made_here(definition) and (folder / MANIFEST).exists():
        source = read_manifest(folder)["source"]
    if definition["source"] == "none":
        samples, content_sha256 = sample_counts(definition), hashlib.sha256().hexdigest()
    else:
        make = _prepare_era5 if definition["format"] == "era5" else _prepare_images
        samples, content_sha256 = make(definition, folder, source)
    marker = {key: definition[key] for key in ("name", "format", "source")}
    marker |= zip(("train_samples", "validation_samples"), samples, strict=True)
    marker["content_sha256"] = content_sha256
    made = {"definition": definition, "source": source, "files": _sizes(folder), "marker": marker}
    write_json(folder / MANIFEST, made)
    return marker


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes of the files that were made, by name."""
    patterns = ("index-*.parquet", "*.h5", "statistics.json")
    return {path.name: path.stat().st_size for p in patterns for path in folder.glob(p)}


def _prepare_images(definition: dict[str, Any], folder: Path, source: str | None) -> Prepared:
    """Index the images, which are too many to be hashed and may be elsewhere."""
    from scalewatt.data.imagenet import prepare_images

    if definition["source"] == "embedded":
        from scalewatt.data.demo import write_scans

        source = None
        write_scans(folder, definition)
    indices, digest = prepare_images(definition, folder, source), hashlib.sha256()
    (folder / MANIFEST).unlink(missing_ok=True)  # which describes the indices before these
    for split, index in indices.items():
        index.save(folder, split)
        for path, size in sorted(zip(index.paths, index.sizes.tolist(), strict=True)):
            digest.update(f"{path}\0{size}\0\n".encode())
    return sample_counts(definition), digest.hexdigest()


def _prepare_era5(definition: dict[str, Any], folder: Path, source: str | None) -> Prepared:
    """Prepare all years; a year's file may name paths, so its moments identify it."""
    from scalewatt.data.era5 import Era5Dataset
    from scalewatt.data.era5_prepare import prepare

    years = json.dumps(prepare(definition, folder, source), sort_keys=True)
    train, validation = (Era5Dataset(folder, definition, p, 1) for p in ("train", "validation"))
    return (len(train), len(validation)), hashlib.sha256(years.encode()).hexdigest()


def content_of_prepared(folder: Path) -> str:
    """SHA-256 of a prepared dataset's content; InputError if it is not prepared."""
    return str(read_manifest(folder)["marker"]["content_sha256"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read what a folder was prepared for and from; InputError if it is not prepared."""
    if not (folder / MANIFEST).exists():
        again = "snakemake --profile PROFILE prepare_imagenet prepare_era5 -R dataset"
        raise InputError(
            f"{folder}: has no prepared dataset; prepare it again, on its own: {again}"
        )
    return read_json_object(folder / MANIFEST, "definition", "source", "files", "marker")


def is_staged(spec: RunSpec, scratch: str | None) -> bool:
    """Whether a run reads images from a copy on the disks of its nodes."""
    images = spec.dataset["format"] == "imagenet"
    return scratch is not None and images and spec.settings.get("loader") != "synthetic"
