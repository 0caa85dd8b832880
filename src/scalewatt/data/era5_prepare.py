"""Preparation of ERA5's yearly files from a source, with their checks, and of the statistics.

A year is written to `.<year>.h5.partial` and renamed when it is complete; a job that was killed
begins it again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scalewatt.campaign.campaign_file import all_years, part_years
from scalewatt.common.errors import InputError
from scalewatt.common.files import atomic_path, require_space, waiting_lock, write_json
from scalewatt.data.era5 import (
    CHANNEL_COUNTS,
    CHANNEL_OF,
    CHANNELS,
    CLIMATOLOGY,
    STATISTICS,
    Z500,
    read_layout,
    year_times,
)
from scalewatt.data.era5_sources import Source, find_fields, normalise, open_source, read_fields

# --- a dataset ------------------------------------------------------------------------------------


def prepare(definition: dict[str, Any], folder: Path, store: str | None) -> list[dict[str, Any]]:
    """Make the yearly files of a dataset unless they exist, and their statistics; describe the years.

    InputError names what the store lacks, a year that is missing where there is no store, or years whose
    relative humidity is of different kinds.
    """
    made, kinds = [], {}
    for year in all_years(definition):
        made.append(make_year(definition, folder, store, year))
        with h5py.File(folder / f"{year}.h5", "r") as file:
            kinds[file.attrs["relative_humidity_over"]] = year
    if len(kinds) > 1:
        listed = ", ".join(f"{year}.h5 over {kind}" for kind, year in kinds.items())
        raise InputError(f"{folder}: kinds of humidity differ: {listed}; make all from one source")
    write_statistics(folder, part_years(definition, "train"), definition["samples_per_year"])
    return made


def make_year(
    definition: dict[str, Any], folder: Path, store: str | None, year: int
) -> dict[str, Any]:
    """Make a year's file unless it exists; its shape and a digest of its moments."""
    path, grid = folder / f"{year}.h5", definition["grid"]
    times = year_times(year, definition["samples_per_year"])
    if not path.exists():
        if definition["source"] == "embedded":
            from scalewatt.data.demo import year_dataset

            source = Source("the demo's waves", normalise(year_dataset(definition, year), "waves"))
        elif store:
            source = open_source(store, year)
        else:
            key = f"sources: {{{definition['name']}: <url, files or folder>}}"
            raise InputError(f"{path}: missing; name its source in the cluster file: {key}")
        prepare_year(source, path, times, grid)

    _, shape = read_layout(path)
    needed = len(CHANNELS), grid[0] + 1, grid[1]
    if shape[0] not in CHANNEL_COUNTS or shape[1:] != needed[1:]:
        raise InputError(f"{path}: fields are {shape}; {definition['name']} needs {needed}")
    moments = stored_moments(path, len(times))
    # The last bits of sums depend on the processor.
    values = [[f"{x:.10g}" for x in moments[key]] for key in ("mean", "squares")]
    digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
    return {"year": year, "steps": len(times), "grid": [*needed[1:]], "moments_sha256": digest}


# --- a year ---------------------------------------------------------------------------------------


