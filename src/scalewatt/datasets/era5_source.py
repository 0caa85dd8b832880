"""ERA5 from where the cluster has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scalewatt.datasets.era5 import Era5Dataset
from scalewatt.datasets.era5_prepare import prepare
from scalewatt.datasets.era5_times import all_years, part_years
from scalewatt.errors import InputError


def prepare_era5(definition: dict[str, Any], folder: Path, source: str | None) -> tuple[int, int]:
    """Prepare the years that are not there; training and validation samples."""
    missing = [year for year in all_years(definition) if not (folder / f"{year}.h5").exists()]
    if missing and source is None:
        raise InputError(
            f"{folder}: prepared ERA5 years {', '.join(map(str, missing))} are missing; give the "
            f"Zarr store to make them from in the cluster file: "
            f"sources: {{{definition['name']}: <url>}}"
        )
    prepare(source or "", folder, definition)
    return count_samples(definition, folder)


def count_samples(definition: dict[str, Any], folder: Path) -> tuple[int, int]:
    """Samples with a 6 h target; a training year that lacks one is refused here."""
    train, validation = (
        len(
            Era5Dataset(
                folder,
                part_years(definition, part),
                lead_steps=1,
                samples_per_year=definition["samples_per_year"],
                require_targets=part == "train",
            )
        )
        for part in ("train", "validation")
    )
    return train, validation
