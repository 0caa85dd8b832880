"""Write simulated samples as perun 1.0.0 does, and the journals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scalewatt.common.files import atomic_path
from scalewatt.recordings.journal import write_journal
from scalewatt.recordings.terms import SIMULATED_KEY
from scalewatt.run_files.record import segment_name
from scalewatt.scaling.simulation.sensors import NodeSamples, Samples

PERUN = "1.0.0"
"""The version of perun whose format it is."""
_TEXT = h5py.string_dtype()
_SCALAR = h5py.h5s.create(h5py.h5s.SCALAR)
_LARGEST_F4 = np.float32(np.finfo(np.float32).max)
_MAGS = {"gpu": 1e-3, "cpu": 1e-6, "ram": 1e-6}


@dataclass(frozen=True)
class Recorder:
    """The place and the metadata of a segment's recording."""

    folder: Path
    segment: int
    started_s: float
    """Unix time of its first sample."""
    period_s: float
    ranks_per_node: int

    def write(self, nodes: Iterable[NodeSamples]) -> None:
        """Write the samples of each node."""
        name = segment_name(self.segment)
        with (
            atomic_path(self.folder / f"{name}.hdf5") as temporary,
            h5py.File(temporary, "w", track_order=False) as file,
        ):
            hosts = self._groups(file, name)
            for number, node in enumerate(nodes):
                self._host(hosts, number, node)
                self._journal(name, node)

    def _groups(self, file: h5py.File, name: str) -> h5py.Group:
        """Create the groups down to the hosts, as perun nests them; return the parent of the hosts."""
        started = datetime.fromtimestamp(self.started_s, UTC).replace(tzinfo=None).isoformat()
        app = _node(file, name, {"type": 1, "creation_dt": started, "last_execution_dt": started})
        run = _node(
            app["nodes"],
            name,
            {
                "type": 2,
                "app_name": name,
                "execution_dt": started,
                "n_runs": "1",
                "perun_version": PERUN,
                "monitor.sampling_period": str(self.period_s),
                SIMULATED_KEY: True,
            },
        )
        return _node(run["nodes"], "0", {"type": 3, "perun_version": PERUN})["nodes"]

    def _host(self, hosts: h5py.Group, number: int, node: NodeSamples) -> None:
        first = number * self.ranks_per_node
        ranks = str(list(range(first, first + self.ranks_per_node)))
        host = _node(hosts, node.host, {"type": 4, "mpi_ranks": ranks})["nodes"]
        kinds: dict[str, h5py.Group] = {}
        for sensor in node.sensors:
            kind = sensor.device_kind
            if kind not in kinds:
                kinds[kind] = _node(host, kind, {"type": 5, "device_type": kind})["nodes"]
            _write_sensor(kinds[kind], sensor, node.time_s)

    def _journal(self, name: str, node: NodeSamples) -> None:
        about = {
            "host": node.host,
            "sampling_period_s": self.period_s,
            SIMULATED_KEY: True,
            "sensors": {sensor.name: _described(sensor) for sensor in node.sensors},
            "telemetry": {},
        }
        path, t = self.folder / f"{name}.{node.host}.csv", self.started_s + node.time_s
        masks = [None if one.kept is None else ~one.kept for one in node.sensors]
        columns = {
            one.name: pa.array(one.raw, mask=mask)
            for one, mask in zip(node.sensors, masks, strict=True)
        }
        write_journal(path, about, t, node.time_s, columns)


def _described(sensor: Samples) -> dict[str, Any]:
    return {
        "kind": sensor.device_kind,
        "index": sensor.device_index,
        "unit": "J" if sensor.is_counter else "W",
        "mag": _MAGS[sensor.device_kind],
        "valid_max": sensor.valid_max,
        **({"uuid": sensor.uuid} if sensor.uuid else {}),
    }


def _attributes(file: h5py.HLObject, values: Mapping[str, Any]) -> None:
    """Attach attributes; h5py's own interface is several times slower, and there are thousands."""
    for name, value in values.items():
        data = np.array(value, dtype=_TEXT) if isinstance(value, str) else np.asarray(value)
        kind = h5py.h5t.py_create(data.dtype, logical=True)
        h5py.h5a.create(file.id, name.encode(), kind, _SCALAR).write(data)


def _node(parent: h5py.Group, name: str, attributes: Mapping[str, Any]) -> h5py.Group:
    """Create one node of perun's tree, which always has groups for its children and for metrics."""
    group = h5py.h5g.create(parent.id, name.encode())
    for part in (b"metrics", b"nodes"):
        h5py.h5g.create(group, part)
    node = h5py.Group(group)
    _attributes(node, attributes)
    return node


def _write_sensor(kind: h5py.Group, sensor: Samples, time_s: NDArray[Any]) -> None:
    uuid = {"uuid": sensor.uuid} if sensor.uuid else {}
    group = _node(kind, sensor.name, {"type": 6, "device_type": sensor.device_kind, **uuid})
    raw, samples = group.create_group("raw_data"), sensor.raw
    if sensor.kept is not None:
        time_s, samples = time_s[sensor.kept], samples[sensor.kept]
    _write(raw, "timesteps", time_s.astype(np.float32), "s", 1.0, _LARGEST_F4, np.float32(-1))
    mag, top = _MAGS[sensor.device_kind], sensor.raw.dtype.type(sensor.valid_max)
    if not sensor.is_counter:
        _write(raw, "values", samples, "W", mag, top, sensor.raw.dtype.type(0))
        return
    steps = np.diff(samples.astype(np.float64)) % sensor.valid_max  # the counter wraps
    watts = (steps * mag / np.diff(time_s)).astype(np.float32)
    watts = np.concatenate((watts[:1], watts))
    _write(raw, "values", watts, "W", 1.0, _LARGEST_F4, np.float32(-1))
    _write(raw, "alt_values", samples, "J", mag, top, top)


def _write(
    group: h5py.Group, name: str, data: NDArray[Any], unit: str, mag: float, top: Any, fill: Any
) -> None:
    written = group.create_dataset(name, data=data)
    _attributes(
        written,
        {
            "dtype": data.dtype.name,
            "unit": unit,
            "mag": mag,
            "valid_min": data.dtype.type(0),
            "valid_max": top,
            "fill": fill,
        },
    )
