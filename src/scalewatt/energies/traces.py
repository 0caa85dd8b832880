"""Traces of a run, power against time: a row for each time of a node and a column for each sensor.

A node has several blocks if its sensors were read at different times; each block is a row group. The Parquet
metadata, key `scalewatt`, names the run and holds the table of devices, a row for each column of a block: so
no trace is without it, and there is one file to declare, archive and move.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scalewatt.common.columns import METADATA_KEY
from scalewatt.common.files import atomic_path
from scalewatt.energies.stages import STAGES
from scalewatt.recordings.terms import ESTIMATED, MEAN, Floats

_FEW, _MANY = (pa.dictionary(indices, pa.string()) for indices in (pa.int8(), pa.int16()))
_TIME = pa.timestamp("us", tz="UTC")
TRACES_SCHEMA = pa.schema(
    [
        *(("segment", pa.int32()), ("time", _TIME), ("node", _MANY), ("block", pa.int16())),
        ("stage", _FEW),
    ]
)
"""Columns before those of the sensors, which are float32 W and named <device kind>_<index>."""
SAMPLES_SCHEMA = pa.schema(
    [
        *(("segment", pa.int32()), ("time", _TIME), ("node", _MANY), ("device_kind", _FEW)),
        *(("device_index", pa.int16()), ("uuid", _MANY), ("power_w", pa.float32())),
        *(("quantity", _FEW), ("energy_origin", _FEW), ("stage", _FEW)),
    ]
)
"""Traces with a row for each sensor and time."""
DEVICE_COLUMNS = [
    *("segment", "node", "block", "column", "device_kind", "device_index", "sensor", "uuid"),
    *("device", "quantity", "energy_origin", "totals"),
]
"""Columns of the table of devices. `sensor` and `device` are names, `uuid` is the device's, `quantity` what
a sample of power stands for; `totals` marks energies of windows, which are no samples."""


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
        self._writer = _open_writer(path, TRACES_SCHEMA)
        self._written = thread.submit(lambda: None)

    def add(
        self,
        segment: int,
        node: str,
        time_s: Floats,
        power_w: Sequence[Floats],
        sensors: pd.DataFrame,
        stages: NDArray[np.int8],
    ) -> None:
        """Add the k sensors that count of a block of a node.

        `power_w` (W, NaN where unknown) are k arrays (n,).
        `sensors` has the k rows of the block's frame; their `kind` may be unused_gpu. `stages` (n,) are
        indices in STAGES.
        """
        if not time_s.size or sensors.empty:
            return
        block = self._blocks[segment, node]
        self._blocks[segment, node] += 1
        names = []
        for row in sensors.itertuples(index=False):
            names.append(f"{row.kind}_{row.index}")
            is_mean = row.quantity in ("counter", "mean_power")
            quantity = "" if row.origin == ESTIMATED else MEAN if is_mean else row.samples
            texts = (text or None for text in (row.name, row.uuid, row.device, quantity))
            place = segment, node, block, names[-1], row.kind, row.index
            facts = (*place, *texts, row.origin, row.totals)
            self._devices.append(dict(zip(DEVICE_COLUMNS, facts, strict=True)))

        def write() -> None:
            n = time_s.size
            time_us = np.rint(time_s * 1e6).astype("datetime64[us]")
            columns = [
                *(pa.repeat(pa.scalar(segment, pa.int32()), n), pa.array(time_us).cast(_TIME)),
                pa.DictionaryArray.from_arrays(np.zeros(n, np.int16), [node]),
                pa.repeat(pa.scalar(block, pa.int16()), n),
                pa.DictionaryArray.from_arrays(stages, list(STAGES)),
                *map(_float32, power_w),
            ]
            self._write(pa.table(columns, names=[*TRACES_SCHEMA.names, *names]))

        self._written.result()  # of the block before: at most two are in memory
        self._written = self._thread.submit(write)

    def close(self, run: Mapping[str, Any]) -> None:
        """Write the table of devices and what names the run, and end the file."""
        self._written.result()
        content = json.dumps({**run, "devices": self._devices})
        self._writer.add_key_value_metadata({METADATA_KEY: content.encode()})
        self._writer.close()

    def _write(self, rows: pa.Table) -> None:
        """Write a row group; columns that it lacks are null there, and those that it adds in all before."""
        schema = pa.unify_schemas([self._writer.schema, rows.schema])
        if schema.names != self._writer.schema.names:
            self._widen(schema)
        rows = pa.concat_tables([schema.empty_table(), rows], promote_options="default")
        self._writer.write_table(rows, row_group_size=len(rows))

    def _widen(self, schema: pa.Schema) -> None:
        """Begin the file anew with more columns, and copy what is written."""
        self._writer.close()
        before = self._path.rename(self._path.with_suffix(".before"))
        self._writer = _open_writer(self._path, schema)
        with pq.ParquetFile(before) as file:
            for group in range(file.num_row_groups):
                self._write(file.read_row_group(group))
        before.unlink()


def _float32(power_w: Floats) -> pa.Array:
    """Arrow's array of powers, null where unknown; it copies one by one only where some are."""
    values = power_w.astype(np.float32)
    return pa.array(values, from_pandas=bool(np.isnan(values).any()))


def _open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Open a file of traces. Adjacent samples differ little: in time by a period, in power in low bits."""
    sensors = schema.names[len(TRACES_SCHEMA) :]
    return pq.ParquetWriter(
        path,
        schema,
        compression="lz4",  # of the same size as zstd at its fastest, in three quarters of the time
        write_page_checksum=True,
        use_dictionary=["node", "stage"],
        column_encoding={"time": "DELTA_BINARY_PACKED"}
        | dict.fromkeys(sensors, "BYTE_STREAM_SPLIT"),
        write_batch_size=1 << 20,
        data_page_size=8 << 20,
        write_statistics=["segment", "time"],
    )


def read_devices(file: pq.ParquetFile) -> pd.DataFrame:
    """Read the table of devices of traces."""
    content = json.loads(file.metadata.metadata[METADATA_KEY])
    devices = pd.DataFrame(content["devices"], columns=DEVICE_COLUMNS, dtype=object)
    return devices.astype({"totals": bool})


def read_nodes(
    file: pq.ParquetFile, where: str = "block >= 0"
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield the rows of each block of traces, with a column for each sensor, and what its sensors are.

    `where`: a query of read_devices.
    """
    keys = ["segment", "node", "block"]
    chosen = {key: rows for key, rows in read_devices(file).query(where).groupby(keys)}
    for group in range(file.num_row_groups):
        first = file.read_row_group(group, columns=keys).slice(0, 1).to_pylist()[0]
        if (devices := chosen.get(tuple(first.values()))) is None:
            continue
        names = [*TRACES_SCHEMA.names, *devices["column"]]
        yield file.read_row_group(group, columns=names).to_pandas(), devices


def read_samples(file: pq.ParquetFile, where: str = "block >= 0") -> Iterator[pd.DataFrame]:
    """Yield the samples of each device of traces, as SAMPLES_SCHEMA; `where`: a query of read_devices."""
    words = ("node", "device_kind", "uuid", "quantity", "energy_origin")
    for rows, devices in read_nodes(file, where):
        for device in devices.to_dict("records"):
            samples = rows.assign(
                **{name: np.full(len(rows), device[name], object) for name in words},
                device_index=np.int16(device["device_index"]),
                power_w=rows[device["column"]],
            )
            yield samples[SAMPLES_SCHEMA.names]
