"""Traces of a run, power against time: a row for each time of a node and a column for each sensor.

A node has several blocks if its sensors were read at different times; each block is a row group. The Parquet
metadata, key `scalewatt`, names the run and holds the table of devices, a row for each column of a block: so
no trace is without it, and there is one file to declare, archive and move.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from scalewatt.common.files import atomic_path
from scalewatt.energies.accounting.energy_schema import METADATA_KEY
from scalewatt.energies.accounting.node_clock import NodeClock
from scalewatt.energies.integrate import SAMPLE_FLAGS
from scalewatt.energies.stages import STAGES
from scalewatt.recordings.block import Floats
from scalewatt.recordings.series import ESTIMATED, MEAN

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
    *("quantity", "energy_origin", "totals"),
)
"""Columns of the table of devices. `quantity`: what a sample of power stands for; `totals`: there are no
samples behind it, but energies of windows."""
SAMPLES_SCHEMA = pa.schema(
    [
        *(("segment", pa.int32()), ("time", _TIME), ("node", _MANY), ("device_kind", _FEW)),
        *(("device_index", pa.int16()), ("uuid", _MANY), ("power_w", pa.float32())),
        *(("quantity", _FEW), ("energy_origin", _FEW), ("stage", _FEW), ("flag", _FEW)),
    ]
)
"""Traces with a row for each sensor and time."""


class Traces:
    """Writes a run's traces, each block while the next one is accounted for.

    A context manager; the file appears under its name when the block of code ends well.
    """

    def __init__(self, path: Path | str, **run: Any) -> None:
        """Take the file's path and what names the run (`configuration`, `repeat`)."""
        self._path, self._run = path, run
        self._devices: list[dict[str, Any]] = []
        self._blocks: Counter[tuple[int, str]] = Counter()
        self._schema = TRACES_SCHEMA
        self._writer: pq.ParquetWriter | None = None
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._temporary = stack.enter_context(atomic_path(self._path))
            self._thread = stack.enter_context(ThreadPoolExecutor(max_workers=1))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if error[0] is None:
                self._wait()
                writer = self._writer or self._opened()
                content = json.dumps({**self._run, "devices": self._devices})
                writer.add_key_value_metadata({METADATA_KEY: content.encode()})
                writer.close()
        except BaseException as raised:
            error = type(raised), raised, raised.__traceback__
            raise
        finally:
            self._stack.__exit__(*error)

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
        names = [device["column"] for device in devices]
        fixed = segment, clock.of_rank_0(time_s), node, block, stages
        self._writing = self._thread.submit(self._write, *fixed, names, power_w, sample_flags)

    def _wait(self) -> None:
        """Wait until the block before is written; raise what went wrong."""
        if self._writing is not None:
            self._writing.result()

    def _write(self, *block: Any) -> None:
        table = _table(*block)
        if self._writer is None or not set(table.column_names) <= set(self._schema.names):
            self._schema = pa.unify_schemas([self._schema, table.schema])
            self._writer = self._opened()
        self._writer.write_table(_with_columns(table, self._schema), row_group_size=len(table))

    def _opened(self) -> pq.ParquetWriter:
        """Return the writer of a file of `_schema`'s columns, with the row groups written before."""
        sensors = self._schema.names[len(TRACES_SCHEMA) :]
        before = self._temporary.with_suffix(".before")
        if self._writer is not None:
            self._writer.close()
            self._temporary.rename(before)
        writer = pq.ParquetWriter(
            self._temporary,
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
                    writer.write_table(_with_columns(file.read_row_group(group), self._schema))
            before.unlink()
        return writer


def _device(segment: int, node: str, block: int, sensor: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row of the table of devices from one of a frame of sensors."""
    quantity = MEAN if sensor["quantity"] in ("counter", "mean_power") else sensor["samples"]
    kind, index, origin = sensor["kind"], int(sensor["index"]), sensor["origin"]
    known = (sensor["name"], sensor["uuid"] or None)
    samples = None if origin == ESTIMATED else quantity or None, origin, bool(sensor["totals"])
    values = (segment, node, block, f"{kind}_{index}", kind, index, *known, *samples)
    return dict(zip(DEVICE_COLUMNS, values, strict=True))


def _table(
    segment: int,
    time_s: Floats,
    node: str,
    block: int,
    stages: NDArray[np.int8],
    names: Sequence[str],
    power_w: Sequence[Floats],
    flags: Sequence[NDArray[np.uint8]],
) -> pa.Table:
    """Return the rows of a block."""
    n = time_s.size
    columns = [
        np.full(n, segment, np.int32),
        np.rint(time_s * 1e6).astype("datetime64[us]"),
        pa.DictionaryArray.from_arrays(np.zeros(n, np.int16), [node]),
        np.full(n, block, np.int16),
        pa.DictionaryArray.from_arrays(stages, list(STAGES)),
        _flag_texts(names, flags),
    ]
    arrays = [
        *(pa.array(c).cast(field.type) for c, field in zip(columns, TRACES_SCHEMA, strict=True)),
        *(_watts(power) for power in power_w),
    ]
    fields = [*TRACES_SCHEMA, *(pa.field(name, pa.float32()) for name in names)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


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


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of `schema`; those that it lacks are null."""
    nulls = pa.nulls(len(table), pa.float32())
    columns = [table[n] if n in table.column_names else nulls for n in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def read_devices(file: pq.ParquetFile) -> pd.DataFrame:
    """Return the table of devices of traces, in the order of the row groups."""
    content = json.loads(file.metadata.metadata[METADATA_KEY])
    devices = pd.DataFrame(content["devices"], columns=list(DEVICE_COLUMNS), dtype=object)
    return devices.astype({"totals": bool})


def read_samples(file: pq.ParquetFile, where: str = "block >= 0") -> Iterator[pd.DataFrame]:
    """Yield the samples of each device of traces, as SAMPLES_SCHEMA; `where`: a query of read_devices."""
    words = ("node", "device_kind", "uuid", "quantity", "energy_origin")
    blocks = read_devices(file).groupby(["segment", "node", "block"], sort=False)
    for group, (_, devices) in enumerate(blocks):
        chosen = devices.query(where)
        if chosen.empty:
            continue
        names = [*TRACES_SCHEMA.names, *chosen["column"]]
        rows = file.read_row_group(group, columns=names).to_pandas()
        for device in chosen.to_dict("records"):
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