def prepare_year(source: Source, path: Path, times: np.ndarray, grid: Sequence[int]) -> None:
    """Make a year's file from a source, all or nothing, unless it exists.

    Missing variables, levels or times and values that are not finite or not plausible are refused by name and
    date (InputError); so is a source whose grid is not `grid` (rows and columns used).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    waiting = f"scalewatt: waiting for another preparation of {path}"
    with waiting_lock(path.with_name(f".{path.stem}.lock"), waiting):
        if path.exists():
            return
        try:
            with h5py.File(partial, "w") as file:
                _write(file, source, times, grid)
            with partial.open("rb") as written:
                os.fsync(written.fileno())
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        os.replace(partial, path)


def _write(file: h5py.File, source: Source, times: np.ndarray, grid: Sequence[int]) -> None:
    """Check all fields and write them, unless they are linked, with their labels and moments."""
    parts = find_fields(source, times)
    latitude, longitude, where = orient(source, grid)
    if source.link:
        check_unlabelled(source, times)
    shape = (len(times), len(CHANNELS), len(latitude), len(longitude))
    steps, fields = times, None
    if source.link is None:
        folder = Path(file.filename).parent
        require_space(folder, 4 * int(np.prod(shape)), str(folder), "this year's fields")
        fields = file.create_dataset("fields", shape, np.float32)
    else:  # the linked file may have more times than are used
        steps = source.arrays[0]["time"].values
        file["fields"] = h5py.ExternalLink(str(source.link), "/fields")
    file["time"] = steps.astype("datetime64[s]").astype(np.int64)
    file["latitude"], file["longitude"] = latitude, longitude

    means, squares = np.zeros((2, len(CHANNELS), len(times)))
    z500_sum, factor = np.zeros(shape[2:]), None
    for channel, step, stored in read_fields(parts):
        if CHANNEL_OF[CHANNELS[channel]].variable == "relative_humidity" and not source.link:
            if factor is None:  # the first field decides, and all are checked
                factor = np.float32(100 if 0 < stored.max() <= FRACTION else 1)
            stored = stored * factor
        values = stored[where]
        check_field(channel, values, times[step], source.name)
        if fields is not None:
            fields[step, channel] = values
        # By the deviations from each field's own mean: nothing is lost where that is large.
        means[channel, step] = values.mean(dtype=np.float64)
        deviations = np.subtract(values, means[channel, step], dtype=np.float64).ravel()
        squares[channel, step] = np.einsum("i,i", deviations, deviations)
        if channel == Z500:
            z500_sum += values

    assumed = "water (as WeatherBench 2's)" if factor == 100 else "unknown"
    over = source.humidity_over or assumed
    file.attrs.update(source=source.name, channels=CHANNELS, relative_humidity_over=over)
    size, mean = shape[2] * shape[3], means.mean(axis=1)
    statistics = file.create_group("statistics")
    statistics.attrs["steps"] = len(times)
    statistics["count"] = np.full(len(CHANNELS), len(times) * size)
    statistics["mean"], statistics["z500_sum"] = mean, z500_sum
    statistics["squares"] = (squares + size * (means - mean[:, None]) ** 2).sum(axis=1)


# --- checks ---------------------------------------------------------------------------------------

FRACTION = 2.0
"""Relative humidity in percent exceeds this somewhere on every globe, a fraction nowhere."""


def check_field(number: int, values: np.ndarray, time: np.datetime64, source: str) -> None:
    """Raise InputError unless the global field of a channel is finite and plausible."""
    channel, low, high = CHANNEL_OF[CHANNELS[number]], float(values.min()), float(values.max())
    field = f"{source}: {channel.text} on {str(time)[:16]}"
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InputError(f"{field} has missing values")
    if low == high:
        raise InputError(f"{field} is {low:g} everywhere")
    is_fraction = channel.variable == "relative_humidity" and high <= FRACTION
    if low < channel.low or high > channel.high or is_fraction:
        kind = "a fraction" if is_fraction else "another unit"
        plausible = f"plausible are {channel.low:g} to {channel.high:g} {channel.unit}"
        raise InputError(
            f"{field} reaches from {low:g} to {high:g}, which may be {kind}; {plausible}"
        )


def orient(source: Source, grid: Sequence[int]) -> tuple[np.ndarray, np.ndarray, Any]:
    """Find the global regular grid of a source; InputError on any other, or if it is not `grid`.

    `grid` is rows and columns used: a row less than the latitudes. Latitudes north to south and longitudes
    from 0° eastward in degrees, float64, and the index that gives a stored field on them.
    """
    labels = source.arrays[0]
    latitude, stored = (labels[axis].values.astype(float) for axis in ("latitude", "longitude"))
    longitude = stored % 360
    longitude[longitude > 360 - 1e-3] -= 360  # 359.9999 is 0
    rows, columns = np.argsort(-latitude), np.argsort(longitude)
    axes = {"latitudes": latitude[rows], "longitudes": longitude[columns]}
    needed = np.linspace(90, -90, grid[0] + 1), np.arange(grid[1]) * 360 / grid[1]
    for (name, degrees), expected in zip(axes.items(), needed, strict=True):
        if len(degrees) != len(expected) or not np.allclose(degrees, expected, atol=1e-3):
            span = f"{len(degrees)} {name} from {degrees[0]:g} to {degrees[-1]:g}"
            steps = f"{len(expected)} in equal steps from {expected[0]:g} to {expected[-1]:g}"
            raise InputError(f"{source.name}: has {span}; needed are {steps}")
    is_turned = (np.diff(rows) < 0).any() or (np.diff(columns) < 0).any()
    return latitude[rows], longitude[columns], np.ix_(rows, columns) if is_turned else ...


def check_unlabelled(source: Source, times: np.ndarray) -> None:
    """Raise InputError unless the first step of every month has our channels, units and orientation.

    Zonal winds are stronger than meridional ones; pressure is low in Antarctica and Tibet.
    """
    _, firsts = np.unique(times.astype("datetime64[M]"), return_index=True)
    means = {}
    for number, name in enumerate(CHANNELS):
        fields = source.arrays[0].isel(time=firsts, level=number).values
        for values, time in zip(fields, times[firsts], strict=True):
            check_field(number, values, time, source.name)
        means[name] = fields.mean(axis=0, dtype=float)

    wind = {name: np.square(mean.mean(axis=1)).mean() for name, mean in means.items()}
    pressure = means["sp"]
    rows, columns = pressure.shape
    tibet, message = pressure[round((90 - 33) / 180 * (rows - 1))], None
    if any(wind[f"v{level}"] > wind[f"u{level}"] for level in ("10", "1000", "850", "500")):
        message = f"winds v are stronger than u; channels must be {' '.join(CHANNELS)}"
    elif pressure[-1].mean() > pressure[0].mean():
        message = "pressure is higher in Antarctica; rows must go from 90° N to 90° S"
    elif tibet[columns // 4] > tibet[columns * 3 // 4]:
        message = "pressure is higher in Tibet than in America; columns must go from 0° eastward"
    if message:
        raise InputError(f"{source.name}: {message}")


# --- statistics -----------------------------------------------------------------------------------


def write_statistics(folder: Path, years: Sequence[int], samples_per_year: int) -> None:
    """Merge the moments of the years into `statistics.json` and `climatology.h5`.

    The sd is the population's, unweighted over all values.
    """
    steps = [len(year_times(year, samples_per_year)) for year in years]
    moments = [stored_moments(folder / f"{y}.h5", n) for y, n in zip(years, steps, strict=True)]
    count, means, squares, z500_sum = (
        np.array([arrays[key] for arrays in moments])
        for key in ("count", "mean", "squares", "z500_sum")
    )
    values = count.sum(axis=0)
    mean = (count * means).sum(axis=0) / values
    sd = np.sqrt((squares + count * (means - mean) ** 2).sum(axis=0) / values)
    with atomic_path(folder / CLIMATOLOGY) as temporary, h5py.File(temporary, "w") as file:
        file["z500"] = (z500_sum.sum(axis=0) / sum(steps)).astype(np.float32)
        file.attrs["units"] = "m**2 s**-2"
    names = {"channels": list(CHANNELS), "years": list(years)}
    write_json(folder / STATISTICS, {**names, "mean": mean.tolist(), "sd": sd.tolist()})


def stored_moments(path: Path, steps: int) -> dict[str, np.ndarray]:
    """Moments of a year's first `steps`, which its file must have.

    Of every channel `count`, `mean` and `squares` (of the deviations from the mean, summed up), and
    `z500_sum` (latitude, longitude).
    """
    with h5py.File(path, "r") as file:
        group = file.get("statistics")
        if group is None or int(group.attrs["steps"]) != steps:
            raise InputError(f"{path}: has no moments of {steps} steps; delete it to make it anew")
        return {key: values[...] for key, values in group.items()}
