"""Preparation of a dataset: bring its data into the form that trainings read, once.

`manifest.json` in the folder records what was made from which definition. For an embedded dataset it
is written first, without a marker, and again at the end; so a folder without a manifest is never
taken for ours, and one without a marker never for finished. For images the marker is removed once
they are checked, before their indices are replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scalewatt.campaign.campaign_types import is_made_here
from scalewatt.campaign.dataset_rules import sample_counts
from scalewatt.common.errors import InputError
from scalewatt.common.files import file_sha256, read_json_object, write_json
from scalewatt.common.processes import die_with
from scalewatt.datasets.imagenet.sources import (
    image_sizes,
    index_files,
    lies_elsewhere,
    prepare_images,
)
from scalewatt.datasets.prepared_check import MANIFEST, changed_index

MANIFEST_VERSION = 3  # of the manifest and of what the embedded generators write
Source = str | dict[str, Any] | None
"""A path or URL, an object as under `sources` in a cluster file, or nothing."""
WAVES_SOURCE = "travelling waves made by scalewatt"


def prepare_dataset(definition: dict[str, Any], folder: Path, source: Source) -> dict[str, Any]:
    """Prepare `folder` for `definition` unless it is; return what identifies the data.

    The result has name, format, source, train_samples, validation_samples and content_sha256, and
    neither path nor time, so that the same data gives the same result anywhere. `source` is what
    it is made from, where that is not in `folder`.
    """
    folder = Path(folder)
    definition = json.loads(json.dumps(definition))  # as it reads in the manifest
    _make_folder(folder)
    manifest = read_json_object(folder / MANIFEST) if (folder / MANIFEST).exists() else None
    embedded = is_made_here(definition)
    of_images = definition["format"] == "imagenet" and not embedded
    if (
        manifest
        and _is_finished(folder, manifest, definition)
        and not (of_images and lies_elsewhere(folder, source))
    ):
        if not embedded and source is not None and manifest.get("made_from") != source:
            write_json(folder / MANIFEST, manifest | {"made_from": source})
        return manifest["marker"]
    if embedded:
        _clear(folder, manifest, definition)
        write_json(folder / MANIFEST, _manifest(definition, {}, None))
    elif manifest and manifest["definition"] != definition:
        raise InputError(
            f"{folder}: was prepared for {manifest['definition']}, but the campaign defines "
            f"{definition}; name another folder, or delete {folder / MANIFEST} to check it again"
        )
    build = {
        ("imagenet", True): _made_images,
        ("imagenet", False): _images,
        ("era5", True): _era5,
        ("era5", False): _era5,
    }[definition["format"], embedded]
    if definition["source"] == "none":
        build = _nothing
    samples = build(definition, folder, source)
    if of_images:  # the images themselves are too many to be hashed, and may be elsewhere
        files = {name: {"bytes": size} for name, size in image_sizes(folder).items()}
        files_here = {path.name: _described(path) for path in index_files(folder)}
    elif embedded:
        files = files_here = _list_files(folder, definition)
    else:
        files, files_here = _era5_content(folder, definition), _list_files(folder, definition)
    marker = {
        "name": definition["name"],
        "format": definition["format"],
        "source": definition["source"],
        "train_samples": samples[0],
        "validation_samples": samples[1],
        "content_sha256": _content_sha256(files),
    }
    made_from = {} if embedded else {"made_from": source}
    write_json(folder / MANIFEST, _manifest(definition, files_here, marker) | made_from)
    return marker


def prepare_dataset_years(
    definition: dict[str, Any], folder: Path, source: Source, job: str, processes: int = 1
) -> dict[str, Any]:
    """Prepare years of a dataset in ERA5's format, which `prepare_dataset` will find; describe them.

    `job` is one year, or the first and last such as "1979-1988", prepared by so many processes at a
    time. The result has neither path nor time. A year that fails stops no other; finished ones stay.
    """
    from scalewatt.datasets.era5.channels import all_years
    from scalewatt.datasets.era5.year_jobs import years_of_job

    if definition["format"] != "era5" or is_made_here(definition):
        raise InputError(f"dataset {definition['name']} is not prepared year by year")
    years = years_of_job(job, all_years(definition))
    _make_folder(folder)
    prepared = partial(_prepare_year, definition, folder, source)
    if len(years) > 1:
        described = _side_by_side(prepared, years, max(1, processes), folder)
    else:
        described = [prepared(years[0])]
    if job == str(years[0]):
        return {"name": definition["name"], **described[0]}
    return {"name": definition["name"], "years": described}


def _prepare_year(
    definition: dict[str, Any], folder: Path, source: Source, year: int
) -> dict[str, Any]:
    from scalewatt.datasets.era5_preparation.prepare_era5 import describe_year, make_year

    make_year(definition, folder, source, year)
    return {"year": year, **describe_year(folder, definition, year)}


def _side_by_side(
    prepared: Callable[[int], dict[str, Any]], years: list[int], processes: int, folder: Path
) -> list[dict[str, Any]]:
    """Return what `prepared` says of each year, from processes that end with this one."""
    pool = ProcessPoolExecutor(
        min(processes, len(years)), get_context("spawn"), die_with, (os.getpid(),)
    )
    with pool:
        going = [pool.submit(prepared, year) for year in years]
        try:
            wait(going)
            return [one.result() for one in going]
        except BrokenProcessPool as error:
            raise InputError(
                f"{folder}: a process that prepared a year was killed, often for lack of memory; finished "
                "years stay; allowed: more mem_mb for the job, or a smaller era5_years_per_job"
            ) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be created ({error.strerror}); name another folder in data_roots"
        ) from error


def _manifest(definition: dict, files: dict, marker: dict | None) -> dict[str, Any]:
    return {
        "manifest": MANIFEST_VERSION,
        "definition": definition,
        "files": files,
        "marker": marker,
    }


def _is_finished(folder: Path, manifest: dict[str, Any], definition: dict[str, Any]) -> bool:
    """Return True if the folder has this definition's data, by names, sizes and indices."""
    wanted = _manifest(definition, manifest["files"], manifest["marker"])
    found = {key: value for key, value in manifest.items() if key != "made_from"}
    if manifest["marker"] is None or found != wanted:
        return False
    paths = ((folder / name, entry["bytes"]) for name, entry in manifest["files"].items())
    whole = all(path.is_file() and path.stat().st_size == size for path, size in paths)
    return whole and changed_index(folder, manifest) is None


