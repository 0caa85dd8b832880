"""One sensor of a perun file, by the metadata of its datasets.

Unit and magnitude decide: W is power, J is a cumulative counter, % is utilisation. From 0.8 on
perun stores RAPL as float32 W computed from the µJ counter, and the counter as `alt_values`. The
counter is taken: its differences are exact, a failed read (0) costs nothing, while the watts carry
float32 rounding and 262 kJ for every failed read. Where there are only such watts, each is the mean
since the sample before ("mean_power"), and of the two that failed reads spoil one at least is above
any limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from scalewatt.recordings.perun_layout import text
from scalewatt.recordings.series import (
    LATEST_S,
    MAGNITUDES,
    NO_INDEX,
    NODE,
    QUANTITIES,
    Flag,
    Floats,
    SensorSeries,
    flag,
    index_in_name,
)

_UNIT_NAMES = {"WATT": "W", "JOULE": "J", "PERCENT": "%"}
_MAGNITUDES = {
    **dict.fromkeys(("PICO", "p"), 1e-12),
    **dict.fromkeys(("NANO", "n"), 1e-9),
    **dict.fromkeys(("MICRO", "µ", "μ", "u"), 1e-6),
    **dict.fromkeys(("MILLI", "MILI", "m"), 1e-3),
    **dict.fromkeys(("ONE", ""), 1.0),
    **dict.fromkeys(("KILO", "k"), 1e3),
    **dict.fromkeys(("MEGA", "M"), 1e6),
    **dict.fromkeys(("GIGA", "G"), 1e9),
    **dict.fromkeys(("TERA", "T"), 1e12),
}
# NVML reports 2^32-1 mW where it knows no limit, other sensors the largest number of their type.
_NO_LIMIT_W = 1e5
# The index of older ROCm names and of a Grace socket; newer ROCm names hold a UUID.
_INDEX = re.compile(r"^ROCM:(\d{1,2})_|^[a-z_]+_socket_(\d+)_")
# What the backends that perun ships call the sensors of power and energy that count, by device kind.
_POWER_NAMES = {
    "gpu": re.compile(r"(?:CUDA:\d+|ROCM:[^_]+)_POWER"),
    "cpu": re.compile(r"cpu_\d+_.*package.*|cpu_power_socket_\d.*"),
    "ram": re.compile(r"ram_\d+_.*dram.*"),
}
_NO_POWER = re.compile(r"(?:CUDA|ROCM):.*|CPU_(?:USAGE|FREQ).*|RAM_USAGE")
"""Other names of theirs: power or energy under one of them is damage."""


OTHER_KINDS = ("rack", "node", "socket", "sysio", "disk", "net", "fan", "other")
"""Device kinds of perun that are no parts of a node."""
UNKNOWN_BACKEND = "assumed"
"""Flag of a sensor that no backend of perun has: what it is of, its kind and unit alone say."""
_TOTALS = {"gpu": "GPU_ENERGY", "cpu": "CPU_ENERGY", "ram": "DRAM_ENERGY"}


_OF_POWER = ("power", "counter")


class _Unreadable(Exception):
    """A sensor's datasets are not what perun writes; the message is a flag's detail."""


class SensorReader:
    """Reads the sensors of one host, which usually share their times.

    `wholes` names the host's sensors of whole sockets, of which its CPU sensors are a part.
    """

    def __init__(self, host: str, wholes: Iterable[str] = ()) -> None:
        self._host = host
        self._wholes = sorted(wholes)
        self._raw_times: NDArray[Any] | None = None
        self._magnitude = 1.0
        self._time_s: Floats = np.zeros(0)
        self._all_timed = True

    def read(self, kind: str, sensor: str, group: h5py.Group) -> SensorSeries | None:
        """Return the series of a sensor; None if it measures neither power nor use.

        A sensor of power that cannot be read, or has the name of another, is a series without samples,
        flagged `unreadable`.
        """
        named = kind in _POWER_NAMES and bool(_POWER_NAMES[kind].fullmatch(sensor))
        if "raw_data" not in group and not named:
            return None
        empty = SensorSeries(
            node=self._host,
            sensor=sensor,
            device_kind=kind,
            device_index=_index(sensor),
            quantity="power",
            time_s=np.zeros(0),
            values=np.zeros(0),
            uuid=text(group.attrs.get("uuid")) if kind == "gpu" else None,
        )
        try:
            if "raw_data" not in group:
                raise _Unreadable("it holds no raw_data")
            raw = h5py.Group(h5py.h5g.open(group.id, b"raw_data"))
            data, unit = _data_and_unit(raw)
            quantity = QUANTITIES.get(unit)
            of_power = quantity in _OF_POWER
            if named != of_power and (named or _NO_POWER.fullmatch(sensor)):
                what = "its unit is none of power" if named else "its name is that of no power"
                raise _Unreadable(f"{what} of a {kind}, but {sensor} in {unit[:20] or 'no unit'}")
            # "%" of RAM is the memory in use, which says nothing about power.
            if quantity is None or (quantity == "utilisation" and kind in ("ram", NODE)):
                return None
            # Sensors give whole numbers of W or its parts; fractions perun computed of a counter.
            if quantity == "power" and kind != "gpu" and named and data.dtype.kind == "f":
                quantity = "mean_power"
            if of_power and not named:
                empty = _of_unknown_backend(empty, group)
            return self._filled(replace(empty, quantity=quantity), data, _dataset(raw, "timesteps"))
        except _Unreadable as error:
            return replace(empty, flags=(flag("unreadable", sensor, str(error)),))

    def _filled(
        self, series: SensorSeries, data: h5py.Dataset, times: h5py.Dataset
    ) -> SensorSeries:
        magnitude = _magnitude(data)
        values, time_s = _values(data, series.quantity, magnitude), self._times(times)
        flags: list[Flag] = []
        if values.size != time_s.size:
            detail = f"{values.size} values but {time_s.size} times; the longer one is cut"
            flags.append(flag("damaged", series.sensor, detail))
            values, time_s = values[: time_s.size], time_s[: values.size]
        if not self._all_timed and not (timed := _is_time(time_s)).all():
            detail = (
                f"{np.count_nonzero(~timed)} of {timed.size} samples without a time are left out"
            )
            flags.append(flag("damaged", series.sensor, detail))
            values, time_s = values[timed], time_s[timed]
        top = (_number(data, "valid_max") or 0.0) * magnitude
        if series.quantity == "power" and series.device_kind == "cpu":
            flags += self._part_flags(series)
        return replace(
            series,
            time_s=time_s,
            values=values,
            valid_max=top if series.quantity == "counter" and 0 < top < np.inf else None,
            limit_w=top if series.quantity == "power" and 0 < top < _NO_LIMIT_W else None,
            flags=(*series.flags, *flags),
        )

    def _times(self, data: h5py.Dataset) -> Floats:
        """Return times in s; the array of the sensor before where the times are the same."""
        times, magnitude = _numbers(data), _magnitude(data)
        same = self._raw_times is not None and np.array_equal(times, self._raw_times)
        if not same or magnitude != self._magnitude:
            self._raw_times, self._magnitude = times, magnitude
            self._time_s = _scaled(times, magnitude)
            self._all_timed = bool(_is_time(self._time_s).all())
        return self._time_s

    def _part_flags(self, series: SensorSeries) -> list[Flag]:
        whole = [name for name in self._wholes if _index(name) == series.device_index]
        detail = "the CPU alone; {}, its socket with memory and I/O, is recorded but not counted"
        return [flag("second_sensor", series.sensor, detail.format(name)) for name in whole]


def _of_unknown_backend(series: SensorSeries, group: h5py.Group) -> SensorSeries:
    """Return a series with the number in its name, and the flag that names its source."""
    index, kind = series.device_index, series.device_kind
    if index == NO_INDEX and (found := re.search(rf"(?i:{kind})\D?(\d{{1,4}})", series.sensor)):
        index = int(found[1])
    source = text(group.attrs.get("source")) or "not stated"
    detail = f"counted as a {kind}: of no backend that perun ships (source: {source[:100]})"
    return replace(
        series, device_index=index, flags=(flag(UNKNOWN_BACKEND, series.sensor, detail),)
    )


def has_power(group: h5py.Group) -> bool:
    """Return True if a dataset in W or J is anywhere below a group."""

    def is_power(_: str, node: Any) -> bool | None:
        return (isinstance(node, h5py.Dataset) and _unit(node) in ("W", "J")) or None

    return bool(group.visititems(is_power))


def stated_totals(group: h5py.Group) -> dict[str, float]:
    """Return what perun itself computed as a host's energy in J, by device kind, as far as it can be read."""
    totals = {}
    for kind, name in _TOTALS.items():
        try:
            metric = group["metrics"][name]
            total = float(_scalar(metric.attrs["value"])) * _magnitude(metric)
        except (_Unreadable, OSError, LookupError, ValueError, TypeError, RuntimeError):
            continue
        if 0 < total < np.inf:
            totals[kind] = total
    return totals


