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
from typing import Any, NamedTuple

import h5py
import numpy as np

from scalewatt.common.errors import InputError
from scalewatt.common.file_locks import waiting_lock
from scalewatt.common.files import atomic_path, require_space, write_json
from scalewatt.data.era5 import (
    CHANNEL_COUNTS,
    CHANNEL_OF,
    CHANNELS,
    CLIMATOLOGY,
    STATISTICS,
    STEP_H,
    Z500,
    read_layout,
    year_times,
)
from scalewatt.data.era5_sources import (
    CHANNELS_OF,
    Field,
    Source,
    open_source,
    read_field,
    read_variable,
)
from scalewatt.data.era5_years import all_years, part_years

# --- a dataset ------------------------------------------------------------------------------------


def prepare(store: str | None, folder: Path, definition: dict[str, Any]) -> list[dict[str, Any]]:
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
    definition: dict[str, Any], folder: Path, store: str | None, year: int
) -> dict[str, Any]:
    """Make a year that `definition` needs, unless it is there; its shape and a digest of its moments."""
    path = folder / f"{year}.h5"
    if not (store or path.exists()):
        raise InputError(
            f"{path}: prepared ERA5 year is missing; name its source in the cluster file: "
            f"sources: {{{definition['name']}: <url, files or folder>}}"
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
    store: str,
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
    globe = orient(source, grid)
    if source.link:
        check_unlabelled(source, times)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    waiting = f"scalewatt: waiting for another preparation of {path}"
    with waiting_lock(path.with_name(f".{path.stem}.lock"), waiting):
        if path.exists():
            return
        try:
            with h5py.File(partial, "w") as file:
                file.attrs["source"] = store
                _write(file, times, source, globe)
            with partial.open("rb") as written:
                os.fsync(written.fileno())
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        os.replace(partial, path)


def _write(file: h5py.File, times: np.ndarray, source: Source, globe: Globe) -> None:
    """Check all fields and write them, unless they are linked, with their labels and moments."""
    to_percent = humidity_factor(source)
    assumed = "water (as WeatherBench 2's)" if to_percent > 1 else "unknown"
    file.attrs.update(
        channels=CHANNELS,
        relative_humidity="%",
        relative_humidity_over=source.humidity_over or assumed,
        relative_humidity_converted_from_fraction=to_percent > 1,
        latitude_reversed=globe.reverse,
        longitude_shifted=globe.shift,
    )
    file["latitude"], file["longitude"] = globe.latitude, globe.longitude
    shape = (len(times), len(CHANNELS), len(globe.latitude), len(globe.longitude))
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
            values = globe.turn(stored if factor == 1 else stored * factor)
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


# --- checks ---------------------------------------------------------------------------------------

FRACTION = 2.0
"""Relative humidity in percent exceeds this somewhere on every globe, a fraction nowhere."""


def check_field(number: int, low: float, high: float, time: np.datetime64, source: str) -> None:
    """Raise InputError unless a converted global field with these extremes is finite and plausible."""
    channel = CHANNEL_OF[CHANNELS[number]]
    field = f"{source}: {channel} on {str(time)[:16]}"
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InputError(f"{field} has missing values")
    if low == high:
        raise InputError(f"{field} is {low:g} everywhere")
    is_fraction = channel.variable == "relative_humidity" and high <= FRACTION
    if low < channel.low or high > channel.high or is_fraction:
        raise InputError(
            f"{field} reaches from {low:g} to {high:g}, which may be "
            f"{'a fraction' if is_fraction else 'another unit'}; plausible are {channel.low:g} to "
            f"{channel.high:g} {channel.unit}"
        )


def humidity_factor(source: Source) -> float:
    """Factor that converts relative humidity to %: 100 if the first field is a fraction and not linked."""
    if source.link:
        return 1
    return 100 if 0 < read_field(source, CHANNELS.index("r500"), 0).max() <= FRACTION else 1


class Globe(NamedTuple):
    """A global grid, north to south and from 0° eastward, and how stored fields are turned to it."""

    latitude: np.ndarray
    longitude: np.ndarray
    """Degrees, float64."""
    reverse: bool
    shift: int

    def turn(self, field: np.ndarray) -> np.ndarray:
        """Turn a field (latitude, longitude), contiguous afterwards."""
        field = field[::-1] if self.reverse else field
        return np.ascontiguousarray(np.roll(field, -self.shift, axis=1) if self.shift else field)


def orient(source: Source, grid: Sequence[int] | None) -> Globe:
    """Find the global regular grid of a source; InputError on any other, or if it is not `grid`.

    `grid` is rows and columns used: a row less than the latitudes.
    """
    latitude, longitude = (
        source.arrays[0][axis].values.astype(float) for axis in ("latitude", "longitude")
    )
    rows, columns = len(latitude), len(longitude)
    if grid is not None and (rows, columns) != (grid[0] + 1, grid[1]):
        raise InputError(
            f"{source.name}: has {rows} latitudes × {columns} longitudes; grid {grid[0]} × {grid[1]} "
            f"needs {grid[0] + 1} × {grid[1]} (the southernmost is not used)"
        )
    reverse = bool(latitude[0] < latitude[-1])
    shift = int(np.argmin(np.abs((longitude + 180) % 360 - 180)))
    southward = latitude[::-1] if reverse else latitude
    eastward = np.roll(longitude, -shift) % 360
    eastward[0] = (eastward[0] + 180) % 360 - 180  # 359.9999 is 0
    round_the_globe = f"{columns} equal steps round the globe through 0, from 0 or from -180"
    for axis, stored, turned, steps, form in (
        ("latitudes", latitude, southward, (90, -90, rows), "equal steps between 90 and -90"),
        ("longitudes", longitude, eastward, (0, 360 - 360 / columns, columns), round_the_globe),
    ):
        if not np.allclose(turned, np.linspace(*steps), atol=1e-3):
            raise InputError(
                f"{source.name}: {axis} go from {stored[0]:g} to {stored[-1]:g}; needed are {form}"
            )
    return Globe(southward, eastward, reverse, shift)


def check_unlabelled(source: Source, times: np.ndarray) -> None:
    """Raise InputError unless the first step of every month has our channels, units and orientation.

    Zonal winds are stronger than meridional ones; pressure is low in Antarctica and Tibet.
    """
    _, firsts = np.unique(times.astype("datetime64[M]"), return_index=True)
    means = {}
    for number, name in enumerate(CHANNELS):
        fields = [read_field(source, number, step) for step in firsts]
        for values, step in zip(fields, firsts, strict=True):
            check_field(number, float(values.min()), float(values.max()), times[step], source.name)
        means[name] = np.mean(fields, axis=0, dtype=float)

    wind = {name: np.square(mean.mean(axis=1)).mean() for name, mean in means.items()}
    pressure = means["sp"]
    rows, columns = pressure.shape
    row = round((90 - 33) / 180 * (rows - 1))  # of Tibet, 5 km high, and of the plains of America
    for level in ("10", "1000", "850", "500"):
        if wind[f"v{level}"] > wind[f"u{level}"]:
            raise InputError(
                f"{source.name}: the mean wind of v{level} along latitudes is stronger than that of "
                f"u{level}; its channels must be {' '.join(CHANNELS)}"
            )
    if pressure[-1].mean() > pressure[0].mean():
        raise InputError(
            f"{source.name}: surface pressure is lower in the first row than in the last; rows must "
            "go from 90° N to 90° S"
        )
    if pressure[row, columns // 4] > pressure[row, columns * 3 // 4]:
        raise InputError(
            f"{source.name}: surface pressure at 33° N is higher at 90° E, in Tibet, than at 90° W; "
            "columns must go from 0° eastward to 360°"
        )


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
