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
MANIFEST_VERSION = 5
"""Version of the manifest and of the data that are made here."""
BUILDING = ".building"
AGAIN = (
    "prepare it again, on its own: "
    "snakemake --profile PROFILE prepare_imagenet prepare_era5 -R dataset"
)

Source = str | None
"""A path, URL or patterns of files as under `sources` in a cluster file, or nothing."""
Prepared = tuple[tuple[int, int], str]
"""Training and validation samples, and the SHA-256 of what identifies the content."""


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
    with waiting_lock(folder / ".lock", f"{folder}: another process prepares it; waiting"):
        return _finished(definition, folder, source) or _prepare(definition, folder, source)


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
    known = {"version": MANIFEST_VERSION, "definition": definition, "files": _sizes(folder)}
    if source is not None and not is_made_here(definition):
        known["source"] = source
    if {key: manifest.get(key) for key in known} != known:
        return None
    if definition["format"] == "imagenet" and definition["source"] != "none":
        from scalewatt.data.imagenet import has_images

        return manifest["marker"] if has_images(folder) else None
    return manifest["marker"]


def _prepare(definition: dict[str, Any], folder: Path, source: Source) -> dict[str, Any]:
    """Prepare the data, and write the manifest when all are there."""
    _require_room_for(definition, folder)
    kind = definition["format"]
    if is_made_here(definition):
        kind, source = definition["source"], None
    elif source is None and (folder / MANIFEST).exists():
        source = _manifest(folder)["source"]
    (train, validation), content_sha256 = PREPARE[kind](definition, folder, source)
    marker = {key: definition[key] for key in ("name", "format", "source")} | {
        "train_samples": train,
        "validation_samples": validation,
        "content_sha256": content_sha256,
    }
    manifest = {
        "version": MANIFEST_VERSION,
        "definition": definition,
        "source": source,
        "files": _sizes(folder),
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


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes of the files that were made, by name."""
    patterns = ("index-*.parquet", "*.h5", "statistics.json")
    return {path.name: path.stat().st_size for p in patterns for path in folder.glob(p)}


# --- each kind ------------------------------------------------------------------------------------


def _make_nothing(definition: dict[str, Any], folder: Path, source: Source) -> Prepared:
    return sample_counts(definition), hashlib.sha256().hexdigest()


def _make_demo(definition: dict[str, Any], folder: Path, source: Source) -> Prepared:
    """Make the embedded data anew, and prepare them as those of a source."""
    from scalewatt.data import demo

    building = folder / BUILDING
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    for path in _visible(folder):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
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
    digest = hashlib.sha256()
    for split, index in indices.items():
        index.save(folder, split)
        for path, size in sorted(zip(index.paths, index.sizes.tolist(), strict=True)):
            digest.update(f"{path}\0{size}\0\n".encode())
    return sample_counts(definition), digest.hexdigest()


def _prepare_era5(definition: dict[str, Any], folder: Path, source: Source) -> Prepared:
    """Prepare all years; a year's file may name paths, so its moments identify it."""
    from scalewatt.data.era5 import Era5Dataset
    from scalewatt.data.era5_prepare import prepare

    years = prepare(source, folder, definition)
    samples = (len(Era5Dataset(folder, definition, part, 1)) for part in ("train", "validation"))
    digest = hashlib.sha256(json.dumps(years, sort_keys=True).encode()).hexdigest()
    return (next(samples), next(samples)), digest


PREPARE: dict[str, Callable[[dict[str, Any], Path, Source], Prepared]] = {
    "none": _make_nothing,
    "embedded": _make_demo,
    "imagenet": _prepare_images,
    "era5": _prepare_era5,
}


def prepare_dataset_year(
    definition: dict[str, Any], folder: Path, source: Source, year: int
) -> dict[str, Any]:
    """Prepare a year of a dataset in ERA5's format, and describe it without path and time."""
    from scalewatt.data.era5_prepare import make_year
    from scalewatt.data.era5_years import all_years

    if definition["format"] != "era5" or is_made_here(definition):
        raise InputError(f"dataset {definition['name']} is not prepared year by year")
    if year not in all_years(definition):
        known = ", ".join(map(str, all_years(definition)))
        raise InputError(f"--year: {year}: the dataset has no such year; its years: {known}")
    _make_folder(folder)
    return {"name": definition["name"], **make_year(definition, folder, source, year)}


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
