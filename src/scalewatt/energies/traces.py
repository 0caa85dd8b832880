"""Traces of a run, power against time: a row for each time of a node and a column for each sensor.

A node has several blocks if its sensors were read at different times; each block is a row group. The Parquet
metadata, key `scalewatt`, names the run and holds the table of devices, a row for each column of a block: so
no trace is without it, and there is one file to declare, archive and move.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scalewatt.common.files import atomic_path
from scalewatt.energies.integrate import SAMPLE_FLAGS
from scalewatt.energies.node_clock import NodeClock
from scalewatt.energies.stages import STAGES
from scalewatt.energies.tables import METADATA_KEY
from scalewatt.recordings.terms import ESTIMATED, MEAN, Floats

_FEW, _MANY = (pa.dictionary(indices, pa.string()) for indices in (pa.int8(), pa.int16()))
_TIME = pa.timestamp("us", tz="UTC")
TRACES_SCHEMA = pa.schema(
    [
        *(("segment", pa.int32()), ("time", _TIME), ("node", _MANY), ("block", pa.int16())),
        *(("stage", _FEW), ("flags", _MANY)),
    ]
)
"""Columns before those of the sensors, which are float32 W and named <device kind>_<index>. `flags` names
sensors and their flags, "gpu_0=over_limit gpu_1=gap", and is null where there are none."""
DEVICE_COLUMNS = (
    *("segment", "node", "block", "column", "device_kind", "device_index", "sensor", "uuid"),
    *("device", "quantity", "energy_origin", "totals"),
)
"""Columns of the table of devices. `sensor` and `device` are names, `uuid` is the device's, `quantity` what
a sample of power stands for; `totals` marks energies of windows, which are no samples."""
SAMPLES_SCHEMA = pa.schema(
    [
        *(("segment", pa.int32()), ("time", _TIME), ("node", _MANY), ("device_kind", _FEW)),
        *(("device_index", pa.int16()), ("uuid", _MANY), ("power_w", pa.float32())),
        *(("quantity", _FEW), ("energy_origin", _FEW), ("stage", _FEW), ("flag", _FEW)),
    ]
)
"""Traces with a row for each sensor and time."""


@contextmanager
def write_traces(path: Path | str, **run: Any) -> Iterator[Traces]:
    """Give a writer of traces, whose file appears under its name when the block of code ends well.

    `run` names the run (`configuration`, `repeat`).
    """
    with atomic_path(path) as temporary, ThreadPoolExecutor(max_workers=1) as thread:
        traces = Traces(temporary, thread)
        yield traces
        traces.close(run)


class Traces:
    """Writes the blocks of a run's traces, each while the next one is accounted for."""

    def __init__(self, path: Path, thread: Executor) -> None:
        self._path, self._thread = path, thread
        self._devices: list[dict[str, Any]] = []
        self._blocks: Counter[tuple[int, str]] = Counter()
        self._schema = TRACES_SCHEMA
        self._writer: pq.ParquetWriter | None = None
        self._writing: Future[None] | None = None

    def add(
        self,
        segment: int,
        node: str,
        time_s: Floats,
        power_w: Sequence[Floats],
        sensors: pd.DataFrame,
        sample_flags: Sequence[NDArray[np.uint8]],
        stages: NDArray[np.int8],
        clock: NodeClock,
    ) -> None:
        """Add the k sensors that count of a block of a node.

        `power_w` (W, NaN where unknown) and `sample_flags` (indices in SAMPLE_FLAGS) are k arrays (n,).
        `sensors` has the k rows of the block's frame; their `kind` may be unused_gpu. `stages` (n,) are
        indices in STAGES. `clock` is the node's.
        """
        if not time_s.size or sensors.empty:
            return
        block = self._blocks[segment, node]
        self._blocks[segment, node] += 1
        devices = [_device(segment, node, block, row) for row in sensors.to_dict("records")]
        self._devices += devices
        self._wait()
        self._writing = self._thread.submit(
            lambda: self._write(
                {
                    **_keys(segment, node, block, clock.of_rank_0(time_s), stages),
                    "flags": _flag_texts([d["column"] for d in devices], sample_flags),
                    **{d["column"]: _watts(w) for d, w in zip(devices, power_w, strict=True)},
                }
            )
        )

    def close(self, run: Mapping[str, Any]) -> None:
        """Write the table of devices and what names the run, and end the file."""
        self._wait()
        writer = self._writer or self._opened()
        content = json.dumps({**run, "devices": self._devices})
        writer.add_key_value_metadata({METADATA_KEY: content.encode()})
        writer.close()

    def _wait(self) -> None:
        """Wait until the block before is written; raise what went wrong."""
        if self._writing is not None:
            self._writing.result()

    def _write(self, columns: Mapping[str, Any]) -> None:
        new = [pa.field(name, pa.float32()) for name in columns if name not in self._schema.names]
        if self._writer is None or new:
            self._schema = pa.schema([*self._schema, *new])
            self._writer = self._opened()
        _write_group(self._writer, columns, self._schema)

    def _opened(self) -> pq.ParquetWriter:
        """Return the writer of a file of `_schema`'s columns, with the row groups written before."""
        sensors = self._schema.names[len(TRACES_SCHEMA) :]
        before = self._path.with_suffix(".before")
        if self._writer is not None:
            self._writer.close()
            self._path.rename(before)
        writer = pq.ParquetWriter(
            self._path,
            self._schema,
            compression="lz4",  # of the same size as zstd at its fastest, in three quarters of the time
            write_page_checksum=True,
            use_dictionary=["node", "stage", "flags"],
            # Adjacent samples differ little: in time by a period, in power in low bits.
            column_encoding={"time": "DELTA_BINARY_PACKED"}
            | dict.fromkeys(sensors, "BYTE_STREAM_SPLIT"),
            write_batch_size=1 << 20,
            data_page_size=8 << 20,
            write_statistics=["segment", "time"],
        )
        if self._writer is not None:
            with pq.ParquetFile(before) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group)
                    columns = dict(zip(table.column_names, table.columns, strict=True))
                    _write_group(writer, columns, self._schema)
            before.unlink()
        return writer