def lost_kind(host: str, kind: str, stated_j: float) -> SensorSeries:
    """Return the series of a device kind that perun had sensors of, and the file has not."""
    detail = f"perun computed {stated_j:.0f} J, but the file holds no sensor of it"
    lost = flag("unreadable", f"{kind} of {host}", detail)
    nothing = np.zeros(0)
    return SensorSeries(host, kind, kind, 0, "power", nothing, nothing, flags=(lost,))


def _data_and_unit(raw: h5py.Group) -> tuple[h5py.Dataset, str]:
    """Return a sensor's values with their unit, of two forms the cumulative counter."""
    if "alt_values" in raw:
        data = _dataset(raw, "alt_values")
        if _unit(data) == "J":
            return data, "J"
    data = _dataset(raw, "values")
    unit = _unit(data)
    if unit is None:
        raise _Unreadable("its values have no unit that perun knows")
    return data, unit


def _values(data: h5py.Dataset, quantity: str, magnitude: float) -> Floats:
    """Return W, J or a fraction; what perun marks as never filled in becomes NaN."""
    raw = _numbers(data)
    values = _scaled(raw, magnitude / 100.0 if quantity == "utilisation" else magnitude)
    # Whole numbers have no mark of their own: theirs is 0 (NVML) or the counter's last value.
    # Whether a device can draw 0 W is decided at integration.
    if raw.dtype.kind == "f":
        values[raw == _number(data, "fill")] = np.nan
    return values


