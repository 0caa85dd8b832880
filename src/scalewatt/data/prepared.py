"""Prepared datasets: folders in the form that trainings read.

`manifest.json`, written last, records what was made, from which definition and source; a folder without it
is not prepared.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_file import Dataset, sample_counts
from scalewatt.campaign.cluster import is_made_here
from scalewatt.campaign.run_spec import RunSpec
from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import read_json_object, write_json
from scalewatt.common.settings import validated

MANIFEST = "manifest.json"
MANIFEST_VERSION = 4
"""Version of the manifest and of the data that are made here."""
BUILDING = ".building"
AGAIN = (
    "prepare it again, on its own: "
    "snakemake --profile PROFILE prepare_imagenet prepare_era5 -R dataset"
)

Source = str | dict[str, Any] | None
"""A path or URL, an object as under `sources` in a cluster file, or nothing."""
Entries = dict[str, dict[str, Any]]
"""`bytes` and, where reading all is cheap, `sha256` of contents by their name."""


# --- preparing ------------------------------------------------------------------------------------


def prepare_dataset(definition: dict[str, Any], folder: Path, source: Source) -> dict[str, Any]:
    """Prepare `folder` for `definition`, from `source`, unless it is; return its marker.

    The marker has name, format, source, train_samples, validation_samples and content_sha256, and neither
    path nor time, so that the same data have the same marker anywhere.
    """
    folder = Path(folder)
    definition = json.loads(json.dumps(definition))  # as it reads in the manifest
    _make_folder(folder)
    if marker := _finished(definition, folder, source):
        return marker
    try:
        with waiting_lock(folder / ".lock", f"{folder}: another process prepares it; waiting"):
            return _finished(definition, folder, source) or _prepare(definition, folder, source)
    except OSError as error:
        error.filename = error.filename or str(folder)  # a full disk's error names no file
        raise


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be created ({error.strerror}); name another folder in data_roots"
        ) from error


def _finished(definition: dict[str, Any], folder: Path, source: Source) -> dict[str, Any] | None:
    """Marker of a folder that has the data of this definition and source; else None."""
    if not (folder / MANIFEST).exists():
        return None
    manifest = _manifest(folder)
    if (manifest.get("version"), manifest["definition"]) != (MANIFEST_VERSION, definition):
        return None
    if source is not None and source != manifest["source"] and not is_made_here(definition):
        return None
    if manifest["files"] != {path.name: path.stat().st_size for path in _made_files(folder)}:
        return None
    if definition["format"] == "imagenet" and definition["source"] != "none":
        from scalewatt.data.imagenet import has_images

        return manifest["marker"] if has_images(folder) else None
    return manifest["marker"]


def _prepare(definition: dict[str, Any], folder: Path, source: Source) -> dict[str, Any]:
    """Prepare the data, and write the manifest when all are there."""
    _require_room_for(definition, folder)
    if is_made_here(definition):
        source = None
    elif source is None and (folder / MANIFEST).exists():
        source = _manifest(folder)["source"]
    kind = definition["source"] if is_made_here(definition) else definition["format"]
    (train, validation), content = PREPARE[kind](definition, folder, source)
    marker = {
        "name": definition["name"],
        "format": definition["format"],
        "source": definition["source"],
        "train_samples": train,
        "validation_samples": validation,
        "content_sha256": _content_sha256(content),
    }
    manifest = {
        "version": MANIFEST_VERSION,
        "definition": definition,
        "source": source,
        "files": {path.name: path.stat().st_size for path in _made_files(folder)},
        "marker": marker,
    }
    write_json(folder / MANIFEST, manifest)
    shutil.rmtree(folder / BUILDING, ignore_errors=True)
    return marker


def _require_room_for(definition: dict[str, Any], folder: Path) -> None:
    """Refuse a folder with other data, unless these are made here, too, and can be made again."""
    if (folder / MANIFEST).exists():
        present = definition_of_prepared(folder)
        if present != definition and not (is_made_here(present) and is_made_here(definition)):
            raise InputError(
                f"{folder}: was prepared for {json.dumps(present)}, the campaign defines "
                f"{json.dumps(definition)}; name another folder, or delete {folder / MANIFEST}"
            )
    elif is_made_here(definition) and _visible(folder) and not (folder / BUILDING).exists():
        raise InputError(
            f"{folder}: contains {_visible(folder)[0].name}, which is not from an embedded dataset; "
            f"name another folder for dataset {definition['name']}"
        )


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


# --- each kind: (training, validation samples), and what identifies the content


Prepared = tuple[tuple[int, int], Entries]


def _make_nothing(definition: dict[str, Any], folder: Path, source: Source) -> Prepared:
    return sample_counts(definition), {}


def _make_demo(definition: dict[str, Any], folder: Path, source: Source) -> Prepared:
    """Make the embedded data anew, and prepare them as those of a source."""
    from scalewatt.data import demo

    building = folder / BUILDING
    building.mkdir(exist_ok=True)
    for path in (*_visible(folder), building / "waves.zarr"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if definition["format"] == "imagenet":
        demo.write_scans(folder, definition)
        return _prepare_images(definition, folder, None)
    try:
        demo.write_waves(building / "waves.zarr", definition)
        return _prepare_era5(definition, folder, str(building / "waves.zarr"))
    finally:
        shutil.rmtree(building / "waves.zarr", ignore_errors=True)


def _prepare_images(definition: dict[str, Any], folder: Path, source: Source) -> Prepared:
    """Index the images, which are too many to be hashed and may be elsewhere."""
    from scalewatt.data.imagenet import prepare_images

    indices = prepare_images(definition, folder, source)
    (folder / MANIFEST).unlink(missing_ok=True)  # which describes the indices before these
    for split, index in indices.items():
        index.save(folder, split)
    content = {
        path: {"bytes": size}
        for index in indices.values()
        for path, size in zip(index.paths, index.sizes.tolist(), strict=True)
    }
    return sample_counts(definition), content


def _prepare_era5(definition: dict[str, Any], folder: Path, source: Source) -> Prepared:
    """Prepare all years; a year's file may name paths, so its numbers identify it."""
    from scalewatt.data.era5_prepare import content_of, count_samples, prepare

    prepare(source, folder, definition)
    texts = content_of(folder, definition).items()
    content: Entries = {name: {"bytes": len(text), "sha256": text} for name, text in texts}
    return count_samples(definition, folder), content


