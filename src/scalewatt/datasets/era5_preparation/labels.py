"""Labels and stored numbers of ERA5's formats: names, times, levels, packing."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalewatt.common.errors import InputError


def dimension_names() -> dict[str, str]:
    """Our name of every spelling of a dimension."""
    return {
        "valid_time": "time",
        "pressure_level": "level",
        "isobaricInhPa": "level",
    }


def decode_times(values: np.ndarray, attributes: dict[str, Any], name: str) -> np.ndarray:
    """CF times as datetime64[ns]; InputError where they are none or come twice."""
    import xarray as xr

    try:
        dataset = xr.Dataset({"time": ("time", np.atleast_1d(values), attributes)})
        times = xr.decode_cf(dataset)["time"].values.astype("datetime64[ns]")
    except Exception as error:  # xarray's and pandas' many
        raise InputError(f"{name}: its times cannot be decoded ({error})") from error
    unique, counts = np.unique(times, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"{name}: has {str(unique[counts > 1][0])[:16]} more than once")
    return times


def decode_levels(values: np.ndarray, attributes: dict[str, Any], name: str) -> tuple[int, ...]:
    """Pressure levels in hPa, from hPa or Pa; InputError where they are no numbers."""
    try:
        levels = np.atleast_1d(values).astype(np.float64)
    except ValueError as error:
        raise InputError(f"{name}: its levels are no numbers ({error})") from error
    if attributes.get("units") == "Pa":
        levels = levels / 100
    return tuple(round(level) for level in levels.tolist())


def decode(raw: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """Stored numbers as float32: scale and offset applied, fill values as NaN."""
    scale, offset = attributes.get("scale_factor", 1), attributes.get("add_offset", 0)
    fills = [attributes[key] for key in ("_FillValue", "missing_value") if key in attributes]
    fills = [fill for value in fills for fill in np.atleast_1d(value).tolist() if fill == fill]
    if scale == 1 and offset == 0:
        block = raw.astype(np.float32, copy=False)
    else:
        block = (raw * np.float64(scale) + np.float64(offset)).astype(np.float32)
    for fill in fills:
        if not isinstance(fill, str) and (wrong := raw == fill).any():
            block = np.where(wrong, np.float32(np.nan), block)
    return block


def as_index(positions: np.ndarray) -> slice | np.ndarray:
    """The same positions as a slice where they are consecutive, which formats read faster."""
    if len(positions) and (np.diff(positions) == 1).all():
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions
