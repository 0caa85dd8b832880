"""The writing of a run's traces, node by node: 44 million samples in seconds, in little memory."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scalewatt.common.files import atomic_path
from scalewatt.energies.accounting.energy_schema import METADATA_KEY, TRACES_SCHEMA
from scalewatt.energies.accounting.node_clock import NodeClock
from scalewatt.energies.accounting.node_energy import KindEnergy
from scalewatt.energies.accounting.run_inputs import Planned
from scalewatt.energies.integration.sample_checks import SAMPLE_FLAGS, Validated
from scalewatt.energies.integration.stage_intervals import STAGES, StageIntervals
from scalewatt.recordings.series import Floats, SensorSeries, sample_quantity


class TraceSink(Protocol):
    """What takes a run's samples as its nodes are accounted for."""

    def add(
        self, segment: int, kind: KindEnergy, intervals: StageIntervals, clock: NodeClock
    ) -> None:
        """Take the samples of one device kind of one node."""


@dataclass(eq=False)
class TraceCollector:
    """Keeps a run's samples in memory, but for totals, which have none."""

    device_name: str | None = None
    """Name of the run's GPUs, which tells what their sensors report."""
    totals: int = 0
    """How many series were left out because they are totals."""
    _pieces: list[_Piece] = field(default_factory=list)

    def add(
        self, segment: int, kind: KindEnergy, intervals: StageIntervals, clock: NodeClock
    ) -> None:
        """Add the samples of one device kind of one node, device by device; `clock` is the node's."""
        found = _pieces_of(segment, kind, intervals, clock, self.device_name)
        self._pieces += (kept := [piece for piece in found if not piece.series.totals])
        self.totals += len(found) - len(kept)

    def table(self) -> pa.Table:
        """Return all samples as TRACES_SCHEMA has them."""
        if not self._pieces:
            return TRACES_SCHEMA.empty_table()
        return _trace_table(self._pieces, TRACES_SCHEMA)


class TraceWriter:
    """Writes a run's traces as its nodes are accounted for, in threads of its own.

    A context manager; the file appears under its name when the block ends well. The Parquet
    metadata, key `scalewatt`, names the run. Memory: that of a few million samples.
    """

    _ROWS = 1 << 19
    """Samples that are written at once."""
    _AHEAD = 2
    """How many such parts may wait to be written."""

    def __init__(self, path: Path | str, spec: Planned, device_name: str | None = None) -> None:
        """Take the run's spec and the name of its GPUs, which tells what their sensors report."""
        self._path, self._files = Path(path), ExitStack()
        self._device_name = device_name
        named = {"configuration": spec.configuration, "repeat": spec.repeat}
        self._schema = TRACES_SCHEMA.with_metadata({METADATA_KEY: json.dumps(named).encode()})
        self._pieces: list[_Piece] = []
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> TraceWriter:
        # What is opened is closed again where the next cannot be: on a full disk, for example.
        with ExitStack() as files:
            temporary = files.enter_context(atomic_path(self._path))
            self._writer = files.enter_context(self._opened(temporary))
            self._writing = files.enter_context(ThreadPoolExecutor(max_workers=1))
            self._building = files.enter_context(ThreadPoolExecutor(max_workers=1))
            self._files = files.pop_all()
        return self

    def _opened(self, path: Path) -> pq.ParquetWriter:
        words = [f.name for f in self._schema if pa.types.is_dictionary(f.type)]
        return pq.ParquetWriter(
            path,
            self._schema,
            compression="lz4",  # of the same size as zstd at its fastest, in three quarters of the time
            write_page_checksum=True,
            use_dictionary=words,
            # Adjacent samples differ little: in time by a period, in power in low bits.
            column_encoding={"time": "DELTA_BINARY_PACKED", "power_w": "BYTE_STREAM_SPLIT"},
            write_batch_size=1 << 20,
            data_page_size=8 << 20,
            write_statistics=["segment", "time"],
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            with self._files:
                self._flush()
                self._wait(0)
        else:
            self._files.__exit__(kind, error, trace)

    def add(
        self, segment: int, kind: KindEnergy, intervals: StageIntervals, clock: NodeClock
    ) -> None:
        """Add the samples of one device kind of one node, device by device; `clock` is the node's."""
        self._pieces += _pieces_of(segment, kind, intervals, clock, self._device_name)
        if sum(piece.time_s.size for piece in self._pieces) >= self._ROWS:
            self._flush()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces:
            table = self._building.submit(_trace_table, pieces, self._schema)
            self._waiting.append(self._writing.submit(self._write, table))
        self._wait(self._AHEAD)

    def _wait(self, at_most: int) -> None:
        """Wait until at most so many pieces are still to be written; raise what went wrong."""
        while len(self._waiting) > at_most:
            self._waiting.popleft().result()

    def _write(self, built: Future[pa.Table]) -> None:
        table = built.result()
        self._writer.write_table(table, row_group_size=len(table))


@dataclass(frozen=True, eq=False)
class _Piece:
    """The samples of one device."""

    segment: int
    device_kind: str
    series: SensorSeries
    quantity: str | None
    validated: Validated
    intervals: StageIntervals
    clock: NodeClock

    @property
    def time_s(self) -> Floats:
        """Return the times of its samples."""
        return self.series.time_s


def _pieces_of(
    segment: int,
    kind: KindEnergy,
    intervals: StageIntervals,
    clock: NodeClock,
    device_name: str | None,
) -> list[_Piece]:
    """Return the devices of a kind that have samples."""
    return [
        _Piece(
            segment,
            kind.device_kind,
            series,
            sample_quantity(series, device_name),
            validated,
            intervals,
            clock,
        )
        for series, validated in zip(kind.series, kind.validated, strict=True)
        if series.time_s.size
    ]


def _trace_table(pieces: list[_Piece], schema: pa.Schema) -> pa.Table:
    sizes = [piece.time_s.size for piece in pieces]

    def numbers(values: list[int], column: str) -> pa.Array:
        kind = schema.field(column).type
        return _array(kind, np.repeat(np.array(values, dtype=kind.to_pandas_dtype()), sizes))

    def words(values: list[str | None], column: str) -> pa.DictionaryArray:
        known = list(dict.fromkeys(value for value in values if value is not None))
        codes = [-1 if value is None else known.index(value) for value in values]
        width = schema.field(column).type.index_type.to_pandas_dtype()
        return _words(np.repeat(np.array(codes, dtype=width), sizes), known)

    flags = np.concatenate([p.validated.sample_flags for p in pieces]).view(np.int8)
    columns = (
        numbers([p.segment for p in pieces], "segment"),
        _microseconds(pieces).view(schema.field("time").type),
        words([p.series.node for p in pieces], "node"),
        words([p.device_kind for p in pieces], "device_kind"),
        numbers([p.series.device_index for p in pieces], "device_index"),
        words([p.series.uuid or None for p in pieces], "uuid"),
        _watts(pieces),
        words([p.quantity for p in pieces], "quantity"),
        words([p.series.origin for p in pieces], "energy_origin"),
        _words(_stages(pieces), STAGES),
        _words(flags, SAMPLE_FLAGS),
    )
    return pa.Table.from_arrays(columns, schema=schema)


def _microseconds(pieces: list[_Piece]) -> pa.Array:
    """Return the times of all pieces by rank 0's clock; the devices of a node share theirs."""
    found: dict[int, np.ndarray] = {}
    for piece in pieces:
        if id(piece.time_s) not in found:
            wall_s = piece.clock.of_rank_0(piece.time_s)
            found[id(piece.time_s)] = np.rint(wall_s * 1e6).astype(np.int64)
    return _array(pa.int64(), np.concatenate([found[id(p.time_s)] for p in pieces]))


def _stages(pieces: list[_Piece]) -> np.ndarray:
    """Return the stage code of each sample; the devices of a node share theirs."""
    found: dict[tuple[int, int], np.ndarray] = {}
    for p in pieces:
        key = id(p.time_s), id(p.intervals)
        if key not in found:
            found[key] = p.intervals.codes_at(p.time_s)
    return np.concatenate([found[id(p.time_s), id(p.intervals)] for p in pieces])


def _watts(pieces: list[_Piece]) -> pa.Array:
    powers = [piece.validated.power_w for piece in pieces]
    watts = np.concatenate(powers, dtype=np.float32, casting="same_kind")
    return _array(pa.float32(), watts, ~np.isnan(watts))


def _words(codes: np.ndarray, words: Sequence[str]) -> pa.DictionaryArray:
    """Return the words of codes; null if a code is negative."""
    indices = _array(pa.from_numpy_dtype(codes.dtype), codes, codes >= 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def _array(kind: pa.DataType, values: np.ndarray, known: np.ndarray | None = None) -> pa.Array:
    """Return an array on the memory of `values`; null if not `known`."""
    mask = None
    if known is not None and not known.all():
        mask = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, values.size, [mask, pa.py_buffer(values)])