# --- the kinds; each returns (training samples, validation samples) --------------------------------


def _nothing(definition: dict, folder: Path, source: Source) -> tuple[int, int]:
    return sample_counts(definition)


def _made_images(definition: dict, folder: Path, source: Source) -> tuple[int, int]:
    from scalewatt.datasets.imagenet.demo_scans import write_scans

    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as building:
        write_scans(building, definition)
        for entry in Path(building).iterdir():
            entry.rename(folder / entry.name)
    return definition["train_samples"], definition["validation_samples"]


def _images(definition: dict, folder: Path, source: Source) -> tuple[int, int]:
    indices = prepare_images(definition, folder, source)
    write_json(folder / MANIFEST, _manifest(definition, {}, None))
    for split, index in indices.items():
        index.save(folder, split)
    return len(indices["train"].paths), len(indices["val"].paths)


def _era5(definition: dict, folder: Path, source: Source) -> tuple[int, int]:
    from scalewatt.datasets.era5_preparation.prepare_era5 import count_samples, prepare

    origin = None
    if definition["source"] == "embedded":
        from scalewatt.datasets.era5.demo_waves import write_waves

        source, origin = str(folder / "waves.zarr"), WAVES_SOURCE
        write_waves(folder / "waves.zarr", definition)
    prepare(source, folder, definition, origin)
    return count_samples(definition, folder)


def _era5_content(folder: Path, definition: dict) -> dict[str, dict[str, Any]]:
    """Return what identifies the data wherever they are; a year's file may name the path of another."""
    from scalewatt.datasets.era5_preparation.prepare_era5 import content_of

    return {
        name: {"bytes": len(content), "sha256": content}
        for name, content in content_of(folder, definition).items()
    }


# --- files --------------------------------------------------------------------------------------


def _products(folder: Path, format: str) -> list[Path]:
    """Return the entries of the folder that preparation creates; others are not ours."""
    patterns = {
        "imagenet": ("train", "val", "index-*.parquet"),
        "era5": ("waves.zarr", "[0-9][0-9][0-9][0-9].h5", "statistics.json", "climatology.h5"),
    }[format]
    return sorted(path for pattern in patterns for path in folder.glob(pattern))


def _clear(folder: Path, manifest: dict | None, definition: dict) -> None:
    """Remove an unfinished or differently defined embedded dataset, and no other data."""
    leftovers = [path for kind in ("imagenet", "era5") for path in _products(folder, kind)]
    ours = manifest is not None and is_made_here(manifest["definition"])
    if leftovers and not ours:
        raise InputError(
            f"{folder}: contains {leftovers[0].name}, which is not from an embedded dataset; "
            f"name another folder for dataset {definition['name']}, or remove it"
        )
    unfinished = (".building-*", ".waves.zarr.*.tmp", ".[0-9]*.h5.partial")
    for path in [*leftovers, *(path for name in unfinished for path in folder.glob(name))]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _list_files(folder: Path, definition: dict) -> dict[str, dict[str, Any]]:
    """Return every file of the dataset with its size and, where reading all is cheap, its SHA-256."""
    listed: dict[str, dict[str, Any]] = {}
    for product in _products(folder, definition["format"]):
        below = sorted(product.rglob("*")) if product.is_dir() else [product]
        for path in below:
            if not path.is_file():
                continue
            cheap = is_made_here(definition) or path.name == "statistics.json"
            name = path.relative_to(folder).as_posix()
            listed[name] = _described(path) if cheap else {"bytes": path.stat().st_size}
    return listed


def _described(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _content_sha256(files: dict[str, dict[str, Any]]) -> str:
    """Return one digest over names, sizes and digests, where there are any."""
    digest = hashlib.sha256()
    for name, entry in sorted(files.items()):
        digest.update(f"{name}\0{entry['bytes']}\0{entry.get('sha256', '')}\n".encode())
    return digest.hexdigest()