def _numbers(data: h5py.Dataset) -> NDArray[Any]:
    raw = np.asarray(data[()])
    if raw.dtype.kind not in "iuf" or raw.ndim != 1:
        raise _Unreadable(f"its {str(data.name).rpartition('/')[2]} are no list of numbers")
    return raw


def _scaled(raw: NDArray[Any], scale: float) -> Floats:
    values = raw.astype(np.float64)
    if scale != 1:
        values *= scale
    return values


def _is_time(time_s: Floats) -> NDArray[np.bool_]:
    return np.abs(time_s) < LATEST_S  # False for NaN


# As with groups, h5py's own ways to datasets and numbers take several times as long.
def _dataset(group: h5py.Group, name: str) -> h5py.Dataset:
    try:
        return h5py.Dataset(h5py.h5d.open(group.id, name.encode()))
    except (KeyError, TypeError) as error:
        raise _Unreadable(f"it holds no {name}") from error


def _number(data: h5py.Dataset, name: str) -> float | None:
    """Return a numerical attribute, which may be written as text; None if there is none."""
    try:
        attribute = h5py.h5a.open(data.id, name.encode())
    except KeyError:
        return None
    try:
        # HDF5 writes as much as there is, however small the array: only a single number is safe.
        if attribute.shape == ():
            found = np.empty(())
            attribute.read(found, h5py.h5t.NATIVE_DOUBLE)
            return float(found)
    except (TypeError, OSError):
        pass
    try:
        return float(_scalar(data.attrs[name]))
    except (TypeError, ValueError, OSError):
        return None


def _unit(data: h5py.Dataset) -> str | None:
    """Return a unit's symbol, however it is spelled; None if power may hide in a foreign one."""
    word = text(_scalar(data.attrs.get("unit")))
    if word is None:
        return None
    word = word.removeprefix("Unit.")
    symbol = _UNIT_NAMES.get(word.upper(), word)
    foreign = symbol not in QUANTITIES and ("W" in symbol.upper() or "J" in symbol.upper())
    return None if foreign else symbol


def _magnitude(data: h5py.Dataset) -> float:
    """Return a power of ten given as a number, its text, its name or its symbol; 1 where absent."""
    found = _number(data, "mag")
    if found is not None:
        if found not in MAGNITUDES:
            raise _Unreadable(f"its magnitude is {found:g}")
        return found
    word = (text(_scalar(data.attrs.get("mag"))) or "").removeprefix("Magnitude.")
    if word not in _MAGNITUDES:
        raise _Unreadable(f"its magnitude is {word[:20]!r}")
    return _MAGNITUDES[word]


def _scalar(value: Any) -> Any:
    """Return the one element of an array of one; None for HDF5's empty value."""
    if isinstance(value, h5py.Empty):
        return None
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def _index(sensor: str) -> int:
    found = _INDEX.match(sensor)
    if found:
        return int(found.group(1) or found.group(2))
    index = index_in_name(sensor)
    return NO_INDEX if index is None else index
