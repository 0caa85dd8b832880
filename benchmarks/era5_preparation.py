"""Speed of preparing ERA5 at 0.25° against copying the same bytes, and the memory that it takes.

    python benchmarks/era5_preparation.py [--steps 24] [--rounds 3] [--folder DIR]
                                          [--sources zarr arco netcdf] [--json FILE]

Sources are made of noise on the full grid (20 × 721 × 1440): `zarr`, uncompressed, one time a chunk
of the levels needed; `arco`, the same with all 37 levels in a chunk, of which 4 are used; `netcdf`,
uncompressed netCDF-4. Each round prepares the year (reading, checking, statistics, writing, fsync)
and copies the same number of bytes, the file that was prepared, with reads and writes of 8 MiB and
an fsync, in changing order. The ratio is copying time over preparing time; the median over the
rounds is judged for `zarr` and `netcdf` (at least 0.6); with `arco`, nine times the bytes of the
levels used are read. Everything written is removed. Preparing uses more threads than copying:
where other programs keep the processors busy, the ratio tells of them. Peak memory is that of a
process that only prepares.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scalewatt.datasets.era5.channels import CHANNEL_SOURCES, CHANNELS, year_times
from scalewatt.datasets.era5_preparation.field_checks import PLAUSIBLE
from scalewatt.datasets.era5_preparation.prepare_era5 import prepare_year

YEAR, LATITUDES, LONGITUDES = 1999, 721, 1440
LEVELS = (50, 500, 850, 1000)
ALL_LEVELS = tuple(sorted({*LEVELS, *range(1, 34)}))  # 37, as in ARCO-ERA5
TARGET, PEAK_GIB = 0.6, 2.0
COPY_BYTES = 8 * 2**20
FIGURES = ("prepare_s", "copy_s", "ratios", "prepare_s_processor", "copy_s_processor")


def variables() -> dict[str, list[int | None]]:
    """Levels of each variable."""
    found: dict[str, list[int | None]] = {}
    for variable, level in CHANNEL_SOURCES.values():
        found.setdefault(variable, []).append(level)
    return found


def noise(variable: str, level: int | None, rng: np.random.Generator) -> np.ndarray:
    """One plausible field."""
    source = (variable, level)
    names = [name for name in CHANNELS if CHANNEL_SOURCES[name] == source]
    low, high = PLAUSIBLE[names[0]] if names else (200.0, 300.0)
    if variable == "relative_humidity":
        low, high = 0.0, 100.0
    part = 0.1 + 0.8 * rng.random((LATITUDES, LONGITUDES), np.float32)
    return np.float32(low) + np.float32(high - low) * part


def block(variable: str, levels: list[int | None], rng: np.random.Generator) -> np.ndarray:
    """Fields of one time: (1, [level,] latitude, longitude)."""
    stacked = np.stack([noise(variable, level, rng) for level in levels])
    return stacked if levels == [None] else stacked[None]


def write_zarr(folder: Path, times: np.ndarray, levels: tuple[int, ...]) -> None:
    """An uncompressed Zarr store of version 2."""
    import zarr

    group = zarr.open_group(folder, mode="w", zarr_format=2)
    hours = (times - np.datetime64("1900-01-01")) / np.timedelta64(1, "h")
    labels = {
        "time": hours.astype(np.int64),
        "level": np.array(levels),
        "latitude": np.linspace(90, -90, LATITUDES),
        "longitude": np.arange(LONGITUDES) * 360 / LONGITUDES,
    }
    for name, values in labels.items():
        array = group.create_array(name, data=values, compressors=None)
        array.attrs["_ARRAY_DIMENSIONS"] = [name]
    group["time"].attrs["units"] = "hours since 1900-01-01"
    rng = np.random.default_rng(0)
    for variable, wanted in variables().items():
        here: list[int | None] = [None] if wanted == [None] else list(levels)
        middle, names = ((), ()) if wanted == [None] else ((len(here),), ("level",))
        shape = (len(times), *middle, LATITUDES, LONGITUDES)
        array = group.create_array(
            variable, shape=shape, dtype="float32", chunks=(1, *shape[1:]), compressors=None
        )
        array.attrs["_ARRAY_DIMENSIONS"] = ["time", *names, "latitude", "longitude"]
        for step in range(len(times)):
            array[step : step + 1] = block(variable, here, rng)
    zarr.consolidate_metadata(group.store)


def write_netcdf(folder: Path, times: np.ndarray) -> None:
    """Two uncompressed netCDF-4 files, single levels and pressure levels, contiguous."""
    import h5netcdf

    folder.mkdir()
    rng = np.random.default_rng(0)
    hours = (times - np.datetime64("1900-01-01")) / np.timedelta64(1, "h")
    for kind in ("surface", "levels"):
        with h5netcdf.File(folder / f"{kind}.nc", "w") as file:
            file.dimensions = {"valid_time": len(times), "latitude": LATITUDES}
            file.dimensions["longitude"] = LONGITUDES
            time_ = file.create_variable("valid_time", ("valid_time",), data=hours.astype(np.int64))
            time_.attrs["units"] = "hours since 1900-01-01"
            file.create_variable("latitude", ("latitude",), data=np.linspace(90, -90, LATITUDES))
            degrees = np.arange(LONGITUDES) * 360 / LONGITUDES
            file.create_variable("longitude", ("longitude",), data=degrees)
            middle: tuple[str, ...] = ()
            if kind == "levels":
                file.dimensions["pressure_level"] = len(LEVELS)
                levels = np.array(LEVELS, float)
                file.create_variable("pressure_level", ("pressure_level",), data=levels)
                middle = ("pressure_level",)
            for variable, wanted in variables().items():
                if (wanted == [None]) != (kind == "surface"):
                    continue
                here: list[int | None] = [None] if kind == "surface" else list(LEVELS)
                names = ("valid_time", *middle, "latitude", "longitude")
                array = file.create_variable(variable, names, np.float32)
                for step in range(len(times)):
                    array[step : step + 1] = block(variable, here, rng)


def copy(source: Path, target: Path) -> None:
    """The same bytes by chunked reads and writes."""
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
        while chunk := read.read(COPY_BYTES):
            write.write(chunk)
        os.fsync(write.fileno())


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Wall and processor seconds."""
    os.sync()
    started, used = time.monotonic(), processor_s()
    work()
    return time.monotonic() - started, processor_s() - used


