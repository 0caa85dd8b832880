"""ERA5 from where the cluster has it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from scalewatt.common.errors import InputError
from scalewatt.datasets.era5.statistics import rounded_statistics, stored_moments
from scalewatt.datasets.era5.times import all_years, part_years
from scalewatt.datasets.era5.year_layout import YearFile
from scalewatt.datasets.era5_preparation.prepare_era5 import (
    Source,
    counted_steps,
    make_year,
    prepare,
)


def prepare_era5(
    definition: dict[str, Any], folder: Path, source: Source | None
) -> tuple[int, int]:
    """Prepare the years that are not there; training and validation samples."""
    prepare(source, folder, definition)
    return count_samples(definition, folder)


def prepare_era5_year(
    definition: dict[str, Any], folder: Path, source: Source | None, year: int
) -> dict[str, Any]:
    """Prepare one year unless it is there; what identifies it, without any path."""
    if year not in all_years(definition):
        raise InputError(f"dataset {definition['name']} has no year {year}")
    make_year(definition, folder, source, year)
    return {"name": definition["name"], "year": year} | describe_year(folder, definition, year)


def describe_year(folder: Path, definition: dict[str, Any], year: int) -> dict[str, Any]:
    """Shape of a prepared year, and a digest of its moments; null where it has none stored."""
    file = YearFile.read(folder, year)
    steps = counted_steps(folder, definition, year)
    moments = stored_moments(file.path, steps)
    digest = None
    if moments is not None:
        values = [[f"{x:.10g}" for x in array] for array in (moments.mean, moments.squares)]
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
    return {"steps": steps, "grid": [file.latitudes, file.longitudes], "moments_sha256": digest}


def content_of(folder: Path, definition: dict[str, Any]) -> dict[str, str]:
    """What each prepared file holds, told without paths and without the last bits of sums."""
    content = {
        f"{year}.h5": json.dumps(describe_year(folder, definition, year), sort_keys=True)
        for year in all_years(definition)
    }
    statistics = json.dumps(rounded_statistics(folder), sort_keys=True)
    return content | {"statistics.json": hashlib.sha256(statistics.encode()).hexdigest()}


def count_samples(definition: dict[str, Any], folder: Path) -> tuple[int, int]:
    """Samples with a 6 h target; a training year that lacks one is refused here."""
    from scalewatt.datasets.era5.era5_dataset import (
        Era5Dataset,  # and with it PyTorch, which the years need not
    )

    train, validation = (
        len(
            Era5Dataset(
                folder,
                part_years(definition, part),
                lead_steps=1,
                samples_per_year=definition["samples_per_year"],
                require_targets=part == "train",
                known_years=all_years(definition),
            )
        )
        for part in ("train", "validation")
    )
    return train, validation