def _write_group(writer: pq.ParquetWriter, columns: Mapping[str, Any], schema: pa.Schema) -> None:
    """Write columns as a row group; those of `schema` that they lack are null."""
    nulls = pa.nulls(len(columns["time"]), pa.float32())
    table = pa.Table.from_arrays([columns.get(name, nulls) for name in schema.names], schema=schema)
    writer.write_table(table, row_group_size=len(table))


def _device(segment: int, node: str, block: int, sensor: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row of the table of devices from one of a frame of sensors."""
    quantity = MEAN if sensor["quantity"] in ("counter", "mean_power") else sensor["samples"]
    kind, index, origin = sensor["kind"], int(sensor["index"]), sensor["origin"]
    known = (sensor["name"], sensor["uuid"] or None, sensor["device"] or None)
    samples = None if origin == ESTIMATED else quantity or None, origin, bool(sensor["totals"])
    values = (segment, node, block, f"{kind}_{index}", kind, index, *known, *samples)
    return dict(zip(DEVICE_COLUMNS, values, strict=True))


def _keys(
    segment: int, node: str, block: int, time_s: Floats, stages: NDArray[np.int8]
) -> dict[str, pa.Array]:
    """Return the columns that all sensors of a block share, but for flags."""
    n = time_s.size
    columns = {
        "segment": np.full(n, segment, np.int32),
        "time": np.rint(time_s * 1e6).astype("datetime64[us]"),
        "node": pa.DictionaryArray.from_arrays(np.zeros(n, np.int16), [node]),
        "block": np.full(n, block, np.int16),
        "stage": pa.DictionaryArray.from_arrays(stages.astype(np.int8, copy=False), list(STAGES)),
    }
    return {k: pa.array(v).cast(TRACES_SCHEMA.field(k).type) for k, v in columns.items()}


def _watts(power_w: Floats) -> pa.Array:
    """Return powers as float32, null where unknown."""
    watts = power_w.astype(np.float32)
    return pa.array(watts, from_pandas=bool(np.isnan(watts).any()))


def _flag_texts(names: Sequence[str], flags: Sequence[NDArray[np.uint8]]) -> pa.DictionaryArray:
    """Return the column `flags`: a text of sensors and their flags for each time, or null."""
    rows = np.flatnonzero(np.bitwise_or.reduce(flags))
    codes, which = np.unique(np.column_stack([f[rows] for f in flags]), axis=0, return_inverse=True)
    texts = [
        " ".join(
            f"{name}={SAMPLE_FLAGS[code]}" for name, code in zip(names, row, strict=True) if code
        )
        for row in codes
    ]
    indices = np.full(flags[0].size, -1, np.int16)
    indices[rows] = which.ravel()
    words = pa.array(texts, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), words)


def read_devices(file: pq.ParquetFile) -> pd.DataFrame:
    """Return the table of devices of traces."""
    content = json.loads(file.metadata.metadata[METADATA_KEY])
    devices = pd.DataFrame(content["devices"], columns=list(DEVICE_COLUMNS), dtype=object)
    return devices.astype({"totals": bool})


def read_samples(file: pq.ParquetFile, where: str = "block >= 0") -> Iterator[pd.DataFrame]:
    """Yield the samples of each device of traces, as SAMPLES_SCHEMA; `where`: a query of read_devices."""
    keys = ["segment", "node", "block"]
    words = ("node", "device_kind", "uuid", "quantity", "energy_origin")
    chosen = {key: rows for key, rows in read_devices(file).query(where).groupby(keys)}
    for group in range(file.num_row_groups):
        first = file.read_row_group(group, columns=keys).slice(0, 1).to_pylist()[0]
        if (devices := chosen.get(tuple(first.values()))) is None:
            continue
        names = [*TRACES_SCHEMA.names, *devices["column"]]
        rows = file.read_row_group(group, columns=names).to_pandas()
        for device in devices.to_dict("records"):
            samples = rows.assign(
                **{name: np.full(len(rows), device[name], object) for name in words},
                device_index=np.int16(device["device_index"]),
                power_w=rows[device["column"]],
                flag=_flag_of(rows["flags"], device["column"]),
            )
            yield samples[SAMPLES_SCHEMA.names]


def _flag_of(texts: pd.Series, column: str) -> NDArray[np.object_]:
    """Return the flag of each sample of a sensor, empty where it has none."""
    given = [dict(part.split("=") for part in text.split()) for text in texts.cat.categories]
    words = np.array([*(each.get(column, "") for each in given), ""], object)
    return words[texts.cat.codes]  # -1, the last, where it is null