PREPARE: dict[str, Callable[[dict[str, Any], Path, Source], Prepared]] = {
    "none": _make_nothing,
    "embedded": _make_demo,
    "imagenet": _prepare_images,
    "era5": _prepare_era5,
}


def _made_files(folder: Path) -> list[Path]:
    patterns = ("index-*.parquet", "*.h5", "statistics.json")
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


def _content_sha256(content: Entries) -> str:
    digest = hashlib.sha256()
    for name, entry in sorted(content.items()):
        digest.update(f"{name}\0{entry['bytes']}\0{entry.get('sha256', '')}\n".encode())
    return digest.hexdigest()


# --- years of ERA5 --------------------------------------------------------------------------------


def prepare_dataset_year(
    definition: dict[str, Any], folder: Path, source: Source, year: int
) -> dict[str, Any]:
    """Prepare a year of a dataset in ERA5's format, and describe it without path and time."""
    from scalewatt.data.era5_prepare import describe_year, make_year
    from scalewatt.data.era5_years import all_years

    if definition["format"] != "era5" or is_made_here(definition):
        raise InputError(f"dataset {definition['name']} is not prepared year by year")
    if year not in all_years(definition):
        known = ", ".join(map(str, all_years(definition)))
        raise InputError(f"--year: {year}: the dataset has no such year; its years: {known}")
    _make_folder(folder)
    make_year(definition, folder, source, year)
    return {"name": definition["name"], "year": year, **describe_year(folder, definition, year)}


# --- what is prepared -----------------------------------------------------------------------------


def content_of_prepared(folder: Path) -> str:
    """SHA-256 of a prepared dataset's content; InputError if it is not prepared."""
    return str(_manifest(folder)["marker"]["content_sha256"])


def definition_of_prepared(folder: Path) -> dict[str, Any]:
    """Definition that a folder was prepared for; InputError if it is not prepared."""
    return _manifest(folder)["definition"]


def _manifest(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).exists():
        raise InputError(f"{folder}: has no prepared dataset; {AGAIN}")
    return read_json_object(folder / MANIFEST, "definition", "files", "marker")


def checked_definition(definition: Any) -> dict[str, Any]:
    """Check the definition of a dataset, a campaign's with its `name`; InputError if it is wrong."""
    where = "--definition"
    if not isinstance(definition, dict) or not isinstance(definition.get("name"), str):
        raise InputError(f"{where}: expected an object with name and format")
    settings = {key: value for key, value in definition.items() if key != "name"}
    validated(Dataset, settings, where)
    return definition


def is_staged(spec: RunSpec, scratch: str | None) -> bool:
    """Whether a run reads images from a copy on the disks of its nodes."""
    images = spec.dataset["format"] == "imagenet"
    return scratch is not None and images and spec.settings.get("loader") != "synthetic"
