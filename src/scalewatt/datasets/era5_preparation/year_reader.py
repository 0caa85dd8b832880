"""One year of a source in our channels, units and orientation, as `write_year` reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BLOCK_BYTES = 16 * 2**20
"""Decoded at once. The C library reuses allocations up to this size; larger ones are zeroed anew."""

HUMIDITY = "water above 0 °C, ice below -23 °C, both between (ECMWF)"
"""What the relative humidity of ECMWF's own files is defined over."""

AS_STORED: Mapping[str, Any] = {
    "relative_humidity": "%",
    "relative_humidity_over": HUMIDITY,
    "relative_humidity_source_units": "unknown",
    "relative_humidity_converted_from_fraction": False,
    "geopotential_converted_from_height": False,
    "latitude_reversed": False,
    "longitude_shifted": 0,
}
"""A prepared file's attributes about its source's humidity, units and orientation, if all are ours."""

Block = tuple[int, dict[int, np.ndarray]]
"""First time's position, and fields (time, latitude, longitude), float32, by channel."""


@dataclass(frozen=True)
class YearReader:
    """A year of a source, opened and checked."""

    name: str
    """Of the source; messages begin with it."""
    grid: tuple[np.ndarray, np.ndarray]
    """Latitudes and longitudes."""
    attributes: Mapping[str, Any]
    """What the prepared file states about its origin, see `AS_STORED`."""
    files: tuple[str, ...]
    """Local files that are read for it."""
    blocks: Callable[[np.ndarray], Iterator[Block]]
    """Yield all fields at these times; those of a channel in the order of time."""
    link: tuple[Path, int] | None = None
    """The file whose `fields` are used in place, and their steps; None to write them."""

    @property
    def state(self) -> str:
        """Names, sizes and modification times of the files as they are now."""
        return "; ".join(map(_state, sorted(set(self.files))))


def _state(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError as error:
        return f"{path} {error.strerror}"
    return f"{path} {status.st_size} {status.st_mtime_ns}"