def processor_s() -> float:
    """Of all threads of this process, the kernel's included."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def peak_gib(source: Any, out: Path, times: np.ndarray) -> float:
    """Peak resident memory of a process that prepares."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(prepare_and_tell, (source, out, times))


def prepare_and_tell(source: Any, out: Path, times: np.ndarray) -> float:
    prepare_year(source, YEAR, out, times=times)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(kind: str, folder: Path, steps: int, rounds: int) -> dict[str, Any]:
    """Ratios of copying to preparing, and the peak memory, of one kind of source."""
    times = year_times(YEAR)[:steps]
    place = folder / kind
    source: Any = {"zarr": str(place)}
    if kind == "netcdf":
        write_netcdf(place, times)
        source = {"files": [f"{place}/*.nc"]}
    else:
        write_zarr(place, times, ALL_LEVELS if kind == "arco" else LEVELS)
    prepared, copied = folder / f"{YEAR}.h5", folder / "copy"
    found: dict[str, Any] = {key: [] for key in FIGURES}
    found["peak_gib"] = peak_gib(source, prepared, times)
    kept = prepared.rename(folder / "kept")
    found["bytes"] = kept.stat().st_size

    def prepare_again() -> None:
        prepare_year(source, YEAR, prepared, times=times)

    def copy_again() -> None:
        copy(kept, copied)

    prepare_year(source, YEAR, folder / "first.h5", times=times[:1])  # imports count for no year
    (folder / "first.h5").unlink()
    for number in range(rounds):
        works = {"prepare_s": prepare_again, "copy_s": copy_again}
        for key in sorted(works, reverse=bool(number % 2)):
            wall, processor = timed(works[key])
            found[key].append(wall)
            found[f"{key}_processor"].append(processor)
        prepared.unlink()
        copied.unlink()
        found["ratios"].append(found["copy_s"][-1] / found["prepare_s"][-1])
    kept.unlink()
    shutil.rmtree(place)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="where the files go; default: a temporary folder"
    )
    kinds = ("zarr", "arco", "netcdf")
    parser.add_argument("--sources", nargs="+", choices=kinds, default=["zarr", "netcdf"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results, missed = {}, False
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="era5-benchmark-") as folder:
        for kind in options.sources:
            found = measure(kind, Path(folder), options.steps, options.rounds)
            results[kind] = found
            ratio = statistics.median(found["ratios"])
            low, high = min(found["ratios"]), max(found["ratios"])
            missed |= kind != "arco" and ratio < TARGET
            missed |= found["peak_gib"] > PEAK_GIB
            size = found["bytes"] / 1e9
            print(
                f"{kind}: {options.steps} steps, {size:.2f} GB: prepared in "
                f"{statistics.median(found['prepare_s']):.2f} s, copied in "
                f"{statistics.median(found['copy_s']):.2f} s; speed {ratio:.2f} of copying "
                f"({low:.2f} to {high:.2f} in {options.rounds} rounds); processor time "
                f"{statistics.median(found['prepare_s_processor']):.2f} s and "
                f"{statistics.median(found['copy_s_processor']):.2f} s; peak memory "
                f"{found['peak_gib']:.2f} GiB",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
