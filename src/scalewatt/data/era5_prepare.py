"""Preparation of ERA5's yearly files from a source, with their checks, and of the statistics.

A year is written to `.<year>.h5.partial` and renamed when it is complete; a job that was killed
begins it again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import atomic_path, require_space, write_json
from scalewatt.data.era5 import (
    CHANNEL_COUNTS,
    CHANNELS,
    CLIMATOLOGY,
    STATISTICS,
    STEP_H,
    Z500,
    read_layout,
    year_times,
)
from scalewatt.data.era5_checks import (
    Orientation,
    check_field,
    check_unlabelled,
    humidity_factor,
    orient,
)
from scalewatt.data.era5_sources import (
    CHANNELS_OF,
    Field,
    Source,
    Store,
    open_source,
    read_variable,
)
from scalewatt.data.era5_years import all_years, part_years

# --- a dataset ------------------------------------------------------------------------------------


def prepare(store: Store | None, folder: Path, definition: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the yearly files that `definition` needs and their statistics; what describes the years.

    Finished years are kept. InputError names what the store lacks, or a year that is missing where there
    is no store.
    """
    made = [make_year(definition, folder, store, year) for year in all_years(definition)]
    _check_years(folder, definition)
    years = part_years(definition, "train")
    samples = definition["samples_per_year"]
    write_statistics(folder, {year: len(year_times(year, samples)) for year in years})
    return made


def make_year(
    definition: dict[str, Any], folder: Path, store: Store | None, year: int
) -> dict[str, Any]:
    """Make a year that `definition` needs, unless it is there; its shape and a digest of its moments."""
    path = folder / f"{year}.h5"
    if not (store or path.exists()):
        raise InputError(
            f"{path}: prepared ERA5 year is missing; name its source in the cluster file: "
            f"sources: {{{definition['name']}: <url>}}, {{files: [<glob>]}} or {{hdf5: <folder>}}"
        )
    times = year_times(year, definition["samples_per_year"])
    prepare_year(store or "", year, path, times=times, grid=definition["grid"])
    layout, moments = read_layout(folder, year), stored_moments(path, len(times))
    # The last bits of sums depend on the processor.
    values = [[f"{x:.10g}" for x in moments[key]] for key in ("mean", "squares")]
    digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
    grid = [layout.latitudes, layout.longitudes]
    return {"year": year, "steps": len(times), "grid": grid, "moments_sha256": digest}


def _check_years(folder: Path, definition: dict[str, Any]) -> None:
    """Raise InputError unless every year has the definition's grid, and the same kind of humidity.

    An unknown kind counts as a kind.
    """
    rows, columns = definition["grid"]
    kinds: dict[str, str] = {}
    for year in all_years(definition):
        layout = read_layout(folder, year)
        shape = layout.channels, layout.latitudes, layout.longitudes
        if shape not in [(channels, rows + 1, columns) for channels in CHANNEL_COUNTS]:
            raise InputError(
                f"{layout.path}: has (channels, latitudes, longitudes) = {shape}; grid {rows} × "
                f"{columns} of {definition['name']} needs {(len(CHANNELS), rows + 1, columns)}"
            )
        with h5py.File(layout.path, "r") as file:
            kinds.setdefault(file.attrs.get("relative_humidity_over", "unknown"), layout.path.name)
    if len(kinds) > 1:
        listed = ", ".join(f"{name} over {kind}" for kind, name in kinds.items())
        raise InputError(
            f"{folder}: years have relative humidity of different kinds: {listed}; make all years "
            "from one source"
        )


# --- a year ---------------------------------------------------------------------------------------


def prepare_year(
    store: Store,
    year: int,
    path: Path | str,
    *,
    times: np.ndarray | None = None,
    grid: Sequence[int] | None = None,
) -> None:
    """Make a year's file from a source, all or nothing; a file that is there stays.

    `times` defaults to the whole year, 6-hourly; `grid` (rows and columns used) to the source's.
    Missing variables, levels or times and values that are not finite or not plausible are refused by
    name and date (InputError), labels and units before a field is read.
    """
    path = Path(path)
    if path.exists():
        return
    times = year_times(year) if times is None else times
    source = open_source(store, year, times, grid)
    orientation = orient(source, grid)
    if source.link:
        check_unlabelled(source, times)
    factor = humidity_factor(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    waiting = f"scalewatt: waiting for another preparation of {path}"
    with waiting_lock(path.with_name(f".{path.stem}.lock"), waiting):
        if path.exists():
            return
        try:
            with h5py.File(partial, "w") as file:
                where = store if isinstance(store, str) else next(iter(store.values()))
                file.attrs["source"] = where if isinstance(where, str) else " ".join(where)
                _write(file, times, source, orientation, factor)
            with partial.open("rb") as written:
                os.fsync(written.fileno())
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        os.replace(partial, path)


def _write(
    file: h5py.File,
    times: np.ndarray,
    source: Source,
    orientation: Orientation,
    to_percent: float,
) -> None:
    """Check all fields and write them, unless they are linked, with their labels and moments."""
    assumed = "water (as WeatherBench 2's)" if to_percent > 1 else "unknown"
    file.attrs.update(
        channels=CHANNELS,
        relative_humidity="%",
        relative_humidity_over=source.humidity_over or assumed,
        relative_humidity_converted_from_fraction=to_percent > 1,
        latitude_reversed=orientation.reverse,
        longitude_shifted=orientation.shift,
    )
    file["latitude"], file["longitude"] = orientation.latitude, orientation.longitude
    shape = (len(times), len(CHANNELS), len(orientation.latitude), len(orientation.longitude))
    steps, fields = times, None
    if source.link is None:
        folder = Path(file.filename).parent
        require_space(folder, 4 * int(np.prod(shape)), str(folder), "this year's fields")
        fields = file.create_dataset("fields", shape, np.float32)
    else:  # the file linked to may have more times than what is used
        steps = times[0] + np.arange(source.link[1]) * np.timedelta64(STEP_H, "h")
        file["fields"] = h5py.ExternalLink(str(source.link[0]), "/fields")
    file["time"] = steps.astype("datetime64[s]").astype(np.int64)
    moments = Moments()
    for variable in CHANNELS_OF:
        factor = np.float32(to_percent if variable == "relative_humidity" else 1)
        for channel, step, stored in _read_ahead(read_variable(source, variable)):
            values = orientation.apply(stored if factor == 1 else stored * factor)
            low, high = float(values.min()), float(values.max())
            check_field(channel, low, high, times[step], source.name)
            moments.add(channel, values)
            if fields is not None:
                fields[step, channel] = values
    statistics = file.create_group("statistics")
    statistics.attrs["steps"] = len(times)
    for key, array in moments.arrays().items():
        statistics[key] = array


def _read_ahead(blocks: Iterator[list[Field]]) -> Iterator[Field]:
    """Yield the fields of blocks, reading the next block meanwhile."""
    with ThreadPoolExecutor(1, thread_name_prefix="era5") as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            yield from block


# --- statistics -----------------------------------------------------------------------------------

Arrays = dict[str, np.ndarray]
"""A year's `count`, `mean` and `squares` of every channel, and `z500_sum`."""


class Moments:
    """Moments of every channel, (20,), of the fields that were added; all in float64."""

    def __init__(self) -> None:
        self.count = np.zeros(len(CHANNELS), np.int64)
        self.z500_sum: np.ndarray = np.zeros(())
        """Sum of the fields (latitude, longitude) of z500."""
        self._reference, self._sum, self._squares = np.zeros((3, len(CHANNELS)))

    def add(self, channel: int, values: np.ndarray) -> None:
        """Add a float32 field, as sums of the deviations from the mean of the channel's first.

        So nothing is lost where the mean is large against the deviations.
        """
        if not self.count[channel]:
            self._reference[channel] = values.mean(dtype=np.float64)
        deviations = np.subtract(values, self._reference[channel], dtype=np.float64).ravel()
        self._sum[channel] += deviations.sum()
        self._squares[channel] += np.einsum("i,i", deviations, deviations)
        self.count[channel] += values.size
        if channel == Z500:
            self.z500_sum = self.z500_sum + values

    def arrays(self) -> Arrays:
        """Count, mean, sum of squared deviations from the mean, and sum of z500."""
        shift = self._sum / np.maximum(self.count, 1)
        squares = np.maximum(0, self._squares - self._sum * shift)
        mean = self._reference + shift
        return {"count": self.count, "mean": mean, "squares": squares, "z500_sum": self.z500_sum}


def write_statistics(folder: Path, steps: dict[int, int]) -> None:
    """Merge the moments of each year's first `steps` into `statistics.json` and `climatology.h5`.

    The sd is the population's, unweighted over all values.
    """
    moments = [stored_moments(folder / f"{year}.h5", count) for year, count in steps.items()]
    count, means, squares, z500_sum = (
        np.array([of_year[key] for of_year in moments])
        for key in ("count", "mean", "squares", "z500_sum")
    )
    values = count.sum(axis=0)
    mean = (count * means).sum(axis=0) / values
    sd = np.sqrt((squares + count * (means - mean) ** 2).sum(axis=0) / values)
    if constant := [name for name, s in zip(CHANNELS, sd, strict=True) if s == 0]:
        raise InputError(f"{folder}: {', '.join(constant)} never changes in the training years")
    with atomic_path(folder / CLIMATOLOGY) as temporary, h5py.File(temporary, "w") as file:
        file["z500"] = (z500_sum.sum(axis=0) / sum(steps.values())).astype(np.float32)
        file.attrs["units"] = "m**2 s**-2"
    statistics = {"channels": list(CHANNELS), "years": list(steps)}
    statistics |= {"mean": mean.tolist(), "sd": sd.tolist()}
    write_json(folder / STATISTICS, statistics)


def stored_moments(path: Path, steps: int) -> Arrays:
    """Moments stored in a prepared year's file; InputError unless they are of its first `steps`."""
    with h5py.File(path, "r") as file:
        group = file.get("statistics")
        if group is None or int(group.attrs["steps"]) != steps:
            raise InputError(
                f"{path}: has no statistics of {steps} steps; delete it to make it again"
            )
        return {key: values[...] for key, values in group.items()}
